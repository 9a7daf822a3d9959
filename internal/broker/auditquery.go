// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
)

const (
	// auditScanMax bounds the entries that one query looks at, and auditScanTime for
	// how long: but for tickets there is no index of the trail, which would cost every
	// publish.
	auditScanMax  = 100_000
	auditScanTime = 2 * time.Second
	// AuditLimitMax bounds the entries of one answer, and auditPageBytes their bodies.
	AuditLimitMax  = 1000
	auditPageBytes = 8 << 20
	// auditQueriesMax bounds the queries and proofs that are looked for at one time, each
	// of which reads long out of the caches. What is more is refused with code
	// overloaded, and may ask again.
	auditQueriesMax = 8
)

// AuditQuery says which entries are wanted; what is zero asks for nothing. Entries that
// are about an event match by its attributes only while the event is stored.
type AuditQuery struct {
	As           identity.Principal // who asks
	From         uint64             // index of the first entry to look at
	To           uint64             // index behind the last one; 0: the end
	FromPosition uint64             // begin with the entry of this position
	Since, Until int64              // log time, Unix ms, both included
	Kind         audit.Kind         // 0: any
	Topic        *event.Pattern     // nil: any
	Type         string             // of the event
	Source       string             // of the event, or the principal of anything else
	Key          string             // subject or partitionkey of the event
	Trace        string             // correlationid, causationid, id, traceparent or its trace id
	Positions    []PositionRange    // entries about one of these: of the events, their expiry and their deliveries
	Ticket       string             // entries about it; or the trace of tickets, or the id of a message of one
	Limit        int                // 0: 100
}

// PositionRange is of positions, both included.
type PositionRange struct{ First, Last uint64 }

// AuditPage is the answer to a query: entries in order, and from where to go on.
type AuditPage struct {
	Entries []audit.Line
	Tickets []string // of a query by ticket: of which each of the entries is
	// TicketsCut says that more tickets have the trace that was asked for than one query
	// reads: entries of these are not among the answers, whatever page is asked for.
	TicketsCut bool
	Next       uint64 // index to go on from
	Size       uint64 // entries of the trail; the query is at its end if Next is not before it
}

