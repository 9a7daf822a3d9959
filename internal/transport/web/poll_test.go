// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fill publishes events 1 to n, all without a key.
func (d *door) fill(topic string, n int) {
	d.t.Helper()
	for from := 1; from <= n; from += 1000 {
		var b strings.Builder
		for i := from; i <= min(n, from+999); i++ {
			b.WriteString(map[bool]string{true: "[", false: ","}[i == from])
			b.WriteString(ev(strconv.Itoa(i), "", `"data":`+strconv.Itoa(i)))
		}
		d.batch(topic, b.String()+"]").want(d.t, 200)
	}
}

func TestPollGivesPagesAndTheWayOn(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 5)
	a := d.get("/v1/topics/a/events?limit=2").want(t, 200)
	eq(t, "Content-Type", a.header.Get("Content-Type"), "application/cloudevents-batch+json")
	eq(t, "Cache-Control", a.header.Get("Cache-Control"), "no-store")
	eq(t, "Signalbox-Synced", a.header.Get("Signalbox-Synced"), "false")
	eq(t, "Signalbox-Wait without wait", a.header.Get("Signalbox-Wait"), "")
	sameList(t, "first page", a.ids(t), []string{"1", "2"})
	if !strings.HasPrefix(a.cursor(), "@2.") {
		t.Errorf("cursor is %s, want @2", a.cursor())
	}
	// The Link leads on with everything else kept.
	link := a.header.Get("Link")
	next, rel, _ := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	eq(t, "relation of the Link", rel, `; rel="next"`)
	a = d.get(next).want(t, 200)
	sameList(t, "second page", a.ids(t), []string{"3", "4"})
	a = d.get("/v1/topics/a/events"+query("cursor", a.cursor())).want(t, 200)
	sameList(t, "third page", a.ids(t), []string{"5"})
	eq(t, "Signalbox-Synced", a.header.Get("Signalbox-Synced"), "true")
	a = d.get("/v1/topics/a/events"+query("cursor", a.cursor())).want(t, 200)
	eq(t, "an empty page", string(a.body), "[]\n")
	if !strings.HasPrefix(a.cursor(), "@5.") || a.header.Get("Link") == "" {
		t.Errorf("an empty page has cursor %q and link %q", a.cursor(), a.header.Get("Link"))
	}
	eq(t, "events at a limit over the greatest", len(d.get("/v1/topics/a/events?limit=99999999").list(t)), 5)
}

func TestPatternsReadSeveralTopicsInOneOrder(t *testing.T) {
	d := openDoor(t)
	for i, topic := range []string{"a.x", "b.y", "a.z", "c", "a.x"} {
		d.structured(topic, ev(strconv.Itoa(i), "")).want(t, 200)
	}
	sameList(t, "a.* and c", d.get("/v1/events?topics=a.*,c").want(t, 200).ids(t), []string{"0", "2", "3", "4"})
	sameList(t, ">", d.get("/v1/events?topics=%3E").want(t, 200).ids(t), []string{"0", "1", "2", "3", "4"})
	sameList(t, "unknown", d.get("/v1/events?topics=nowhere.>").want(t, 200).ids(t), nil)
	sameList(t, "unknown topic", d.get("/v1/topics/nowhere/events").want(t, 200).ids(t), nil)
	d.get("/v1/events").refused(t, 400, "parameter_invalid")
	d.get("/v1/events?topics=").refused(t, 400, "topic_invalid")
	d.get("/v1/events?topics=a,b..c").refused(t, 400, "topic_invalid")
	d.get("/v1/topics/a.*/events").refused(t, 400, "topic_invalid")
}

