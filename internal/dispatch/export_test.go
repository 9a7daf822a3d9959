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

// Sieves returns how many different filters readers have on their topics, and how
// many of them are of a crowd.
func (d *Dispatch) Sieves() (all, crowd int) {
	for n := range d.sorters {
		s := &d.sorters[n]
		s.mu.Lock()
		all += len(s.sieves)
		crowd = len(s.sieves) // the last
		s.mu.Unlock()
	}
	return all, crowd
}

// Offered returns how many bytes of events of ephemeral topics wait to be matched.
func (d *Dispatch) Offered() (bytes int) {
	for n := range d.sorters {
		s := &d.sorters[n]
		s.offering.Lock()
		bytes += s.offered
		s.offering.Unlock()
	}
	return bytes
}

// HoldSorter has nobody match events by itself any more.
func (d *Dispatch) HoldSorter() {
	for n := range d.sorters {
		d.sorters[n].running.Store(true)
	}
}

// HoldCrowd keeps the crowd from being sorted, by whomever, until it is released.
func (d *Dispatch) HoldCrowd() (release func()) {
	s := &d.sorters[sorterCrowd]
	s.turn.Lock()
	return s.turn.Unlock
}

// Sort matches what was not matched yet, as the sorters' goroutines do.
func (d *Dispatch) Sort() {
	head := d.Head().Position
	for n := range d.sorters {
		for s := &d.sorters[n]; s.takeTurn() || !s.sorted(head); {
		}
	}
}

// HurryWindows gives windows no time to evaluate filters.
func (d *Dispatch) HurryWindows() { d.evaluating = -1 }

// SortFor matches events for so long, as one step of a sorter does, and returns up
// to which position events are matched then.
func (d *Dispatch) SortFor(crowd bool, most time.Duration) uint64 {
	s := &d.sorters[sorterFew]
	if crowd {
		s = &d.sorters[sorterCrowd]
	}
	s.turn.Lock()
	s.most = most
	s.step()
	s.turn.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.to
}
