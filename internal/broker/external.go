// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/metrics"
	"signalbox/internal/outside"
	"signalbox/internal/projector"
)

// external holds ticket messages and their receipts back until every place outside
// has the entries of the audit trail up to them. Other topics never wait for it.
type external struct {
	b       *Broker
	feeds   []*feed
	ctx     context.Context // of the feeds
	stop    context.CancelFunc
	closing chan struct{}
	ended   sync.WaitGroup
	heldMax int

	mu      sync.Mutex
	reached map[*feed]brought // guarded by mu
	least   brought           // of all feeds; guarded by mu
	waiting []waitingReceipt  // in order; guarded by mu
	over    bool              // nobody may wait any more; guarded by mu
}

// waitingReceipt is an answer that is held back.
type waitingReceipt struct {
	call    *call
	result  projector.Result
	entries uint64 // that every place must have
	since   time.Duration
}

const (
	// heldMax bounds the messages that wait for the places outside, and so how far apply
	// may be ahead of them. Further ones are refused.
	heldMax = 10_000
	// receiptWait is how long the sender of a message waits for its receipt.
	receiptWait = 10 * time.Second
)

// openExternal finds out how far the places are, and holds back what they do not have. It
// fails if what they have is not of this log. Without places it is nil.
func openExternal(b *Broker) (*external, error) {
	if !b.options.AuditSync {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &external{b: b, ctx: ctx, stop: cancel, closing: make(chan struct{}), reached: map[*feed]brought{}, heldMax: heldMax}
	err := e.open()
	for _, f := range e.feeds {
		if err == nil {
			f.stored, err = b.store.Outside(f.name)
		}
		if err == nil {
			err = f.at(ctx, min(f.stored, b.AuditSize()))
		}
		if err == nil {
			err = f.locate(ctx)
		}
		if err != nil {
			break
		}
		f.counts.Size.Set(float64(f.has.entries))
		e.reached[f] = f.has
	}
	if err == nil && len(e.feeds) == 0 {
		err = event.Errorf(event.CodeParameterInvalid, "The entries of the audit trail are to go outside, and no place is named for them.")
	}
	if err != nil {
		cancel()
		return nil, err
	}
	e.least = e.reach()
	b.dispatch.Hold(e.least.position)
	return e, nil
}

// start has the feeds bring what there is and what comes.
func (e *external) start() {
	if e == nil {
		return
	}
	for _, f := range e.feeds {
		e.ended.Go(func() { f.loop(e.ctx) })
	}
}

func (e *external) open() error {
	o, m := &e.b.options, &e.b.metrics.Audit
	add := func(name string, place outside.Place, counts *metrics.AuditPlace) {
		e.feeds = append(e.feeds, &feed{e: e, name: name, place: place, counts: counts, wake: make(chan struct{}, 1)})
	}
	if o.AuditFile != "" {
		name := o.AuditFile + entriesSuffix
		add(name, outside.NewFile(name), &m.FileEntries)
	}
	if o.AuditURL != "" {
		place, err := outside.NewObjects(o.AuditURL, nil)
		if err != nil {
			return err
		}
		add(o.AuditURL, place, &m.URLEntries)
	}
	if o.AuditStore != "" {
		place, err := outside.NewObjects(o.AuditStore, o.AuditStoreCredentials)
		if err != nil {
			return err
		}
		add(o.AuditStore, place, &m.StoreEntries)
	}
	return nil
}

// entriesSuffix is what the file with the entries has behind the name of that with the
// checkpoints.
const entriesSuffix = ".entries"

func hexOf(chain [32]byte) string { return fmt.Sprintf("%x", chain) }

// reach is called with mu held, or before anybody else knows e.
func (e *external) reach() brought {
	least := e.reached[e.feeds[0]]
	for _, f := range e.feeds {
		least.entries, least.position = min(least.entries, e.reached[f].entries), min(least.position, e.reached[f].position)
	}
	return least
}

// advanced is called by a feed whose place has more, and lets go of what waited for it.
func (e *external) advanced(f *feed) {
	e.mu.Lock()
	e.reached[f] = f.has
	e.least = e.reach()
	least := e.least
	n := 0
	for n < len(e.waiting) && e.waiting[n].entries <= least.entries {
		n++
	}
	answered := e.waiting[:n:n]
	e.waiting = e.waiting[n:]
	e.mu.Unlock()
	shown, complete := e.b.dispatch.Release(least.position)
	e.b.due.offer(shown)
	if !complete {
		e.b.due.miss()
	}
	for _, w := range answered {
		w.call.answer(w.result)
	}
}

// answer answers a call, or holds the answer back if it is a message's receipt. What was
// refused is answered at once. It is called by the apply loop, after the commit.
func (e *external) answer(c *call, p *eventlog.Proposal, result projector.Result, entries uint64) {
	if e == nil || p.Message == nil || result.Err != nil {
		c.answer(result)
		return
	}
	e.mu.Lock()
	waits := entries > e.least.entries
	if waits && e.over {
		result, waits = unacknowledged(), false
	}
	if waits {
		e.waiting = append(e.waiting, waitingReceipt{c, result, entries, e.b.elapsed()})
	}
	e.mu.Unlock()
	if !waits {
		c.answer(result)
	}
}

// committed has what a commit added brought outside at once if it has messages.
func (e *external) committed(group []*eventlog.Proposal) {
	if e == nil {
		return
	}
	for _, p := range group {
		if p.Message != nil {
			for _, f := range e.feeds {
				token(f.wake)
			}
			return
		}
	}
}

// room refuses a message where too many wait.
func (e *external) room() error {
	if e == nil {
		return nil
	}
	if held, _ := e.b.dispatch.KeptBack(); held >= e.heldMax {
		return event.Errorf(event.CodeAuditWaiting, "%d messages wait for the place outside that the audit trail goes to.", held)
	}
	return nil
}

// loop answers those who have waited long enough.
func (e *external) loop() {
	if e == nil {
		return
	}
	every := time.NewTicker(receiptWait / 20)
	defer every.Stop()
	draining, age := e.b.draining, receiptWait
	for {
		select {
		case <-e.b.stop:
			e.expire(0, true)
			return
		case <-draining: // nobody has the time any more
			draining, age = nil, 0
		case <-every.C:
		}
		e.expire(age, false)
	}
}

// expire answers those who have waited for so long; in the end nobody waits any more.
func (e *external) expire(age time.Duration, over bool) {
	e.mu.Lock()
	n, now := 0, e.b.elapsed()
	for n < len(e.waiting) && now-e.waiting[n].since >= age {
		n++
	}
	late := e.waiting[:n:n]
	e.waiting = e.waiting[n:]
	e.over = e.over || over
	e.mu.Unlock()
	for _, w := range late {
		w.call.answer(unacknowledged())
	}
}

func unacknowledged() projector.Result {
	return projector.Result{Err: event.Errorf(event.CodeAuditWaiting, "The message is in the log, and the place outside that the audit trail goes to has not acknowledged that yet. It is delivered once that has.")}
}

// close brings what is left, if it can be done soon.
func (e *external) close() {
	if e == nil {
		return
	}
	timer := time.AfterFunc(outsideLast, e.stop)
	defer timer.Stop()
	close(e.closing)
	e.ended.Wait()
	e.stop()
}

// External is how far the places outside have the entries of the audit trail.
type External struct {
	Entries  uint64 // that all of them have
	Size     uint64 // that there are
	Messages int    // that wait for them
	Waiting  bool
}

// External is nil where messages wait for no place outside.
func (b *Broker) External() *External {
	if b.external == nil {
		return nil
	}
	b.external.mu.Lock()
	least := b.external.least
	b.external.mu.Unlock()
	messages, any := b.dispatch.KeptBack()
	return &External{Entries: least.entries, Size: b.AuditSize(), Messages: messages, Waiting: any}
}
