// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

const (
	// movesMax bounds what follows from one message: a function that never comes to
	// rest is stopped, and said to be wrong.
	movesMax = 1000
	// lookEvery is how often tickets that wait for a time are looked at, quietMax how
	// long nobody looks at the log without a sign of news, and newsEvery how often it is
	// looked at when there was a sign and the news are not there yet.
	lookEvery = time.Second
	quietMax  = 30 * time.Second
	newsEvery = 20 * time.Millisecond
	// refusalsMax is how often a move that the broker refuses is thought over before
	// it is escalated.
	refusalsMax = 3
)

// OrchestratorOptions says who an orchestrator is and how it decides.
type OrchestratorOptions struct {
	Name string
	Key  ed25519.PrivateKey
	// Decide says what follows from what was said about a ticket, in the order in
	// which it is to be said. It is called again, with what it said before among the
	// messages, until it has nothing more to say. It must depend on nothing but the
	// ticket and the time; wake is when it wants to be asked again if nothing is said
	// until then, zero if never.
	Decide func(t *Ticket, now time.Time) (moves []Move, wake time.Time)
	// OnMove is told of each move and what became of it; nil is fine.
	OnMove func(*Ticket, Move, error)
	// OnError is told of what failed and is tried again. It is for logs; nil is fine.
	OnError func(error)
	// DryRun has Run tell OnMove which moves are next, make none of them, and return.
	DryRun bool
}

// Orchestrator decides about tickets. What it has of them in memory is what the
// broker has of them, and no more.
type Orchestrator struct {
	o      OrchestratorOptions
	c      *client.Client
	sender *Sender
	log    *history

	// All below is owned by the goroutine of Run.
	tickets map[string]*Ticket // that are not at their end
	touched map[string]bool    // of which something was said that nobody has decided about
	wakes   map[string]time.Time
	refused map[string]int // by the key of a move
}

