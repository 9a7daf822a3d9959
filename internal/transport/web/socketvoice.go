// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/rand"
	"errors"
	"math"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/identity"
	"signalbox/internal/metrics"
)

const (
	// pendingMax is how many requests of one socket may be under way, or
	// answered and not yet written. Beyond it the socket is not read, so that
	// a client that sends without reading is slowed down by its own connection.
	pendingMax = 64
	// windowMax bounds the positions that are kept for a reader that
	// acknowledges, 8 bytes each.
	windowMax = 10_000
	// drainTime is how long a shutdown waits for the answers to what was
	// published before it.
	drainTime = 2 * time.Second
)

// socket answers with a WebSocket. What is wrong with the request is said
// before the handshake; a reset is said in the socket, since a browser shows its
// page nothing of a handshake that fails.
func (s *Server) socket(w http.ResponseWriter, r *http.Request, p reading) error {
	protocol, accept, err := s.checkHandshake(w.Header(), r)
	if err != nil {
		return err
	}
	s.streams.enter() // before net/http loses sight of the connection, see Serve
	reader, reset, err := s.open(&p)
	if err != nil && !isReset(event.AsError(err).Code) {
		s.streams.leave(nil)
		return err
	}
	st := &stream{s: s, reading: p, reader: reader, written: time.Now(), remote: r.RemoteAddr,
		presence: presence{door: s.metrics.Reading.Door(metrics.Socket)}}
	k := s.upgrade(w, r, protocol, accept)
	if k == nil {
		st.release()
		s.streams.leave(nil)
		return event.Errorf(event.CodeHandshakeInvalid, "This connection cannot become a WebSocket.").With("Upgrade")
	}
	k.blocks = st.giveTurn
	v := &socketVoice{socket: k, plain: protocol == protocolEvents, bound: p.window,
		caller: p.caller.Principal, path: r.URL.EscapedPath(), name: rand.Text(), replies: make(chan *reply, pendingMax)}
	if len(p.request.Patterns) == 1 {
		if name, exact := p.request.Patterns[0].Exact(); exact {
			v.topic = name
		}
	}
	v.subscription = p.subscription
	k.messages.limit = messageBytesMax
	if v.plain {
		k.messages.limit = singleBytesMax
	}
	st.voice = v
	if err == nil {
		st.announce("websocket")
	}
	s.streams.track(k.conn)
	go k.listen(v.handle)
	go func() {
		defer s.conns.Add(-1)
		defer s.streams.leave(k.conn)
		defer st.recover()
		st.run(reset, err)
	}()
	return nil
}

// socketVoice speaks over a WebSocket, in one of two subprotocols. In
// signalbox.v1 every message is an object with an op; in cloudevents.json every
// message is a CloudEvent, and what is not one of the log's has a type of the
// broker's own.
type socketVoice struct {
	*socket
	plain  bool // cloudevents.json
	caller identity.Principal
	topic  string // of the URL; "" if it has several
	path   string // of the URL

	subscription string // "" if the reader keeps its own cursor

	replies chan *reply // from who listens to the stream, in order
	first   *reply      // the next to be sent
	scratch []byte      // of the message that is being made
	name    string      // of this socket, in the ids of the broker's own events
	said    int         // how many of them were sent
	last    []byte      // cursor of the last event

	bound   int           // events beyond the last acknowledgement; 0: no bound
	unacked []uint64      // positions of the events sent and not acknowledged, in order
	sent    atomic.Uint64 // the highest position that the reader was told
	acked   atomic.Uint64 // the highest that it acknowledged
}

// reply is the answer to a request, which may be still to come.
type reply struct {
	ref     string
	subject *event.Event    // of a single event
	pending *broker.Pending // nil if the request was refused before
	refused *event.Error
	batch   bool
	held    int // of the server's budget, until it is answered
}

func (v *socketVoice) begin(reset *event.Error) error {
	if err := v.send(v.head); err != nil {
		return err
	}
	v.head = nil
	if reset != nil {
		return v.continued(reset)
	}
	return nil
}

