// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"signalbox/event"
	"signalbox/internal/transport/web"
)

// peer is a WebSocket to the door, of another author's client.
type peer struct {
	t    *testing.T
	conn *websocket.Conn
	ctx  context.Context
}

// said is a message of signalbox.v1, or a CloudEvent with its data.
type said struct {
	Op       string          `json:"op"`
	Ref      string          `json:"ref"`
	Cursor   string          `json:"cursor"`
	LogMS    int64           `json:"log_ms"`
	Event    json.RawMessage `json:"event"`
	Receipt  *event.Receipt  `json:"receipt"`
	Receipts []event.Receipt `json:"receipts"`
	Replayed bool            `json:"replayed"`
	Problem  map[string]any  `json:"problem"`
	Code     string          `json:"code"`
	Oldest   string          `json:"oldest"`
	Goes     bool            `json:"continued"`

	Type   string          `json:"type"`
	ID     string          `json:"id"`
	Source string          `json:"source"`
	Data   json.RawMessage `json:"data"`
}

func (d *door) dial(path string, subprotocols ...string) *peer {
	d.t.Helper()
	p, err := d.tryDial(path, subprotocols...)
	if err != nil {
		d.t.Fatalf("WebSocket to %s: %v", path, err)
	}
	return p
}

func (d *door) tryDial(path string, subprotocols ...string) (*peer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	d.t.Cleanup(cancel)
	h := http.Header{}
	for _, line := range d.reader(path) {
		name, value, _ := strings.Cut(line, ": ")
		h.Set(name, value)
	}
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(d.url(path), "http"), &websocket.DialOptions{Subprotocols: subprotocols, HTTPHeader: h})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(32 << 20)
	d.t.Cleanup(func() { _ = conn.CloseNow() })
	return &peer{d.t, conn, ctx}, nil
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	if err := p.conn.Write(p.ctx, websocket.MessageText, fmt.Appendf(nil, format, args...)); err != nil {
		p.t.Fatalf("sending: %v", err)
	}
}

func (p *peer) text() []byte {
	p.t.Helper()
	kind, b, err := p.conn.Read(p.ctx)
	if err != nil {
		p.t.Fatalf("reading: %v", err)
	}
	eq(p.t, "kind of message", kind, websocket.MessageText)
	return b
}

func (p *peer) next() said {
	p.t.Helper()
	b := p.text()
	var m said
	if err := json.Unmarshal(b, &m); err != nil {
		p.t.Fatalf("not JSON: %v: %s", err, clip(b))
	}
	return m
}

// want reads the next message, which has this op.
func (p *peer) want(op string) said {
	p.t.Helper()
	m := p.next()
	if m.Op != op {
		p.t.Fatalf("the next message is %+v, want op %s", m, op)
	}
	return m
}

// untilSync collects events up to the marker.
func (p *peer) untilSync() (ids []string, last said) {
	p.t.Helper()
	for {
		m := p.next()
		switch id, ok := m.event(); {
		case m.Op == "sync", m.Type == "signalbox.sync":
			return ids, m
		case ok:
			ids = append(ids, id)
		default:
			p.t.Fatalf("before the marker comes %+v", m)
		}
	}
}

// event is the id of the event that a message of either subprotocol has.
func (m said) event() (id string, ok bool) {
	if m.Op == "event" {
		return m.id(), true
	}
	return m.ID, m.Op == "" && m.Type != "" && m.Type != "signalbox.sync"
}

func (m said) id() string {
	e, err := event.DecodeDelivered(m.Event)
	if err != nil {
		return err.Error()
	}
	return e.ID()
}

// untilClosed collects events up to the close frame.
func (p *peer) untilClosed() (ids []string, e websocket.CloseError) {
	p.t.Helper()
	for {
		_, b, err := p.conn.Read(p.ctx)
		if err != nil {
			if !asError(err, &e) {
				p.t.Fatalf("the socket ended without a close frame: %v", err)
			}
			return ids, e
		}
		var m said
		if err := json.Unmarshal(b, &m); err != nil {
			p.t.Fatalf("not JSON: %v: %s", err, clip(b))
		}
		if id, ok := m.event(); ok {
			ids = append(ids, id)
		}
	}
}

// closed reads up to the close frame.
func (p *peer) closed() websocket.CloseError {
	p.t.Helper()
	_, e := p.untilClosed()
	return e
}

