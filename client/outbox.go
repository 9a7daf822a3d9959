// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/event"
)

const (
	// outboxEventsMax and outboxBytesMax are what an outbox holds by default. They stop an agent that is offline for
	// days from filling its disk, and its memory, in which the events are as well.
	outboxEventsMax = 10_000
	outboxBytesMax  = 64 << 20
	// outboxDeadMax is how many refused events are kept by default. Each was reported when it was refused.
	outboxDeadMax = 1000
)

// OutboxOptions bounds an outbox and says whom it tells.
type OutboxOptions struct {
	// EventsMax and BytesMax bound what waits; 0 means 10,000 events and 64 MiB. One more is refused with outbox_full.
	EventsMax int
	BytesMax  int64
	// DeadMax bounds the list of refused events; 0 means 1,000. One more pushes the oldest out.
	DeadMax int
	// Salvage opens a damaged file all the same: it is set aside as path.damaged, and what can still be read goes on.
	// [OutboxStatus] says how much was lost.
	Salvage bool
	// OnReport is told what became of each event, in order, from within Run. It is told again if the process dies before
	// that is on disk.
	OnReport func(OutboxReport)
	// OnRetry is told why an event could not be sent and when the next try follows, from within Run.
	OnRetry func(err error, wait time.Duration)
}

// OutboxFate is what became of an event.
type OutboxFate string

// The fates of an event.
const (
	OutboxSent    OutboxFate = "sent"    // the broker has it; the receipt says with which outcome
	OutboxRefused OutboxFate = "refused" // the broker will not take it; it is among the dead letters
	OutboxExpired OutboxFate = "expired" // its expirytime came before its turn; it is dropped
)

// OutboxReport says what became of an event.
type OutboxReport struct {
	Topic string
	Event *event.Event
	Fate  OutboxFate
	// Receipt is set for OutboxSent. An event that was sent before a crash has the outcome duplicate.
	Receipt event.Receipt
	// Err is set for OutboxRefused: the broker's error, with its code.
	Err *event.Error
}

// DeadLetter is an event that the broker refused for good.
type DeadLetter struct {
	Topic  string
	Event  *event.Event
	Code   event.Code
	Reason string
	At     time.Time

	number uint64
}

// OutboxStatus is what others may want to know about an outbox. It is meant to be published.
type OutboxStatus struct {
	Waiting int       `json:"waiting"`
	Bytes   int64     `json:"bytes"`
	Dead    int       `json:"dead"`
	Sent    uint64    `json:"sent"`    // since it was opened, as are Refused and Expired
	Refused uint64    `json:"refused"` // by the broker, for good
	Expired uint64    `json:"expired"`
	Oldest  event.HLC `json:"oldest,omitzero"` // the stamp of the event that waits first
	// Trimmed is the length of a torn record that was cut off when the file was opened: of an event whose Put had not
	// returned. Damaged is the length of what could not be read of a file that was salvaged.
	Trimmed int64 `json:"trimmed,omitempty"`
	Damaged int64 `json:"damaged,omitempty"`
}

// letter is an event that waits to be sent.
type letter struct {
	number uint64 // rises with each Put
	topic  string
	event  *event.Event
	body   []byte // as it is sent, at every try
}

func (m *letter) name() [3]string { return [3]string{m.topic, m.event.Source(), m.event.ID()} }

// Outbox publishes what an agent has to say, whether or not the broker can be reached just now. Put makes an event
// durable; Run sends the events in the order in which they were put, each until it is answered. Every event has its id
// and its HLC from the moment of Put, so that it is the same event at every try and after every crash.
type Outbox struct {
	c       *Client
	o       OutboxOptions
	running atomic.Bool

	mu      sync.Mutex
	journal *journal              // guarded by mu
	waiting []*letter             // guarded by mu; by number
	named   map[[3]string]*letter // guarded by mu; the same by name
	dead    []DeadLetter          // guarded by mu; the oldest first
	last    uint64                // guarded by mu; the last number
	status  OutboxStatus          // guarded by mu; all but what follows from the lists
	bytes   int64                 // guarded by mu; of what waits
	changed chan struct{}         // guarded by mu; closed and replaced when what waits has changed
}

// OpenOutbox opens or creates the outbox at path. A second one that opens it is refused with store_locked, a damaged
// file with journal_damaged. The file holds the events in the clear.
func OpenOutbox(c *Client, path string, o OutboxOptions) (*Outbox, error) {
	o.EventsMax = cmp.Or(max(o.EventsMax, 0), outboxEventsMax)
	o.BytesMax = cmp.Or(max(o.BytesMax, 0), outboxBytesMax)
	o.DeadMax = cmp.Or(max(o.DeadMax, 0), outboxDeadMax)
	b := &Outbox{c: c, o: o, named: map[[3]string]*letter{}, changed: make(chan struct{})}
	j, trimmed, damages, err := openJournal(path, outboxHeader, o.Salvage, b.replay)
	if err != nil {
		return nil, err
	}
	b.journal, b.status.Trimmed = j, trimmed
	b.trimDead()
	for _, d := range damages {
		b.status.Damaged += d.to - d.from
	}
	for _, m := range b.waiting {
		c.observe(m.event.HLC())
	}
	return b, nil
}