// window is how many more events may be sent before the next acknowledgement.
func (v *socketVoice) window() int {
	if v.bound == 0 {
		return math.MaxInt
	}
	acked, n := v.acked.Load(), 0
	for n < len(v.unacked) && v.unacked[n] <= acked {
		n++
	}
	if n > 0 {
		v.unacked = append(v.unacked[:0], v.unacked[n:]...)
	}
	return v.bound - len(v.unacked)
}

func (v *socketVoice) room(deliveries []dispatch.Delivery) {
	const around = frameHeadMax + len(`{"op":"event","cursor":"","event":}`) + 64
	size := 0
	for i := range deliveries {
		size += len(deliveries[i].JSON()) + around
	}
	v.tcpWire.room(size)
}

func (v *socketVoice) event(d *dispatch.Delivery) error {
	if d.Position != 0 {
		v.last = append(v.last[:0], d.At()...)
		if v.bound > 0 {
			v.unacked = append(v.unacked, d.Position)
		}
		v.tell(d.Position)
	}
	v.scratch = append(v.scratch[:0], `{"op":"event",`...)
	switch {
	case v.plain:
		return v.frame(opText, d.JSON())
	case d.Position == 0: // of an ephemeral topic: no cursor, nothing to acknowledge
		v.scratch = append(v.scratch, `"event":`...)
	default:
		v.scratch = append(append(append(v.scratch, `"cursor":"`...), d.At()...), `","event":`...)
	}
	return v.frame(opText, v.scratch, d.JSON(), []byte{'}'})
}

// tell notes, before it is sent, that the reader may acknowledge a position.
func (v *socketVoice) tell(position uint64) {
	v.sent.Store(max(v.sent.Load(), position))
}

func (v *socketVoice) flush() error { return v.Flush() }

func (v *socketVoice) sync(at event.Cursor, logMillis int64) error {
	v.cursor(at)
	v.scratch = append(strconv.AppendInt(append(v.scratch, `,"log_ms":`...), logMillis, 10), '}')
	return v.say("sync")
}

// moved and heartbeat tell how far the reader has come. A CloudEvent has no
// place for that, so there the ping alone shows that the socket is alive.
func (v *socketVoice) moved(at event.Cursor) error {
	if v.plain {
		return v.Flush()
	}
	v.cursor(at)
	v.scratch = append(v.scratch, '}')
	return v.say("cursor")
}

func (v *socketVoice) heartbeat(at event.Cursor) error { return v.moved(at) }

// cursor begins the members of what is said about a cursor.
func (v *socketVoice) cursor(at event.Cursor) {
	v.tell(at.Position)
	v.last = at.AppendTo(v.last[:0])
	v.scratch = append(append(append(v.scratch[:0], `{"cursor":"`...), v.last...), '"')
}

func (v *socketVoice) continued(reset *event.Error) error {
	facts := resetFacts(reset)
	facts["continued"] = true
	v.scratch = appendJSON(v.scratch[:0], facts)
	return v.say("reset")
}

// notice says what it has to say under a name of its own. When it is worth coming
// back is for those who have no other way to know.
func (v *socketVoice) notice(name string, facts any, _ time.Duration) error {
	v.scratch = appendJSON(v.scratch[:0], facts)
	return v.say(name)
}

// drained tells the reader to come back, once what it published is answered.
func (v *socketVoice) drained() error {
	over := time.NewTimer(drainTime)
	defer over.Stop()
	for v.first != nil || len(v.replies) > 0 {
		select {
		case <-v.notify:
		case <-v.left:
			return errLeft
		case <-over.C:
			return v.restart()
		}
		if err := v.attend(); err != nil {
			return err
		}
		if err := v.Flush(); err != nil {
			return err
		}
	}
	return v.restart()
}

func (v *socketVoice) restart() error {
	return &closeError{code: closeRestart, reason: v.farewell(event.CodeShuttingDown)}
}

// farewell is the reason of a close frame: the code and the cursor to come back
// with.
func (v *socketVoice) farewell(code event.Code) string {
	if len(v.last) == 0 {
		return string(code)
	}
	return string(code) + ": resume from " + string(v.last)
}

// expired ends the socket; the reader comes back with another token.
func (v *socketVoice) expired() error {
	return &closeError{code: closePolicy, reason: v.farewell(event.CodeTokenInvalid)}
}

