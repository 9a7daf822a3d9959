// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"container/heap"
	"context"
	"hash/fnv"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/filter"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

const (
	// dueMax bounds the webhooks that are known to have something to deliver, now or
	// later. Those beyond are found again by a sweep.
	dueMax = 65_536
	// offeredMax bounds the events that wait to be matched with webhooks, and
	// offeredBytes what they take.
	offeredMax   = 65_536
	offeredBytes = 32 << 20
	// termCrowd is how many webhooks under one term are a crowd. An event about which
	// ten thousand must be asked, one by one, is no reason for others to wait.
	termCrowd = 64
	// sketchBits is the size of the sketch of terms, half a MiB. With 100,000
	// webhooks one look-up in 400 goes to the store for nothing.
	sketchBits = 1 << 22
)

// due knows which webhooks have something to deliver. A webhook that is idle is
// not in it: events find it by its terms, which are stored. All of it may be lost.
type due struct {
	mu      sync.Mutex
	queued  map[uint32]queueing   // guarded by mu
	queue   []uint32              // guarded by mu
	crowd   []uint32              // those of crowds, which take turns with the others; guarded by mu
	turn    bool                  // it is that of a crowd; guarded by mu
	later   alarms                // one for each webhook; guarded by mu
	at      map[uint32]*alarm     // those of later; guarded by mu
	missed  uint64                // webhooks were not told of what is behind this position, so a sweep is needed; guarded by mu
	offered [][]projector.Applied // guarded by mu
	events  int                   // in offered; guarded by mu
	bytes   int                   // of these; guarded by mu

	wake   chan struct{} // holds a token when there is something in queue
	match  chan struct{} // holds a token when there is something in offered
	sketch [sketchBits / 64]atomic.Uint64
	used   atomic.Bool // the sketch is not empty
}

// queueing is where a webhook is queued.
type queueing uint8

const (
	notQueued queueing = iota
	inCrowd
	inQueue
)

// alarm is when a webhook is to be looked at.
type alarm struct {
	at     int64 // Unix ms
	number uint32
	place  int // among the alarms
}

type alarms []*alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at < a[j].at }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}
func (a *alarms) Push(x any) {
	x.(*alarm).place = len(*a)
	*a = append(*a, x.(*alarm))
}
func (a *alarms) Pop() (x any) {
	last := len(*a) - 1
	x, (*a)[last] = (*a)[last], nil
	*a = (*a)[:last]
	return x
}

// nothingMissed is behind every position.
const nothingMissed = math.MaxUint64

func newDue() *due {
	return &due{missed: nothingMissed, queued: map[uint32]queueing{}, at: map[uint32]*alarm{}, wake: make(chan struct{}, 1), match: make(chan struct{}, 1)}
}

func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// add queues a webhook, once.
func (d *due) add(number uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.push(number, inQueue)
}

// addFound queues the webhooks that were found under one term.
func (d *due) addFound(numbers []uint32) {
	where := inQueue
	if len(numbers) > termCrowd {
		where = inCrowd
	}
	d.addAll(numbers, where)
}

func (d *due) addAll(numbers []uint32, where queueing) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, number := range numbers {
		d.push(number, where)
	}
}

// push is called with mu held. Of a crowd a webhook may come forward.
func (d *due) push(number uint32, where queueing) {
	if d.queued[number] >= where {
		return
	}
	if len(d.queue)+len(d.crowd) >= dueMax {
		d.missed = 0
		return
	}
	d.queued[number] = where
	if where == inCrowd {
		d.crowd = append(d.crowd, number)
	} else {
		d.queue = append(d.queue, number)
	}
	token(d.wake)
}

// pop takes the next webhook: one of a crowd, and one of the others. It is called
// with mu held.
func (d *due) pop() (number uint32, ok bool) {
	for len(d.crowd) > 0 && d.queued[d.crowd[0]] != inCrowd { // it has come forward
		d.crowd = d.crowd[1:]
	}
	d.turn = !d.turn
	from := &d.queue
	if len(d.queue) == 0 || d.turn && len(d.crowd) > 0 {
		from = &d.crowd
	}
	if len(*from) == 0 {
		d.queue, d.crowd = nil, nil
		return 0, false
	}
	number, *from = (*from)[0], (*from)[1:]
	delete(d.queued, number)
	return number, true
}

// addLater queues a webhook at a time, or earlier if something was to happen
// earlier anyway.
func (d *due) addLater(number uint32, at int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.at[number]
	switch {
	case a == nil && len(d.later) >= 2*dueMax:
		d.missed = 0
	case a == nil:
		a = &alarm{at: at, number: number}
		d.at[number] = a
		heap.Push(&d.later, a)
	case at < a.at:
		a.at = at
		heap.Fix(&d.later, a.place)
	}
}

