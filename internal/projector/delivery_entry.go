// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
)

// deliveryDetail is what the entry of a delivery says. One entry stands for
// whatever a request did: positions are ranges such as "5-9,12".
type deliveryDetail struct {
	Op           string `json:"op"`
	Subscription string `json:"subscription,omitempty"`
	Principal    string `json:"principal,omitempty"`
	Door         string `json:"door,omitempty"` // of read, as what follows
	Topics       string `json:"topics,omitempty"`
	Messages     uint64 `json:"messages,omitempty"`
	Handed       string `json:"handed,omitempty"`
	Gone         string `json:"gone,omitempty"` // not stored any more when its turn came
	Acked        string `json:"acked,omitempty"`
	Nacked       string `json:"nacked,omitempty"`
	Extended     string `json:"extended,omitempty"`
	Returned     string `json:"returned,omitempty"`    // handed out, and sent to nobody
	From         uint64 `json:"from,omitempty,string"` // of acknowledge, gap and read: the cursor before
	To           uint64 `json:"to,omitempty,string"`   // and after
	Position     uint64 `json:"position,omitempty,string"`
	Letter       uint64 `json:"letter,omitempty,string"` // where its dead letter is
	Cause        string `json:"cause,omitempty"`
}

// deliveryEntry notes what a change of a subscription's deliveries did, if it did
// anything. The cursor is that of the subscription before it.
func (p *Projector) deliveryEntry(s *subscription, proposal *eventlog.Proposal, d *Delivery, cursor uint64) error {
	op := proposal.Subscription
	detail := deliveryDetail{Op: op.Op, Subscription: op.ID, Principal: proposal.Principal}
	var handed, acked, nacked, extended, returned, gone Ranges
	switch {
	case d.Stale:
		return nil
	case op.Op == eventlog.SubscriptionHandOut:
		for _, h := range d.Handed {
			handed.Add(h.Position)
		}
		for _, position := range op.HandOut.Gone {
			gone.Add(position)
		}
	case op.Op == eventlog.SubscriptionSettle:
		for i, settled := range d.Settled {
			verdict := &op.Settle[i]
			switch {
			case !settled:
			case verdict.Verdict == eventlog.VerdictAck:
				acked.Add(verdict.Position)
			case verdict.Verdict == eventlog.VerdictExtend:
				extended.Add(verdict.Position)
			case verdict.Verdict == eventlog.VerdictReturn:
				returned.Add(verdict.Position)
			default:
				nacked.Add(verdict.Position)
			}
		}
	case op.Op == eventlog.SubscriptionBury:
		detail.Position, detail.Letter, detail.Cause = op.Bury.Position, d.Letter, op.Bury.Cause
	case s.Cursor != cursor: // acknowledge and gap
		detail.From, detail.To = cursor, s.Cursor
	}
	detail.Handed, detail.Acked, detail.Nacked, detail.Gone = handed.Text(), acked.Text(), nacked.Text(), gone.Text()
	detail.Extended, detail.Returned = extended.Text(), returned.Text()
	if detail == (deliveryDetail{Op: op.Op, Subscription: op.ID, Principal: proposal.Principal}) {
		return nil
	}
	p.chain(audit.Detailed(audit.KindDelivery, TopicSubscriptions, mustDetail(detail)))
	patterns := s.settings().Patterns()
	if len(p.registry.agents) == 0 || !slices.ContainsFunc(patterns, ofMessages) {
		return nil
	}
	return p.concernDelivery(&detail, patterns)
}

// ofMessages reports whether a pattern selects topics of messages.
func ofMessages(pattern event.Pattern) bool {
	_, ok := pattern.Both(ticketTopics)
	return ok
}

// concernDelivery has the entry of a delivery found by the tickets whose messages were
// delivered. Where it only says from which cursor to which, these are all that are on
// one of the topics.
func (p *Projector) concernDelivery(detail *deliveryDetail, topics []event.Pattern) error {
	ranges := detail.positions()
	if detail.listed() {
		topics = nil
	}
	tickets, err := p.ticketsAt(ranges, topics)
	p.concern(audit.KindDelivery, tickets...)
	return err
}

// opRead is what the entry of a reader without a subscription has in place of an
// operation.
const opRead = "read"

// readingEntry notes what a reader without a subscription was given.
func (p *Projector) readingEntry(proposal *eventlog.Proposal) error {
	r := proposal.Reading
	detail := deliveryDetail{
		Op: opRead, Principal: proposal.Principal, Door: r.Door, Topics: r.Topics, Messages: r.Messages, Handed: r.Positions, From: r.From, To: r.To,
	}
	p.chain(audit.Detailed(audit.KindDelivery, proposal.Topic, mustDetail(detail)))
	if r.Positions == "" {
		p.bus.counts.Unfound++
		return nil // of so many readers or messages that it is not known who was given which
	}
	return p.concernDelivery(&detail, nil)
}

// Ranges writes positions down, neighbours as one range.
type Ranges struct {
	out         []byte
	first, last uint64
}

// Add adds a position.
func (r *Ranges) Add(position uint64) {
	if r.first != 0 && position == r.last+1 {
		r.last = position
		return
	}
	r.flush()
	r.first, r.last = position, position
}

func (r *Ranges) flush() {
	if r.first == 0 {
		return
	}
	if len(r.out) > 0 {
		r.out = append(r.out, ',')
	}
	r.out = strconv.AppendUint(r.out, r.first, 10)
	if r.last > r.first {
		r.out = strconv.AppendUint(append(r.out, '-'), r.last, 10)
	}
	r.first = 0
}

// Size is how many bytes the text has, but for the range that may grow.
func (r *Ranges) Size() int { return len(r.out) }

// Text returns what was added, such as 5-9,12.
func (r *Ranges) Text() string {
	r.flush()
	return string(r.out)
}

// DeliveryPositions returns what the detail of a delivery is about: ranges of
// positions, both ends included.
func DeliveryPositions(detail []byte) [][2]uint64 {
	var d deliveryDetail
	if json.Unmarshal(detail, &d) != nil {
		return nil
	}
	return d.positions()
}

// listed reports whether the positions are known one by one.
func (d *deliveryDetail) listed() bool { return d.To <= d.From || d.Handed != "" }

func (d *deliveryDetail) positions() (out [][2]uint64) {
	for _, text := range []string{d.Handed, d.Gone, d.Acked, d.Nacked, d.Extended, d.Returned} {
		for part := range strings.SplitSeq(text, ",") {
			first, last, isRange := strings.Cut(part, "-")
			if !isRange {
				last = first
			}
			a, err := strconv.ParseUint(first, 10, 64)
			b, err2 := strconv.ParseUint(last, 10, 64)
			if err == nil && err2 == nil {
				out = append(out, [2]uint64{a, b})
			}
		}
	}
	if d.Position != 0 {
		out = append(out, [2]uint64{d.Position, d.Position})
	}
	if !d.listed() {
		out = append(out, [2]uint64{d.From + 1, d.To})
	}
	return out
}
