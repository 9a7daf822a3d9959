// SPDX-License-Identifier: Apache-2.0

package dispatch

// Held counts what ephemeral topics take: slots, entries among what is due, and
// bytes by the hub's account and by that of its boards.
func (d *Dispatch) Held() (slots, due, bytes, boards int) {
	h := d.hub
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, b := range h.boards {
		slots += len(b.slots)
		boards += b.bytes + b.loose
	}
	return slots, len(h.due), h.bytes, boards
}
