// SPDX-License-Identifier: Apache-2.0

package web

import (
	"maps"
	"math"
	"net/http"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/metrics"
)

// resetRetry keeps browsers, which cannot choose a new start, from asking in
// vain every second.
const resetRetry = 60 * time.Second

// eventStream answers with an event stream (HTML standard, section 9.2). Data
// events carry no event field, so that onmessage sees them.
func (s *Server) eventStream(w http.ResponseWriter, r *http.Request, p reading) error {
	if p.agent != "" { // which is said to be connected
		if err := s.checkPage(changing(r)); err != nil {
			return err
		}
	}
	s.streams.enter() // before net/http loses sight of the connection, see Serve
	reader, reset, err := s.open(&p)
	// An EventSource gives up for good at any status but 200. That is right
	// where the request is wrong, and wrong where the same one may succeed.
	if err != nil {
		if code := event.AsError(err).Code; !isReset(code) && !code.Class().Retryable {
			s.streams.leave(nil)
			return err
		}
	}
	now := time.Now()
	st := &stream{s: s, reading: p, reader: reader, written: now, remote: r.RemoteAddr, presence: presence{door: s.metrics.Reading.Door(metrics.SSE)},
		ends: now.Add(jitter(s.opt.StreamLife*4/5, s.opt.StreamLife*6/5))}
	if r.Method == http.MethodHead {
		defer s.streams.leave(nil)
		st.release()
		setStreamHeader(w.Header())
		return nil
	}
	if err == nil {
		st.announce("sse")
	}
	if t := s.takeOver(w, r); t != nil {
		s.streams.track(t.conn)
		st.voice, t.blocks = &sseVoice{wire: t, named: p.named}, st.giveTurn
		// A goroutine of its own has a small stack and lets go of the request.
		go func() {
			defer s.conns.Add(-1)
			defer s.streams.leave(t.conn)
			defer st.recover()
			st.run(reset, err)
		}()
		return nil
	}
	defer s.streams.leave(nil)
	st.voice = &sseVoice{wire: withinResponse(r.Context(), w, st.giveTurn), named: p.named}
	st.run(reset, err)
	return nil
}

func setStreamHeader(h http.Header) {
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache, no-store, no-transform")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
}

// sseVoice speaks server-sent events, in one direction.
type sseVoice struct {
	wire    wire
	named   bool   // the event field has the type
	scratch []byte // for blocks other than events
}

func (v *sseVoice) begin(reset *event.Error) error {
	if err := v.wire.begin(); err != nil {
		return err
	}
	v.scratch = append(appendRetry(v.scratch, jitter(time.Second, 3*time.Second)), ":ok\n\n"...)
	if reset != nil {
		v.scratch = appendContinued(v.scratch, reset)
	}
	return v.sendScratch()
}

func (v *sseVoice) window() int { return math.MaxInt }

func (v *sseVoice) room(deliveries []dispatch.Delivery) {
	size := 0
	for i := range deliveries {
		size += len(deliveries[i].Frame)
	}
	v.wire.room(size)
}

// event writes one event, in the bytes that all readers share.
func (v *sseVoice) event(d *dispatch.Delivery) error {
	if v.named {
		name, _ := event.LookupJSON(d.JSON(), "type") // every event has one, and no line end in it
		v.scratch = append(append(append(v.scratch[:0], "event: "...), name...), '\n')
		if err := v.wire.Write(v.scratch); err != nil {
			return err
		}
		v.scratch = v.scratch[:0]
	}
	return v.wire.Write(d.Frame)
}

func (v *sseVoice) flush() error { return v.wire.Flush() }

func (v *sseVoice) sync(at event.Cursor, logMillis int64) error {
	v.scratch = appendSync(v.scratch, at, logMillis)
	return v.sendScratch()
}

func (v *sseVoice) moved(at event.Cursor) error {
	v.scratch = appendID(v.scratch, at)
	return v.sendScratch()
}

// heartbeat has an id, which moves a reader forward for whom nothing has come.
func (v *sseVoice) heartbeat(at event.Cursor) error {
	v.scratch = appendID(append(v.scratch, ": \n"...), at)
	return v.sendScratch()
}

func (v *sseVoice) continued(reset *event.Error) error {
	v.scratch = appendContinued(v.scratch, reset)
	return v.sendScratch()
}

func (v *sseVoice) notice(name string, facts any, again time.Duration) error {
	v.scratch = append(append(append(v.scratch, "event: signalbox."...), name...), "\ndata: "...)
	v.scratch = append(appendJSON(v.scratch, facts), "\n\n"...)
	if again > 0 {
		v.scratch = appendRetry(v.scratch, jitter(again, again*5/4))
	}
	return v.sendScratch()
}

func (v *sseVoice) drained() error {
	v.scratch = appendRetry(v.scratch, jitter(time.Second, 5*time.Second))
	return v.sendScratch()
}

// failed tells of a reset without an id, so that the reader's cursor stays what
// it was.
// expired has the reader come back soon: with another token it goes on.
func (v *sseVoice) expired() error {
	v.scratch = append(append(append(v.scratch, ": "...), event.CodeTokenInvalid...), '\n')
	v.scratch = appendRetry(v.scratch, jitter(time.Second/2, time.Second))
	return v.sendScratch()
}

func (v *sseVoice) failed(e *event.Error) error {
	if !isReset(e.Code) {
		v.scratch = append(append(append(v.scratch, ": "...), e.Code...), '\n')
		v.scratch = appendRetry(v.scratch, jitter(2*time.Second, 10*time.Second))
		return v.sendScratch()
	}
	v.scratch = append(v.scratch, "event: signalbox.reset\ndata: "...)
	v.scratch = appendJSON(v.scratch, resetFacts(e))
	v.scratch = append(v.scratch, '\n')
	v.scratch = appendRetry(v.scratch, resetRetry)
	return v.sendScratch()
}

// resetFacts is what a reader is told with a reset.
func resetFacts(e *event.Error) map[string]any {
	facts := map[string]any{"code": e.Code, "detail": e.Message}
	maps.Copy(facts, e.Facts)
	return facts
}

func (v *sseVoice) attention() <-chan struct{} { return nil }
func (v *sseVoice) attend() error              { return nil }
func (v *sseVoice) gone() <-chan struct{}      { return v.wire.gone() }
func (v *sseVoice) end(err error)              { v.wire.end(err == nil) }

func (v *sseVoice) sendScratch() error {
	err := v.wire.Write(v.scratch)
	v.scratch = v.scratch[:0]
	if err != nil {
		return err
	}
	return v.wire.Flush()
}
