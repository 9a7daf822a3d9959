// SPDX-License-Identifier: Apache-2.0

package admission

import "signalbox/internal/validjson"

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

// CompileForm compiles the schema of a name as payloads are checked by.
func CompileForm(schema []byte, name string) error {
	c, err := newFormCompiler(schema)
	if err == nil {
		_, err = c.def(name)
	}
	return err
}