// NewOrchestrator returns an orchestrator.
func NewOrchestrator(c *client.Client, o OrchestratorOptions) (*Orchestrator, error) {
	if o.Decide == nil {
		return nil, errors.New("ticketclient: an orchestrator needs a function that decides")
	}
	if o.OnMove == nil {
		o.OnMove = func(*Ticket, Move, error) {}
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	sender := NewSender(c, o.Name, o.Key)
	return &Orchestrator{
		o: o, c: sender.c, sender: sender,
		tickets: map[string]*Ticket{}, touched: map[string]bool{}, wakes: map[string]time.Time{}, refused: map[string]int{},
	}, nil
}

// Run decides until ctx ends, or the broker refuses the orchestrator for good. It
// begins with all tickets that are not at their end, whoever has brought them
// where they are.
func (o *Orchestrator) Run(ctx context.Context) error {
	registry, err := o.c.Space(ctx)
	if err != nil {
		return err
	}
	o.log = &history{c: o.c, topics: ticket.TopicRoot + "." + registry.Space + ".>", tell: o.o.OnError}
	if o.o.DryRun {
		return o.look(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop(nil)
	beside.Go(func() { newBeats(o.sender, 0, "", nil, 1, o.o.OnError).run(ctx, nil) })
	news, heard := make(chan struct{}, 1), &atomic.Uint64{}
	beside.Go(func() { stop(o.listen(ctx, registry.Space, heard, news)) })
	for {
		if err := o.look(ctx); err != nil {
			return err
		}
		wait := quietMax
		switch {
		case o.log.seen < heard.Load():
			wait = newsEvery
		case len(o.wakes) > 0:
			wait = lookEvery
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-news:
		case <-time.After(wait):
		}
	}
}

// listen gives a sign whenever something was said, and notes at which position. What
// was said is read elsewhere: a stream leaves out what has expired.
func (o *Orchestrator) listen(ctx context.Context, space string, heard *atomic.Uint64, news chan<- struct{}) error {
	var topics []string
	for _, t := range ticket.Types() {
		if topic := ticket.TopicRoot + "." + space + "." + t.Family + ".>"; t.Name != ticket.TypeHeartbeat && !slices.Contains(topics, topic) {
			topics = append(topics, topic)
		}
	}
	onRetry := func(err error, _ time.Duration) {
		if err != nil {
			o.o.OnError(err)
		}
	}
	for item, err := range o.c.Follow(ctx, topics, client.FollowOptions{Now: true, OnRetry: onRetry}) {
		if err != nil {
			return err
		}
		if item.Kind == client.ItemEvent {
			heard.Store(item.Event.Position())
		}
		if item.Kind == client.ItemEvent || item.Kind == client.ItemSynced {
			select {
			case news <- struct{}{}:
			default:
			}
		}
	}
	return context.Cause(ctx)
}

// look takes in what is new and decides about what it concerns. What fails for a
// while is left for the next time.
func (o *Orchestrator) look(ctx context.Context) error {
	if err := o.catchUp(ctx); err != nil {
		if ctx.Err() != nil || !retryable(err) {
			return err
		}
		o.o.OnError(err)
	}
	now := time.Now()
	for id, at := range o.wakes {
		if !at.After(now) {
			o.touched[id] = true
		}
	}
	for len(o.touched) > 0 {
		for _, id := range slices.Sorted(maps.Keys(o.touched)) {
			delete(o.touched, id)
			if err := o.decide(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// catchUp takes in what was said since the last time.
func (o *Orchestrator) catchUp(ctx context.Context) error {
	return o.log.read(ctx, func(m *Message) {
		t := o.tickets[m.TicketID]
		if open, ok := m.Payload.(*Open); ok && t == nil && open.Op == "open" {
			t = &Ticket{}
			o.tickets[m.TicketID] = t
		}
		if t == nil || !t.add(m) {
			return // a heartbeat, or said after the end
		}
		o.touched[t.ID] = true
		if s, ok := m.Payload.(*State); ok && (s.To == "CLOSED" || s.To == "CANCELLED") {
			delete(o.tickets, t.ID)
			delete(o.wakes, t.ID)
		}
	})
}

// decide makes the moves of one ticket until there are none.
func (o *Orchestrator) decide(ctx context.Context, id string) error {
	for made := 0; ; {
		t := o.tickets[id]
		if t == nil {
			return nil
		}
		moves, wake := o.o.Decide(t, time.Now())
		moves = slices.DeleteFunc(moves, func(m Move) bool { return t.Said(o.o.Name, m.Type, t.Key(m.Key)) })
		delete(o.wakes, id)
		if !wake.IsZero() {
			o.wakes[id] = wake
		}
		for _, m := range moves {
			if o.o.DryRun {
				o.o.OnMove(t, m, nil)
				continue
			}
			if made++; made > movesMax {
				return fmt.Errorf("ticketclient: the ticket %s has %d moves in a row, and no end; the function that decides does not come to rest", id, movesMax)
			}
			if !o.move(ctx, t, m) {
				return context.Cause(ctx)
			}
		}
		if len(moves) == 0 || o.o.DryRun {
			return nil
		}
		if err := o.catchUp(ctx); err != nil && ctx.Err() == nil {
			o.o.OnError(err)
			o.wakes[id] = time.Now().Add(againMin)
			return context.Cause(ctx)
		}
	}
}

// move makes one move, and reports whether it was made. What was said under its name
// in another form, by an earlier life of the process, counts as made: the log has it.
func (o *Orchestrator) move(ctx context.Context, t *Ticket, m Move) bool {
	_, err := o.sender.Send(ctx, t.draft(m))
	o.o.OnMove(t, m, err)
	key := t.Key(m.Key)
	if err == nil || refusedAs(err, event.CodeIdempotencyConflict) {
		delete(o.refused, key)
		return true
	}
	o.refused[key]++
	o.wakes[t.ID] = time.Now().Add(min(againMin<<min(o.refused[key], 6), againMax))
	if retryable(err) {
		return false
	}
	if t.noteRefusal(m, err); o.refused[key]%refusalsMax == 0 {
		o.giveUp(ctx, t, m, err)
	}
	return false
}

// giveUp escalates a move that the broker refuses time and again: somebody has to
// look at the ticket.
func (o *Orchestrator) giveUp(ctx context.Context, t *Ticket, m Move, refusal error) {
	last := t.Messages[len(t.Messages)-1]
	d := t.draft(Move{Type: ticket.TypeEscalation, To: ticket.RoleGate, Cause: last.ID, Key: "refused/" + m.Key + "/" + last.ID, Payload: &Escalation{
		ReasonCode: "move_refused", Severity: "critical", Refs: []string{last.ID}, ContextRef: last.ID,
		Asks: []string{shortened(fmt.Sprintf("The broker refuses %s: %v", m.Type, refusal))},
	}})
	if _, err := o.sender.Send(ctx, d); err != nil {
		o.o.OnError(fmt.Errorf("the escalation of %s: %w", t.ID, err))
	}
}