const v1 = "signalbox.v1"

func TestSocketFollowsWithoutASeam(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 3)
	p := d.dial("/v1/topics/a/events", v1)
	for i := range 3 {
		m := p.want("event")
		eq(t, "id", m.id(), strconv.Itoa(i+1))
		if c, err := event.ParseCursor(m.Cursor); err != nil || c.Position != uint64(i+1) {
			t.Errorf("event %d has the cursor %q", i+1, m.Cursor)
		}
	}
	sync := p.want("sync")
	if sync.Cursor == "" || time.Since(time.UnixMilli(sync.LogMS)).Abs() > time.Minute {
		t.Errorf("the marker is %+v", sync)
	}
	for i := 4; i < 8; i++ {
		d.structured("a", ev(strconv.Itoa(i), "")).want(t, 200)
		eq(t, "live event", p.want("event").id(), strconv.Itoa(i))
	}
}

// What is delivered is the same text as at every other door.
func TestSocketDeliversTheBytesOfAPoll(t *testing.T) {
	d := openDoor(t)
	d.structured("a", ev("1", "k", "\"data\":{\"b\" :\t[1.0,\r\n2]}")).want(t, 200)
	polled := strings.TrimSuffix(strings.TrimPrefix(string(d.get("/v1/topics/a/events").body), "["), "]\n")
	eq(t, "signalbox.v1", string(d.dial("/v1/topics/a/events", v1).want("event").Event), polled)
	eq(t, "cloudevents.json", string(d.dial("/v1/topics/a/events", "cloudevents.json").text()), polled)
}

func TestSocketReadsSeveralTopicsFromACursor(t *testing.T) {
	d := openDoor(t)
	for i, topic := range []string{"x.a", "x.b", "y", "x.c"} {
		d.structured(topic, ev(strconv.Itoa(i+1), "")).want(t, 200)
	}
	ids, _ := d.dial("/v1/events?topics=x.*&cursor=@1", v1).untilSync()
	sameList(t, "events", ids, []string{"2", "4"})
	ids, _ = d.dial("/v1/events?topics=x.*,y&cursor=now", v1).untilSync()
	sameList(t, "events from now on", ids, nil)
}

func TestSocketTakesAFilter(t *testing.T) {
	d := openDoor(t)
	for i, kind := range []string{"t.a", "t.b", "t.a"} {
		d.structured("a", strings.Replace(ev(strconv.Itoa(i+1), ""), "t.x", kind, 1)).want(t, 200)
	}
	ids, _ := d.dial("/v1/topics/a/events"+query("filter", "type = 't.a'"), v1).untilSync()
	sameList(t, "events", ids, []string{"1", "3"})
}

func TestSocketGivesReceiptsByReference(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	p := d.dial("/v1/topics/a/events?cursor=now", v1)
	p.want("sync")
	p.send(`{"op":"publish","ref":"one","event":%s}`, ev("1", "", someData))
	p.send(`{"op":"publish","ref":"again","event":%s}`, ev("1", "", someData))
	p.send(`{"op":"publish","ref":"elsewhere","topic":"s","event":%s}`, ev("2", "k", someData))
	p.send(`{"op":"publish","ref":"batch","topic":"s","events":[%s,%s]}`, ev("3", "k", someData), ev("4", "l", someData))
	p.send(`{"op":"publish","ref":"none","topic":"s","events":[]}`)
	p.send(`{"op":"publish","ref":"if","topic":"s","if_match":"\"@3\"","event":%s}`, ev("5", "k", someData))
	p.send(`{"op":"publish","ref":"if not","topic":"s","if_none_match":"*","event":%s}`, ev("6", "k", someData))
	p.send(`{"op":"publish","ref":"key","topic":"s","idempotency_key":"x","event":%s}`, ev("7", "m", someData))
	p.send(`{"op":"publish","ref":"key again","topic":"s","idempotency_key":"x","event":%s}`, ev("7", "m", someData))
	answers := map[string]said{}
	for len(answers) < 9 {
		if m := p.next(); m.Op != "event" {
			answers[m.Ref] = m
		}
	}
	outcome := func(ref string) string {
		m := answers[ref]
		if m.Receipt == nil {
			return fmt.Sprintf("%+v", m)
		}
		return fmt.Sprint(m.Op, " ", m.Receipt.Outcome, " ", m.Receipt.Topic, " ", m.Receipt.Position, " ", m.Replayed)
	}
	eq(t, "one", outcome("one"), "receipt accepted a 1 false")
	eq(t, "again", outcome("again"), "receipt duplicate a 1 false")
	eq(t, "elsewhere", outcome("elsewhere"), "receipt accepted s 2 false")
	eq(t, "batch", len(answers["batch"].Receipts), 2)
	if n := answers["none"]; n.Op != "receipt" || n.Receipts == nil || len(n.Receipts) != 0 {
		t.Errorf("an empty batch is answered with %+v", n)
	}
	eq(t, "if", outcome("if"), "receipt accepted s 5 false")
	eq(t, "if not", answers["if not"].Problem["code"], any("conflict"))
	eq(t, "etag", answers["if not"].Problem["etag"], any(`"@5"`))
	eq(t, "key", outcome("key"), "receipt accepted s 6 false")
	eq(t, "key again", outcome("key again"), "receipt accepted s 6 true")
}

