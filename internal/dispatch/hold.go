// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"sort"
	"strings"

	"signalbox/event"
	"signalbox/internal/projector"
)

// hold keeps ticket messages back from all readers until somebody releases them.
// A reader whose topics may have messages is shown the log up to before the first
// that is held; others never wait. It is guarded by Dispatch.mu.
type hold struct {
	on       bool
	released uint64 // whatever is up to here is not held
	// backlog is where the log ended when the hold began: up to there it is not known
	// one by one what is held.
	backlog uint64
	waiting []heldMessage // in order, after backlog
}

type heldMessage struct {
	position uint64
	topic    string
}

// Hold keeps back the messages behind a position, and all that come, until Release.
// It is called before anybody reads.
func (d *Dispatch) Hold(released uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hold = hold{on: true, released: released}
	for name, v := range d.topics {
		if projector.TicketTopic(name) && v.info.Load().Last > released {
			d.hold.backlog = d.head
		}
	}
}

// keepBack notes the messages of a commit. It is called with mu held.
func (d *Dispatch) keepBack(events []projector.Applied) {
	for i := range events {
		if e := &events[i]; projector.TicketTopic(e.Topic) {
			d.hold.waiting = append(d.hold.waiting, heldMessage{e.Position, e.Topic})
		}
	}
}

// shown is the position up to which readers of messages are shown the log. It is
// called with mu held, for reading at least.
func (d *Dispatch) shown() uint64 {
	switch h := &d.hold; {
	case !h.on:
	case h.released < h.backlog:
		return h.released
	case len(h.waiting) > 0:
		return h.waiting[0].position - 1
	}
	return d.head
}

// mayHaveMessages reports whether a pattern selects topics of messages. One from which they
// were taken out, for a reader who may not read them, does not.
func (d *Dispatch) mayHaveMessages(p event.Pattern) bool {
	both, ok := p.Both(d.tickets)
	return ok && p.Match(strings.NewReplacer("*", "x", ">", "x").Replace(both.String()))
}

// end is the position up to which the reader is shown the log. It is called with
// Dispatch.mu held, for reading at least.
func (r *Reader) end() uint64 {
	if r.waits {
		return r.d.shown()
	}
	return r.d.head
}

// ended is end for whoever does not hold mu.
func (r *Reader) ended() uint64 {
	r.d.mu.RLock()
	defer r.d.mu.RUnlock()
	return r.end()
}

// Release shows the messages up to a position, and returns those that it showed;
// complete is false if some have left the tail already.
func (d *Dispatch) Release(position uint64) (shown []projector.Applied, complete bool) {
	d.mu.Lock()
	h, before := &d.hold, d.shown()
	n := sort.Search(len(h.waiting), func(i int) bool { return h.waiting[i].position > position })
	complete = h.released >= h.backlog // nothing of the backlog is in the tail
	h.released = max(h.released, position)
	for _, m := range h.waiting[:n] {
		if m.position < d.tail.oldest {
			complete = false
			continue
		}
		shown = append(shown, d.tail.at(m.position).Applied)
	}
	h.waiting = append(h.waiting[:0:0], h.waiting[n:]...)
	if complete {
		d.wake(shown)
	} else {
		for name := range d.topics {
			if projector.TicketTopic(name) {
				d.wakeTopic(name)
			}
		}
	}
	moved := d.shown() > before
	d.mu.Unlock()
	if moved {
		d.stirBeyond(before)
	}
	return shown, complete
}

// stirBeyond wakes the readers with a filter that something passed behind a position.
func (d *Dispatch) stirBeyond(position uint64) {
	for n := range d.sorters {
		d.sorters[n].stirBeyond(position)
	}
}

func (s *sorter) stirBeyond(position uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sv := range s.order {
		if sv.last.Load() > position {
			sv.wake()
		}
	}
}

// KeptBack is how many messages are kept back, as far as that is known, and whether
// there are any.
func (d *Dispatch) KeptBack() (messages int, any bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.hold.waiting), d.hold.on && d.shown() < d.head
}

// Shown reports whether an event may be shown to anybody yet.
func (d *Dispatch) Shown(topic string, position uint64) bool {
	if !projector.TicketTopic(topic) {
		return true
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return position <= d.shown()
}
