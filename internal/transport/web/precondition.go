// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"strings"

	"signalbox/event"
	"signalbox/internal/broker"
)

// idempotencyKeyMax stops keys that would bloat the index that remembers them.
const idempotencyKeyMax = 255

// idempotencyKey reads the Idempotency-Key header. The IETF draft makes it a
// quoted string; most clients send it bare, so the quotes are optional.
func idempotencyKey(h http.Header) (string, error) {
	values := h["Idempotency-Key"]
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	if len(values) > 1 || len(key) == 0 || len(key) > idempotencyKeyMax || !visibleASCII(key) {
		return "", event.Errorf(event.CodeIdempotencyKeyInvalid,
			"Send one Idempotency-Key of 1 to %d visible ASCII characters, such as a UUID.", idempotencyKeyMax).With("Idempotency-Key")
	}
	return key, nil
}

func visibleASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// preconditions reads If-Match and If-None-Match (RFC 9110, section 13.1) as
// far as they mean something for an append.
func preconditions(h http.Header) (match *broker.Match, noneMatch bool, err error) {
	ifMatch, ifNone := h["If-Match"], h["If-None-Match"]
	if ifMatch == nil && ifNone == nil {
		return nil, false, nil
	}
	if ifMatch != nil && ifNone != nil {
		return nil, false, event.Errorf(event.CodePreconditionInvalid, "If-Match and If-None-Match exclude each other: send one.").With("If-Match")
	}
	if ifNone != nil {
		if len(ifNone) == 1 && strings.TrimSpace(ifNone[0]) == "*" {
			return nil, true, nil
		}
		return nil, false, event.Errorf(event.CodePreconditionInvalid,
			"If-None-Match takes only *, which holds while the key has no value.").With("If-None-Match")
	}
	list := strings.Join(ifMatch, ",")
	if strings.TrimSpace(list) == "*" {
		return &broker.Match{Any: true}, false, nil
	}
	match = new(broker.Match)
	for tag := range strings.SplitSeq(list, ",") {
		position, ok := parseETag(strings.TrimSpace(tag))
		if !ok {
			return nil, false, event.Errorf(event.CodePreconditionInvalid,
				`If-Match holds %.40q: use *, or ETags as they were received, such as "@105".`, tag).With("If-Match")
		}
		match.Positions = append(match.Positions, position)
	}
	return match, false, nil
}

// parseETag reads the ETag of a key's state. A weak one is no match for
// If-Match (RFC 9110, section 8.8.3.2).
func parseETag(tag string) (position uint64, ok bool) {
	if len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"' {
		return 0, false
	}
	c, err := event.ParseCursor(tag[1 : len(tag)-1])
	return c.Position, err == nil && c.Incarnation == ""
}

// etag is the ETag of the event at a position as the state of its key.
func etag(position uint64) string {
	return `"` + event.Cursor{Position: position}.String() + `"`
}