// A refusal has the code and the facts that it has everywhere, and ends
// nothing.
func TestSocketRefusesByCodeAndGoesOn(t *testing.T) {
	d := openDoor(t)
	p := d.dial("/v1/events?topics=a,b&cursor=now", v1)
	p.want("sync")
	for _, c := range []struct{ message, ref, code, field string }{
		{`x`, "", "json_invalid", ""},
		{`[]`, "", "json_invalid", ""},
		{`{}`, "", "parameter_invalid", "op"},
		{`{"op":"publish"} {}`, "", "json_invalid", ""},
		{`{"op":"publish","op":"publish"}`, "", "json_invalid", ""},
		{`{"op":"subscribe","ref":"r"}`, "r", "parameter_invalid", "op"},
		{`{"op":1}`, "", "parameter_invalid", "op"},
		{`{"ref":"r","op":"publish","x":1}`, "r", "parameter_invalid", "x"},
		{`{"op":"publish","event":{}}`, "", "parameter_invalid", "ref"},
		{`{"op":"publish","ref":"` + strings.Repeat("r", 65) + `"}`, "", "parameter_invalid", "ref"},
		{`{"op":"publish","ref":"r","topic":"a"}`, "r", "parameter_invalid", "event"},
		{`{"op":"publish","ref":"r","topic":"a","event":{},"events":[]}`, "r", "parameter_invalid", "event"},
		{`{"op":"publish","ref":"r","event":` + ev("1", "") + `}`, "r", "parameter_invalid", "topic"},
		{`{"op":"publish","ref":"r","topic":"a","event":{}}`, "r", "event_invalid", "specversion"},
		{`{"op":"publish","ref":"r","topic":"a","event":[]}`, "r", "json_invalid", ""},
		{`{"op":"publish","ref":"r","topic":"a","events":{}}`, "r", "json_invalid", ""},
		{`{"op":"publish","ref":"r","topic":"a","events":[` + ev("1", "") + `,{}]}`, "r", "batch_aborted", "specversion"},
		{`{"op":"publish","ref":"r","topic":"a..b","event":` + ev("1", "") + `}`, "r", "topic_invalid", "topic"},
		{`{"op":"publish","ref":"r","topic":"$x","event":` + ev("1", "") + `}`, "r", "topic_reserved", "topic"},
		{`{"op":"publish","ref":"r","topic":"a","cursor":"@1","event":` + ev("1", "") + `}`, "r", "parameter_invalid", "cursor"},
		{`{"op":"publish","ref":"r","topic":"a","if_match":"1","event":` + ev("1", "") + `}`, "r", "precondition_invalid", "If-Match"},
		{`{"op":"publish","ref":"r","topic":"a","idempotency_key":"","event":` + ev("1", "") + `}`, "r", "idempotency_key_invalid", "Idempotency-Key"},
		{`{"op":"publish","ref":"r","topic":"a","if_none_match":"*","events":[` + ev("1", "") + `]}`, "r", "precondition_invalid", "If-Match"},
		{`{"op":"ack","ref":"r","cursor":"1"}`, "r", "cursor_invalid", "cursor"},
		{`{"op":"ack","ref":"r","cursor":"@7"}`, "r", "cursor_invalid", "cursor"},
		{`{"op":"ack","ref":"r","cursor":"@0.zzzzzzzz"}`, "r", "cursor_invalid", "cursor"},
		{`{"op":"ack","ref":"r","cursor":"@0","topic":"a"}`, "r", "parameter_invalid", "op"},
	} {
		p.send("%s", c.message)
		m := p.want("refused")
		field, _ := m.Problem["field"].(string)
		if m.Ref != c.ref || m.Problem["code"] != c.code || field != c.field {
			t.Errorf("%.80s is answered with %+v, want %s in %q", c.message, m, c.code, c.field)
		}
	}
	p.send(`{"op":"publish","ref":"good","topic":"a","event":%s}`, ev("1", ""))
	for p.next().Op != "receipt" {
	}
	eq(t, "events", d.count("a"), 1)
}

