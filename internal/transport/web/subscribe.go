// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/metrics"
)

const (
	// pollBytes is where an answer of events ends even if fewer than limit are
	// in it. It bounds the memory of a poll; the reader goes on at the cursor.
	pollBytes = 4 << 20
	// pollWork is how long one poll searches for events. It bounds the work of
	// a request whose topics are a few in a long log.
	pollWork = 5 * time.Second
)

// readTopic reads one topic, readTopics those of several patterns.
func (s *Server) readTopic(w http.ResponseWriter, r *http.Request, q url.Values) error {
	patterns, err := onePattern(r.PathValue("topic"))
	if err != nil {
		return err
	}
	return s.read(w, r, q, patterns)
}

func (s *Server) readTopics(w http.ResponseWriter, r *http.Request, q url.Values) error {
	patterns, err := listedPatterns(q)
	if err != nil {
		return err
	}
	return s.read(w, r, q, patterns)
}

func onePattern(topic string) ([]event.Pattern, error) {
	if err := event.CheckTopic(topic); err != nil {
		return nil, err
	}
	return event.ParsePatterns(topic)
}

func listedPatterns(q url.Values) ([]event.Pattern, error) {
	if !q.Has("topics") {
		return nil, event.Errorf(event.CodeParameterInvalid, "Say which topics: a list of names or patterns such as topics=a.*,b.>").With("topics")
	}
	patterns, err := event.ParsePatterns(q.Get("topics"))
	if err != nil {
		return nil, event.AsError(err).With("topics")
	}
	return patterns, nil
}

func (s *Server) read(w http.ResponseWriter, r *http.Request, q url.Values, patterns []event.Pattern) error {
	p, err := parseReading(r, q, patterns)
	if err != nil {
		return err
	}
	switch {
	case p.socket:
		return s.socket(w, r, p)
	case p.stream:
		return s.eventStream(w, r, p)
	}
	return s.poll(w, r, p)
}

// open opens a reader. A reset that on_reset=earliest allows to continue is
// returned beside a reader at the oldest that is retained.
func (s *Server) open(p *reading) (reader *dispatch.Reader, reset *event.Error, err error) {
	if p.subscription != "" {
		p.attached, reader, p.gap, err = s.broker.Attach(context.Background(), p.caller.Principal, p.subscription, p.last)
		return reader, nil, err
	}
	reader, err = s.broker.Read(p.request)
	if err != nil && p.declared != nil && event.AsError(err).Code == event.CodeCursorUnknown {
		p.request.Start, p.declared = *p.declared, nil
		reader, err = s.broker.Read(p.request)
	}
	if err == nil {
		return reader, nil, nil
	}
	reset = event.AsError(err)
	if !p.earliest || !isReset(reset.Code) {
		return nil, nil, err
	}
	reader, err = s.reopen(p)
	return reader, reset, err
}

// reopen opens a reader at the oldest that is retained.
func (s *Server) reopen(p *reading) (*dispatch.Reader, error) {
	p.request.Start = dispatch.Start{}
	return s.broker.Read(p.request)
}

// isReset tells the codes that say "what you had is no longer a place to
// resume from" from those of a wrong request.
func isReset(c event.Code) bool {
	return c == event.CodeCursorExpired || c == event.CodeCursorForeign || c == event.CodeCursorUnknown
}

// page is the answer to a poll: the JSON batch format as far as it is filled.
type page struct {
	reader *dispatch.Reader
	body   []byte
	held   int // of the server's budget
	count  int
	cursor event.Cursor
	synced bool         // everything durable up to cursor is in
	reset  *event.Error // events were lost before these, and the caller chose to go on

	recipient *broker.Recipient
}

// poll answers with a batch, at once or when something comes within the wait.
func (s *Server) poll(w http.ResponseWriter, r *http.Request, p reading) error {
	s.streams.enter()
	defer s.streams.leave(nil)
	door := s.metrics.Reading.Door(metrics.Poll)
	if p.fromNow {
		p.request.Live = s.broker.Mark()
	}
	reader, reset, err := s.open(&p)
	if err != nil {
		return countReset(door, err)
	}
	present := presence{door: door}
	present.be(door.CatchingUp)
	defer present.be(nil)
	pg := &page{reader: reader, body: []byte{'['}, reset: reset, recipient: s.broker.Recipient(p.caller.Principal, "poll", p.request.Patterns, false)}
	defer func() {
		s.held.give(pg.held)
		if pg.reader != nil {
			pg.reader.Close()
		}
	}()
	hold := p.wait
	if until := p.caller.until; !until.IsZero() {
		hold = min(hold, max(0, time.Until(until)))
	}
	if r.Method == http.MethodHead {
		hold = 0
	}
	var timeout <-chan time.Time
	for {
		changed, err := s.gather(pg, &p)
		if err != nil {
			return countReset(door, err)
		}
		if pg.count > 0 || !pg.synced || hold == 0 {
			return s.answer(w, r, pg, p)
		}
		if timeout == nil {
			lift(w)
			timer := time.NewTimer(hold)
			defer timer.Stop()
			timeout = timer.C
			present.be(door.Live)
		}
		select {
		case <-changed:
		case <-timeout:
			hold = 0 // one last look takes the cursor to where the log is now
		case <-s.broker.Draining():
			hold = 0
		case <-r.Context().Done():
			return nil
		}
	}
}

