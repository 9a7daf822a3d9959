// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"encoding/json"
	"fmt"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
)

// chain appends an entry to the audit trail, and returns its index. Its leaf and
// the entry itself are rows of the commit, so that what the leaf was made of is
// known when the event is gone.
func (p *Projector) chain(e audit.Entry) uint64 {
	e.Index, e.LogMillis = p.space.Leaves, p.space.LogMillis
	leaf := e.Leaf()
	p.leaves = append(p.leaves, leaf[:]...)
	p.entries = audit.AppendEntry(p.entries, &e)
	p.space.Leaves++
	p.space.Chain = audit.NextChain(p.space.Chain, leaf)
	return e.Index
}

// refusalDetail is what the entry of a refusal says.
type refusalDetail struct {
	Code      string `json:"code"`
	Principal string `json:"principal,omitempty"`
	Count     uint64 `json:"count"` // how many refusals the entry stands for

	// Of a ticket message, as it said itself: nothing else is kept of it, and who signed
	// it may not be known.
	Ticket  string `json:"ticket,omitempty"`
	Message string `json:"message,omitempty"` // its id
	Type    string `json:"type,omitempty"`
	From    string `json:"from,omitempty"`
}

func (p *Projector) refusalEntry(proposal *eventlog.Proposal, topic, code string) {
	detail := refusalDetail{Code: code, Principal: proposal.Principal, Count: max(1, proposal.RefusedCount)}
	m := proposal.Message
	if m != nil {
		detail.Ticket, detail.Message, detail.Type, detail.From = m.Ticket, m.ID, m.Type, m.From
		if len(proposal.Entries) > 0 {
			detail.Message = proposal.Entries[0].ID
		}
	}
	p.chain(audit.Detailed(audit.KindRefusal, topic, mustDetail(detail)))
	if m != nil {
		p.concern(audit.KindRefusal, m.Ticket)
	}
}

// controlDetail is what the entry of a change of topics or settings says.
type controlDetail struct {
	Principal string `json:"principal,omitempty"` // none: the broker itself
	eventlog.Control
}

// subscriptionDetail is what the entry of a change of a subscription says.
type subscriptionDetail struct {
	Principal string `json:"principal,omitempty"`
	eventlog.Subscription
}

// mustDetail panics if a detail does not encode, which plain fields always do.
func mustDetail(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("projector: a detail does not encode: %v", err))
	}
	return b
}

// messageExpiry notes that the expirytime of a message has ended its delivery, which is
// all that it ends.
func (p *Projector) messageExpiry(t *topic, position uint64, hlc event.HLC) error {
	p.expiryEntry(t, position, hlc)
	return p.concernPositions(audit.KindExpiry, position)
}

// expiryEntry notes that an event's expirytime has removed it.
func (p *Projector) expiryEntry(t *topic, position uint64, hlc event.HLC) {
	e := audit.Detailed(audit.KindExpiry, t.Name, nil)
	e.Position, e.HLC = position, hlc
	p.chain(e)
}
