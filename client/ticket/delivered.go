// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"signalbox/client"
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

// toBegin waits until an execute that was taken on is delivered, and stores that it is
// begun. It reports false for one that is not to be carried out, or not in this life
// of the agent.
//
// An agent that began before that could be at work on a slice which is dead for
// everybody else: its acknowledgement may be lost, or come after deliver_by.
func (a *Agent) toBegin(ctx context.Context, m *Message) bool {
	for wait := askMin; ; wait = min(2*wait, askMax) {
		t, err := a.c.Ticket(ctx, m.TicketID)
		now := deliveryPending
		if err == nil {
			now = a.delivered(&t, m)
		} else if ctx.Err() == nil && !retryable(err) {
			a.o.OnError(fmt.Errorf("whether the execute %s is delivered: %w", m.ID, err))
		}
		switch now {
		case deliveryDone:
			err = a.book.started(context.WithoutCancel(ctx), m.ID)
		case deliveryOver:
			a.o.OnError(fmt.Errorf("the execute %s of %s is not carried out: it was not delivered in time, the ticket has gone on without it, or it is that of another agent", m.ID, m.TicketID))
			err = a.book.over(context.WithoutCancel(ctx), m.ID)
		}
		if now != deliveryPending {
			if err != nil {
				a.o.OnError(err) // the next Run takes it up
			}
			return err == nil && now == deliveryDone
		}
		if sleep(ctx, wait); ctx.Err() != nil {
			return false
		}
	}
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
// the one acts whose proposal the slice is: all of them are handed the execute.
func (a *Agent) delivered(t *client.Ticket, m *Message) delivery {
	x := m.Payload.(*Execute)
	i := slices.IndexFunc(t.Slices, func(s client.TicketSlice) bool { return s.ID == x.SliceID })
	if t.Terminal || t.Plan == nil || t.Plan.Hash != x.PlanHash || i < 0 || !a.proposed(t, t.Slices[i].Proposal) {
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

// proposed reports whether the agent has made a proposal.
func (a *Agent) proposed(t *client.Ticket, id string) bool {
	for i := range t.Messages {
		if m, err := ticket.Parse(t.Messages[i].Message); err == nil && m.Header().ID == id {
			return m.Header().From == a.o.Name
		}
	}
	return false
}