func (v *socketVoice) failed(e *event.Error) error {
	switch {
	case isDenial(e.Code):
		return &closeError{code: closePolicy, reason: v.farewell(e.Code)}
	case isReset(e.Code):
		v.scratch = appendJSON(v.scratch[:0], resetFacts(e))
		if err := v.say("reset"); err != nil {
			return err
		}
		return &closeError{code: closeReset, reason: string(e.Code)}
	case e.Code.Class().Retryable:
		return &closeError{code: closeLater, reason: v.farewell(e.Code)}
	}
	return &closeError{code: closeInternal, reason: v.farewell(e.Code)}
}

func (v *socketVoice) attention() <-chan struct{} { return v.notify }

// attend sends what is due beside the log: pings, pongs, and the answers that
// have come. A later answer waits for an earlier, as the log does.
func (v *socketVoice) attend() error {
	if err := v.socket.attend(); err != nil {
		return err
	}
	for {
		if v.first == nil {
			select {
			case v.first = <-v.replies:
			default:
				return nil
			}
		}
		if answered, err := v.answer(v.first); !answered || err != nil {
			return err
		}
		v.s.held.give(v.first.held)
		v.first = nil
		if cap(v.scratch) > receiptBufferMax {
			v.scratch = nil
		}
	}
}

// answer buffers the answer to a request, if it is there.
func (v *socketVoice) answer(r *reply) (answered bool, err error) {
	refused := r.refused
	if refused == nil {
		result, done, err := r.pending.Result()
		if !done {
			return false, nil
		}
		if err == nil {
			return true, v.receipt(r, &result)
		}
		refused = event.AsError(err)
	}
	return true, v.refuse(r, refused)
}

// receipt tells what was decided. In cloudevents.json there is no word for it:
// the event itself comes to whoever reads its topic.
func (v *socketVoice) receipt(r *reply, result *broker.PublishResult) error {
	if v.plain {
		return nil
	}
	b := appendJSON(append(v.scratch[:0], `{"op":"receipt","ref":`...), r.ref)
	if result.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	if r.batch {
		b = append(b, `,"receipts":`...)
	} else {
		b = append(b, `,"receipt":`...)
	}
	v.scratch = append(appendReceipts(b, result.Receipts, r.batch), '}')
	return v.frame(opText, v.scratch)
}

func (v *socketVoice) refuse(r *reply, e *event.Error) error {
	v.s.metrics.HTTP.Refused(e.Code)
	b := append(v.scratch[:0], '{')
	if r.ref != "" {
		b = append(appendJSON(append(b, `"ref":`...), r.ref), ',')
	}
	if r.subject != nil {
		b = appendJSON(append(b, `"source":`...), r.subject.Source())
		b = append(appendJSON(append(b, `,"id":`...), r.subject.ID()), ',')
	}
	b = appendProblem(append(b, `"problem":`...), e, statusOf(e))
	b[len(b)-1] = '}' // in place of the line end
	v.scratch = b
	return v.sayLater("refused")
}

// say sends what scratch has, an object that is not empty, under the name op.
func (v *socketVoice) say(op string) error {
	if err := v.sayLater(op); err != nil {
		return err
	}
	return v.Flush()
}

func (v *socketVoice) sayLater(op string) error {
	if !v.plain {
		return v.frame(opText, []byte(`{"op":"`+op+`",`), v.scratch[1:])
	}
	v.said++
	envelope := appendJSON([]byte(`{"specversion":"1.0","id":"`+v.name+"-"+strconv.Itoa(v.said)+`","type":"signalbox.`+op+`","source":`), v.path)
	return v.frame(opText, envelope, []byte(`,"datacontenttype":"application/json","data":`), v.scratch, []byte{'}'})
}

func (v *socketVoice) gone() <-chan struct{} { return v.left }

func (v *socketVoice) end(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		v.cut(v.farewell(event.CodeOverloaded))
	}
	v.socket.end(err)
	// Nobody listens any more, so these are the last.
	if v.first != nil {
		v.s.held.give(v.first.held)
	}
	for {
		select {
		case r := <-v.replies:
			v.s.held.give(r.held)
		default:
			return
		}
	}
}
