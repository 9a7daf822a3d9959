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
	"time"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

const (
	// movesMax bounds what follows from one message: a function that never comes to
	// rest is stopped, and said to be wrong.
	movesMax = 1000
	// ticketsAtATime is how many tickets are asked for in a list.
	ticketsAtATime = 1000
	// wakeMin keeps a function that wants to be asked again at once from being asked
	// without end.
	wakeMin = 50 * time.Millisecond
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
	// OnReady is told once the orchestrator has taken up the tickets that were open
	// when it began, and how many these were; nil is fine.
	OnReady func(open int)
	// OnError is told of what failed and is tried again. It is for logs; nil is fine.
	OnError func(error)
	// DryRun has Run tell OnMove which moves are next, make none of them, and return.
	DryRun bool
}

// Orchestrator decides about tickets. What it has of them in memory is what the
// broker has of those that are open, and no more.
type Orchestrator struct {
	o      OrchestratorOptions
	c      *client.Client
	sender *Sender

	// All below is owned by the goroutine of Run.
	tickets map[string]*Ticket // that are not at their end
	touched map[string]bool    // that are to be read, and decided about
	listed  bool               // all that are open have been, since news of them were lost
	ready   bool
	verbs   *ticket.Catalogue
	wakes   map[string]time.Time
}

