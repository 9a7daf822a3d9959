// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"signalbox/event"
)

const (
	// answersPatience bounds how long one event is tried again although something answers: a proxy in the way, a broker
	// that fails over it, a clock that is ahead. It keeps the events behind it from waiting for ever, and is the broker's
	// deduplication window, after which trying again is not safe any more.
	answersPatience = 24 * time.Hour
	// internalTriesMax bounds how often an event is sent that the broker fails over.
	internalTriesMax = 10
	// driftWaitMax is for how much of a drift an outbox waits until the broker's clock is there as well.
	driftWaitMax = time.Minute
)

// Run sends what waits, and what is put while it runs, until ctx ends. It may be called again. A broker that cannot be
// reached, is overloaded or out of space is tried again, with growing waits, as long as it takes. What it refuses for
// good goes to the dead letters, and the next one has its turn.
func (b *Outbox) Run(ctx context.Context) error {
	if !b.running.CompareAndSwap(false, true) {
		return errors.New("client: the outbox is running already")
	}
	defer b.running.Store(false)
	for {
		m, err := b.next(ctx)
		if err != nil {
			return err
		}
		report, err := b.deliver(ctx, m)
		if err != nil {
			return err
		}
		if b.o.OnReport != nil {
			b.o.OnReport(report)
		}
		if err := b.settle(m, report); err != nil {
			return err
		}
	}
}

// next waits for the letter that is to be sent.
func (b *Outbox) next(ctx context.Context) (*letter, error) {
	for {
		b.mu.Lock()
		waiting, changed := b.waiting, b.changed
		b.mu.Unlock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if len(waiting) > 0 {
			return waiting[0], nil
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// deliver tries until it is known what becomes of a letter. An error is the end of ctx.
func (b *Outbox) deliver(ctx context.Context, m *letter) (OutboxReport, error) {
	report := OutboxReport{Topic: m.topic, Event: m.event}
	var answered time.Time // when something first answered
	for n, internal := 1, 0; ; n++ {
		if expiry, ok := m.event.ExpiryTime(); ok && !expiry.After(b.now()) {
			report.Fate = OutboxExpired
			return report, nil
		}
		receipt, err := b.send(ctx, m)
		if err == nil {
			b.c.observe(receipt.HLC)
			report.Fate, report.Receipt = OutboxSent, receipt
			return report, nil
		}
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		var after time.Duration
		if r := (*refusal)(nil); errors.As(err, &r) {
			if r.problem.Code == event.CodeInternal && !r.foreign {
				internal++
			}
			if answered.IsZero() {
				answered = b.now()
			}
			final, wait := r.finally()
			if final || internal >= internalTriesMax || !r.again && b.now().Sub(answered) >= answersPatience {
				report.Fate, report.Err = OutboxRefused, r.problem
				return report, nil
			}
			after = max(r.after, wait)
		} else {
			answered = time.Time{}
		}
		wait := b.c.retry.wait(n, after)
		if b.o.OnRetry != nil {
			b.o.OnRetry(plain(err), wait)
		}
		if err := sleep(ctx, wait); err != nil {
			return report, err
		}
	}
}

// send is a single try.
func (b *Outbox) send(ctx context.Context, m *letter) (event.Receipt, error) {
	header := http.Header{"Content-Type": {"application/cloudevents+json"}}
	_, _, body, err := b.c.once(ctx, call{method: http.MethodPost, url: b.c.topicPath(m.topic, "events"), header: header, body: m.body})
	if err != nil {
		return event.Receipt{}, err
	}
	var r event.Receipt
	if err := json.Unmarshal(body, &r); err != nil || r.Outcome == "" {
		// A portal that wants a password, say, answers everything with a page of its own.
		return event.Receipt{}, &refusal{foreign: true, problem: event.Errorf(event.CodeInternal,
			"The answer is not a receipt; check that %s is a Signalbox broker.", b.c.base)}
	}
	return r, nil
}

// finally says whether a refusal is about the event, so that trying again cannot help, and else how long to wait at
// least. What is wrong with the address, the credential or the way to the broker is not the event's fault.
func (r *refusal) finally() (final bool, wait time.Duration) {
	switch code := r.problem.Code; {
	case r.status == http.StatusRequestEntityTooLarge:
		return true, 0
	case r.again, r.foreign, code == event.CodeInternal, r.status == http.StatusUnauthorized,
		code == event.CodeNotFound, code == event.CodeMethodNotAllowed, code == event.CodeHostRefused:
		return false, 0
	case code == event.CodeHLCDrift:
		drift, _ := r.problem.Facts["drift_ms"].(int64)
		allowed, _ := r.problem.Facts["max_drift_ms"].(int64)
		wait = time.Duration(drift-allowed) * time.Millisecond
		return wait <= 0 || wait > driftWaitMax, wait
	}
	return true, 0
}

// settle records what became of a letter.
func (b *Outbox) settle(m *letter, report OutboxReport) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	record := appendStep(nil, stepSettled, number64(m.number))
	d := DeadLetter{Topic: m.topic, Event: m.event, At: b.now(), number: m.number}
	if report.Fate == OutboxRefused {
		d.Code, d.Reason = report.Err.Code, report.Err.Message
		record = appendDead(nil, d)
	}
	if err := b.journal.append(record); err != nil {
		return fmt.Errorf("client: record what became of an event: %w", err)
	}
	b.unqueue(m.number)
	switch report.Fate {
	case OutboxSent:
		b.status.Sent++
	case OutboxExpired:
		b.status.Expired++
	case OutboxRefused:
		b.status.Refused++
		b.dead = append(b.dead, d)
		b.trimDead()
	}
	b.change()
	return b.tidy()
}
