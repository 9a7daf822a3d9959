// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"encoding/json"
	"strconv"
	"strings"

	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
)

// deliveryDetail is what the entry of a delivery says. One entry stands for
// whatever a request did: positions are ranges such as "5-9,12".
type deliveryDetail struct {
	Op           string `json:"op"`
	Subscription string `json:"subscription"`
	Principal    string `json:"principal,omitempty"`
	Handed       string `json:"handed,omitempty"`
	Gone         string `json:"gone,omitempty"` // not stored any more when its turn came
	Acked        string `json:"acked,omitempty"`
	Nacked       string `json:"nacked,omitempty"`
	Extended     string `json:"extended,omitempty"`
	From         uint64 `json:"from,omitempty,string"` // of acknowledge and gap: the cursor before
	To           uint64 `json:"to,omitempty,string"`   // and after
	Position     uint64 `json:"position,omitempty,string"`
	Letter       uint64 `json:"letter,omitempty,string"` // where its dead letter is
	Cause        string `json:"cause,omitempty"`
}

// deliveryEntry notes what a change of a subscription's deliveries did, if it did
// anything. The cursor is that of the subscription before it.
func (p *Projector) deliveryEntry(s *subscription, proposal *eventlog.Proposal, d *Delivery, cursor uint64) {
	op := proposal.Subscription
	detail := deliveryDetail{Op: op.Op, Subscription: op.ID, Principal: proposal.Principal}
	var handed, acked, nacked, extended, gone ranges
	switch {
	case d.Stale:
		return
	case op.Op == eventlog.SubscriptionHandOut:
		for _, h := range d.Handed {
			handed.add(h.Position)
		}
		for _, position := range op.HandOut.Gone {
			gone.add(position)
		}
	case op.Op == eventlog.SubscriptionSettle:
		for i, settled := range d.Settled {
			verdict := &op.Settle[i]
			switch {
			case !settled:
			case verdict.Verdict == eventlog.VerdictAck:
				acked.add(verdict.Position)
			case verdict.Verdict == eventlog.VerdictExtend:
				extended.add(verdict.Position)
			default:
				nacked.add(verdict.Position)
			}
		}
	case op.Op == eventlog.SubscriptionBury:
		detail.Position, detail.Letter, detail.Cause = op.Bury.Position, d.Letter, op.Bury.Cause
	case s.Cursor != cursor: // acknowledge and gap
		detail.From, detail.To = cursor, s.Cursor
	}
	detail.Handed, detail.Acked, detail.Nacked, detail.Extended, detail.Gone = handed.text(), acked.text(), nacked.text(), extended.text(), gone.text()
	if detail == (deliveryDetail{Op: op.Op, Subscription: op.ID, Principal: proposal.Principal}) {
		return
	}
	p.chain(audit.Detailed(audit.KindDelivery, TopicSubscriptions, mustDetail(detail)))
}

// ranges writes positions down, neighbours as one range.
type ranges struct {
	out         []byte
	first, last uint64
}

func (r *ranges) add(position uint64) {
	if r.first != 0 && position == r.last+1 {
		r.last = position
		return
	}
	r.flush()
	r.first, r.last = position, position
}

func (r *ranges) flush() {
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
}

func (r *ranges) text() string {
	r.flush()
	r.first = 0
	return string(r.out)
}

// DeliveryPositions returns what the detail of a delivery is about: ranges of
// positions, both ends included.
func DeliveryPositions(detail []byte) (out [][2]uint64) {
	var d deliveryDetail
	if json.Unmarshal(detail, &d) != nil {
		return nil
	}
	for _, text := range []string{d.Handed, d.Gone, d.Acked, d.Nacked, d.Extended} {
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
	if d.To > d.From {
		out = append(out, [2]uint64{d.From + 1, d.To})
	}
	return out
}