func TestSocketRefusesWrongRequestsBeforeTheHandshake(t *testing.T) {
	d := openDoor(t)
	shake := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
		"Sec-WebSocket-Protocol: signalbox.v1"}
	for path, want := range map[string][2]string{
		"/v1/topics/a/events?limit=1":       {"parameter_invalid", "limit"},
		"/v1/topics/a/events?wait=1":        {"parameter_invalid", "wait"},
		"/v1/topics/a/events?named=true":    {"parameter_invalid", "named"},
		"/v1/topics/a/events?window=0":      {"parameter_invalid", "window"},
		"/v1/topics/a/events?window=x":      {"parameter_invalid", "window"},
		"/v1/topics/a/events?cursor=x":      {"cursor_invalid", "cursor"},
		"/v1/topics/a/events?view=past":     {"view_invalid", "view"},
		"/v1/topics/a/events?on_reset=oops": {"parameter_invalid", "on_reset"},
		"/v1/events?topics=a..b":            {"topic_invalid", "topics"},
		"/v1/events":                        {"parameter_invalid", "topics"},
	} {
		p := d.do(request{path: path, header: shake, unchecked: true}).refused(t, 400, want[0])
		eq(t, path, p["field"], any(want[1]))
	}
	for _, path := range []string{"/v1/topics/a/events?window=5", "/v1/topics/a/events?window=5&wait=1"} {
		d.get(path).refused(t, 400, "parameter_invalid")
	}
	d.get("/v1/topics/a/events?window=5", "Accept: text/event-stream").refused(t, 400, "parameter_invalid")
}

// The window is what the reader has not acknowledged: a slow agent is paced by
// what it has done, and not by what its socket swallows.
func TestSocketSendsNoMoreThanIsAcknowledged(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 10)
	p := d.dial("/v1/topics/a/events?window=4", v1)
	var cursors []string
	next := func(n int) {
		t.Helper()
		for range n {
			m := p.want("event")
			eq(t, "id", m.id(), strconv.Itoa(len(cursors)+1))
			cursors = append(cursors, m.Cursor)
		}
		// Whatever comes next is the answer to this, and not an event.
		p.send(`{"op":"ack","ref":"probe","cursor":"x"}`)
		eq(t, "probe", p.want("refused").Ref, "probe")
	}
	next(4)
	p.send(`{"op":"ack","cursor":%q}`, cursors[1])
	next(2)
	p.send(`{"op":"ack","cursor":%q}`, cursors[0]) // behind the last one, which stands
	next(0)
	p.send(`{"op":"ack","cursor":%q}`, cursors[5])
	ids, m := p.untilSync()
	sameList(t, "the rest", ids, []string{"7", "8", "9", "10"})
	p.send(`{"op":"ack","cursor":%q}`, m.Cursor)
	d.structured("a", ev("11", "")).want(t, 200)
	eq(t, "live event", p.want("event").id(), "11")
}

// A browser shows its page nothing of a handshake that fails, so a reset is
// told in the socket.
func TestSocketResetIsSaidInTheSocket(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 2)
	p := d.dial("/v1/topics/a/events?cursor=@1.zzzzzzzz", v1)
	m := p.want("reset")
	if m.Code != "cursor_foreign" || m.Oldest == "" || m.Goes {
		t.Errorf("the reset is %+v", m)
	}
	e := p.closed()
	eq(t, "close code", int(e.Code), 4410)
	eq(t, "reason", e.Reason, "cursor_foreign")

	p = d.dial("/v1/topics/a/events?cursor=@1.zzzzzzzz", "cloudevents.json")
	m = p.next()
	if m.Type != "signalbox.reset" || m.Source != "/v1/topics/a/events" || !strings.Contains(string(m.Data), `"code":"cursor_foreign"`) {
		t.Errorf("the reset is %+v", m)
	}
	eq(t, "close code", int(p.closed().Code), 4410)

	p = d.dial("/v1/topics/a/events?cursor=@1.zzzzzzzz&on_reset=earliest", v1)
	if m := p.want("reset"); !m.Goes {
		t.Errorf("the reset is %+v", m)
	}
	ids, _ := p.untilSync()
	sameList(t, "events", ids, []string{"1", "2"})
}

