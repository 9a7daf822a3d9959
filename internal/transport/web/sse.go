// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
)

const (
	// windowEvents and windowBytes are what a stream takes from the log at one
	// time. They bound its memory, not its length.
	windowEvents = 512
	windowBytes  = 256 << 10
	// skippedMax is how far a stream's reader may fall behind what was passed
	// over on its behalf; then it is told the cursor.
	skippedMax = 10_000
	// resetRetry keeps browsers, which cannot choose a new start, from asking
	// in vain every second.
	resetRetry = 60 * time.Second
)

// stream answers with an event stream (HTML standard, section 9.2). Data
// events carry no event field, so that onmessage sees them.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, p reading) error {
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
	st := &stream{s: s, reading: p, reader: reader, written: now,
		ends: now.Add(jitter(s.opt.StreamLife*4/5, s.opt.StreamLife*6/5))}
	if r.Method == http.MethodHead {
		defer s.streams.leave(nil)
		st.release()
		setStreamHeader(w.Header())
		return nil
	}
	if t := takeOver(w, r, s.opt.StallTimeout); t != nil {
		s.streams.track(t.conn)
		st.wire, t.blocks = t, st.giveTurn
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
	st.wire = s.withinResponse(r.Context(), w, st.giveTurn)
	st.run(reset, err)
	return nil
}

func setStreamHeader(h http.Header) {
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache, no-store, no-transform")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
}

// jitter spreads what many streams would else do at the same moment.
func jitter(from, to time.Duration) time.Duration {
	return from + rand.N(max(1, to-from))
}

// stream is one event stream, owned by one goroutine.
type stream struct {
	s *Server
	reading
	reader  *dispatch.Reader // nil if there is nothing to read
	wire    wire
	synced  bool      // the sync marker was sent
	sent    uint64    // position of the last cursor sent
	written time.Time // when something was last sent
	ends    time.Time // of its life
	scratch []byte    // for blocks other than events
	live    bool      // the last window was caught up
	turn    bool      // this stream has one of the server's turns
}

// A reader that catches up reads from the store, which may block, and sends
// much at a time; turns are for the many that are live.
func (st *stream) takeTurn() {
	if !st.turn {
		st.s.turns.take()
		st.turn = true
	}
}

func (st *stream) giveTurn() {
	if st.turn {
		st.turn = false
		st.s.turns.give()
	}
}

// recover keeps a defect in one stream from ending the process, as net/http
// does for its handlers.
func (st *stream) recover() {
	if v := recover(); v != nil {
		st.s.log.Error("event stream panicked", "panic", v, "stack", string(debug.Stack()))
		st.wire.end(false)
	}
}

// run is the life of a stream: a greeting, whatever the reader has, and an end
// in good order. A reset or a failure to open is told in the stream.
func (st *stream) run(reset *event.Error, failed error) {
	defer st.release()
	// The first bytes leave at once: until then a client, or a proxy on the
	// way, does not know that it is connected.
	err := st.wire.begin()
	if err == nil {
		st.scratch = append(appendRetry(st.scratch, jitter(time.Second, 3*time.Second)), ":ok\n\n"...)
		if reset != nil {
			st.scratch = appendContinued(st.scratch, reset)
		}
		err = st.sendScratch()
	}
	if err == nil && failed == nil {
		st.sent = st.reader.Cursor().Position
		failed, err = st.follow()
	}
	if err == nil && failed != nil {
		err = st.fail(event.AsError(failed))
	}
	st.release()
	if errors.Is(err, os.ErrDeadlineExceeded) { // it cannot be told, since it takes nothing
		st.s.log.Info("event stream cut, its reader took nothing", "stall", st.s.opt.StallTimeout, "position", st.sent)
	}
	st.wire.end(err == nil)
}

// release gives back what others wait for.
func (st *stream) release() {
	st.giveTurn()
	if st.reader != nil {
		st.reader.Close()
		st.reader = nil
	}
}

// follow sends what the reader has until the stream's life, the broker or the
// connection ends. A failure is one of the reader, err one of the connection.
func (st *stream) follow() (failed, err error) {
	timer := time.NewTimer(st.untilTend(st.written)) // not reset for each event, so it may be early
	defer timer.Stop()
	for {
		if st.live {
			st.takeTurn()
		}
		changed := st.reader.Changed()
		window, failed := st.reader.Poll(dispatch.Limit{Events: windowEvents, Bytes: windowBytes})
		now := time.Now()
		if failed != nil {
			st.giveTurn()
			if failed, err := st.goOn(event.AsError(failed)); failed != nil || err != nil {
				return failed, err
			}
			continue
		}
		err := st.send(&window, now)
		st.giveTurn()
		if err != nil {
			return nil, err
		}
		if ended, err := st.tend(now); ended || err != nil {
			return nil, err
		}
		// A reader that has just caught up polls once more before it waits, so
		// that it holds on to nothing of what it read.
		idle := window.CaughtUp && (st.live || len(window.Deliveries) == 0)
		st.live = window.CaughtUp
		if !idle {
			continue
		}
		select {
		case <-changed:
		case now = <-timer.C:
			timer.Reset(st.untilTend(now))
		case <-st.wire.gone():
			return nil, errLeft
		case <-st.s.broker.Draining():
		}
	}
}

