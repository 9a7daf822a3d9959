// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/transport/web"
)

// follower is a client of the HTTP door. It follows topics by event streams, over
// connections that break, that it stops reading from, and that it is cut off from,
// and comes back with the last id that it saw, at times by a poll.
type follower struct {
	reader         // at is the last id
	line    *line  // nil while it is away
	checked uint64 // up to here it was judged
}

const (
	followersMax = 4
	// doorStall is how long the door waits for a reader that takes nothing.
	doorStall = 10 * time.Second
)

func (f *follower) String() string { return fmt.Sprintf("follower of %s %q", f.list, f.view) }

// newDoor is the door of a broker that has just started. Its streams have no end of
// their own: when that comes is drawn at random.
func (w *world) newDoor() {
	door, err := web.New(web.Options{Broker: w.broker, Logger: slog.New(slog.DiscardHandler), StallTimeout: doorStall, StreamLife: 10_000 * time.Hour})
	if err != nil {
		w.fail("the door: %v", err)
	}
	w.door = door
}

// block is what a stream says at one time.
type block struct{ event, id, data string }

// line is one connection of a follower. Reading from it is a goroutine's, which waits
// while the line is held.
type line struct {
	conn net.Conn // the client's end
	far  *farEnd

	mu     sync.Mutex
	change sync.Cond // on mu
	held   bool      // guarded by mu
	blocks []block   // whole ones that came; guarded by mu
	over   bool      // guarded by mu

	head   uint64 // of the log when it began
	synced bool
}

// farEnd is the door's end of a connection.
type farEnd struct {
	net.Conn
	closed atomic.Bool
	since  atomic.Pointer[time.Time] // when the write began that is under way
}

func (e *farEnd) Write(b []byte) (int, error) {
	now := time.Now()
	e.since.Store(&now)
	defer e.since.Store(nil)
	return e.Conn.Write(b)
}

func (e *farEnd) Close() error {
	e.closed.Store(true)
	return e.Conn.Close()
}

// taken is an answer whose connection the door takes over.
type taken struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (a taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return a.conn, bufio.NewReadWriter(bufio.NewReader(a.conn), bufio.NewWriter(a.conn)), nil
}

// Read waits while the line is held. What the door writes while a read is under way
// is read: so much is always on its way.
func (l *line) Read(b []byte) (int, error) {
	l.mu.Lock()
	for l.held {
		l.change.Wait()
	}
	l.mu.Unlock()
	return l.conn.Read(b)
}

// receive reads the stream. A block that is not whole was not received.
func (l *line) receive() {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
		_ = l.conn.Close()
	}()
	answer, err := http.ReadResponse(bufio.NewReader(l), nil)
	if err != nil {
		return
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	var b block
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			b.event = value
		case "id":
			b.id = value
		case "data":
			b.data = value
		case "":
			l.mu.Lock()
			l.blocks = append(l.blocks, b)
			l.mu.Unlock()
			b = block{}
		}
	}
}

// hold stops reading, or goes on with it.
func (l *line) hold(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	l.change.Broadcast()
}

// take returns what has come since the last call, and whether nothing more will.
func (l *line) take() ([]block, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	blocks := l.blocks
	l.blocks = nil
	return blocks, l.over
}

// breaks ends the connection without a word. What has come and was not looked at is
// lost to the client.
func (f *follower) breaks() {
	if f.line != nil {
		_ = f.line.conn.Close()
		f.line.hold(false)
		f.line = nil
	}
}

// stepDoor lets a follower begin, come back, or lose its connection.
func stepDoor(w *world) {
	if len(w.followers) < followersMax {
		f := &follower{reader: reader{
			list: pick(w.rng, ">", "state.*", "log.*,auto.>", "state.kept", "log.sized", "state.short,log.kept"),
			view: pick(w.rng, dispatch.ViewDefault, dispatch.ViewDefault, dispatch.ViewHistory), made: w.rng.IntN(4) == 0,
		}}
		f.patterns = patterns(f.list)
		w.followers = append(w.followers, f)
		w.connect(f)
		return
	}
	f := w.followers[w.rng.IntN(len(w.followers))]
	switch {
	case f.line == nil && w.rng.IntN(4) == 0:
		w.pollDoor(f)
	case f.line == nil:
		w.connect(f)
	case w.rng.IntN(2) == 0:
		w.heed(f)
		if line := f.line; line != nil {
			f.breaks()
			w.settle()
			if !line.far.closed.Load() {
				w.fail("%s has left, and its stream goes on", f)
			}
			w.note("%s leaves", f)
		}
	default:
		w.stall(f)
	}
}

