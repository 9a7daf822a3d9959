// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"time"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

// Waiting is a request for approval that is not decided yet, with what is to be
// approved.
type Waiting struct {
	Request *Message // of an *[ApprovalRequest]
	// Plans are the messages by which the slices of the plan were frozen, in the order
	// of the plan; none where the request is for something else. Proposals has beside each
	// the one that it was made from, for what its agent said of the steps; nil where that
	// cannot be read.
	Plans, Proposals []*Message
	// Granted are those who have said yes so far and count still, and Needed is how many
	// have to, by the rules of the broker: a request cannot ask for fewer.
	Granted []string
	Needed  int
	missing int
	agreed  map[string]int // how many of Granted there are by choice
	given   map[string]int // how many grants of it there are by approver, whether or not they count
	Expires time.Time
	// Requesters have asked for the ticket. None of them approves it.
	Requesters []string
	// Breakers are those that are open of the ticket's targets.
	Breakers []client.TicketBreaker
	// Fault is why it cannot be approved: what is shown is not what was asked for. Nil
	// is what it should be.
	Fault error
}

// Missing is how many more have to say yes. Who has said yes to different options does
// not agree.
func (w *Waiting) Missing() int { return w.missing }

// MissingAfter is how many more have to say yes once somebody has who did not before: of a
// request that has options, those who have chosen another one do not count with them.
func (w *Waiting) MissingAfter(choice string) int {
	if len(w.Ask().Options) == 0 {
		return max(0, w.missing-1)
	}
	return min(w.missing, max(0, w.Needed-w.agreed[choice]-1))
}

// Ask returns the payload of the request.
func (w *Waiting) Ask() *ApprovalRequest { return w.Request.Payload.(*ApprovalRequest) }

// Gate is what an approver decides by.
type Gate struct {
	c      *client.Client
	sender *Sender
	keys   *keyring
}

// NewGate returns the gate of an approver, who signs with a key of their own.
func NewGate(c *client.Client, name string, key ed25519.PrivateKey) *Gate {
	sender := NewSender(c, name, key)
	return &Gate{c: sender.c, sender: sender, keys: newKeyring(c)}
}

// Waiting returns what waits for a decision, the oldest first. The hashes are computed
// again from the steps, and the signatures verified: nothing here is taken on trust
// but how many have to approve and who counts, which the broker holds everybody to.
func (g *Gate) Waiting(ctx context.Context) ([]*Waiting, error) {
	registry, err := g.c.Space(ctx)
	if err != nil {
		return nil, err
	}
	var requests []string // in order
	tickets := map[string]string{}
	topic := ticket.TopicRoot + "." + registry.Space + ".approval." + ticket.RoleGate
	for item, err := range g.c.Follow(ctx, []string{topic}, client.FollowOptions{}) {
		if err != nil {
			return nil, err
		}
		if item.Kind == client.ItemSynced {
			break
		}
		if item.Kind == client.ItemEvent {
			requests = append(requests, item.Event.ID())
			tickets[item.Event.ID()] = item.Event.Subject()
		}
	}
	read := map[string]map[string]*Waiting{}
	var open []*Waiting
	for _, id := range requests {
		of := tickets[id]
		if read[of] == nil {
			if read[of], err = g.waitingOf(ctx, of); err != nil {
				return nil, err
			}
		}
		if w := read[of][id]; w != nil {
			open = append(open, w)
		}
	}
	return open, nil
}

// waitingOf returns what of a ticket waits for a decision, by the id of the request.
func (g *Gate) waitingOf(ctx context.Context, id string) (map[string]*Waiting, error) {
	t, err := g.c.Ticket(ctx, id)
	if refusedAs(err, event.CodeTicketUnknown) {
		return map[string]*Waiting{}, nil
	}
	if err != nil {
		return nil, err
	}
	said := map[string]*Message{}
	var plans, proposals []*Message
	for i := range t.Messages {
		m, err := DecodeMessage(t.Messages[i].Message)
		if err != nil {
			continue // of a later version; nobody can approve what they cannot read
		}
		said[m.ID] = m
		switch m.Type {
		case ticket.TypePlan:
			plans = append(plans, m)
		case ticket.TypeProposal:
			proposals = append(proposals, m)
		}
	}
	waiting := map[string]*Waiting{}
	for i := range t.Approvals {
		a := &t.Approvals[i]
		m := said[a.ID]
		if m == nil || a.Missing == 0 {
			continue
		}
		w := &Waiting{Request: m, Needed: a.Approvers, missing: a.Missing, agreed: map[string]int{}, given: map[string]int{}, Requesters: t.Requesters, Breakers: t.Breakers}
		for _, grant := range a.Grants {
			w.given[grant.Approver]++
			if grant.Counts {
				w.Granted = append(w.Granted, grant.Approver)
				w.agreed[grant.Choice]++
			}
		}
		w.Fault = g.fill(ctx, w, plans, proposals)
		waiting[a.ID] = w
	}
	return waiting, nil
}