// untilTend is when the stream must be looked after even if nothing comes.
func (st *stream) untilTend(now time.Time) time.Duration {
	due := st.written.Add(st.s.opt.Heartbeat).Sub(now)
	if due <= 0 {
		due = st.s.opt.Heartbeat // it is sent now
	}
	return max(time.Millisecond, min(due, st.ends.Sub(now)))
}

var errLeft = errors.New("the reader has left")

// goOn continues at the oldest after a reset, if the reader chose so. It
// returns the failure that ends the stream otherwise.
func (st *stream) goOn(e *event.Error) (failed, err error) {
	if !st.earliest || !isReset(e.Code) {
		return e, nil
	}
	st.reader.Close()
	st.reader, failed = st.s.reopen(&st.reading)
	if failed != nil {
		return failed, nil
	}
	st.scratch = appendContinued(st.scratch, e)
	return nil, st.sendScratch()
}

// send writes a window, and what its end has to tell. It flushes unless more
// is known to follow at once.
func (st *stream) send(window *dispatch.Window, now time.Time) error {
	if n := len(window.Deliveries); n > 0 {
		size := 0
		for i := range window.Deliveries {
			size += len(window.Deliveries[i].Frame)
		}
		st.wire.room(size)
		for i := range window.Deliveries {
			if err := st.sendEvent(&window.Deliveries[i]); err != nil {
				return err
			}
		}
		st.sent, st.written = window.Deliveries[n-1].Position, now
	}
	switch {
	case window.CaughtUp && !st.synced:
		st.synced = true
		st.scratch = appendSync(st.scratch, window.Cursor, st.s.broker.LogMillis())
	case window.Cursor.Position >= st.sent+skippedMax:
		st.scratch = appendID(st.scratch, window.Cursor)
	case window.CaughtUp || len(window.Deliveries) == 0:
		return st.wire.Flush()
	default:
		return nil
	}
	st.sent, st.written = window.Cursor.Position, now
	return st.sendScratch()
}

// sendEvent writes one event, in the bytes that all readers share.
func (st *stream) sendEvent(d *dispatch.Delivery) error {
	if st.named {
		name, _ := event.LookupJSON(d.JSON(), "type") // every event has one, and no line end in it
		st.scratch = append(append(append(st.scratch[:0], "event: "...), name...), '\n')
		if err := st.wire.Write(st.scratch); err != nil {
			return err
		}
		st.scratch = st.scratch[:0]
	}
	return st.wire.Write(d.Frame)
}

// tend does what time asks for: end the stream, or show that it is alive.
func (st *stream) tend(now time.Time) (ended bool, err error) {
	select {
	case <-st.s.broker.Draining():
		st.scratch = appendRetry(st.scratch, jitter(time.Second, 5*time.Second))
		return true, st.sendScratch()
	default:
	}
	if !now.Before(st.ends) {
		return true, nil
	}
	if now.Sub(st.written) < st.s.opt.Heartbeat {
		return false, nil
	}
	// The id moves a reader forward for whom nothing has come.
	st.scratch = appendID(append(st.scratch, ": \n"...), st.reader.Cursor())
	st.sent, st.written = st.reader.Cursor().Position, now
	return false, st.sendScratch()
}

// fail tells why there is nothing more to read. A reset has no id, so that the
// reader's cursor stays what it was.
func (st *stream) fail(e *event.Error) error {
	if !isReset(e.Code) {
		if !e.Code.Class().Retryable {
			st.s.log.Error("event stream failed", "err", e)
		}
		st.scratch = append(append(append(st.scratch, ": "...), e.Code...), '\n')
		st.scratch = appendRetry(st.scratch, jitter(2*time.Second, 10*time.Second))
		return st.sendScratch()
	}
	facts := map[string]any{"code": e.Code, "detail": e.Message}
	maps.Copy(facts, e.Facts)
	st.scratch = append(st.scratch, "event: signalbox.reset\ndata: "...)
	st.scratch = appendJSON(st.scratch, facts)
	st.scratch = append(st.scratch, '\n')
	st.scratch = appendRetry(st.scratch, resetRetry)
	return st.sendScratch()
}

func (st *stream) sendScratch() error {
	err := st.wire.Write(st.scratch)
	st.scratch = st.scratch[:0]
	if err != nil {
		return err
	}
	return st.wire.Flush()
}
