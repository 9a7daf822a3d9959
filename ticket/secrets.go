// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
	"signalbox/internal/validjson"
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
	has     [][]byte // as Has
	pattern *regexp.Regexp
}

// CheckSecrets refuses a payload that seems to carry a secret, with code
// secret_refused and the place: credentials never ride on the log, which keeps
// them for good. It cannot know all secrets; it knows those that are easily sent
// by mistake.
func (m *Message) CheckSecrets() error {
	rules := &load().Secrets
	r := validjson.NewReader(m.payload)
	var room [8]bool
	under := room[:0] // for each level: a name on the way to it is that of a secret
	here := false     // the same for the value that is read next
	for {
		kind, raw, name := r.Next()
		switch {
		case kind == validjson.None:
			return nil
		case kind == validjson.Object || kind == validjson.Array:
			under = append(under, here)
		case kind == validjson.End:
			under = under[:max(len(under)-1, 0)]
			here = len(under) > 0 && under[len(under)-1]
		case name:
			here = under[len(under)-1] || secretName(validjson.Text(raw))
		case kind == validjson.String:
			if text := validjson.Text(raw); len(text) > 0 && (here || rules.formed(text)) {
				place := m.placeOf(r.Offset())
				return event.Errorf(event.CodeSecretRefused, "The payload has at %s what looks like a secret. Name a lease or a reference instead.", place).With("payload" + place)
			}
		}
	}
}

// placeOf is the place of the value of the payload that ends at an offset.
func (m *Message) placeOf(end int) string {
	d := jsontext.NewDecoder(bytes.NewBuffer(m.payload))
	for d.InputOffset() < int64(end) {
		if _, err := d.ReadToken(); err != nil {
			break // there is none: Parse took the payload
		}
	}
	return clipped(string(d.StackPointer()))
}

// protocolSecrets says of every name of the protocol whether it is that of a secret.
var protocolSecrets = sync.OnceValue(func() map[string]bool {
	secrets := map[string]bool{}
	for name := range protocolNames() {
		secrets[name] = load().Secrets.named(name)
	}
	return secrets
})

// secretName is named for a name that mostly is one of the protocol.
func secretName(name []byte) bool {
	if secret, known := protocolSecrets()[string(name)]; known {
		return secret
	}
	return load().Secrets.named(string(name))
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

func (r *secretRules) formed(text []byte) bool {
	return slices.ContainsFunc(r.Values, func(f secretForm) bool {
		return slices.ContainsFunc(f.has, func(part []byte) bool { return bytes.Contains(text, part) }) && f.pattern.Match(text)
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
