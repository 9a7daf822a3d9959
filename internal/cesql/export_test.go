// SPDX-License-Identifier: Apache-2.0

package cesql

// Work is what the last evaluation has done.
func (m *Machine) Work() int { return m.work }