// fill adds the plan, and reports what is wrong with it.
func (g *Gate) fill(ctx context.Context, w *Waiting, plans, proposals []*Message) (err error) {
	if w.Expires, err = w.Request.Due(0); err != nil {
		return err
	}
	if err := g.keys.check(ctx, w.Request, ticket.RoleOrchestrator); err != nil {
		return err
	}
	ask := w.Ask()
	if ask.PlanHash == "" {
		return nil
	}
	plans = slices.DeleteFunc(slices.Clone(plans), func(m *Message) bool { return m.Payload.(*Plan).PlanHash != ask.PlanHash })
	if len(plans) == 0 {
		return noMatch("The plan with the hash %s cannot be read.", ask.PlanHash)
	}
	first := plans[0].Payload.(*Plan)
	for _, slice := range first.Slices {
		m, err := frozenIn(plans, slice)
		if err != nil {
			return err
		}
		if err := g.keys.check(ctx, m, ticket.RoleOrchestrator); err != nil {
			return err
		}
		w.Plans = append(w.Plans, m)
		w.Proposals = append(w.Proposals, g.proposed(ctx, m, slice, proposals))
	}
	hash, err := ticket.Plan{
		TicketID: w.Request.TicketID, PlanID: ask.PlanID, Revision: ask.Revision, Tier: valueOf(ask.Tier), Slices: first.Slices, PolicyVersion: first.PolicyVersion,
	}.Hash()
	if err == nil && hash != ask.PlanHash {
		err = noMatch("The request is for the hash %s, and that of the plan is %s.", ask.PlanHash, hash)
	}
	return err
}

// proposed finds the proposal that a slice was frozen from.
func (g *Gate) proposed(ctx context.Context, plan *Message, slice ticket.PlanSlice, proposals []*Message) *Message {
	for _, m := range proposals {
		p := m.Payload.(*Proposal)
		hash, err := p.Slice().Hash()
		if err == nil && hash == slice.Hash && p.SliceID == slice.ID && m.To == plan.To && g.keys.check(ctx, m, ticket.RoleDomainAgent) == nil {
			return m
		}
	}
	return nil
}

// frozenIn finds the message that froze a slice, whose steps have the hash that the
// plan has of it.
func frozenIn(plans []*Message, slice ticket.PlanSlice) (*Message, error) {
	for _, m := range plans {
		frozen := &m.Payload.(*Plan).Slice
		if frozen.ID != slice.ID {
			continue
		}
		hash, err := frozen.Slice().Hash()
		if err == nil && hash != slice.Hash {
			err = noMatch("The slice %q has the hash %s in the plan, and that of its steps is %s.", slice.ID, slice.Hash, hash)
		}
		return m, err
	}
	return nil, noMatch("The slice %q of the plan cannot be read.", slice.ID)
}

func noMatch(format string, args ...any) error {
	return event.Errorf(event.CodePayloadInvalid, format, args...).With("payload/plan_hash")
}

func valueOf(tier *int) int {
	if tier == nil {
		return 0
	}
	return *tier
}

// Approve says yes to what was shown, and to nothing else. Choice is one of the
// options of a request that has some. What has expired, or is not what it is said to
// be, is not approved.
func (g *Gate) Approve(ctx context.Context, w *Waiting, choice string, now time.Time) (client.MessageReceipt, error) {
	switch {
	case w.Fault != nil:
		return client.MessageReceipt{}, fmt.Errorf("it is not what it is said to be, and not approved: %w", w.Fault)
	case !w.Expires.After(now):
		return client.MessageReceipt{}, event.Errorf(event.CodeApprovalClosed, "The request %s has expired at %s.", w.Request.ID, w.Expires.Format(time.RFC3339))
	case slices.Contains(w.Granted, g.sender.Name()):
		return client.MessageReceipt{}, event.Errorf(event.CodeAlreadyAnswered, "You have granted this, and count once; %d of %d have, and somebody else has to.", len(w.Granted), w.Needed)
	case slices.Contains(w.Requesters, g.sender.Name()):
		return client.MessageReceipt{}, event.Errorf(event.CodeSelfApproval, "You have asked for this ticket, and do not approve it; somebody else has to.")
	}
	ask := w.Ask()
	return g.say(ctx, w, ticket.TypeApprovalGrant, &ApprovalGrant{
		RequestID: w.Request.ID, PlanID: ask.PlanID, PlanHash: ask.PlanHash, Approver: g.sender.Name(), Choice: choice, DecidedAt: now.UTC(), SingleUse: true,
	})
}

// Deny says no.
func (g *Gate) Deny(ctx context.Context, w *Waiting, code, reason string) (client.MessageReceipt, error) {
	return g.say(ctx, w, ticket.TypeApprovalDeny, &ApprovalDeny{
		RequestID: w.Request.ID, PlanHash: w.Ask().PlanHash, Approver: g.sender.Name(), ReasonCode: code, Reason: reason,
	})
}

// say decides a request. Who has granted it, and whose grant does not count any more,
// decides it anew, which is not what they have said before.
func (g *Gate) say(ctx context.Context, w *Waiting, kind string, payload any) (client.MessageReceipt, error) {
	key := "decide/" + w.Request.ID
	if given := w.given[g.sender.Name()]; given > 0 {
		key += fmt.Sprintf("/%d", given+1)
	}
	return g.sender.Send(ctx, Answer(&w.Request.Header, kind, ticket.RoleOrchestrator, key, payload))
}
