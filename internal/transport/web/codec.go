// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
)

const (
	// limitDefault and limitMax are the events of one poll.
	limitDefault = 1000
	limitMax     = 10_000
	// waitMax is the longest a poll is held. Proxies commonly give up after a
	// minute, so whoever is behind one asks for less; a broker that held nobody for
	// longer would be asked more than once a minute by each agent that has nothing
	// to do.
	waitMax = 5 * time.Minute
)

// reading is what a request to read asks for.
type reading struct {
	request  broker.ReadRequest
	declared *dispatch.Start // the URL's start, if Last-Event-ID is an event id that is not found
	earliest bool            // on_reset=earliest
	stream   bool            // SSE, not a poll
	socket   bool            // a WebSocket
	window   int             // events beyond the last acknowledgement; 0: no bound
	named    bool            // SSE with the type in the event field
	agent    string          // SSE: who reads, as it says
	fromNow  bool            // a poll that goes on: it needs no held values of ephemeral topics
	limit    int
	wait     time.Duration
	waits    bool        // wait was given
	from     event.Trace // of the request
	caller   caller

	// Of the stream of a subscription, whose cursor is the broker's.
	subscription string
	last         *event.Cursor // Last-Event-ID, which acknowledges
	attached     *broker.Attachment
	gap          *broker.Gap // to be told before the first event
}

// parseReading reads the parameters and headers that all reads share.
func parseReading(r *http.Request, q url.Values, patterns []event.Pattern) (p reading, err error) {
	p.limit, p.from, p.caller = limitDefault, traceOf(r.Header), callerOf(r)
	p.request.Patterns, p.request.As = patterns, p.caller.Principal
	if p.socket = wantsSocket(r); !p.socket {
		stream, err := wantsStream(r.Header["Accept"])
		if err != nil {
			return p, err
		}
		p.stream = stream
	}
	if err := p.parseStart(r, q, patterns); err != nil {
		return p, err
	}
	if p.request.Filter, err = parseFilter(q); err != nil {
		return p, err
	}
	if p.request.Select, err = parseSelect(q); err != nil {
		return p, err
	}
	if p.request.View = q.Get("view"); q.Has("view") && p.request.View != "current" && p.request.View != "history" {
		return p, event.Errorf(event.CodeViewInvalid, "view=%.20q does not exist: use current or history.", p.request.View).With("view")
	}
	switch v := q.Get("on_reset"); {
	case !q.Has("on_reset"):
	case v == "earliest":
		p.earliest = true
	default:
		return p, event.Errorf(event.CodeParameterInvalid, "on_reset=%.20q is unknown: use earliest or leave it out.", v).With("on_reset")
	}
	switch {
	case p.socket:
		return p, p.parseSocket(q)
	case p.stream:
		return p, p.parseStream(q)
	}
	return p, p.parsePoll(q)
}

// parseSelect takes what of each event is delivered. Its faults are those of a
// parameter here, and of a document in a subscription.
func parseSelect(q url.Values) (event.Selection, error) {
	if !q.Has("select") {
		return event.Selection{}, nil
	}
	s, err := event.ParseSelection(strings.Split(q.Get("select"), ","))
	if e := event.AsError(err); e != nil {
		e.Code = event.CodeParameterInvalid
		return s, e
	}
	return s, nil
}

// refuseOthers refuses the parameters of other ways to read: what ignored them
// would not do what its reader expects.
func refuseOthers(q url.Values, names ...string) error {
	belongs := map[string]string{
		"limit":  "polls: leave it out, or ask for neither an event stream nor a WebSocket",
		"wait":   "polls: leave it out, or ask for neither an event stream nor a WebSocket",
		"live":   "polls: leave it out, or ask for neither an event stream nor a WebSocket",
		"named":  "event streams: leave it out, or ask for text/event-stream",
		"agent":  "event streams and WebSockets: leave it out, or ask for one of them",
		"window": "WebSockets: leave it out, or ask for the upgrade",
	}
	for _, name := range names {
		if q.Has(name) {
			return event.Errorf(event.CodeParameterInvalid, "%s belongs to %s.", name, belongs[name]).With(name)
		}
	}
	return nil
}

func (p *reading) parseSocket(q url.Values) error {
	if err := refuseOthers(q, "limit", "wait", "live", "named"); err != nil {
		return err
	}
	if err := p.parseAgent(q); err != nil || !q.Has("window") {
		return err
	}
	n, ok := parseCount(q.Get("window"), windowMax)
	if !ok || n == 0 {
		return event.Errorf(event.CodeParameterInvalid, "window=%.20q is not a number of events from 1 on.", q.Get("window")).With("window")
	}
	p.window = n
	return nil
}

func (p *reading) parseStream(q url.Values) error {
	if err := refuseOthers(q, "limit", "wait", "live", "window"); err != nil {
		return err
	}
	switch v := q.Get("named"); {
	case !q.Has("named") || v == "false":
	case v == "true":
		p.named = true
	default:
		return event.Errorf(event.CodeParameterInvalid, "named=%.20q is unknown: use true or false.", v).With("named")
	}
	return p.parseAgent(q)
}

