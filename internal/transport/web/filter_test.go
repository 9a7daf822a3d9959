// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/event"
)

func filtered(path, filter string) string {
	return path + "?" + url.Values{"filter": {filter}}.Encode()
}

func TestFilteredPolls(t *testing.T) {
	d := openDoor(t)
	for i := 1; i <= 20; i++ {
		d.structured("a", ev(strconv.Itoa(i), "", fmt.Sprintf(`"data":{"n":%d}`, i))).want(t, 200)
	}
	a := d.get(filtered("/v1/topics/a/events", "data.n >= 19"))
	sameList(t, "events", a.want(t, 200).ids(t), []string{"19", "20"})
	for _, header := range [][]string{{"Signalbox-Filter: data.n = 7"}, {"signalbox-filter: (data.n) = 7"}} {
		sameList(t, "events", d.get("/v1/topics/a/events", header...).want(t, 200).ids(t), []string{"7"})
	}
	// The next page goes on with the same filter.
	a = d.get(filtered("/v1/topics/a/events", "data.n % 5 = 0") + "&limit=2")
	sameList(t, "the first page", a.ids(t), []string{"5", "10"})
	link := a.header.Get("Link")
	next := link[strings.Index(link, "<")+1 : strings.Index(link, ">")]
	sameList(t, "the next page", d.get(next).ids(t), []string{"15", "20"})
	// The cursor moves on over what does not pass.
	a = d.get(filtered("/v1/topics/a/events", "type = 'none'"))
	eq(t, "events", len(a.list(t)), 0)
	if !strings.HasPrefix(a.cursor(), "@20.") || a.header.Get("Signalbox-Synced") != "true" {
		t.Errorf("cursor %s, synced %s", a.cursor(), a.header.Get("Signalbox-Synced"))
	}
}

// A long poll is not cut short by events that do not pass.
func TestFilteredLongPollWaitsForWhatPasses(t *testing.T) {
	d := openDoor(t)
	done := make(chan answer)
	go func() { done <- d.get(filtered("/v1/topics/a/events", "wanted = TRUE") + "&wait=30") }()
	for i := range 50 {
		d.structured("a", ev(fmt.Sprint("no", i), "")).want(t, 200)
	}
	select {
	case a := <-done:
		t.Fatalf("an answer without an event: %s", clip(a.body))
	default:
	}
	d.structured("a", ev("yes", "", `"wanted":true`)).want(t, 200)
	sameList(t, "events", (<-done).ids(t), []string{"yes"})
	a := d.get(filtered("/v1/topics/a/events", "wanted = FALSE") + "&wait=1&cursor=now")
	eq(t, "events", len(a.list(t)), 0)
	if !strings.HasPrefix(a.cursor(), "@51.") {
		t.Errorf("cursor %s", a.cursor())
	}
}

func TestFilteredStreams(t *testing.T) {
	d := openDoor(t)
	for i := 1; i <= 10; i++ {
		d.structured("a", ev(strconv.Itoa(i), "", fmt.Sprintf(`"n":%d`, i))).want(t, 200)
	}
	s := d.follow(filtered("/v1/topics/a/events", "n > 8"))
	events, sync := s.untilSync()
	eq(t, "events before the marker", len(events), 2)
	if !strings.HasPrefix(sync.lastID, "@10.") {
		t.Errorf("the marker is at %s", sync.lastID)
	}
	d.structured("a", ev("11", "", `"n":1`)).want(t, 200)
	d.structured("a", ev("12", "", `"n":9`)).want(t, 200)
	if m := s.dispatched(); !strings.Contains(m.data, `"id":"12"`) {
		t.Errorf("live came %s", m.data)
	}
}

// After every 10,000 events that a filter skipped an id alone tells the reader
// where it is, so that it resumes there.
func TestSkippedEventsMoveTheCursorOfAStream(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.Heartbeat = time.Hour })
	s := d.follow(filtered("/v1/topics/a/events", "type = 'none'"))
	_, sync := s.untilSync()
	d.fill("a", 11_000)
	for {
		m, ok := s.next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		if m.hasData {
			t.Fatalf("it dispatched %+v", m)
		}
		if c, err := event.ParseCursor(m.lastID); err == nil && m.lastID != sync.lastID {
			if c.Position < 10_000 || c.Position > 11_000 {
				t.Errorf("the id came at %s", m.lastID)
			}
			return
		}
	}
}

