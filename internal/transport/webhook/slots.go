// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"sync"

	"signalbox/internal/metrics"
)

// provenShare is the part of all slots, one of so many, that is kept for endpoints
// whose last attempt succeeded. All others share the rest, so that any number of
// dead endpoints leaves room for those that live.
const provenShare = 4

// slots bounds the attempts that are under way.
type slots struct {
	mu       sync.Mutex
	most     int
	hostMost int
	out      int
	unproven int
	hosts    map[string]*host // that have something under way, or somebody waiting
	waiting  []uint32         // for any slot; each comes again when some are free
	proven   []uint32         // among endpoints that work
	listed   map[uint32]bool  // in waiting or proven
	metrics  *metrics.Webhooks
}

// host is a host and port.
type host struct {
	out     int
	waiting []uint32
	listed  map[uint32]bool
}

// lot is what was taken at one time.
type lot struct {
	n      int
	host   string
	proven bool
}

func newSlots(most, hostMost int, m *metrics.Webhooks) slots {
	return slots{most: most, hostMost: hostMost, hosts: map[string]*host{}, listed: map[uint32]bool{}, metrics: m}
}

// count is called with mu held.
func (s *slots) count(h *host, proven bool, n int) {
	h.out += n
	s.out += n
	if !proven {
		s.unproven += n
	}
	s.metrics.Unproven.Set(float64(s.unproven))
	s.metrics.Proven.Set(float64(s.out - s.unproven))
}

// take takes up to n slots, which is at least one. If there is none, the webhook is woken
// when there is.
func (s *slots) take(number uint32, name string, proven bool, n int) (lot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[name]
	if h == nil {
		h = &host{}
		s.hosts[name] = h
	}
	if h.out >= s.hostMost {
		if h.listed == nil {
			h.listed = map[uint32]bool{}
		}
		if !h.listed[number] {
			h.listed[number] = true
			h.waiting = append(h.waiting, number)
		}
		return lot{}, false
	}
	free := s.most - s.out
	if !proven {
		free = min(free, s.most-s.most/provenShare-s.unproven)
	}
	if free <= 0 {
		if h.out == 0 && len(h.waiting) == 0 {
			delete(s.hosts, name)
		}
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
	n = min(n, free, s.hostMost-h.out)
	s.count(h, proven, n)
	return lot{n, name, proven}, true
}

// give gives slots back, and wakes as many webhooks as wait for them.
func (s *slots) give(l lot, n int, wake func(number uint32)) {
	if n <= 0 {
		return
	}
	s.mu.Lock()
	h := s.hosts[l.host]
	s.count(h, l.proven, -n)
	var woken []uint32
	for range min(n, len(h.waiting)) {
		woken = append(woken, h.waiting[0])
		delete(h.listed, h.waiting[0])
		h.waiting = h.waiting[1:]
	}
	for range n {
		from := &s.proven
		if len(*from) == 0 {
			from = &s.waiting
		}
		if len(*from) == 0 {
			break
		}
		woken = append(woken, (*from)[0])
		delete(s.listed, (*from)[0])
		*from = (*from)[1:]
	}
	if h.out == 0 && len(h.waiting) == 0 {
		delete(s.hosts, l.host)
	}
	s.mu.Unlock()
	for _, number := range woken {
		wake(number)
	}
}
