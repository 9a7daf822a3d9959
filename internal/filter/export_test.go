// SPDX-License-Identifier: Apache-2.0

package filter

// Tried returns how many filters the last match evaluated.
func (x *Index[T]) Tried() (n int) {
	for _, e := range x.entries {
		if e.round == x.round {
			n++
		}
	}
	return n
}
