// SPDX-License-Identifier: Apache-2.0

package admission

// Bytes is how much text the compiled schemas have.
func (s *Schemas) Bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}
