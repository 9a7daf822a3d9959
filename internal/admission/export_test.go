// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/ed25519"

	"signalbox/internal/validjson"
)

// Bytes is how much text the compiled schemas have.
func (s *Schemas) Bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Judge is what the form of a type says of a payload: "keeps", "breaks" or "unsure".
func (c *Messages) Judge(kind string, payload []byte) string {
	r := validjson.NewReader(payload)
	return [...]string{breaks: "breaks", unsure: "unsure", keeps: "keeps"}[c.forms[kind].judge(&r)]
}

// Keeps is what the library says of it.
func (c *Messages) Keeps(kind string, payload []byte) bool {
	value, fault := parse(payload)
	return fault == nil && c.payloads[kind].Validate(value) == nil
}

// NewVerifier makes a key ready.
func NewVerifier(public ed25519.PublicKey) (verify func(message, signature []byte) bool, err error) {
	k, err := newCombKey(public)
	if err != nil {
		return nil, err
	}
	return k.verify, nil
}

// VerifyReady verifies with a key that has been made ready.
func VerifyReady(public ed25519.PublicKey, message, signature []byte) bool {
	verify, err := NewVerifier(public)
	return err == nil && verify(message, signature)
}

// KeysMax is how many keys are kept ready.
const KeysMax = keysMax

// Keys counts those that are kept, and those of them that are ready.
func (c *Messages) Keys() (kept, ready int) {
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	for _, k := range c.keys.keys {
		if k.comb.Load() != nil {
			ready++
		}
	}
	return len(c.keys.keys), ready
}

// CompileForm compiles the schema of a name as payloads are checked by.
func CompileForm(schema []byte, name string) error {
	c, err := newFormCompiler(schema)
	if err == nil {
		_, err = c.def(name)
	}
	return err
}
