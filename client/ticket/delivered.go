// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

const (
	// askMin and askMax are between two questions whether an execute is delivered: the
	// acknowledgement is on its way.
	askMin = 10 * time.Millisecond
	askMax = 5 * time.Second
)

// delivery is how an execute stands with the broker.
type delivery int

const (
	deliveryPending delivery = iota // the broker has no acknowledgement
	deliveryDone                    // it has: everybody counts on the agent
	deliveryOver                    // nobody does: it came too late, or is another's
)

// toBegin waits until an execute that was taken on is delivered and has its room, and
// stores that it is begun. It reports false for one that is not to be carried out, which
// is stored too, or not in this life of the agent. Where the broker gives no answer the
// room is left to others, and from complete_by on nothing is asked any more.
//
// An agent that began before that could be at work on a slice which is dead for
// everybody else: its acknowledgement may be lost, or come after deliver_by.
func (a *Agent) toBegin(ctx context.Context, m *Message, r *room) bool {
	due, err := m.Due(1)
	if err != nil {
		a.o.OnError(err)
		return false
	}
	seen := &look{own: map[string]bool{}}
	for wait := askMin; ; wait = min(2*wait, askMax) {
		now, why := a.look(ctx, seen, m)
		if ctx.Err() != nil {
			return false
		}
		if now == deliveryPending && why != nil && !due.After(time.Now()) {
			now, why = deliveryOver, fmt.Errorf("complete_by has passed, and the broker does not say whether it is delivered: %w", why)
		}
		switch {
		case now == deliveryDone && !r.held: // the ticket may go on while this waits
			if !r.enter(ctx) {
				return false
			}
			continue
		case now == deliveryDone:
			err = a.book.started(context.WithoutCancel(ctx), m.ID)
		case now == deliveryOver:
			a.o.OnError(fmt.Errorf("the execute %s of %s is not carried out: %w", m.ID, m.TicketID, why))
			err = a.book.over(context.WithoutCancel(ctx), m.ID)
		default:
			if why != nil {
				r.leave()
				a.o.OnError(fmt.Errorf("whether the execute %s of %s is delivered is asked again: %w", m.ID, m.TicketID, why))
			}
			sleep(ctx, wait)
			continue
		}
		if err != nil {
			a.o.OnError(err) // the next Run takes it up
		}
		return err == nil && now == deliveryDone
	}
}

// look is what the questions so far have brought: each asks for what came after the
// last one, for a ticket may be long.
type look struct {
	cursor event.Cursor    // of the last message that was read
	own    map[string]bool // ids of the agent's own proposals up to there
}

// errPassedBy is why an execute that the broker knows is not carried out.
var errPassedBy = errors.New("it was not delivered in time, the ticket has gone on without it, or it is that of another agent")

// look asks the broker how an execute stands. Why is set where that is over, and where
// there was no answer. What the broker itself refuses for good is over: the ticket is not
// there, or the agent is not, or has no right to it any more, and by asking again none of
// that becomes otherwise. Everything else is asked again.
func (a *Agent) look(ctx context.Context, l *look, m *Message) (now delivery, why error) {
	t, err := a.c.TicketAfter(ctx, m.TicketID, l.cursor)
	switch {
	case refusedForGood(err):
		return deliveryOver, fmt.Errorf("the broker refuses to say whether it is delivered: %w", err)
	case err != nil && !retryable(err):
		*l = look{own: map[string]bool{}} // perhaps it is the cursor that it does not take
		return deliveryPending, err
	case err != nil:
		return deliveryPending, err
	}
	for i := range t.Messages {
		said := &t.Messages[i]
		l.cursor = said.Cursor
		if p, err := ticket.Parse(said.Message); err == nil && p.Header().Type == ticket.TypeProposal && p.Header().From == a.o.Name {
			l.own[p.Header().ID] = true
		}
	}
	if now = delivered(&t, m, l.own); now == deliveryOver {
		why = errPassedBy
	}
	return now, why
}

// acknowledge says that an execute is stored. Where the hand-out is over by now, or was
// acknowledged, that has no effect, and the ticket says how it stands.
func (a *Agent) acknowledge(ctx context.Context, j *job) {
	err := a.c.Ack(ctx, a.book.subscription, j.token)
	if err != nil && !errors.Is(err, client.ErrHandoutStale) && ctx.Err() == nil {
		a.o.OnError(fmt.Errorf("the acknowledgement of %s: %w", j.id, err))
	}
}

// delivered reads off a ticket how an execute stands. Of several agents of a domain
// the one acts whose own proposal the slice is: all of them are handed the execute.
func delivered(t *client.Ticket, m *Message, own map[string]bool) delivery {
	x := m.Payload.(*Execute)
	i := slices.IndexFunc(t.Slices, func(s client.TicketSlice) bool { return s.ID == x.SliceID })
	if t.Terminal || t.Plan == nil || t.Plan.Hash != x.PlanHash || i < 0 || !own[t.Slices[i].Proposal] {
		return deliveryOver
	}
	if slices.ContainsFunc(t.Deadlines, func(d client.TicketDeadline) bool { return d.Message == m.ID && d.Member == deliverBy }) {
		return deliveryPending
	}
	s := &t.Slices[i]
	switch x.Mode {
	case ModeApply:
		return running(s.Execute == m.ID, s.State)
	case ModeRollback:
		return running(s.RollbackExecute == m.ID, s.Rollback)
	}
	return deliveryDone // a verification changes nothing, and slices have no state for it
}

// deliverBy is the deadline that an acknowledgement meets.
const deliverBy = "deliver_by"

func running(this bool, state string) delivery {
	if this && state == ticket.SliceRunning {
		return deliveryDone
	}
	return deliveryOver
}
