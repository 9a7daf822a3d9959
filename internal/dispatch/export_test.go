// SPDX-License-Identifier: Apache-2.0

package dispatch

import "time"

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

// Sieves returns how many different filters readers have on their topics.
func (d *Dispatch) Sieves() int {
	d.sorter.mu.Lock()
	defer d.sorter.mu.Unlock()
	return len(d.sorter.sieves)
}

// Offered returns how many bytes of events of ephemeral topics wait to be matched.
func (d *Dispatch) Offered() int {
	d.sorter.offering.Lock()
	defer d.sorter.offering.Unlock()
	return d.sorter.offered
}

// HoldSorter has nobody match events by itself any more.
func (d *Dispatch) HoldSorter() { d.sorter.running.Store(true) }

// Sort matches what was not matched yet, as the sorter's goroutine does.
func (d *Dispatch) Sort() {
	head := d.Head().Position
	d.sorter.mu.Lock()
	defer d.sorter.mu.Unlock()
	for d.sortSome() || d.sorter.to < head {
	}
}

// SortFor matches events for so long, as one step of the sorter does, and returns up
// to which position events are matched then.
func (d *Dispatch) SortFor(most time.Duration) uint64 {
	d.sorter.mu.Lock()
	defer d.sorter.mu.Unlock()
	d.sorter.most = most
	d.sortEvents()
	return d.sorter.to
}