func TestFilteredState(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	for i := 1; i <= 5; i++ {
		d.structured("s", ev(strconv.Itoa(i), fmt.Sprint("k", i), fmt.Sprintf(`"data":{"n":%d}`, i))).want(t, 200)
	}
	d.structured("s", ev("6", "k5", `"data":{"n":0}`)).want(t, 200)
	for _, path := range []string{"/v1/topics/s/state?", "/v1/state?topics=s&"} {
		a := d.get(path+url.Values{"filter": {"data.n > 3"}}.Encode()).want(t, 200)
		if lines := strings.Fields(string(a.body)); len(lines) != 1 || !strings.Contains(lines[0], `"id":"4"`) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

func TestFiltersThatAreRefused(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	stream := "Accept: text/event-stream"
	p := d.get(filtered("/v1/topics/a/events", "type = 'a' AND\n  n >"), stream).refused(t, 400, "filter_invalid")
	if p["field"] != "filter" || p["line"] != 2.0 || p["column"] != 6.0 || p["offset"] != 20.0 || p["caret"] != "  n >\n     ^" {
		t.Errorf("%v", p)
	}
	for path, header := range map[string]string{
		filtered("/v1/topics/a/events", ""):                          "",
		filtered("/v1/topics/a/events", "NOSUCHFN(1)"):               "",
		filtered("/v1/topics/s/state", "1"):                          "",
		filtered("/v1/topics/a/events", strings.Repeat("(", 20_000)): "",
		"/v1/topics/a/events":                                        "Signalbox-Filter: x LIKE 123",
	} {
		var headers []string
		if header != "" {
			headers = []string{header}
		}
		d.get(path, headers...).refused(t, 400, "filter_invalid")
	}
	for _, headers := range [][]string{{"Signalbox-Filter: a = 1", "Signalbox-Filter: b = 1"}} {
		d.get("/v1/topics/a/events", headers...).refused(t, 400, "parameter_invalid")
	}
	d.get(filtered("/v1/topics/a/events", "a = 1"), "Signalbox-Filter: a = 1").refused(t, 400, "parameter_invalid")
	for _, path := range []string{"/v1/topics/s/digest", "/v1/topics/s/state/k", "/v1/topics", "/v1/topics/s", "/healthz"} {
		d.get(filtered(path, "a = 1")).refused(t, 400, "filter_unsupported")
		d.get(path, "Signalbox-Filter: a = 1").refused(t, 400, "filter_unsupported")
	}
	d.structured("a", ev("1", ""), "Signalbox-Filter: a = 1").refused(t, 400, "filter_unsupported")
}

// TestMissingAttributesInFilters: a missing attribute passes nothing, unless it
// is not reached, and every door agrees.
func TestMissingAttributesInFilters(t *testing.T) {
	d := openDoor(t)
	d.structured("a", strings.Replace(ev("E1", ""), `"t.x"`, `"a"`, 1)).want(t, 200)
	d.structured("a", strings.Replace(ev("E2", "", `"prio":5`), `"t.x"`, `"b"`, 1)).want(t, 200)
	for text, want := range map[string]string{
		`type = 'a' OR prio = 'x'`:    "E1",
		`EXISTS prio AND prio > 3`:    "E2",
		`prio = ''`:                   "",
		`NOT EXISTS prio`:             "E1",
		`type = 'z' AND (1 != 1 / 0)`: "",
		`prio = 'x' OR type = 'a'`:    "", // the left side has failed already
		`prio = 'x' OR type = 'b'`:    "E2",
	} {
		poll := strings.Join(d.get(filtered("/v1/topics/a/events", text)).want(t, 200).ids(t), " ")
		events, _ := d.follow(filtered("/v1/topics/a/events", text)).untilSync()
		var streamed []string
		for _, m := range events {
			e, err := event.DecodeDelivered([]byte(m.data))
			if err != nil {
				t.Fatal(err)
			}
			streamed = append(streamed, e.ID())
		}
		if poll != want || strings.Join(streamed, " ") != want {
			t.Errorf("%s: a poll has %q, a stream %q, want %q", text, poll, streamed, want)
		}
	}
}

// TestTypedAttributesInFilters: attributes that came in headers are Strings and
// are cast.
func TestTypedAttributesInFilters(t *testing.T) {
	d := openDoor(t)
	d.do(request{method: http.MethodPost, path: "/v1/topics/a/events", body: "x", header: []string{"ce-specversion: 1.0", "ce-id: 1",
		"ce-source: /s", "ce-type: t", "ce-n: 5", "ce-flag: false", "Content-Type: text/plain"}}).want(t, 200)
	d.structured("a", ev("2", "", `"n":5`, `"flag":false`)).want(t, 200)
	sameList(t, "events", d.get(filtered("/v1/topics/a/events", "n > 3 AND flag = FALSE")).ids(t), []string{"1", "2"})
}