// Put queues an event. It is on disk when Put returns, with an id and an HLC; a relative expiry has become an
// expirytime, which counts from now and not from the day on which the broker is reached. An event that waits already,
// told by topic, source and id, is not queued a second time.
func (b *Outbox) Put(topic string, d event.Draft) (*event.Event, error) {
	if err := event.CheckTopic(topic); err != nil {
		return nil, err
	}
	ev, err := b.prepare(d)
	if err != nil {
		return nil, err
	}
	m := &letter{topic: topic, event: ev, body: appendPublished(nil, ev)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if first := b.named[m.name()]; first != nil {
		if !sameButForStamp(first.event, ev) {
			return nil, event.Errorf(event.CodeIDReused, "Another event with the id %q of %q waits in the outbox.", ev.ID(), ev.Source()).With("id")
		}
		return first.event, nil
	}
	size := int64(len(m.body))
	if len(b.waiting) >= b.o.EventsMax || b.bytes+size > b.o.BytesMax {
		return nil, event.Errorf(event.CodeOutboxFull, "The outbox holds %d events of %d bytes.", len(b.waiting), b.bytes).
			Fact("events", len(b.waiting)).Fact("events_max", b.o.EventsMax).Fact("bytes", b.bytes).Fact("bytes_max", b.o.BytesMax)
	}
	m.number = b.last + 1
	if err := b.journal.append(appendLetter(nil, m)); err != nil {
		return nil, err
	}
	b.queue(m)
	b.change()
	return ev, nil
}

// prepare stamps a draft, and turns a relative expiry into a time.
func (b *Outbox) prepare(d event.Draft) (*event.Event, error) {
	ev, err := b.c.Prepare(d)
	if err != nil || ev.Expiry() == 0 {
		return ev, err
	}
	d.ID = ev.ID()
	extensions := map[string]any{}
	for name, v := range d.Extensions {
		extensions[name] = v
	}
	if ev.HLC() != 0 {
		extensions[attrHLC] = ev.HLC().String()
	}
	delete(extensions, "expiry")
	if _, absolute := ev.ExpiryTime(); !absolute {
		extensions["expirytime"] = b.now().Add(time.Duration(ev.Expiry()) * time.Second).UTC().Format(time.RFC3339Nano)
	}
	d.Extensions = extensions
	return b.c.Prepare(d)
}

// sameButForStamp says whether two events differ in their HLC at most: a draft that is put once more has been stamped
// once more.
func sameButForStamp(x, y *event.Event) bool {
	a, _, _ := x.AppendMembers(nil)
	b, _, _ := y.AppendMembers(nil)
	return string(a) == string(b)
}

func (b *Outbox) now() time.Time {
	if b.c.clock != nil {
		return b.c.clock.wall()
	}
	return time.Now()
}

// queue adds a letter that is on disk. It is called with the lock held.
func (b *Outbox) queue(m *letter) {
	b.waiting = append(b.waiting, m)
	b.named[m.name()] = m
	b.last = m.number
	b.bytes += int64(len(m.body))
}

// unqueue removes a letter, which is the first one but for damaged files. It is called with the lock held.
func (b *Outbox) unqueue(number uint64) *letter {
	i, found := slices.BinarySearchFunc(b.waiting, number, func(m *letter, n uint64) int { return cmp.Compare(m.number, n) })
	if !found {
		return nil
	}
	m := b.waiting[i]
	b.waiting = slices.Delete(b.waiting, i, i+1)
	delete(b.named, m.name())
	b.bytes -= int64(len(m.body))
	return m
}

// trimDead keeps the dead letters within their bound. It is called with the lock held.
func (b *Outbox) trimDead() {
	if over := len(b.dead) - b.o.DeadMax; over > 0 {
		b.dead = slices.Delete(b.dead, 0, over)
	}
}

// change tells those who wait that something has changed. It is called with the lock held.
func (b *Outbox) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// Flush waits, while Run runs, until nothing waits any more: everything was sent, refused or has expired.
func (b *Outbox) Flush(ctx context.Context) error {
	for {
		b.mu.Lock()
		waiting, changed := len(b.waiting), b.changed
		b.mu.Unlock()
		if waiting == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("client: %d events still wait in the outbox: %w", waiting, context.Cause(ctx))
		case <-changed:
		}
	}
}

// Status returns the outbox's status.
func (b *Outbox) Status() OutboxStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status
	s.Waiting, s.Bytes, s.Dead = len(b.waiting), b.bytes, len(b.dead)
	if len(b.waiting) > 0 {
		s.Oldest = b.waiting[0].event.HLC()
	}
	return s
}

// Dead returns the events that the broker refused for good, the oldest first.
func (b *Outbox) Dead() []DeadLetter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.dead)
}

// Discard removes a dead letter that was dealt with.
func (b *Outbox) Discard(d DeadLetter) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.dead, func(x DeadLetter) bool { return x.number == d.number })
	if i < 0 {
		return nil
	}
	if err := b.journal.append(appendStep(nil, stepDiscard, number64(d.number))); err != nil {
		return err
	}
	b.dead = slices.Delete(b.dead, i, i+1)
	return nil
}

// Close gives the file up. What waits is sent after the next opening. It is called after Run has returned.
func (b *Outbox) Close() error {
	if b.running.Load() {
		return errors.New("client: the outbox is still running; end Run first")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.journal.close()
	return nil
}