func TestEveryStartIsUnderstood(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 3)
	sent := time.Now()
	at := func(cursor string, header ...string) answer {
		t.Helper()
		return d.get("/v1/topics/a/events"+query("cursor", cursor), header...)
	}
	all, last := []string{"1", "2", "3"}, []string{"3"}
	sameList(t, "@0", at("@0").want(t, 200).ids(t), all)
	sameList(t, "@2", at("@2").want(t, 200).ids(t), last)
	sameList(t, "now", at("now").want(t, 200).ids(t), nil)
	sameList(t, "an hour ago", at(sent.Add(-time.Hour).Format(time.RFC3339)).want(t, 200).ids(t), all)
	sameList(t, "in an hour", at(sent.Add(time.Hour).UTC().Format(time.RFC3339Nano)).want(t, 200).ids(t), nil)
	cursor := d.get("/v1/topics/a/events?limit=2").cursor()
	sameList(t, "Last-Event-ID over cursor", at("@0", "Last-Event-ID: "+cursor).want(t, 200).ids(t), last)
	sameList(t, "an event's id", at("@0", "Last-Event-ID: 2").want(t, 200).ids(t), last)
	sameList(t, "an unknown id falls back to the cursor", at("@1", "Last-Event-ID: none").want(t, 200).ids(t), []string{"2", "3"})
	sameList(t, "an empty Last-Event-ID", at("@2", "Last-Event-ID: ").want(t, 200).ids(t), last)
	d.get("/v1/topics/a/events", "Last-Event-ID: none").refused(t, 410, "cursor_unknown")
	sameList(t, "a cursor on several topics", d.get("/v1/events?topics=a,b", "Last-Event-ID: @2").want(t, 200).ids(t), last)
	d.get("/v1/events?topics=a,b", "Last-Event-ID: 2").refused(t, 400, "cursor_invalid")
	d.get("/v1/events?topics=%3E", "Last-Event-ID: 2").refused(t, 400, "cursor_invalid")
	for _, bad := range []string{"", "1", "@", "@-1", "@+1", "@01", "@1.", "@1.ABCDEFGH", "@99999999999999999999", "yesterday", "2026-01-01"} {
		at(bad).refused(t, 400, "cursor_invalid")
	}
	for _, bad := range []string{"@1x", "@1.k3f9", "@99999999999999999999"} {
		d.get("/v1/topics/a/events", "Last-Event-ID: "+bad).refused(t, 400, "cursor_invalid")
	}
	d.get("/v1/topics/a/events", "Last-Event-ID: @1", "Last-Event-ID: @2").refused(t, 400, "parameter_invalid")
}

func TestUnknownAndMalformedParametersAreRefused(t *testing.T) {
	d := openDoor(t)
	for path, field := range map[string]string{
		"/v1/topics/a/events?curser=@1":                    "curser",
		"/v1/topics/a/events?cursor=@1&cursor=@2":          "cursor",
		"/v1/topics/a/events?limit=0":                      "limit",
		"/v1/topics/a/events?limit=-1":                     "limit",
		"/v1/topics/a/events?limit=+1":                     "limit",
		"/v1/topics/a/events?limit=1e3":                    "limit",
		"/v1/topics/a/events?wait=":                        "wait",
		"/v1/topics/a/events?on_reset=latest":              "on_reset",
		"/v1/topics/a/events?named=true":                   "named",
		"/v1/topics/a/events?topics=a":                     "topics",
		"/v1/topics/a/state?x=1":                           "x",
		"/v1/topics?x=1":                                   "x",
		"/healthz?x=1":                                     "x",
		"/v1/topics/a/events?cursor=@1;limit=5":            "",
		"/v1/topics/a/events?cursor=%zz":                   "",
		"/v1/topics/a/digest?" + strings.Repeat("a", 5000): strings.Repeat("a", 5000),
	} {
		p := d.get(path).refused(t, 400, "parameter_invalid")
		if got, _ := p["field"].(string); got != field {
			t.Errorf("%s: field %q, want %q", path, got, field)
		}
	}
	stream := "Accept: text/event-stream"
	d.get("/v1/topics/a/events?limit=5", stream).refused(t, 400, "parameter_invalid")
	d.get("/v1/topics/a/events?wait=5", stream).refused(t, 400, "parameter_invalid")
	d.get("/v1/topics/a/events?named=1", stream).refused(t, 400, "parameter_invalid")
	d.do(request{method: "POST", path: "/v1/topics/a/events?ack=all", body: ev("1", ""),
		header: []string{"Content-Type: application/cloudevents+json"}}).refused(t, 400, "parameter_invalid")
	if a := d.get("/v1/events"); !strings.Contains(string(a.body), "a.*,b.>") {
		t.Errorf("a problem is escaped as for HTML: %s", a.body)
	}
}

