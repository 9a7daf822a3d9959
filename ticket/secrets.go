// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
)

// secretRules say what looks like a secret: a text below a member whose name has
// one of Names in it and does not end in one of References, and a text of a form
// that secrets have. Names are compared without case and punctuation.
type secretRules struct {
	Names      []string     `json:"names"`
	References []string     `json:"references"`
	Values     []secretForm `json:"values"`
}

// secretForm is a form that secrets have. The expression is tried only on what has
// one of the literal parts, which most texts have not.
type secretForm struct {
	Has     []string `json:"has"`
	Pattern string   `json:"pattern"`
	pattern *regexp.Regexp
}

// CheckSecrets refuses a payload that seems to carry a secret, with code
// secret_refused and the place: credentials never ride on the log, which keeps
// them for good. It cannot know all secrets; it knows those that are easily sent
// by mistake.
func (m *Message) CheckSecrets() error {
	rules := &load().Secrets
	d := jsontext.NewDecoder(bytes.NewBuffer(m.payload))
	var under []bool // for each level: a name on the way to it is that of a secret
	here := false    // the same for the value that is read next
	for {
		token, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return syntaxFault(err, "payload")
		}
		switch token.Kind() {
		case jsontext.KindBeginObject, jsontext.KindBeginArray:
			under = append(under, here)
		case jsontext.KindEndObject, jsontext.KindEndArray:
			under = under[:len(under)-1]
			here = len(under) > 0 && under[len(under)-1]
		case jsontext.KindString:
			text := token.String()
			if kind, length := d.StackIndex(d.StackDepth()); kind == jsontext.KindBeginObject && length%2 == 1 {
				here = under[len(under)-1] || rules.named(text)
				continue
			}
			if text != "" && (here || rules.formed(text)) {
				place := clipped(string(d.StackPointer()))
				return event.Errorf(event.CodeSecretRefused, "The payload has at %s what looks like a secret. Name a lease or a reference instead.", place).With("payload" + place)
			}
		}
	}
}

// named reports whether a name is that of a secret.
func (r *secretRules) named(name string) bool {
	name = strings.Map(func(c rune) rune {
		if strings.ContainsRune("_-. ", c) {
			return -1
		}
		return c
	}, fold(name))
	return slices.ContainsFunc(r.Names, func(part string) bool { return strings.Contains(name, part) }) &&
		!slices.ContainsFunc(r.References, func(end string) bool { return strings.HasSuffix(name, end) })
}

func (r *secretRules) formed(text string) bool {
	return slices.ContainsFunc(r.Values, func(f secretForm) bool {
		return slices.ContainsFunc(f.Has, func(part string) bool { return strings.Contains(text, part) }) && f.pattern.MatchString(text)
	})
}

// clipped bounds what is repeated of a caller's names.
func clipped(text string) string {
	const most = 120
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
