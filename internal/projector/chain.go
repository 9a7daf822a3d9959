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
}

func (p *Projector) refusalEntry(proposal *eventlog.Proposal, topic, code string) {
	p.chain(audit.Detailed(audit.KindRefusal, topic, mustDetail(refusalDetail{code, proposal.Principal, max(1, proposal.RefusedCount)})))
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

// expiryEntry notes that an event's expirytime has removed it.
func (p *Projector) expiryEntry(t *topic, position uint64, hlc event.HLC) {
	e := audit.Detailed(audit.KindExpiry, t.Name, nil)
	e.Position, e.HLC = position, hlc
	p.chain(e)
}
