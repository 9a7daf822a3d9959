// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
)

// recipients gathers what readers without a subscription are given of ticket
// messages, and brings it into the audit trail: one entry for each of them and
// some time. No reader waits for it. What is not written yet is lost with the
// process.
type recipients struct {
	b       *Broker
	every   time.Duration
	mu      sync.Mutex
	open    map[recipientKey]*given // guarded by mu
	over    []*given                // to be written now; guarded by mu
	streams uint64                  // that were opened; guarded by mu
	wake    chan struct{}           // holds one token when something is over
}

// recipientKey is what one entry is about. Polls of one caller for the same topics
// are one recipient, a stream is one of its own.
type recipientKey struct {
	principal, door, topics string
	stream                  uint64
}

// given is what a recipient was given since its last entry.
type given struct {
	key       recipientKey
	topic     string // if it reads a single one
	since     time.Duration
	positions spans
	unlisted  bool   // positions are not all of them
	messages  uint64 // what is given twice counts twice
	from, to  uint64
}

const (
	// recipientsMax bounds the recipients that are known one by one, and the entries
	// that wait to be written. What others are given becomes one entry for each door.
	recipientsMax = 4096
	// givenMessagesMax bounds the messages that one entry lists, so that it is found by
	// every ticket that they are of, and givenSpansMax the ranges in which it lists them.
	givenMessagesMax = projector.TicketsOfEntryMax
	givenSpansMax    = 400
)

func newRecipients(b *Broker) *recipients {
	return &recipients{b: b, every: b.options.ReadEntryEvery, open: map[recipientKey]*given{}, wake: make(chan struct{}, 1)}
}

// Recipient is a reader without a subscription, as the audit trail knows it.
type Recipient struct {
	r     *recipients
	key   recipientKey
	topic string
}

// Recipient names who is given what a reader has. Door is how: polls of one
// principal for the same topics are taken together, each stream is by itself.
func (b *Broker) Recipient(p identity.Principal, door string, patterns []event.Pattern, stream bool) *Recipient {
	names := make([]string, len(patterns))
	for i := range patterns {
		names[i] = patterns[i].String()
	}
	to := &Recipient{r: b.recipients, key: recipientKey{principal: p.Subject(), door: door, topics: strings.Join(names, ",")}}
	if name, exact := patterns[0].Exact(); exact && len(patterns) == 1 {
		to.topic = name
	}
	if stream {
		b.recipients.mu.Lock()
		b.recipients.streams++
		to.key.stream = b.recipients.streams
		b.recipients.mu.Unlock()
	}
	return to
}

// Given notes what is being sent to the recipient. Events that are no ticket messages
// leave no entry.
func (to *Recipient) Given(w *dispatch.Window) {
	first := slices.IndexFunc(w.Deliveries, func(d dispatch.Delivery) bool { return d.Message })
	if first < 0 {
		return
	}
	r := to.r
	r.mu.Lock()
	defer r.mu.Unlock()
	var g *given
	for i := first; i < len(w.Deliveries); i++ {
		d := &w.Deliveries[i]
		if !d.Message {
			continue
		}
		if g == nil {
			g = r.find(to)
		}
		g.add(d.Position)
		switch {
		case !g.full():
		case len(r.over) < recipientsMax:
			r.end(g)
			g = nil
		default:
			g.unlisted, g.positions = true, spans{}
		}
	}
	if g != nil {
		g.to = max(g.to, w.Cursor.Position)
	}
}

func (g *given) add(position uint64) {
	if g.messages == 0 {
		g.from = position - 1
	}
	g.from, g.to = min(g.from, position-1), max(g.to, position)
	g.messages++
	if !g.unlisted {
		g.positions.add(position)
	}
}

func (g *given) full() bool {
	return g.positions.count >= givenMessagesMax || len(g.positions.list) >= givenSpansMax
}

// spans are positions, each once, however often and in which order they come: who reads
// a ticket time and again is given the same ones.
type spans struct {
	list  [][2]uint64 // both ends included, in order, and none a neighbour of the next
	count int         // positions in them
}

func (s *spans) add(position uint64) {
	at := sort.Search(len(s.list), func(i int) bool { return s.list[i][0] > position }) // the span behind
	if at > 0 && position <= s.list[at-1][1] {
		return
	}
	s.count++
	before := at > 0 && s.list[at-1][1]+1 == position
	behind := at < len(s.list) && position+1 == s.list[at][0]
	switch {
	case before && behind:
		s.list[at-1][1] = s.list[at][1]
		s.list = slices.Delete(s.list, at, at+1)
	case before:
		s.list[at-1][1] = position
	case behind:
		s.list[at][0] = position
	default:
		s.list = slices.Insert(s.list, at, [2]uint64{position, position})
	}
}

// text is as that of [projector.Ranges].
func (s *spans) text() string {
	var r projector.Ranges
	for _, span := range s.list {
		for position := span[0]; position <= span[1]; position++ {
			r.Add(position)
		}
	}
	return r.Text()
}

// find is called with mu held.
func (r *recipients) find(to *Recipient) *given {
	key, topic := to.key, to.topic
	g := r.open[key]
	if g == nil && len(r.open) >= recipientsMax {
		key, topic = recipientKey{door: key.door}, ""
		g = r.open[key]
	}
	if g == nil {
		g = &given{key: key, topic: topic, since: r.b.elapsed(), unlisted: key.topics == ""}
		r.open[key] = g
	}
	return g
}

// Gone says that nothing more is sent to the recipient, a stream.
func (to *Recipient) Gone() {
	to.r.mu.Lock()
	defer to.r.mu.Unlock()
	if g := to.r.open[to.key]; g != nil && len(to.r.over) < recipientsMax {
		to.r.end(g)
	}
}

// end is called with mu held.
func (r *recipients) end(g *given) {
	delete(r.open, g.key)
	r.over = append(r.over, g)
	token(r.wake)
}

// loop writes the entries: at the end of a stream, and after some time.
func (r *recipients) loop() {
	every := time.NewTicker(max(r.every/10, time.Millisecond))
	defer every.Stop()
	for {
		select {
		case <-r.b.stop:
			r.write(r.due(0))
			return
		case <-every.C:
		case <-r.wake:
		}
		if !r.b.disk.full.Load() { // room is kept for what frees space; meanwhile it is gathered
			r.write(r.due(r.every))
		}
	}
}

// due takes what is over, or was begun so long ago.
func (r *recipients) due(age time.Duration) []*given {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.b.elapsed()
	for _, g := range r.open {
		if now-g.since >= age {
			r.end(g)
		}
	}
	over := r.over
	r.over = nil
	slices.SortFunc(over, func(a, b *given) int { return int(a.since - b.since) })
	return over
}

func (r *recipients) write(over []*given) {
	for _, g := range over {
		note := &eventlog.Reading{Door: g.key.door, Topics: g.key.topics, Messages: g.messages, From: g.from, To: g.to}
		if !g.unlisted {
			note.Positions = g.positions.text()
		}
		// It fails when the log is closing, and then nothing can be written.
		_ = r.b.log.Append(context.Background(), &eventlog.Proposal{
			Kind: eventlog.KindReading, AdmittedMillis: r.b.clock.Millis(), Principal: g.key.principal, Topic: g.topic, Reading: note,
		})
	}
}
