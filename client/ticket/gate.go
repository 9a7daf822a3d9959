// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"crypto/ed25519"
	"fmt"
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
	// of the plan; none where the request is for something else.
	Plans []*Message
	// Granted are those who have said yes so far.
	Granted []string
	Expires time.Time
	// Fault is why it cannot be approved: what is shown is not what was asked for. Nil
	// is what it should be.
	Fault error
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
// again from the steps, and the signatures verified: nothing here is taken on trust.
func (g *Gate) Waiting(ctx context.Context) ([]*Waiting, error) {
	registry, err := g.c.Space(ctx)
	if err != nil {
		return nil, err
	}
	root := ticket.TopicRoot + "." + registry.Space + "."
	var waiting []*Waiting
	plans := map[string][]*Message{} // by hash
	over := map[string]bool{}
	granted := map[string][]string{}
	for item, err := range g.c.Follow(ctx, []string{root + "approval.>", root + "plan.>"}, client.FollowOptions{}) {
		if err != nil {
			return nil, err
		}
		if item.Kind == client.ItemSynced {
			break
		}
		if item.Kind != client.ItemEvent {
			continue
		}
		m, err := DecodeMessage(item.Event.Data())
		if err != nil {
			continue // of a later version; nobody can approve what they cannot read
		}
		switch p := m.Payload.(type) {
		case *ApprovalRequest:
			if m.To == ticket.RoleGate {
				waiting = append(waiting, &Waiting{Request: m})
			}
		case *Plan:
			plans[p.PlanHash] = append(plans[p.PlanHash], m)
		case *ApprovalGrant:
			granted[p.RequestID] = append(granted[p.RequestID], p.Approver)
		case *ApprovalDeny:
			over[p.RequestID] = true
		}
	}
	var open []*Waiting
	for _, w := range waiting {
		w.Granted = granted[w.Request.ID]
		if over[w.Request.ID] || len(w.Granted) >= w.Ask().ApproversRequired {
			continue
		}
		w.Fault = g.fill(ctx, w, plans[w.Ask().PlanHash])
		open = append(open, w)
	}
	return open, nil
}

// fill adds the plan, and reports what is wrong with it.
func (g *Gate) fill(ctx context.Context, w *Waiting, plans []*Message) (err error) {
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
	}
	hash, err := ticket.Plan{
		TicketID: w.Request.TicketID, PlanID: ask.PlanID, Revision: ask.Revision, Tier: valueOf(ask.Tier), Slices: first.Slices, PolicyVersion: first.PolicyVersion,
	}.Hash()
	if err == nil && hash != ask.PlanHash {
		err = noMatch("The request is for the hash %s, and that of the plan is %s.", ask.PlanHash, hash)
	}
	return err
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
		return client.MessageReceipt{}, fmt.Errorf("the request %s has expired at %s", w.Request.ID, w.Expires.Format(time.RFC3339))
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

func (g *Gate) say(ctx context.Context, w *Waiting, kind string, payload any) (client.MessageReceipt, error) {
	return g.sender.Send(ctx, Answer(&w.Request.Header, kind, ticket.RoleOrchestrator, "decide/"+w.Request.ID, payload))
}
