// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"slices"
	"sync"

	"signalbox/internal/metrics"
	"signalbox/internal/store"
)

// totals are sums over all topics, kept as topics change: a scrape must not walk
// a hundred thousand topics while commits wait.
type totals struct {
	topics, events, bytes uint64
}

func (s *totals) add(t *store.Topic) {
	if !t.Deleted && t.Number != 0 { // the broker's own are not counted
		s.topics++
		s.events += t.Events
		s.bytes += t.Retained
	}
}

func (s *totals) remove(t *store.Topic) {
	if !t.Deleted && t.Number != 0 { // the broker's own are not counted
		s.topics--
		s.events -= t.Events
		s.bytes -= t.Retained
	}
}

// readers knows the open readers, to tell which of them are behind.
type readers struct {
	mu   sync.Mutex
	open map[*Reader]struct{} // guarded by mu
}

func (rs *readers) enter(r *Reader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.open == nil {
		rs.open = map[*Reader]struct{}{}
	}
	rs.open[r] = struct{}{}
}

func (rs *readers) leave(r *Reader) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.open, r)
}

// lag is how far a reader is behind the last event on its topics, in positions.
// What happens on other topics makes nobody late, nor does what does not pass a
// reader's filter.
func (r *Reader) lag() uint64 {
	last, at := r.group.last(), r.reached.Load()
	if r.sieve != nil {
		last = r.sieve.last.Load()
	}
	return max(last, at) - at
}

// Laggard is an open reader that is behind.
type Laggard struct {
	Topics string // its patterns
	Lag    uint64 // positions behind the last event on its topics
	At     uint64 // position that it has reached
}

// Laggards returns the n open readers that are furthest behind, those at the
// front first, and how many readers are open. Readers that are not behind are
// not among them.
func (d *Dispatch) Laggards(n int) (worst []Laggard, open int) {
	d.readers.mu.Lock()
	defer d.readers.mu.Unlock()
	for r := range d.readers.open {
		lag := r.lag()
		if lag == 0 || len(worst) == n && lag <= worst[n-1].Lag {
			continue
		}
		worst = append(worst, Laggard{Topics: r.group.key, Lag: lag, At: r.reached.Load()})
		slices.SortStableFunc(worst, func(a, b Laggard) int { return cmp.Compare(b.Lag, a.Lag) })
		worst = worst[:min(n, len(worst))]
	}
	return worst, len(d.readers.open)
}

// TopicCount is how many topics there are, without the broker's own.
func (d *Dispatch) TopicCount() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return int(d.totals.topics)
}

// sample tells the metrics that are looked up.
func (d *Dispatch) sample(s metrics.Sample) {
	d.mu.RLock()
	head, logMillis, sums := d.head, d.space.LogMillis, d.totals
	tailEvents, tailBytes := d.tail.newest+1-d.tail.oldest, d.tail.bytes
	d.mu.RUnlock()
	s.Set("signalbox_log_head_position", float64(head))
	s.Set("signalbox_log_time_seconds", float64(logMillis)/1000)
	s.Set("signalbox_log_time_lag_seconds", float64(max(0, d.now()-logMillis))/1000)
	s.Set("signalbox_topics", float64(sums.topics))
	s.Set("signalbox_retained_events", float64(sums.events))
	s.Set("signalbox_retained_bytes", float64(sums.bytes))
	s.Set("signalbox_tail_events", float64(tailEvents))
	s.Set("signalbox_tail_bytes", float64(tailBytes))
	lag := uint64(0)
	if worst, _ := d.Laggards(1); len(worst) > 0 {
		lag = worst[0].Lag
	}
	s.Set("signalbox_reader_lag_events", float64(lag))
	d.hub.sample(s)
}