// A reader that falls behind a removal while it is connected is told there.
func TestSocketIsToldWhenItFallsBehind(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 2)
	p := d.dial("/v1/topics/a/events?window=1", v1)
	first := p.want("event")
	d.do(request{method: "DELETE", path: "/v1/topics/a"}).want(t, 204)
	p.send(`{"op":"ack","cursor":%q}`, first.Cursor)
	eq(t, "code", p.want("reset").Code, "cursor_expired")
	eq(t, "close code", int(p.closed().Code), 4410)
}

func TestSocketHeartbeatsCarryTheCursor(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.Heartbeat = 1500 * time.Millisecond }) // nobody answers pings while it publishes
	p := d.dial("/v1/topics/quiet/events?cursor=now", v1)
	p.want("sync")
	d.structured("busy", ev("1", "")).want(t, 200)
	for {
		if m := p.want("cursor"); strings.HasPrefix(m.Cursor, "@1.") {
			break
		}
	}
}

// At shutdown what was published is answered first, and the close code says
// that coming back is right.
func TestSocketEndsInGoodOrderAtShutdown(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 1)
	p, q := d.dial("/v1/topics/a/events", v1), d.dial("/v1/topics/a/events", "cloudevents.json")
	p.untilSync()
	_, sync := q.untilSync()
	for i := range 20 {
		p.send(`{"op":"publish","ref":"%d","event":%s}`, i, ev("p"+strconv.Itoa(i), ""))
	}
	for p.next().Op != "receipt" {
	}
	go d.stop()
	answered := 1
	for {
		_, b, err := p.conn.Read(p.ctx)
		if err != nil {
			var e websocket.CloseError
			if !asError(err, &e) || e.Code != 1012 || !strings.HasPrefix(e.Reason, "shutting_down: resume from @") {
				t.Errorf("the socket ended with %v", err)
			}
			break
		}
		if strings.Contains(string(b), `"op":"receipt"`) {
			answered++
		}
	}
	e := q.closed()
	eq(t, "close code", int(e.Code), 1012)
	if sync.Data == nil {
		t.Error("no marker")
	}
	d.stop()
	d.start()
	defer d.stop()
	if stored := d.count("a"); stored < 1+answered {
		t.Errorf("%d receipts, %d events", answered, stored)
	}
}

// Across restarts of the broker a reader that comes back with its cursor has
// every event once.
func TestSocketGoesOnAcrossRestarts(t *testing.T) {
	d := openDoor(t)
	var got []string
	cursor := "@0"
	published := 0
	for round := range 4 {
		for range 50 {
			published++
			d.structured("a", ev(strconv.Itoa(published), "")).want(t, 200)
		}
		p := d.dial("/v1/topics/a/events"+query("cursor", cursor), v1)
		for n := 0; n < 40 || round == 3 && len(got) < published; n++ {
			m := p.want("event")
			got, cursor = append(got, m.id()), m.Cursor
		}
		ended := make(chan struct{})
		go func() { // a reader that does not come to its close frame holds up the restart
			defer close(ended)
			for err := error(nil); err == nil; {
				_, _, err = p.conn.Read(p.ctx)
			}
		}()
		d.restart()
		<-ended
	}
	want := make([]string, published)
	for i := range want {
		want[i] = strconv.Itoa(i + 1)
	}
	sameList(t, "events", got, want)
}

