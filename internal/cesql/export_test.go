// SPDX-License-Identifier: Apache-2.0

package cesql

// Work is what the last evaluation, of an event, has done.
func (m *Machine) Work(e *Event) int {
	left := m.work
	m.refill(e)
	done := m.work - left
	m.work = left
	return done
}