func TestAcceptChoosesBetweenStreamAndPoll(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.StreamLife = time.Millisecond })
	const batch, stream = "application/cloudevents-batch+json", "text/event-stream; charset=utf-8"
	for accept, want := range map[string]string{
		"":                             batch,
		"*/*":                          batch,
		"application/json":             batch,
		"application/*":                batch,
		"text/event-stream":            stream,
		"Text/Event-Stream":            stream,
		"text/event-stream, */*;q=0.5": stream,
		"text/event-stream, */*":       stream,
		"text/event-stream;q=0.1, application/cloudevents-batch+json": batch,
		"text/event-stream;q=0, */*":                                  batch,
		"text/html, */*;q=0.8":                                        batch,
	} {
		a := d.do(request{path: "/v1/topics/a/events?cursor=now", header: []string{"Accept: " + accept}}).want(t, 200)
		eq(t, "the answer to Accept: "+accept, a.header.Get("Content-Type"), want)
	}
	for _, accept := range []string{"text/html", "text/*", "text/event-stream;q=0", "*/*;q=0"} {
		d.get("/v1/topics/a/events", "Accept: "+accept).refused(t, 406, "not_acceptable")
	}
}

// A poll that ends with nothing still has a cursor, and is really held.
func TestTimeoutsCarryACursor(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.structured("other", ev("0", "")).want(t, 200)
	began := time.Now()
	a := d.get("/v1/topics/a/events?wait=1").want(t, 200)
	if took := time.Since(began); took < 900*time.Millisecond { // a busy machine is later, and never sooner
		t.Errorf("a poll with wait=1 and nothing to read was answered after %v", took)
	}
	eq(t, "events of the timeout", len(a.list(t)), 0)
	eq(t, "Signalbox-Wait", a.header.Get("Signalbox-Wait"), "1")
	c0 := a.cursor()
	d.structured("a", ev("1", "")).want(t, 200)
	began = time.Now()
	a = d.get("/v1/topics/a/events"+query("cursor", c0, "wait", "300")).want(t, 200)
	if took := time.Since(began); took > patience {
		t.Errorf("what came meanwhile was held back for %v", took)
	}
	sameList(t, "what came meanwhile", a.ids(t), []string{"1"})

	began = time.Now()
	eq(t, "Signalbox-Wait of wait=0", d.get("/v1/topics/a/events?cursor=now&wait=0").header.Get("Signalbox-Wait"), "0")
	if took := time.Since(began); took > patience {
		t.Errorf("wait=0 was held for %v", took)
	}
	d.get("/v1/topics/a/events?wait=-1").refused(t, 400, "parameter_invalid")
	d.get("/v1/topics/a/events?wait=abc").refused(t, 400, "parameter_invalid")
	a = d.get("/v1/topics/a/events?wait=99999").want(t, 200) // answered at once, for there is an event
	eq(t, "Signalbox-Wait of wait=99999", a.header.Get("Signalbox-Wait"), "300")
}

// A held poll is answered by the event, not by the end of the wait.
func TestHeldPollIsAnsweredByTheEvent(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	answered := make(chan answer)
	go func() { answered <- d.get("/v1/topics/a/events?cursor=@0&wait=60") }()
	eventually(t, "the poll is there", func() bool { return d.server.OpenStreams() == 1 })
	select {
	case a := <-answered:
		t.Fatalf("the poll was not held: %d %s", a.status, a.body)
	case <-time.After(200 * time.Millisecond):
	}
	d.structured("b", ev("0", "")).want(t, 200) // another topic does not end it
	select {
	case a := <-answered:
		t.Fatalf("the poll was ended by another topic's event: %d %s", a.status, a.body)
	case <-time.After(100 * time.Millisecond):
	}
	d.structured("a", ev("1", "")).want(t, 200)
	select {
	case a := <-answered:
		sameList(t, "the events", a.want(t, 200).ids(t), []string{"1"})
		if !strings.HasPrefix(a.cursor(), "@2.") {
			t.Errorf("cursor %s, want @2", a.cursor())
		}
	case <-time.After(patience):
		t.Fatal("the poll was not answered by the event")
	}
}