// next takes the first webhook of the queue, after those whose time has come.
func (d *due) next(now int64) (number uint32, ok bool, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.later) > 0 && d.later[0].at <= now {
		a := heap.Pop(&d.later).(*alarm)
		delete(d.at, a.number)
		d.push(a.number, inQueue)
	}
	if number, ok = d.pop(); ok {
		return number, true, 0
	}
	wait = time.Second
	if len(d.later) > 0 {
		wait = min(wait, time.Duration(d.later[0].at-now)*time.Millisecond)
	}
	return 0, false, wait
}

// figures are how many webhooks are queued, and wait for a time.
func (d *due) figures() (queued, later int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queued), len(d.later)
}

// offer takes what a commit has made durable. Without webhooks it costs nothing.
func (d *due) offer(events []projector.Applied) {
	if len(events) == 0 || !d.used.Load() {
		return
	}
	bytes := 0
	for i := range events {
		bytes += len(events[i].Members)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.events+len(events) > offeredMax || d.bytes+bytes > offeredBytes {
		d.missed = min(d.missed, max(events[0].Position, 1)-1)
		return
	}
	d.events, d.bytes = d.events+len(events), d.bytes+bytes
	d.offered = append(d.offered, events)
	token(d.match)
}

func (d *due) taken() [][]projector.Applied {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.offered
	d.offered, d.events, d.bytes = nil, 0, 0
	return out
}

// stir queues the webhooks that a commit has changed.
func (d *due) stir(stirred []projector.Stirred) {
	for _, s := range stirred {
		if s.Webhook {
			d.add(s.Number)
		}
	}
}

func bitsOf(term []byte) (a, b uint64) {
	h := fnv.New64a()
	_, _ = h.Write(term) // a hash takes everything
	sum := h.Sum64()
	return sum % sketchBits, (sum >> 32) * 0x9e3779b1 % sketchBits
}

// note adds a term to the sketch. None is ever taken out, which only costs
// look-ups; the next start begins with those that there are.
func (d *due) note(term []byte) {
	a, b := bitsOf(term)
	d.sketch[a/64].Or(1 << (a % 64))
	d.sketch[b/64].Or(1 << (b % 64))
	d.used.Store(true)
}

// knows reports whether there may be a webhook under a term.
func (d *due) knows(term []byte) bool {
	a, b := bitsOf(term)
	return d.sketch[a/64].Load()&(1<<(a%64)) != 0 && d.sketch[b/64].Load()&(1<<(b%64)) != 0
}

// matchLoop finds the webhooks that new events concern.
func (b *Broker) matchLoop() {
	m := hookMatcher{b: b}
	for {
		select {
		case <-b.stop:
			return
		case <-b.due.match:
		}
		for _, events := range b.due.taken() {
			for i := range events {
				if err := m.match(&events[i]); err != nil {
					b.logger.Error("webhooks cannot be looked up, and are all looked at", "err", err)
					b.due.miss()
				}
			}
		}
		m.reset()
	}
}

func (d *due) miss() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missed = 0
}

// takeMissed returns behind which position webhooks were not told of events, and
// forgets it.
func (d *due) takeMissed() (behind uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	behind, d.missed = d.missed, nothingMissed
	return behind
}

// hookMatcher finds the webhooks that events concern.
type hookMatcher struct {
	b       *Broker
	record  filter.Record
	found   []uint32        // scratch
	crowded map[string]bool // terms of crowds that were looked up
}

// match queues the webhooks that an event may concern. The events that are taken
// together are stored already when the first of them is looked up: who is queued for
// one of them reads them all, so a crowd is queued once.
func (m *hookMatcher) match(e *projector.Applied) (err error) {
	m.record.Fill(filter.Delivered{Topic: e.Topic, Position: e.Position, HLC: e.HLC, Superseded: e.Flags&store.EventSuperseded != 0}, e.Members)
	filter.Lookups(&m.record, func(term []byte) {
		if err != nil || !m.b.due.knows(term) || m.crowded[string(term)] {
			return
		}
		m.found = m.found[:0]
		err = m.b.store.Term(term, func(number uint32) bool {
			m.found = append(m.found, number)
			return true
		})
		if len(m.found) > termCrowd {
			if m.crowded == nil {
				m.crowded = map[string]bool{}
			}
			m.crowded[string(term)] = true
		}
		m.b.due.addFound(m.found)
	})
	return err
}

// reset begins with other events.
func (m *hookMatcher) reset() {
	m.record.Reset()
	m.crowded = nil
}

// NextWebhook waits for a webhook that has something to deliver, or may have, and
// returns its number. Each is returned to one caller, which asks with
// [Broker.Webhook] what it is.
func (b *Broker) NextWebhook(ctx context.Context) (uint32, error) {
	for {
		number, ok, wait := b.due.next(b.clock.Millis())
		if ok {
			token(b.due.wake) // there may be more, for others
			return number, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return 0, ctx.Err()
		case <-b.due.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// WebhookAgain has NextWebhook return a webhook again, after a while or at once.
func (b *Broker) WebhookAgain(number uint32, after time.Duration) {
	if after <= 0 {
		b.due.add(number)
		return
	}
	b.due.addLater(number, b.clock.Millis()+after.Milliseconds())
}