// A stock client of the CloudEvents binding reads and sends events, and nothing
// else.
func TestSocketOfTheCloudEventsBinding(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 1)
	p := d.dial("/v1/topics/a/events", "cloudevents.json")
	eq(t, "subprotocol", p.conn.Subprotocol(), "cloudevents.json")
	e, err := event.DecodeDelivered(p.text())
	if err != nil || e.ID() != "1" {
		t.Errorf("the first message is %v, %v", e, err)
	}
	sync := p.next()
	if sync.Type != "signalbox.sync" || sync.ID == "" || sync.Source != "/v1/topics/a/events" || !strings.HasPrefix(string(sync.Data), `{"cursor":"@1.`) {
		t.Errorf("the marker is %+v", sync)
	}
	p.send("%s", ev("mine", "", someData))
	eq(t, "the event that was sent", p.next().ID, "mine")
	for _, c := range []struct{ message, code, id string }{
		{`{"specversion":"1.0"}`, "event_invalid", ""},
		{`nonsense`, "json_invalid", ""},
		{`[` + ev("b", "") + `]`, "json_invalid", ""}, // section 1.5: no batches
		{ev("mine", "", `"data":"other"`), "id_reused", "mine"},
		{strings.Replace(ev("x", ""), "t.x", "signalbox.sync", 1), "attribute_reserved", ""},
	} {
		p.send("%s", c.message)
		m := p.next()
		var data struct {
			ID      string         `json:"id"`
			Problem map[string]any `json:"problem"`
		}
		if err := json.Unmarshal(m.Data, &data); err != nil {
			t.Fatal(err)
		}
		if m.Type != "signalbox.refused" || data.Problem["code"] != c.code || data.ID != c.id {
			t.Errorf("%s is answered with %+v %s", c.message, m, m.Data)
		}
		if m.ID == sync.ID {
			t.Error("two events of the broker have one id")
		}
	}
	eq(t, "events", d.count("a"), 2)

	several := d.dial("/v1/events?topics=a,b&cursor=now", "cloudevents.json")
	several.next()
	several.send("%s", ev("y", ""))
	if m := several.next(); m.Type != "signalbox.refused" || !strings.Contains(string(m.Data), `"field":"topics"`) {
		t.Errorf("an event without a topic is answered with %+v %s", m, m.Data)
	}
}

func TestSocketChoosesTheSubprotocolThatTheClientPrefers(t *testing.T) {
	d := openDoor(t)
	for _, c := range []struct {
		offered []string
		want    string
	}{
		{[]string{"signalbox.v1"}, "signalbox.v1"},
		{[]string{"cloudevents.json"}, "cloudevents.json"},
		{[]string{"cloudevents.avro", "cloudevents.json", "signalbox.v1"}, "cloudevents.json"},
		{[]string{"x", "signalbox.v1", "cloudevents.json"}, "signalbox.v1"},
	} {
		eq(t, fmt.Sprint(c.offered), d.dial("/v1/topics/a/events", c.offered...).conn.Subprotocol(), c.want)
	}
	for _, offered := range [][]string{nil, {"cloudevents.avro"}, {"CLOUDEVENTS.JSON"}} {
		if p, err := d.tryDial("/v1/topics/a/events", offered...); err == nil {
			t.Errorf("%v leads to %q", offered, p.conn.Subprotocol())
		}
	}
}

// What a socket holds is given back with it, in whatever state it ends.
func TestSocketsGiveBackWhatTheyHold(t *testing.T) {
	d := openDoor(t)
	for i := range 20 {
		p := d.dial("/v1/topics/a/events?window=1", v1)
		for j := range 5 {
			p.send(`{"op":"publish","ref":"r","event":%s}`, ev(fmt.Sprint(i, "-", j), ""))
		}
		if i%2 == 0 {
			_ = p.conn.CloseNow()
		} else {
			_ = p.conn.Close(websocket.StatusNormalClosure, "done")
		}
	}
	eventually(t, "every socket gone", func() bool { return d.server.OpenStreams() == 0 && d.server.HeldBytes() == 0 })
}

func asError[T error](err error, into *T) bool { return errors.As(err, into) }

// What docs/websocket.md shows is what is said: its examples of a client are
// taken, and those of the broker are all the ops there are.
func TestSocketPageIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../../docs/websocket.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d blocks of examples", len(blocks))
	}
	var ops []string
	for line := range strings.Lines(blocks[0][1]) {
		var m said
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if !slices.Contains(ops, m.Op) {
			ops = append(ops, m.Op)
		}
	}
	sameList(t, "the broker's ops", ops, []string{"event", "sync", "cursor", "receipt", "refused", "reset"})
	for line := range strings.Lines(blocks[1][1]) {
		if _, _, err := web.DecodeMessage([]byte(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}