// stall has a follower take nothing for a while. If there is something for it, the
// door cuts it off after a while and before long, and it comes back to the rest.
func (w *world) stall(f *follower) {
	w.heed(f)
	line := f.line
	if line == nil {
		return
	}
	line.hold(true)
	for i := range 1 + w.rng.IntN(4) { // one at a time, so that it is certain what is on its way
		w.answers = w.answers[:0]
		w.publish(request{broker.PublishRequest{Topic: w.drawTopic(), Events: []*event.Event{w.drawEvent(batchMost + 1 + i)}}})
	}
	w.elapse(0, pick(w.rng, doorStall/2, 3*doorStall))
	if since := line.far.since.Load(); since != nil && time.Since(*since) > doorStall+time.Second {
		w.fail("%s has taken nothing for %v, and is still waited for", f, time.Since(*since))
	}
	if line.far.closed.Load() {
		w.counts["cut off"]++
	}
	line.hold(false)
	w.settle()
	w.note("%s took nothing", f)
}

// request is what a follower asks for.
func (w *world) request(f *follower) *http.Request {
	q := url.Values{"topics": {f.list}}
	if f.view != dispatch.ViewDefault {
		q.Set("view", f.view)
	}
	if f.made {
		q.Set("filter", "type = 'made'")
	}
	r := httptest.NewRequest(http.MethodGet, "http://localhost/v1/events?"+q.Encode(), nil)
	if f.at.Position > 0 {
		r.Header.Set("Last-Event-ID", f.at.String())
	}
	return r
}

// mustReset reports whether a follower's cursor is none to go on from: the log was
// restored since, or something was removed. What it was shown the log still has.
func (w *world) mustReset(f *follower) bool {
	at := max(f.at.Position, f.at.Began)
	switch {
	case f.at.Position == 0:
		return false
	case f.at.Incarnation != w.model.settings.IncarnationName:
		return true
	case at > w.model.position:
		w.fail("%s was shown what is lost: it has %s, and the head is %d", f, f.at, w.model.position)
	}
	return w.removedTo(&f.reader) > at
}

// connect opens a stream.
func (w *world) connect(f *follower) {
	near, far := net.Pipe()
	l := &line{conn: near, far: &farEnd{Conn: far}, head: w.model.position}
	l.change.L = &l.mu
	r := w.request(f)
	r.Header.Set("Accept", "text/event-stream")
	reset := w.mustReset(f)
	answer := taken{httptest.NewRecorder(), l.far}
	w.door.ServeHTTP(answer, r)
	if answer.Body.Len() > 0 {
		if !strings.Contains(answer.Body.String(), `"code":"view_invalid"`) || !w.viewInvalid(&f.reader) {
			w.fail("%s comes with %s and is told %s", f, f.at, answer.Body)
		}
		return
	}
	go l.receive()
	w.settle()
	f.line, f.checked = l, f.at.Position
	w.note("%s comes", f)
	w.heed(f)
	if reset != (f.line == nil) {
		w.fail("%s came with %s, and must be reset is %t", f, f.at, reset)
	}
}

// heedAll judges what has come to those who are connected.
func (w *world) heedAll() {
	for _, f := range w.followers {
		w.heed(f)
	}
}

// heed judges what a follower has got since it was judged last. Nobody is doing
// anything, so it has everything.
func (w *world) heed(f *follower) {
	if f.line == nil {
		return
	}
	blocks, over := f.line.take()
	got := map[uint64]bool{}
	for _, b := range blocks {
		switch {
		case b.event == "signalbox.reset":
			if !w.mustReset(f) {
				w.fail("%s at %s is reset: %s", f, f.at, b.data)
			}
			w.note("%s is reset", f)
			w.counts["resets"]++
			f.breaks()
			f.at = event.Cursor{}
			return
		case b.id == "" && b.data == "": // the greeting
			continue
		case b.id == "" && b.event == "": // of an ephemeral topic, which stepGlance judges
			if e, err := event.DecodeDelivered([]byte(b.data)); err != nil || !strings.HasPrefix(e.Topic(), "live.") || f.list != ">" {
				w.fail("%s got %s without an id: %v", f, b.data, err)
			}
			continue
		}
		at, err := event.ParseCursor(b.id)
		if err != nil || at.Incarnation != w.model.settings.IncarnationName || at.Position > w.model.position || at.Position < f.at.Position {
			w.fail("%s at %s got the id %q", f, f.at, b.id)
		}
		switch {
		case b.event == "signalbox.sync":
			if f.line.synced || at.Position != f.line.head {
				w.fail("%s got the marker at %s, and began at the head %d", f, at, f.line.head)
			}
			f.line.synced = true
		case b.data != "":
			w.heedEvent(f, b.data, at.Position)
			got[at.Position] = true
		}
		f.at = at
	}
	if over {
		if !f.line.far.closed.Load() {
			w.fail("the stream of %s has ended by itself", f)
		}
		f.breaks() // it was cut, and misses what it will get when it comes back
		return
	}
	if !f.line.synced {
		w.fail("%s has got everything and no marker", f)
	}
	w.heedAllOf(f, w.model.position, got)
}