// NewOrchestrator returns an orchestrator.
func NewOrchestrator(c *client.Client, o OrchestratorOptions) (*Orchestrator, error) {
	if o.Decide == nil {
		return nil, errors.New("ticketclient: an orchestrator needs a function that decides")
	}
	if o.OnMove == nil {
		o.OnMove = func(*Ticket, Move, error) {}
	}
	if o.OnReady == nil {
		o.OnReady = func(int) {}
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	sender := NewSender(c, o.Name, o.Key)
	return &Orchestrator{
		o: o, c: sender.c, sender: sender, tickets: map[string]*Ticket{}, touched: map[string]bool{}, wakes: map[string]time.Time{},
	}, nil
}

// Run decides until ctx ends, or the broker refuses the orchestrator for good. It
// begins with all tickets that are not at their end, whoever has brought them
// where they are; of those that are it reads nothing.
func (o *Orchestrator) Run(ctx context.Context) error {
	registry, err := o.c.Space(ctx)
	if err != nil {
		return err
	}
	if o.o.DryRun {
		return o.look(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop(nil)
	beside.Go(func() { newBeats(o.sender, 0, "", nil, 1, o.o.OnError).run(ctx, nil) })
	heard := newNews()
	beside.Go(func() { stop(heard.listen(ctx, o.c, registry.Space, o.o.OnError)) })
	for ctx.Err() == nil {
		names, all := heard.take()
		maps.Copy(o.touched, names)
		o.listed = o.listed && !all
		if err := o.look(ctx); err != nil {
			return err
		}
		o.rest(ctx, heard)
	}
	return context.Cause(ctx)
}

// rest waits for news, or for the first time at which a ticket is to be looked at.
func (o *Orchestrator) rest(ctx context.Context, heard *news) {
	var wake <-chan time.Time
	if !o.listed {
		wake = time.After(againMin)
	} else if len(o.wakes) > 0 {
		first := slices.MinFunc(slices.Collect(maps.Values(o.wakes)), time.Time.Compare)
		wake = time.After(max(time.Until(first), wakeMin))
	}
	select {
	case <-ctx.Done():
	case <-heard.sign:
	case <-wake:
	}
}

// look decides about all tickets that something is new of, or whose time has come.
// What fails for a while is left for the next time.
func (o *Orchestrator) look(ctx context.Context) error {
	if !o.listed {
		if err := o.list(ctx); err != nil {
			return o.passing(ctx, err)
		}
		o.listed = true
	}
	now := time.Now()
	for id, at := range o.wakes {
		if !at.After(now) {
			o.touched[id] = true
		}
	}
	begun := len(o.touched)
	for _, id := range slices.Sorted(maps.Keys(o.touched)) {
		delete(o.touched, id)
		if err := o.decide(ctx, id); err != nil {
			return err
		}
	}
	if !o.ready {
		o.ready = true
		o.o.OnReady(begun)
	}
	return nil
}

// passing returns nil for an error that can pass by itself, which is told of.
func (o *Orchestrator) passing(ctx context.Context, err error) error {
	if ctx.Err() != nil || o.o.DryRun || !retryable(err) {
		return err
	}
	o.o.OnError(err)
	return nil
}

// list finds the tickets that are open, and the catalogue of verbs in force, which
// changes when a broker starts and at no other time.
func (o *Orchestrator) list(ctx context.Context) error {
	text, err := o.c.Verbs(ctx)
	if err != nil {
		return err
	}
	if o.verbs, err = ticket.ParseCatalogue(text); err != nil {
		return err
	}
	q := client.TicketQuery{Limit: ticketsAtATime}
	for _, s := range ticket.States() {
		if !s.Terminal {
			q.States = append(q.States, s.Name)
		}
	}
	for {
		open, next, err := o.c.Tickets(ctx, q)
		if err != nil {
			return err
		}
		for i := range open {
			if t := o.tickets[open[i].ID]; t == nil || t.cursor.Position < open[i].Cursor.Position || t.cursor.Incarnation != open[i].Cursor.Incarnation {
				o.touched[open[i].ID] = true
			}
		}
		if q.After = next; next == "" {
			return nil
		}
	}
}

// read takes in what is new of a ticket. It returns nil for one that is at its end.
func (o *Orchestrator) read(ctx context.Context, id string) (*Ticket, error) {
	t := o.tickets[id]
	if t == nil {
		t = &Ticket{ID: id, refused: map[string]int{}}
	}
	now, err := o.c.TicketAfter(ctx, id, t.cursor)
	if refusedAs(err, event.CodeCursorForeign) { // the log was restored: what is known of the ticket is not of it
		t = &Ticket{ID: id, refused: map[string]int{}}
		now, err = o.c.TicketAfter(ctx, id, t.cursor)
	}
	if refusedAs(err, event.CodeTicketUnknown) || err == nil && now.Terminal {
		delete(o.tickets, id)
		delete(o.wakes, id)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, said := range now.Messages {
		t.cursor = said.Cursor
		m, err := DecodeMessage(said.Message)
		if err != nil {
			// Of a later version, or removed by an operator: it must not end the orchestrator,
			// now and at every start.
			o.o.OnError(fmt.Errorf("the message of %s at %s is passed over: %w", id, said.Cursor, err))
			continue
		}
		t.Messages = append(t.Messages, m)
	}
	t.Trace, t.Requesters, t.MovedBy, t.Breakers, t.Verbs = now.Trace, now.Requesters, now.MovedBy, now.Breakers, o.verbs
	o.tickets[id] = t
	return t, nil
}

// decide makes the moves of one ticket until there are none.
func (o *Orchestrator) decide(ctx context.Context, id string) error {
	for made := 0; ; {
		t, err := o.read(ctx, id)
		if err != nil {
			o.wakes[id] = time.Now().Add(againMin)
			return o.passing(ctx, err)
		}
		if t == nil || len(t.Messages) == 0 {
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
	}
}

// move makes one move, and reports whether it was made. What was said under its name
// in another form, by an earlier life of the process, counts as made: the log has it.
func (o *Orchestrator) move(ctx context.Context, t *Ticket, m Move) bool {
	_, err := o.sender.Send(ctx, t.draft(m))
	o.o.OnMove(t, m, err)
	key := t.Key(m.Key)
	if err == nil || refusedAs(err, event.CodeIdempotencyConflict) {
		delete(t.refused, key)
		return true
	}
	t.refused[key]++
	o.wakes[t.ID] = time.Now().Add(min(againMin<<min(t.refused[key], 6), againMax))
	if !retryable(err) && t.refused[key]%refusalsMax == 0 {
		o.giveUp(ctx, t, m, err)
	}
	return false
}

// giveUp escalates a move that the broker refuses time and again: somebody has to
// look at the ticket. As long as the ticket stands where it does, once is enough.
func (o *Orchestrator) giveUp(ctx context.Context, t *Ticket, m Move, refusal error) {
	name := "refused/" + m.Key + "/" + t.MovedBy
	if t.Said(o.o.Name, ticket.TypeEscalation, t.Key(name)) {
		return
	}
	last := t.Messages[len(t.Messages)-1]
	d := t.draft(Move{Type: ticket.TypeEscalation, To: ticket.RoleGate, Cause: last.ID, Key: name, Payload: &Escalation{
		ReasonCode: "move_refused", Severity: "critical", Refs: []string{last.ID}, ContextRef: last.ID,
		Asks: []string{shortened(fmt.Sprintf("The broker refuses %s: %v", m.Type, refusal))},
	}})
	if _, err := o.sender.Send(ctx, d); err != nil {
		o.o.OnError(fmt.Errorf("the escalation of %s: %w", t.ID, err))
	}
}
