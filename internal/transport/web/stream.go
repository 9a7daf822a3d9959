// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
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
)

// voice speaks to the reader of a stream in the words of one protocol. It
// belongs to the stream's goroutine, but for gone.
type voice interface {
	// begin sends the first bytes. A reset says that events were lost before
	// the first, and that the reader chose to go on.
	begin(reset *event.Error) error
	// window says how many events the reader takes now. The stream asks for no
	// more; with 0 it waits until attention.
	window() int
	// room announces a window that is about to be sent.
	room(deliveries []dispatch.Delivery)
	// event buffers an event, flush sends what is buffered. All other methods
	// send what they say.
	event(d *dispatch.Delivery) error
	flush() error
	sync(at event.Cursor, logMillis int64) error
	moved(at event.Cursor) error     // much was passed over
	heartbeat(at event.Cursor) error // nothing was sent for a while
	continued(reset *event.Error) error
	// notice tells of something beside events: a gap, or why the stream ends and
	// when it is worth coming back.
	notice(name string, facts any, again time.Duration) error
	drained() error              // the broker is shutting down
	expired() error              // the token of the reader does not count any more
	failed(e *event.Error) error // there is nothing more to read
	// attention has a value when attend has something to do: whatever the
	// reader said. Both are for streams that go in both directions.
	attention() <-chan struct{}
	attend() error
	gone() <-chan struct{} // closed when the reader has left
	end(err error)         // an end in good order if err is nil
}

// jitter spreads what many streams would else do at the same moment.
func jitter(from, to time.Duration) time.Duration {
	return from + rand.N(max(1, to-from))
}

// stream is one reader that follows, owned by one goroutine, in any protocol.
type stream struct {
	s *Server
	reading
	reader  *dispatch.Reader // nil if there is nothing to read
	voice   voice
	synced  bool      // the sync marker was sent
	sent    uint64    // position of the last cursor sent
	written time.Time // when something was last sent
	ends    time.Time // of its life; zero if that has no bound
	live    bool      // the last window was caught up
	turn    bool      // this stream has one of the server's turns
	remote  string    // address of the reader
	presence

	attendance *broker.Attendance // nil while the stream is not announced
	recipient  *broker.Recipient  // nil for the stream of a subscription, whose hand-outs are noted
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
		st.s.log.Error("event stream panicked", "panic", v, "stack", string(debug.Stack()), "todo", "this is a defect: report it; the reader comes back with its cursor")
		st.voice.end(errPanicked)
	}
}

// run is the life of a stream: a greeting, whatever the reader has, and an end
// in good order. A reset or a failure to open is told in the stream.
func (st *stream) run(reset *event.Error, failed error) {
	defer st.release()
	st.be(st.door.CatchingUp)
	defer st.be(nil)
	if reset != nil {
		st.door.Reset(reset.Code)
	}
	// The first bytes leave at once: until then a client, or a proxy on the
	// way, does not know that it is connected.
	err := st.voice.begin(reset)
	if err == nil && st.gap != nil {
		err = st.voice.notice("gap", st.gap, 0)
	}
	if err == nil && failed == nil {
		st.sent = st.reader.Cursor().Position
		failed, err = st.follow()
	}
	if err == nil && failed != nil {
		err = st.fail(event.AsError(failed))
	}
	st.release()
	st.s.noteCut(st.door, st.remote, st.request.Patterns, err)
	st.voice.end(err)
}

// release gives back what others wait for.
func (st *stream) release() {
	st.giveTurn()
	if st.reader != nil {
		st.reader.Close()
		st.reader = nil
	}
	if st.recipient != nil {
		st.recipient.Gone()
		st.recipient = nil
	}
	if st.attendance != nil {
		st.attendance.Leave()
		st.attendance = nil
	}
	if st.attached != nil {
		st.attached.Close()
		st.attached = nil
	}
}

// announce shows on $presence that the stream is there, until it is released, and
// names it for the audit trail.
func (st *stream) announce(door string) {
	topics := make([]string, len(st.request.Patterns))
	for i, p := range st.request.Patterns {
		topics[i] = p.String()
	}
	st.attendance = st.s.broker.Announce(broker.Presence{Agent: st.agent, Door: door, Topics: topics, Remote: st.remote})
	if st.attached == nil {
		st.recipient = st.s.broker.Recipient(st.caller.Principal, door, st.request.Patterns, true)
	}
}

// follow sends what the reader has until the stream's life, the broker or the
// connection ends. A failure is one of the reader, err one of the connection.
func (st *stream) follow() (failed, err error) {
	timer := time.NewTimer(st.untilTend(st.written)) // not reset for each event, so it may be early
	defer timer.Stop()
	for {
		if reason := st.attached.Reason(); reason != "" {
			return nil, st.voice.notice("end", map[string]string{"reason": reason}, againAfter[reason])
		}
		if st.live {
			st.takeTurn()
		}
		changed := st.reader.Changed()
		window, idle, failed, err := st.step()
		st.giveTurn()
		if err == nil && failed != nil {
			failed, err = st.goOn(event.AsError(failed))
			if failed == nil && err == nil {
				continue
			}
		}
		if failed != nil || err != nil {
			return failed, err
		}
		// A reader that has just caught up polls once more before it waits, so
		// that it holds on to nothing of what it read.
		idle = idle || window.CaughtUp && (st.live || len(window.Deliveries) == 0)
		if st.live = window.CaughtUp; st.live {
			st.be(st.door.Live)
		} else {
			st.be(st.door.CatchingUp)
		}
		now := time.Now()
		if ended, err := st.tend(now); ended || err != nil {
			return nil, err
		}
		if !idle {
			continue
		}
		select {
		case <-changed:
		case now = <-timer.C:
			timer.Reset(st.untilTend(now))
		case <-st.voice.attention():
		case <-st.attached.Ended():
		case <-st.voice.gone():
			return nil, errLeft
		case <-st.s.broker.Draining():
		}
	}
}