// heedEvent judges an event that a follower got.
func (w *world) heedEvent(f *follower, data string, position uint64) {
	e, err := event.DecodeDelivered([]byte(data))
	if err != nil || e.Position() != position || position <= f.at.Position && f.at.Position > 0 {
		w.fail("%s at %s got %s at %d: %v", f, f.at, data, position, err)
	}
	t := w.model.topics[e.Topic()]
	if t == nil || !f.matches(t) || f.made && e.Type() != "made" {
		w.fail("%s got %s, for which it has not asked", f, data)
	}
	i := slices.IndexFunc(t.events, func(n *item) bool { return n.position == position })
	if i < 0 { // it may be gone again
		if position > max(t.removedTo, t.retired) {
			w.fail("%s got %s, which is not in the log", f, data)
		}
		return
	}
	n := t.events[i]
	if n.id != e.ID() || n.source != e.Source() || n.hlc != e.HLC() || n.late != e.Superseded() ||
		n.late && t.policy.Compacts() && f.view != dispatch.ViewHistory {
		w.fail("%s got %s, and there is %s", f, data, n)
	}
	w.counts["followed"]++
}

// heedAllOf judges whether a follower has got what it must, up to a position.
func (w *world) heedAllOf(f *follower, to uint64, got map[uint64]bool) {
	now := w.broker.LogMillis()
	for _, t := range w.model.topics {
		if !f.matches(t) {
			continue
		}
		for _, e := range t.events {
			if e.position <= f.checked || e.position > to || got[e.position] || e.expiryMillis != 0 && e.expiryMillis <= now || f.made && e.typ != "made" {
				continue
			}
			if must, _ := w.wants(&f.reader, e); must {
				w.fail("%s, at %s and judged up to %d, did not get %s", f, f.at, f.checked, e)
			}
		}
	}
	f.checked = to
}

// pollDoor is one poll of a follower that is away.
func (w *world) pollDoor(f *follower) {
	r := w.request(f)
	r.URL.RawQuery += "&limit=" + pick(w.rng, "1", "7", "10000")
	reset := w.mustReset(f)
	answer := httptest.NewRecorder()
	w.door.ServeHTTP(answer, r)
	w.settle()
	switch {
	case answer.Code == http.StatusGone:
		if !reset {
			w.fail("%s at %s polls and is told %s", f, f.at, answer.Body)
		}
		f.at = event.Cursor{}
		w.counts["resets"]++
		return
	case answer.Code != http.StatusOK && w.viewInvalid(&f.reader):
		return
	}
	var events []json.RawMessage
	at, err := event.ParseCursor(answer.Header().Get("Signalbox-Cursor"))
	if err != nil || json.Unmarshal(answer.Body.Bytes(), &events) != nil || reset || at.Position < f.at.Position || at.Position > w.model.position {
		w.fail("%s at %s polls and gets %d %s at %s, %v; must be reset is %t", f, f.at, answer.Code, answer.Body, at, err, reset)
	}
	got := map[uint64]bool{}
	for _, data := range events {
		e, err := event.DecodeDelivered(data)
		if err != nil {
			w.fail("%s polls and gets %s: %v", f, data, err)
		}
		if strings.HasPrefix(e.Topic(), "live.") { // it has no position
			continue
		}
		w.heedEvent(f, string(data), e.Position())
		got[e.Position()] = true
	}
	f.checked = f.at.Position
	w.heedAllOf(f, at.Position, got)
	f.at = at
	w.note("%s polls up to %s", f, at)
}

// leaveDoor disconnects all followers, and waits until the door has noticed.
func (w *world) leaveDoor() {
	for _, f := range w.followers {
		f.breaks()
	}
	synctest.Wait()
}