// A poll of a quiet topic advances with what happens elsewhere, so that
// it need not step over it again.
func TestCursorAdvancesOverOtherTopics(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.structured("quiet", ev("q", "")).want(t, 200)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				d.structured("busy", ev(strconv.Itoa(i), ""))
			}
		}
	})
	cursor, position := "@1", 1
	for range 2 {
		before := position
		eventually(t, "the cursor goes on", func() bool {
			a := d.get("/v1/topics/quiet/events"+query("cursor", cursor, "wait", "1")).want(t, 200)
			eq(t, "events", len(a.list(t)), 0)
			cursor = a.cursor()
			if _, err := fmt.Sscanf(cursor, "@%d.", &position); err != nil || position < before {
				t.Errorf("the cursor went from %d to %s", before, cursor)
			}
			return position > before
		})
	}
	close(stop)
	wg.Wait()
}

// What can no longer be given is said, never skipped or rewound over.
func TestExpiredCursorIsSaidNotSkipped(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	d.fill("a", 3)
	c1 := d.get("/v1/topics/a/events?limit=1").cursor()
	d.do(request{method: http.MethodDelete, path: "/v1/topics/a"}).want(t, 204)
	d.structured("a", ev("4", "")).want(t, 200)
	d.structured("s", ev("5", "k", someData)).want(t, 200)

	p := d.get("/v1/topics/a/events"+query("cursor", c1)).refused(t, 410, "cursor_expired")
	sameList(t, "topics", []string{fmt.Sprint(p["topics"])}, []string{"[a]"})
	oldest, _ := p["oldest"].(string)
	if !strings.HasPrefix(oldest, "@3.") {
		t.Errorf("oldest is %v, want @3", p["oldest"])
	}
	if head, _ := p["head"].(string); !strings.HasPrefix(head, "@5.") {
		t.Errorf("head is %v, want @5", p["head"])
	}
	sameList(t, "from the oldest named", d.get("/v1/topics/a/events"+query("cursor", oldest)).want(t, 200).ids(t), []string{"4"})
	a := d.get("/v1/topics/a/events"+query("cursor", c1, "on_reset", "earliest")).want(t, 200)
	sameList(t, "on_reset=earliest", a.ids(t), []string{"4"})
	eq(t, "Signalbox-Reset", a.header.Get("Signalbox-Reset"), "cursor_expired")
	a = d.get("/v1/topics/a/events?on_reset=earliest").want(t, 200)
	eq(t, "Signalbox-Reset without a reset", a.header.Get("Signalbox-Reset"), "")

	// A hole that compaction left is no loss.
	for i := range 3 {
		d.structured("s", ev(fmt.Sprint("s", i), "k", `"data":`+strconv.Itoa(i))).want(t, 200)
	}
	sameList(t, "from a compacted position", d.get("/v1/topics/s/events?cursor=@5").want(t, 200).ids(t), []string{"s2"})
	p = d.get("/v1/events?topics=a,s&cursor=@1").refused(t, 410, "cursor_expired")
	eq(t, "state", p["state"], any("/v1/state?topics=s"))

	// The ends of the log.
	d.get("/v1/topics/a/events?cursor=@-1").refused(t, 400, "cursor_invalid")
	sameList(t, "@0", d.get("/v1/topics/a/events?cursor=@0").want(t, 200).ids(t), []string{"4"})
	sameList(t, "head", d.get("/v1/topics/a/events?cursor=@8").want(t, 200).ids(t), nil)
	d.get("/v1/topics/a/events?cursor=@9").refused(t, 410, "cursor_foreign")
	d.get("/v1/topics/a/events?cursor=@1.zzzzzzzz").refused(t, 410, "cursor_foreign")
}