// againAfter is when it is worth to connect again to the stream of a
// subscription, by the reason for which it ended.
var againAfter = map[string]time.Duration{
	broker.EndReplaced: resetRetry,
	broker.EndChanged:  time.Second,
	broker.EndPaused:   15 * time.Second,
	broker.EndDeleted:  resetRetry,
}

// step sends what the reader said before and the next window of the log. It is
// paused while the reader takes no events.
func (st *stream) step() (window dispatch.Window, paused bool, failed, err error) {
	if err := st.voice.attend(); err != nil {
		return window, false, nil, err
	}
	events := min(windowEvents, st.voice.window())
	if events == 0 {
		st.reader.Release()
		return window, true, nil, st.voice.flush()
	}
	window, failed = st.reader.Poll(dispatch.Limit{Events: events, Bytes: windowBytes})
	if failed != nil {
		return window, false, failed, nil
	}
	return window, false, nil, st.send(&window, time.Now())
}

// untilTend is when the stream must be looked after even if nothing comes.
func (st *stream) untilTend(now time.Time) time.Duration {
	due := st.written.Add(st.s.opt.Heartbeat).Sub(now)
	if due <= 0 {
		due = st.s.opt.Heartbeat // it is sent now
	}
	for _, end := range []time.Time{st.ends, st.caller.until} {
		if !end.IsZero() {
			due = min(due, end.Sub(now))
		}
	}
	return max(time.Millisecond, due)
}

var (
	errLeft     = errors.New("the reader has left")
	errPanicked = errors.New("the stream panicked")
)

// goOn continues at the oldest after a reset, if the reader chose so. It
// returns the failure that ends the stream otherwise.
func (st *stream) goOn(e *event.Error) (failed, err error) {
	if st.attached != nil && e.Code == event.CodeCursorExpired {
		st.reader.Close()
		var gap *broker.Gap
		if st.reader, gap, failed = st.attached.Open(context.Background()); failed != nil || gap == nil {
			return failed, nil
		}
		return nil, st.voice.notice("gap", gap, 0)
	}
	if !st.earliest || !isReset(e.Code) {
		return e, nil
	}
	st.door.Reset(e.Code)
	st.reader.Close()
	st.reader, failed = st.s.reopen(&st.reading)
	if failed != nil {
		return failed, nil
	}
	return nil, st.voice.continued(e)
}

// send writes a window, and what its end has to tell. It flushes unless more
// is known to follow at once.
func (st *stream) send(window *dispatch.Window, now time.Time) error {
	if n := len(window.Deliveries); n > 0 {
		st.voice.room(window.Deliveries)
		size := 0
		for i := range window.Deliveries {
			size += len(window.Deliveries[i].Frame)
			if err := st.voice.event(&window.Deliveries[i]); err != nil {
				return err
			}
		}
		st.door.Deliveries.Add(float64(n))
		st.door.Bytes.Add(float64(size))
		st.s.delivered(st.from, st.door, window.Deliveries)
		if st.recipient != nil {
			st.recipient.Given(window)
		}
		st.sent, st.written = max(st.sent, lastPosition(window.Deliveries)), now
	}
	switch {
	case window.CaughtUp && !st.synced:
		st.synced = true
		st.sent, st.written = window.Cursor.Position, now
		return st.voice.sync(window.Cursor, st.s.broker.LogMillis())
	case window.Cursor.Position >= st.sent+skippedMax:
		st.sent, st.written = window.Cursor.Position, now
		return st.voice.moved(window.Cursor)
	case window.CaughtUp || len(window.Deliveries) == 0:
		return st.voice.flush()
	}
	return nil
}

// lastPosition passes over the events of ephemeral topics, which come last and
// have none.
func lastPosition(deliveries []dispatch.Delivery) uint64 {
	for i := len(deliveries) - 1; i >= 0; i-- {
		if p := deliveries[i].Position; p != 0 {
			return p
		}
	}
	return 0
}

// tend does what time asks for: end the stream, or show that it is alive.
func (st *stream) tend(now time.Time) (ended bool, err error) {
	select {
	case <-st.s.broker.Draining():
		return true, st.voice.drained()
	default:
	}
	if until := st.caller.until; !until.IsZero() && !now.Before(until) {
		return true, st.voice.expired()
	}
	if !st.ends.IsZero() && !now.Before(st.ends) {
		return true, nil
	}
	if now.Sub(st.written) < st.s.opt.Heartbeat {
		return false, nil
	}
	if err := st.reader.Check(); err != nil {
		return true, st.fail(event.AsError(err))
	}
	at := st.reader.Cursor()
	st.sent, st.written = at.Position, now
	return false, st.voice.heartbeat(at)
}

// isDenial tells the codes that say who may not read.
func isDenial(c event.Code) bool {
	return c == event.CodeNotPermitted || c == event.CodeUnauthenticated || c == event.CodeTokenInvalid
}

// fail tells why there is nothing more to read.
func (st *stream) fail(e *event.Error) error {
	if isReset(e.Code) {
		st.door.Reset(e.Code)
	} else {
		st.s.metrics.HTTP.Refused(e.Code)
	}
	if !isReset(e.Code) && !e.Code.Class().Retryable && !isDenial(e.Code) {
		st.s.log.Error("event stream failed", "remote", st.remote, "err", e, "todo", "this is a defect: report it")
	}
	return st.voice.failed(e)
}
