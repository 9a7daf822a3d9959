// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"maps"
	"sync"

	"signalbox/internal/metrics"
)

// provenShare is the part of all slots, one of so many, that is kept for endpoints
// whose last attempt succeeded, so that any number of dead endpoints leaves room for
// those that live. unprovenShare is kept for all others, so that any number of busy
// ones leaves room for one that is new, or works again.
const (
	provenShare   = 4
	unprovenShare = 8
)

// slots bounds the attempts that are under way, and what they hold in memory.
type slots struct {
	mu       sync.Mutex
	most     load
	hostMost int
	all      load
	unproven load
	hosts    map[string]*host // that have something under way, or had a moment ago
	waiting  []uint32         // for any slot; each comes again when some are free
	proven   []uint32         // among endpoints that work
	listed   map[uint32]bool  // in waiting or proven
	metrics  *metrics.Webhooks
}

// aheadMost bounds what is handed out ahead of the attempts that may be under way to
// a host, in as many times those.
const aheadMost = 3

// load is how many attempts there are, and of how many bytes.
type load struct{ attempts, bytes int }

func (l *load) add(o load) {
	l.attempts += o.attempts
	l.bytes += o.bytes
}

func (l load) minus(o load) load { return load{l.attempts - o.attempts, l.bytes - o.bytes} }

// part is one of n parts.
func (l load) part(n int) load { return load{l.attempts / n, l.bytes / n} }

// free is how many attempts fit beside a load, which is none where its bytes are
// enough already.
func (l load) free(beside load) int {
	if beside.bytes >= l.bytes {
		return 0
	}
	return l.attempts - beside.attempts
}

// host is a host and port. To be stored as handed out takes an event as long as a fast
// endpoint needs for many; so as many are handed out ahead as were quickly delivered since
// the last time: by then they have left. A slow endpoint gets none ahead, and nobody while
// half of all slots are taken. One that has quickly delivered all that it had is remembered
// until it is looked for more.
type host struct {
	out     int
	quick   int           // deliveries since something was taken last
	sending chan struct{} // a token for each attempt that is under way
	waiting []uint32
	listed  map[uint32]bool
}

// lot is what was taken at one time.
type lot struct {
	n       int
	host    string
	proven  bool
	sending chan struct{} // of the host
}

func newSlots(most load, hostMost int, m *metrics.Webhooks) slots {
	return slots{most: most, hostMost: hostMost, hosts: map[string]*host{}, listed: map[uint32]bool{}, metrics: m}
}

// count is called with mu held.
func (s *slots) count(h *host, proven bool, l load) {
	h.out += l.attempts
	s.all.add(l)
	if !proven {
		s.unproven.add(l)
	}
	s.metrics.Unproven.Set(float64(s.unproven.attempts))
	s.metrics.Proven.Set(float64(s.all.attempts - s.unproven.attempts))
}

// hold notes how many bytes the attempts of a lot have, which is known when their
// events are: what is taken at one time may exceed the bound.
func (s *slots) hold(l lot, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(s.hosts[l.host], l.proven, load{0, bytes})
}

// take takes up to n slots, which is at least one. If there is none, the webhook is woken
// when there is.
func (s *slots) take(number uint32, name string, proven bool, n int) (lot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[name]
	if h == nil {
		h = s.newHost(name)
	}
	most := s.hostMost
	if proven && 2*s.all.attempts < s.most.attempts {
		most += min(h.quick, aheadMost*s.hostMost)
	}
	if h.out >= most {
		if h.listed == nil {
			h.listed = map[uint32]bool{}
		}
		if !h.listed[number] {
			h.listed[number] = true
			h.waiting = append(h.waiting, number)
		}
		return lot{}, false
	}
	free := s.free(proven)
	if free <= 0 {
		s.forget(name, h)
		if !s.listed[number] {
			s.listed[number] = true
			if proven {
				s.proven = append(s.proven, number)
			} else {
				s.waiting = append(s.waiting, number)
			}
		}
		return lot{}, false
	}
	n = min(n, free, most-h.out)
	s.count(h, proven, load{n, 0})
	h.quick = 0
	return lot{n, name, proven, h.sending}, true
}

// newHost is called with mu held. Hosts with nothing under way are few, unless what they
// had was the last of endpoints that are paused or deleted: these are forgotten here. Who still
// waits for one of them is deleted, too, or comes again by its timer.
func (s *slots) newHost(name string) *host {
	if len(s.hosts) >= 2*s.most.attempts {
		maps.DeleteFunc(s.hosts, func(_ string, h *host) bool { return h.out == 0 })
	}
	h := &host{sending: make(chan struct{}, s.hostMost)}
	s.hosts[name] = h
	return h
}

// forget forgets a host that has nothing under way, and for which nobody waits. It is
// called with mu held.
func (s *slots) forget(name string, h *host) {
	if h.out == 0 && len(h.waiting) == 0 {
		delete(s.hosts, name)
	}
}

// free is how many slots there are for endpoints that are proven, or for all others: what
// nobody has and is not kept for the other ones, and what is kept for these. It is called
// with mu held.
func (s *slots) free(proven bool) int {
	has, kept, others := s.unproven, s.most.part(unprovenShare), s.most.part(provenShare)
	if proven {
		has, kept, others = s.all.minus(s.unproven), others, kept
	}
	return max(kept.free(has), min(s.most.free(s.all), s.most.minus(others).free(has)))
}

// next is the list of those who are woken next: endpoints that work, but where others have
// less than is kept for them. It is called with mu held.
func (s *slots) next() *[]uint32 {
	few := s.most.part(unprovenShare).free(s.unproven) > 0
	if len(s.proven) == 0 || len(s.waiting) > 0 && (few || s.free(true) <= 0) {
		return &s.waiting
	}
	return &s.proven
}

// give gives slots back, with the bytes of their attempts, of which so many took a short
// time to succeed, and wakes as many webhooks as wait for them. All of that is one step:
// who took in between would have no use for the slot, and count the quick ones as used.
func (s *slots) give(l lot, back load, quick int, wake func(number uint32)) {
	if back.attempts <= 0 {
		return
	}
	s.mu.Lock()
	h := s.hosts[l.host]
	s.count(h, l.proven, load{}.minus(back))
	h.quick += quick
	var woken []uint32
	for range min(back.attempts, len(h.waiting)) {
		woken = append(woken, h.waiting[0])
		delete(h.listed, h.waiting[0])
		h.waiting = h.waiting[1:]
	}
	for range back.attempts {
		from := s.next()
		if len(*from) == 0 {
			break
		}
		woken = append(woken, (*from)[0])
		delete(s.listed, (*from)[0])
		*from = (*from)[1:]
	}
	if quick == 0 {
		s.forget(l.host, h)
	}
	s.mu.Unlock()
	for _, number := range woken {
		wake(number)
	}
}
