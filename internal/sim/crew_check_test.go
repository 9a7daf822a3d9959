// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/ticket"
)

// heard takes over a message of the log.
func (w *world) heard(e *event.Event, position uint64) {
	m, err := ticket.Parse(e.Data())
	if err != nil {
		w.fail("the message at @%d does not parse: %v", position, err)
	}
	s := &spoken{Header: m.Header(), position: position, raw: slices.Clone(e.Data())}
	if err := json.Unmarshal(m.Payload(), &s.payload); err != nil {
		w.fail("the message at @%d: %v", position, err)
	}
	key := verifyingKey(s.From)
	if err := m.Verify(key); err != nil && s.From != "bus" {
		w.fail("the message at @%d is not signed by %s", position, s.From)
	}
	if w.crew.byID[s.ID] != nil {
		w.fail("the message %s is there twice", s.ID)
	}
	for _, other := range w.crew.said {
		if other.From == s.From && (other.Nonce == s.Nonce || other.Type == s.Type && other.IdempotencyKey == s.IdempotencyKey) {
			w.fail("%s and %s have one nonce or one idempotency key", other.ID, s.ID)
		}
	}
	w.crew.said, w.crew.byID[s.ID] = append(w.crew.said, s), s
	if s.From == "bus" {
		w.counts["messages of the bus"]++
	}
	if s.Type == ticket.TypeExecute {
		w.counts["executes"]++
		w.checkExecute(s)
	}
}

// checkSilence: whatever opens a ticket was answered in time, or the bus has said
// that it was not.
func (w *world) checkSilence() {
	const ackBy, late = 10 * time.Minute, 10 * time.Second
	for _, s := range w.crew.said {
		if s.Type != ticket.TypeOpen || s.payload.text("op") != "open" || w.broker.LogMillis() < s.Time.Add(ackBy+late).UnixMilli() {
			continue
		}
		if !slices.ContainsFunc(w.crew.said, func(other *spoken) bool { return other.CausationID == s.ID }) {
			w.fail("nobody has answered %s of %s, and nobody has said so", s.ID, s.TicketID)
		}
	}
}

// forget leaves out what the log has not, after a restore.
func (c *crew) forget(after uint64) {
	c.said = slices.DeleteFunc(c.said, func(s *spoken) bool {
		if s.position > after {
			delete(c.byID, s.ID)
		}
		return s.position > after
	})
	clear(c.tickets)
}

// checkExecute checks what must be true of every execute that was ever released:
// its plan was issued, its steps are those of the frozen slice, and from tier 2 on
// enough people who did not ask for it have granted exactly this plan.
func (w *world) checkExecute(x *spoken) {
	hash, slice := x.payload.text("plan_hash"), x.payload.text("slice_id")
	plan := w.crew.last(x.TicketID, ticket.TypePlan, func(p *spoken) bool {
		frozen, _ := p.payload["slice"].(map[string]any)
		return p.payload.text("plan_hash") == hash && payload(frozen).text("slice_id") == slice
	})
	if plan == nil {
		w.fail("%s executes the slice %s of %s, which nobody has issued", x.ID, slice, hash)
	}
	frozen, err := ticket.SliceOf(jsonOf(plan.payload["slice"]))
	said, err2 := ticket.SliceOf(jsonOf(x.payload))
	want := frozen.Steps
	if x.payload.text("mode") == "rollback" {
		want = frozen.Rollback
	}
	if err != nil || err2 != nil || !reflect.DeepEqual(said.Steps, want) {
		w.fail("%s executes %v, and the plan has %v", x.ID, said.Steps, want)
	}
	w.checkTier(x, plan)
	for _, other := range w.crew.said {
		if other.Type != ticket.TypeExecute || other.payload.text("plan_hash") == hash {
			continue
		}
		for _, id := range ids(other.payload) {
			if slices.Contains(ids(x.payload), id) {
				w.fail("the grant %s was used by %s and by %s, for two plans", id, other.ID, x.ID)
			}
		}
	}
}

func ids(p payload) (list []string) {
	approvals, _ := p["approval_ids"].([]any)
	for _, id := range approvals {
		list = append(list, fmt.Sprint(id))
	}
	return list
}

// checkTier checks the tier of an execute's plan, and its grants.
func (w *world) checkTier(x, plan *spoken) {
	hash := plan.payload.text("plan_hash")
	tier, _ := plan.payload["tier"].(float64)
	var proposed []ticket.Proposed
	list, _ := plan.payload["slices"].([]any)
	for _, s := range list {
		named, _ := s.(map[string]any)
		p := w.crew.last(x.TicketID, ticket.TypeProposal, func(p *spoken) bool { return p.payload.text("slice_hash") == payload(named).text("slice_hash") })
		if p == nil {
			w.fail("%s executes a plan with a slice that nobody has proposed", x.ID)
		}
		slice, _ := ticket.SliceOf(jsonOf(p.payload))
		proposed = append(proposed, ticket.Proposed{Domain: p.To, Slice: slice})
	}
	if least, reason := w.crew.verbs.Tier(proposed); int(tier) < least {
		w.fail("%s executes a plan of tier %v, which is one of tier %d: %s", x.ID, tier, least, reason)
	}
	if tier < 2 {
		return
	}
	approvers := map[string]bool{}
	for _, s := range w.crew.said {
		if s.TicketID == x.TicketID && s.Type == ticket.TypeApprovalGrant && s.payload.text("plan_hash") == hash && slices.Contains(ids(x.payload), s.ID) {
			approvers[s.From] = true
		}
	}
	delete(approvers, "desk")
	if need := int(tier) - 1; len(approvers) < need {
		w.fail("%s executes a plan of tier %v, and %d of %d have granted it", x.ID, tier, len(approvers), need)
	}
}

// watch checks how tickets have changed since it looked at them last: by messages
// of the orchestrator alone, and never what is over.
func (w *world) watch() {
	for n, life := range w.crew.lives {
		id := fmt.Sprintf("T%d-%d", n, life)
		now, err := w.broker.Ticket(id)
		if code(err) == event.CodeTicketUnknown {
			continue
		}
		if err != nil {
			w.fail("ticket %s: %v", id, err)
		}
		if before := w.crew.tickets[id]; before != nil {
			w.checkChange(before, &now)
		}
		w.crew.tickets[id] = &now
	}
}

func (w *world) checkChange(before, now *broker.TicketInfo) {
	if before.State != now.State {
		by := w.crew.byID[now.Moved]
		if by == nil || by.From != "orch" || now.Moved == before.Moved {
			w.fail("%s went from %s to %s by %s", now.ID, before.State, now.State, now.Moved)
		}
		w.counts["moved to "+now.State]++
	}
	if before.Terminal && !reflect.DeepEqual(before.State, now.State) {
		w.fail("%s was %s, and is %s", now.ID, before.State, now.State)
	}
	if before.Revision != now.Revision || before.State != now.State && now.State == ticket.StatePlanning {
		return // it is planned anew
	}
	for i := range before.Slices {
		was, is := &before.Slices[i], &now.Slices[i]
		if ticket.TerminalSlice(was.State) && (was.State != is.State || was.ID != is.ID || was.Hash != is.Hash) {
			w.fail("%s: the slice %s was %s, and is %s", now.ID, was.ID, was.State, is.State)
		}
	}
}