// AuditEntries looks for entries, at a bounded number of them.
func (b *Broker) AuditEntries(ctx context.Context, q AuditQuery) (page AuditPage, err error) {
	leave, err := b.audit.enter()
	if err != nil {
		return page, err
	}
	defer leave()
	page.Size = b.AuditSize()
	to := page.Size
	if q.To != 0 {
		to = min(to, q.To)
	}
	if page.Next, err = b.auditFrom(ctx, &q, to); err != nil {
		return page, err
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	s := auditSearch{b: b, q: &q, page: &page, bodies: b.Bodies(q.As), began: b.elapsed()}
	if q.Ticket != "" {
		err = s.ofTicket(ctx, to)
	} else {
		err = b.AuditLines(ctx, page.Next, min(to, page.Next+b.audit.scanMax), nil, s.look)
	}
	if page.Next >= to {
		page.Next = page.Size
	}
	return page, err
}

// enter takes one of the places of those who look for something in the trail.
func (a *auditor) enter() (leave func(), err error) {
	if a.looking.Add(1) > auditQueriesMax {
		a.looking.Add(-1)
		return nil, event.Errorf(event.CodeOverloaded, "%d queries of the audit trail are being answered, which is the limit. Ask again in a moment.", auditQueriesMax)
	}
	return func() { a.looking.Add(-1) }, nil
}

// auditSearch is a query on its way through the trail.
type auditSearch struct {
	b      *Broker
	q      *AuditQuery
	page   *AuditPage
	bodies Bodies
	began  time.Duration // see elapsed
	held   int           // bytes of bodies in page
}

// look takes the next entry, and reports whether the one behind it is to be looked at.
func (s *auditSearch) look(l *audit.Line) (more bool, err error) {
	if s.q.Until != 0 && l.Known && l.LogMillis > s.q.Until {
		s.page.Next = s.page.Size // there is no more
		return false, nil
	}
	s.page.Next = l.Index + 1
	if s.q.concerns(l) {
		if err := s.b.fillBody(l, s.bodies); err != nil {
			return false, err
		}
		if s.q.matches(l) {
			l.Body, l.Detail = bytes.Clone(l.Body), nil
			s.page.Entries = append(s.page.Entries, *l)
			s.held += len(l.Body)
		}
	}
	return len(s.page.Entries) < s.q.Limit && s.held < auditPageBytes && s.b.elapsed()-s.began < auditScanTime, nil
}

// auditFrom is where a query begins to look.
func (b *Broker) auditFrom(ctx context.Context, q *AuditQuery, to uint64) (from uint64, err error) {
	from = q.From
	if q.FromPosition > 0 {
		index, err := b.entryOf(ctx, q.FromPosition)
		if err != nil {
			return 0, err
		}
		from = max(from, index)
	}
	if q.Since > 0 {
		index, err := b.entrySince(ctx, from, to, q.Since)
		if err != nil {
			return 0, err
		}
		from = max(from, index)
	}
	return min(from, to), nil
}

// entrySince finds the first entry whose log time is not before the given one. Log time
// never goes back.
func (b *Broker) entrySince(ctx context.Context, low, high uint64, millis int64) (uint64, error) {
	for low < high {
		middle := low + (high-low)/2
		early := true // what was written before entries were kept has no time
		err := b.AuditLines(ctx, middle, middle+1, nil, func(l *audit.Line) (bool, error) {
			early = !l.Known || l.LogMillis < millis
			return false, nil
		})
		if err != nil {
			return 0, err
		}
		if early {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}

// concerns decides by what an entry itself says.
func (q *AuditQuery) concerns(l *audit.Line) bool {
	if q.Since != 0 && (!l.Known || l.LogMillis < q.Since) || q.Kind != 0 && l.Kind != q.Kind || q.Topic != nil && !q.Topic.Match(l.Topic) {
		return false
	}
	return len(q.Positions) == 0 || q.about(l)
}

// matches decides by the body, which is filled in.
func (q *AuditQuery) matches(l *audit.Line) bool {
	if q.Type == "" && q.Source == "" && q.Key == "" && q.Trace == "" {
		return true
	}
	if l.Body == nil {
		return false
	}
	if l.Kind != audit.KindEvent {
		var detail struct {
			Principal string `json:"principal"`
		}
		return q.Type == "" && q.Key == "" && q.Trace == "" && json.Unmarshal(l.Body, &detail) == nil && detail.Principal == q.Source
	}
	object := append([]byte{'{'}, l.Body...)
	has := func(want string, names ...string) bool {
		return want == "" || slices.ContainsFunc(names, func(name string) bool {
			value, ok := event.LookupJSON(object, name)
			return ok && (value == want || name == "traceparent" && traceID(value) == want)
		})
	}
	return has(q.Type, "type") && has(q.Source, "source") && has(q.Key, "partitionkey", "subject") &&
		has(q.Trace, "correlationid", "causationid", "id", "traceparent")
}

// AuditOutcome is what was decided about the event of an entry.
func AuditOutcome(l *audit.Line) event.Outcome { return outcome(l.Flags) }

// traceID is the trace that a traceparent names (W3C Trace Context, section 3.2).
func traceID(parent string) string {
	if parts := strings.Split(parent, "-"); len(parts) >= 4 {
		return parts[1]
	}
	return ""
}

// about reports whether an entry is about one of the positions.
func (q *AuditQuery) about(l *audit.Line) bool {
	if l.Kind != audit.KindDelivery {
		return l.Position != 0 && q.has(PositionRange{l.Position, l.Position})
	}
	return slices.ContainsFunc(projector.DeliveryPositions(l.Body), func(r [2]uint64) bool { return q.has(PositionRange{r[0], r[1]}) })
}

func (q *AuditQuery) has(r PositionRange) bool {
	return slices.ContainsFunc(q.Positions, func(p PositionRange) bool { return r.First <= p.Last && p.First <= r.Last })
}
