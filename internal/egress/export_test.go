// SPDX-License-Identifier: Apache-2.0

package egress

// Check is what is asked of an address when it is dialled.
func (g *Guard) Check(address string, secure bool) error { return g.check(address, false, secure) }