// parseAgent reads who follows.
func (p *reading) parseAgent(q url.Values) error {
	if p.agent = q.Get("agent"); q.Has("agent") {
		return broker.CheckAgent(p.agent)
	}
	return nil
}

func (p *reading) parsePoll(q url.Values) error {
	if err := refuseOthers(q, "named", "window", "agent"); err != nil {
		return err
	}
	if q.Has("live") {
		mark, err := dispatch.ParseMark(q.Get("live"))
		if err != nil {
			return err
		}
		p.request.Live = mark
	} else {
		p.fromNow = p.request.Start != (dispatch.Start{})
	}
	if q.Has("limit") {
		n, ok := parseCount(q.Get("limit"), limitMax)
		if !ok || n == 0 {
			return event.Errorf(event.CodeParameterInvalid, "limit=%.20q is not a number of events from 1 on.", q.Get("limit")).With("limit")
		}
		p.limit = n
	}
	if q.Has("wait") {
		n, ok := parseCount(q.Get("wait"), int(waitMax/time.Second))
		if !ok {
			return event.Errorf(event.CodeParameterInvalid, "wait=%.20q is not a number of whole seconds.", q.Get("wait")).With("wait")
		}
		p.waits, p.wait = true, time.Duration(n)*time.Second
	}
	return nil
}

// parseCount reads decimal digits; anything above most is most.
func parseCount(s string, most int) (int, bool) {
	if s == "" || len(s) > 20 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return most, true // out of range is far above most
	}
	return min(n, most), true
}

// parseStart finds where to begin. Last-Event-ID wins over the cursor of the
// URL: an EventSource reconnects to the URL it was made with, and only its
// header is news.
func (p *reading) parseStart(r *http.Request, q url.Values, patterns []event.Pattern) error {
	start := &p.request.Start
	if q.Has("cursor") {
		switch c := q.Get("cursor"); {
		case c == "now":
			start.Now = true
		case strings.HasPrefix(c, "@"):
			cursor, err := event.ParseCursor(c)
			if err != nil {
				return event.AsError(err).With("cursor")
			}
			start.Cursor = &cursor
		default:
			t, err := time.Parse(time.RFC3339, c)
			if err != nil {
				return event.Errorf(event.CodeCursorInvalid,
					"cursor=%.60q is neither a cursor, nor now, nor an RFC 3339 time (whose + is %%2B in a URL).", c).With("cursor")
			}
			start.Time = t
		}
	}
	ids := r.Header["Last-Event-Id"]
	if len(ids) == 0 || len(ids) == 1 && ids[0] == "" {
		return nil
	}
	if len(ids) > 1 {
		return event.Errorf(event.CodeParameterInvalid, "There are %d Last-Event-ID headers: send one.", len(ids)).With("Last-Event-ID")
	}
	return p.parseLastID(ids[0], patterns)
}

func (p *reading) parseLastID(id string, patterns []event.Pattern) error {
	start := &p.request.Start
	if event.LooksLikeCursor(id) {
		cursor, err := event.ParseCursor(id)
		if err != nil {
			return event.AsError(err).With("Last-Event-ID")
		}
		*start = dispatch.Start{Cursor: &cursor}
		return nil
	}
	if _, exact := patterns[0].Exact(); !exact || len(patterns) > 1 {
		return event.Errorf(event.CodeCursorInvalid,
			"Last-Event-ID %.60q is no cursor, and an event id can be looked up in one topic only: read that topic by its own URL.", id).With("Last-Event-ID")
	}
	if *start != (dispatch.Start{}) {
		declared := *start
		p.declared = &declared
	}
	*start = dispatch.Start{EventID: id}
	return nil
}

// wantsStream decides between an event stream and a poll by Accept. A stream
// must be asked for by name: a generic client's */* is better served by an
// answer that ends.
func wantsStream(accept []string) (bool, error) {
	list := strings.Join(accept, ",")
	if strings.TrimSpace(list) == "" {
		return false, nil
	}
	stream, poll := 0.0, 0.0
	for mediaRange := range strings.SplitSeq(list, ",") {
		name, params, _ := strings.Cut(mediaRange, ";")
		q := quality(params)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "text/event-stream":
			stream = max(stream, q)
		case "application/cloudevents-batch+json", "application/json", "application/*", "*/*":
			poll = max(poll, q)
		}
	}
	if stream == 0 && poll == 0 {
		return false, event.Errorf(event.CodeNotAcceptable,
			"Accept %.80q leaves nothing to send: accept text/event-stream or application/cloudevents-batch+json.", list).With("Accept")
	}
	return stream >= poll, nil
}

// quality is the weight in the parameters of a media range (RFC 9110, section
// 12.4.2); one that cannot be read counts as none given.
func quality(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
				return q
			}
		}
	}
	return 1
}