// gather fills the page until it is full, the log has no more, or pollWork is
// over. Changed was taken before the last look.
func (s *Server) gather(pg *page, p *reading) (changed <-chan struct{}, err error) {
	for began := time.Now(); ; {
		changed = pg.reader.Changed()
		err := s.fill(pg, p)
		switch {
		case err != nil && pg.count > 0:
			pg.synced = false // the next request is told
			return changed, nil
		case err != nil && p.earliest && isReset(event.AsError(err).Code):
			pg.reset = event.AsError(err)
			pg.reader.Close()
			if pg.reader, err = s.reopen(p); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case pg.synced || pg.count >= p.limit || len(pg.body) >= pollBytes || time.Since(began) > pollWork:
			return changed, nil
		}
	}
}

// lift takes the read timeout off a request that is answered late; net/http
// would take its end for the end of the connection.
func lift(w http.ResponseWriter) { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }

// fill adds one window to the page.
func (s *Server) fill(pg *page, p *reading) error {
	window, err := pg.reader.Poll(dispatch.Limit{Events: p.limit - pg.count, Bytes: max(1, pollBytes-len(pg.body))})
	if err != nil {
		return err
	}
	size := len(pg.body) + len("]\n")
	for i := range window.Deliveries {
		size += len(window.Deliveries[i].JSON()) + 1
	}
	if err := s.grow(pg, size); err != nil {
		return err
	}
	for i := range window.Deliveries {
		if pg.count > 0 {
			pg.body = append(pg.body, ',')
		}
		pg.body = append(pg.body, window.Deliveries[i].JSON()...)
		pg.count++
	}
	s.delivered(p.from, s.metrics.Reading.Door(metrics.Poll), window.Deliveries)
	pg.recipient.Given(&window)
	pg.cursor, pg.synced = window.Cursor, window.CaughtUp
	return nil
}

// grow gives the page memory for size bytes in all, which counts as held.
func (s *Server) grow(pg *page, size int) error {
	if size <= cap(pg.body) {
		return nil
	}
	size = max(size, min(2*cap(pg.body), pollBytes))
	if err := s.held.take(size - pg.held); err != nil {
		return err
	}
	pg.held = size
	pg.body = append(make([]byte, 0, size), pg.body...)
	return nil
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, pg *page, p reading) error {
	body := append(pg.body, ']', '\n')
	h := w.Header()
	h.Set("Content-Type", "application/cloudevents-batch+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Signalbox-Cursor", pg.cursor.String())
	h.Set("Signalbox-Synced", strconv.FormatBool(pg.synced))
	live := ""
	if mark, ok := pg.reader.Mark(); ok {
		live = mark.String()
		h.Set("Signalbox-Live", live)
	}
	h.Set("Link", "<"+nextURL(r.URL, pg.cursor, live)+`>; rel="next"`)
	if p.waits {
		h.Set("Signalbox-Wait", strconv.Itoa(int(p.wait/time.Second)))
	}
	door := s.metrics.Reading.Door(metrics.Poll)
	if pg.reset != nil {
		door.Reset(pg.reset.Code)
		h.Set("Signalbox-Reset", string(pg.reset.Code))
	}
	_, err := w.Write(body)
	if err == nil {
		err = flush(w)
	}
	s.noteCut(door, r.RemoteAddr, p.request.Patterns, err)
	door.Deliveries.Add(float64(pg.count))
	door.Bytes.Add(float64(len(body)))
	return gone(err)
}

// countReset counts a failure that is a reset, and returns it.
func countReset(door *metrics.Door, err error) error {
	if code := event.AsError(err).Code; isReset(code) {
		door.Reset(code)
	}
	return err
}

// nextURL is the same request from the cursor on. It is relative, since the
// broker does not know by which name a proxy is called.
func nextURL(u *url.URL, c event.Cursor, live string) string {
	q := u.Query()
	q.Set("cursor", c.String())
	q.Del("live")
	q.Del(tokenParameter)
	if live != "" {
		q.Set("live", live)
	}
	return u.EscapedPath() + "?" + q.Encode()
}

// flush sends what net/http has buffered of an answer, to learn whether its reader
// takes it.
func flush(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() }
