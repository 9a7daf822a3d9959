// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/broker"
)

// auditEntries answers with what was decided, in order. It looks at a bounded number of
// entries; `next` is where to go on, and the end is reached once that is `size`.
func (s *Server) auditEntries(w http.ResponseWriter, r *http.Request, q url.Values) error {
	query, err := parseAuditQuery(q)
	if err != nil {
		return err
	}
	query.As = principalOf(r)
	page, err := s.broker.AuditEntries(r.Context(), query)
	if err != nil {
		return err
	}
	h := w.Header()
	next, size := strconv.FormatUint(page.Next, 10), strconv.FormatUint(page.Size, 10)
	h.Set("Signalbox-Audit-Next", next)
	h.Set("Signalbox-Audit-Size", size)
	if page.TicketsCut {
		h.Set("Signalbox-Audit-Tickets-Cut", "true")
	}
	h.Set("Cache-Control", "no-store")
	var b []byte
	if strings.HasPrefix(r.Header.Get("Accept"), "application/x-ndjson") {
		h.Set("Content-Type", "application/x-ndjson")
		for i := range page.Entries {
			b = append(appendFound(b, &page, i), '\n')
		}
		_, err := w.Write(b)
		return gone(err)
	}
	h["Content-Type"] = contentTypeJSON
	b = append(b, `{"entries":[`...)
	for i := range page.Entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendFound(b, &page, i)
	}
	b = append(b, ']')
	if page.TicketsCut {
		b = append(b, `,"tickets_cut":true`...)
	}
	b = append(b, `,"next":"`+next+`","size":"`+size+"\"}\n"...)
	_, err = w.Write(b)
	return gone(err)
}

// appendFound appends an entry of an answer, with the ticket that it was found by.
func appendFound(dst []byte, page *broker.AuditPage, i int) []byte {
	dst = appendEntry(dst, &page.Entries[i])
	if page.Tickets == nil {
		return dst
	}
	return append(appendJSON(append(dst[:len(dst)-1], `,"ticket":`...), page.Tickets[i]), '}')
}

// appendEntry appends an entry for people and programs that read what happened; an
// export has it for those who check it.
func appendEntry(dst []byte, l *audit.Line) []byte {
	dst = append(strconv.AppendUint(append(dst, `{"index":"`...), l.Index, 10), '"')
	if !l.Known {
		return append(hex.AppendEncode(append(dst, `,"leaf":"`...), l.Leaf[:]), `"}`...)
	}
	dst = time.UnixMilli(l.LogMillis).UTC().AppendFormat(append(dst, `,"time":"`...), "2006-01-02T15:04:05.000Z07:00")
	dst = append(append(append(dst, `","kind":"`...), l.Kind.String()...), '"')
	dst = appendJSON(append(dst, `,"topic":`...), l.Topic)
	if l.Kind == audit.KindEvent {
		dst = append(append(append(dst, `,"outcome":"`...), broker.AuditOutcome(l)...), '"')
	}
	if l.Position != 0 {
		dst = append(strconv.AppendUint(append(dst, `,"position":"`...), l.Position, 10), '"')
		dst = append(l.HLC.AppendTo(append(dst, `,"hlc":"`...)), '"')
	}
	dst = append(hex.AppendEncode(append(dst, `,"digest":"`...), l.Digest[:]), '"')
	switch {
	case l.Kind == audit.KindEvent && l.Body != nil:
		dst = append(dst, `,"event":{`...)
		dst = append(dst, l.Body...)
		event.FoldLines(dst[len(dst)-len(l.Body):])
	case len(l.Body) > 0:
		dst = append(append(dst, `,"detail":`...), l.Body...)
	}
	return append(dst, '}')
}

func parseAuditQuery(q url.Values) (out broker.AuditQuery, err error) {
	for name, into := range map[string]*uint64{"from": &out.From, "to": &out.To, "from_position": &out.FromPosition} {
		if q.Has(name) {
			if *into, err = count(q, name); err != nil {
				return out, err
			}
		}
	}
	for name, into := range map[string]*int64{"since": &out.Since, "until": &out.Until} {
		if !q.Has(name) {
			continue
		}
		t, err := time.Parse(time.RFC3339, q.Get(name))
		if err != nil {
			return out, event.Errorf(event.CodeParameterInvalid, "%s=%.40q is not a time such as 2026-11-29T10:00:00Z.", name, q.Get(name)).With(name)
		}
		*into = t.UnixMilli()
	}
	if q.Has("kind") {
		var ok bool
		if out.Kind, ok = audit.ParseKind(q.Get("kind")); !ok {
			return out, event.Errorf(event.CodeParameterInvalid, "kind=%.20q is unknown: use event, control, refusal, delivery or expiry.", q.Get("kind")).With("kind")
		}
	}
	if q.Has("topic") {
		p, err := event.ParsePattern(q.Get("topic"))
		if err != nil {
			return out, err
		}
		out.Topic = &p
	}
	out.Type, out.Source, out.Key, out.Trace, out.Ticket = q.Get("type"), q.Get("source"), q.Get("key"), q.Get("trace"), q.Get("ticket")
	if q.Has("positions") {
		if out.Positions, err = parsePositions(q.Get("positions")); err != nil {
			return out, err
		}
	}
	if q.Has("limit") {
		n, err := count(q, "limit")
		if err != nil || n < 1 || n > broker.AuditLimitMax {
			return out, event.Errorf(event.CodeParameterInvalid, "limit=%.20q is not a number from 1 to %d.", q.Get("limit"), broker.AuditLimitMax).With("limit")
		}
		out.Limit = int(n)
	}
	return out, nil
}

// positionRangesMax bounds the ranges of one query, each of which every entry is held
// against.
const positionRangesMax = 1000

func parsePositions(text string) (out []broker.PositionRange, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.ParseUint(first, 10, 63)
		b, err2 := strconv.ParseUint(last, 10, 63)
		if err != nil || err2 != nil || a > b || len(out) == positionRangesMax {
			return nil, event.Errorf(event.CodeParameterInvalid, "positions has %.40q: give positions and ranges such as 5-9,12, at most %d.", part, positionRangesMax).With("positions")
		}
		out = append(out, broker.PositionRange{First: a, Last: b})
	}
	return out, nil
}
