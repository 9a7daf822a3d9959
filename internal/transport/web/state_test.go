// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/transport/web"
)

// lines decodes the events of an NDJSON body.
func (a answer) lines(t *testing.T) []*event.Event {
	t.Helper()
	var out []*event.Event
	for line := range strings.Lines(string(a.body)) {
		if !strings.HasSuffix(line, "\n") {
			t.Fatalf("the last line has no end: %s", clip([]byte(line)))
		}
		e, err := event.DecodeDelivered([]byte(line))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, e)
	}
	return out
}

func subjects(events []*event.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Subject())
	}
	return out
}

func (d *door) compacted(topics ...string) {
	d.t.Helper()
	for _, topic := range topics {
		d.put(topic, `{"cleanup_policy":"compact"}`).want(d.t, 201)
	}
}

func TestStateIsTheWinnersInPositionOrder(t *testing.T) {
	d := openDoor(t)
	d.compacted("s", "r")
	for i, key := range []string{"a", "b", "c", "a", "b"} {
		d.structured("s", ev(fmt.Sprint(i), key, "\"data\":\r\n"+fmt.Sprint(i))).want(t, 200)
	}
	d.structured("r", ev("r", "z", someData)).want(t, 200)
	a := d.get("/v1/topics/s/state").want(t, 200)
	eq(t, "Content-Type", a.header.Get("Content-Type"), "application/x-ndjson")
	eq(t, "Cache-Control", a.header.Get("Cache-Control"), "no-store")
	sameList(t, "keys", subjects(a.lines(t)), []string{"c", "a", "b"})
	if !strings.HasPrefix(a.cursor(), "@6.") || a.header.Get("Signalbox-Log-Ms") == "" {
		t.Errorf("the state is at %q, log time %q", a.cursor(), a.header.Get("Signalbox-Log-Ms"))
	}
	key := d.get("/v1/topics/s/state/a").want(t, 200)
	eq(t, "cursor and log time of a key", key.cursor()+key.header.Get("Signalbox-Log-Ms"), a.cursor()+a.header.Get("Signalbox-Log-Ms"))
	both := d.get("/v1/state?topics=r,s").want(t, 200)
	sameList(t, "keys of both topics", subjects(both.lines(t)), []string{"c", "a", "b", "z"})
	eq(t, "cursor of both", both.cursor(), a.cursor())
	d.structured("plain", ev("p", "", someData)).want(t, 200)
	sameList(t, "keys of all topics", subjects(d.get("/v1/state?topics=*").want(t, 200).lines(t)), []string{"c", "a", "b", "z"})
	// Following from the state misses nothing and repeats nothing.
	d.structured("s", ev("6", "c", someData)).want(t, 200)
	sameList(t, "what follows the state", d.get("/v1/topics/s/events"+query("cursor", a.cursor())).want(t, 200).ids(t), []string{"6"})
	head := d.do(request{method: http.MethodHead, path: "/v1/topics/s/state"}).want(t, 200)
	if head.cursor() == "" {
		t.Error("HEAD of a state has no cursor")
	}
	d.get("/v1/topics/plain/state").refused(t, 409, "not_compacted")
	d.get("/v1/topics/nowhere/state").refused(t, 404, "topic_unknown")
	d.get("/v1/state").refused(t, 400, "parameter_invalid")
	d.get("/v1/topics/a..b/state").refused(t, 400, "topic_invalid")
}

func TestStateOfOneKey(t *testing.T) {
	d := openDoor(t)
	d.compacted("s")
	keys := []string{"k", "a/b", "a//b", "..", ".", "https://x.example/y?z=1#f", "50%", "ü ö", "+", "a b;c,d"}
	for i, key := range keys {
		d.structured("s", ev(fmt.Sprint(i), key, someData)).want(t, 200)
	}
	for i, key := range keys {
		path := "/v1/topics/s/state/" + strings.NewReplacer(".", "%2E").Replace(url.PathEscape(key))
		a := d.do(request{path: path, unchecked: true}).want(t, 200)
		eq(t, "Content-Type", a.header.Get("Content-Type"), "application/cloudevents+json")
		e, err := event.DecodeDelivered([]byte(strings.TrimSpace(string(a.body))))
		if err != nil {
			t.Fatal(err)
		}
		eq(t, "subject", e.Subject(), key)
		eq(t, "ETag", a.header.Get("ETag"), fmt.Sprintf(`"@%d"`, i+1))
		if !strings.HasPrefix(a.cursor(), "@10.") {
			t.Errorf("cursor %s, want that of the head", a.cursor())
		}
	}
	a := d.do(request{path: "/v1/topics/s/state/a/b", unchecked: true}).want(t, 200) // a slash needs no encoding
	eq(t, "ETag of a/b", a.header.Get("ETag"), `"@2"`)
	for _, held := range []string{`"@1"`, `"@10", "@1"`, `W/"@1"`, "*"} {
		not := d.get("/v1/topics/s/state/k", "If-None-Match: "+held).want(t, http.StatusNotModified)
		eq(t, "ETag of 304", not.header.Get("ETag"), `"@1"`)
	}
	d.get("/v1/topics/s/state/k", `If-None-Match: "@10"`).want(t, 200)
	d.get("/v1/topics/s/state/a//b").refused(t, 404, "not_found")
	d.get("/v1/topics/s/state/none").refused(t, 404, "key_unknown")
	d.structured("s", ev("gone", "k")).want(t, 200) // a tombstone
	d.get("/v1/topics/s/state/k").refused(t, 404, "key_unknown")
}

func TestDigestComparesStates(t *testing.T) {
	d := openDoor(t)
	d.compacted("s", "r")
	hlc := func(i int) string {
		return fmt.Sprintf(`"hlc":"%d.00000","data":%d`, time.Now().Add(-time.Hour).UnixMilli()+int64(i), i)
	}
	var events []string
	for i := range 20 {
		events = append(events, ev(fmt.Sprint(i), fmt.Sprint("k", i%7), hlc(i)))
	}
	d.batch("s", "["+strings.Join(events, ",")+"]").want(t, 200)
	for i := len(events) - 1; i >= 0; i-- { // the other way round
		d.structured("r", events[i]).want(t, 200)
	}
	s, r := d.get("/v1/topics/s/digest").want(t, 200).object(t), d.get("/v1/topics/r/digest").want(t, 200).object(t)
	eq(t, "keys", s["keys"], any(7.0))
	eq(t, "buckets of another order of arrival", fmt.Sprint(s["buckets"]), fmt.Sprint(r["buckets"]))
	eq(t, "topic", s["topic"], any("s"))
	d.structured("r", ev("new", "k1", someData)).want(t, 200)
	r = d.get("/v1/topics/r/digest").want(t, 200).object(t)
	differ := 0
	for i, b := range r["buckets"].([]any) {
		if b != s["buckets"].([]any)[i] {
			differ++
		}
	}
	eq(t, "buckets that differ after one key changed", differ, 1)
	d.get("/v1/topics/none/digest").refused(t, 404, "topic_unknown")
}

// A download that takes too long ends with a line that says where to go on,
// and what follows from there is exactly the rest.
func TestLongStateIsCutWithACursor(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.StateTime = time.Nanosecond })
	d.compacted("s")
	const n = 3000
	for from := 0; from < n; from += 1000 {
		var events []string
		for i := from; i < from+1000; i++ {
			events = append(events, ev(fmt.Sprint(i), fmt.Sprintf("k%05d", i), someData))
		}
		d.batch("s", "["+strings.Join(events, ",")+"]").want(t, 200)
	}
	events := d.get("/v1/topics/s/state").want(t, 200).lines(t)
	last := events[len(events)-1]
	eq(t, "type of the last line", last.Type(), "signalbox.cut")
	cursor, ok := event.LookupJSON(last.Data(), "cursor")
	if !ok || len(events) >= n {
		t.Fatalf("%d lines, the last with %s", len(events), last.Data())
	}
	rest := d.get("/v1/topics/s/events"+query("cursor", cursor, "limit", "10000")).want(t, 200).list(t)
	eq(t, "keys in all", len(events)-1+len(rest), n)
	eq(t, "the first that follows", rest[0]["subject"], any(fmt.Sprintf("k%05d", len(events)-1)))
}

// A stalled download must not pin its snapshot for ever, and is not taken for
// complete.
func TestStalledDownloadIsBrokenOff(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(o *doorOptions) { o.web.StallTimeout = 200 * time.Millisecond })
	d.compacted("s")
	for from := 0; from < 2000; from += 500 {
		var events []string
		for i := from; i < from+500; i++ {
			events = append(events, ev(fmt.Sprint(i), fmt.Sprint("k", i), `"data":"`+strings.Repeat("x", 10_000)+`"`))
		}
		d.do(request{method: "POST", path: "/v1/topics/s/events", body: "[" + strings.Join(events, ",") + "]", unchecked: true,
			header: []string{"Content-Type: application/cloudevents-batch+json"}}).want(t, 200)
	}
	_, r, head := d.raw("GET /v1/topics/s/state HTTP/1.1", "Host: localhost")
	if !strings.HasPrefix(head, "HTTP/1.1 200") {
		t.Fatal(head)
	}
	eventually(t, "the download is given up", func() bool { return d.server.OpenStreams() == 0 })
	body, err := io.ReadAll(r)
	if err == nil && strings.HasSuffix(string(body), "0\r\n\r\n") {
		t.Error("the download that was broken off looks complete")
	}
}

func TestDownloadsOfStateAreLimited(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.StallTimeout = time.Minute })
	d.compacted("s")
	for from := 0; from < 1500; from += 500 {
		var events []string
		for i := from; i < from+500; i++ {
			events = append(events, ev(fmt.Sprint(i), fmt.Sprint("k", i), `"data":"`+strings.Repeat("x", 10_000)+`"`))
		}
		d.do(request{method: "POST", path: "/v1/topics/s/events", body: "[" + strings.Join(events, ",") + "]", unchecked: true,
			header: []string{"Content-Type: application/cloudevents-batch+json"}}).want(t, 200)
	}
	var wg sync.WaitGroup
	closers := make([]func(), web.StatesMax)
	for i := range closers {
		wg.Go(func() {
			c, _, _ := d.raw("GET /v1/topics/s/state HTTP/1.1", "Host: localhost")
			closers[i] = func() { _ = c.Close() }
		})
	}
	wg.Wait()
	a := d.get("/v1/topics/s/state")
	a.refused(t, 503, "overloaded")
	eq(t, "Retry-After", a.header.Get("Retry-After"), "1")
	for _, c := range closers {
		c()
	}
	eventually(t, "downloads work again", func() bool { return d.server.OpenStreams() == 0 })
	d.do(request{method: http.MethodHead, path: "/v1/topics/s/state"}).want(t, 200)
}

func TestTopicsAreManaged(t *testing.T) {
	d := openDoor(t)
	sameNames := func(want ...string) {
		t.Helper()
		var names []string
		for _, topic := range d.get("/v1/topics").want(t, 200).list(t) {
			names = append(names, topic["name"].(string))
		}
		sameList(t, "topics", names, want)
	}
	sameNames()
	created := d.put("s", `{"cleanup_policy":"compact","delete_retention":"2h"}`).want(t, 201)
	eq(t, "Location", created.header.Get("Location"), "/v1/topics/s")
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 200)
	d.put("default", "").want(t, 201)
	d.structured("s", ev("1", "k", someData)).want(t, 200)
	d.structured("b", ev("2", "", someData)).want(t, 200)
	sameNames("b", "default", "s")
	topic := d.get("/v1/topics/s").want(t, 200).object(t)
	eq(t, "events", topic["events"], any(1.0))
	eq(t, "keys", topic["keys"], any(1.0))
	if head, _ := topic["head"].(string); !strings.HasPrefix(head, "@1.") {
		t.Errorf("head is %v", topic["head"])
	}
	eq(t, "cleanup_policy", topic["policy"].(map[string]any)["cleanup_policy"], any("compact"))
	d.get("/v1/topics/none").refused(t, 404, "topic_unknown")
	d.do(request{method: http.MethodDelete, path: "/v1/topics/s"}).want(t, 204)
	d.do(request{method: http.MethodDelete, path: "/v1/topics/s"}).refused(t, 404, "topic_unknown")
	sameNames("b", "default")
	for body, field := range map[string]string{
		`{"cleanup_policy":"keep"}`: "cleanup_policy", `{"retention":"1x"}`: "retention", `{"max_event_bytes":1}`: "max_event_bytes",
		`{"nonsense":1}`: "nonsense", `{"key_from":"a","key_from":"b"}`: "key_from", `[]`: "", `{`: "",
	} {
		p := d.put("x", body).refused(t, 400, "policy_invalid")
		if got, _ := p["field"].(string); got != field {
			t.Errorf("policy %s: field %q, want %q", body, got, field)
		}
	}
	// What curl -d says by itself is no reason to refuse a policy.
	d.do(request{method: "PUT", path: "/v1/topics/curl", body: "{}", unchecked: true,
		header: []string{"Content-Type: application/x-www-form-urlencoded"}}).want(t, 201)
	d.put("x", strings.Repeat(" ", 257<<10)).refused(t, 413, "request_too_large")
	d.put("$x", "").refused(t, 403, "topic_reserved")
	d.put("a..b", "").refused(t, 400, "topic_invalid")
}

func TestHealth(t *testing.T) {
	d := openDoor(t)
	eq(t, "healthz", d.get("/healthz").want(t, 200).object(t)["status"], any("ok"))
	eq(t, "readyz", d.get("/readyz").want(t, 200).object(t)["status"], any("ready"))
	d.broker.Drain()
	eq(t, "healthz while shutting down", d.get("/healthz").status, 200)
	a := d.get("/readyz")
	p := a.want(t, 503).object(t)
	eq(t, "code", p["code"], any("shutting_down"))
	if a.header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
}

func TestReadyzSays503OnAFullDisk(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.broker.MinFree = 1 << 62 })
	a := d.get("/readyz").want(t, 503)
	eq(t, "code", a.object(t)["code"], any("disk_full"))
}

func TestPagesForPeople(t *testing.T) {
	d := openDoor(t)
	index := string(d.get("/").want(t, 200).body)
	for _, rt := range web.Routes() {
		if path, _, _ := strings.Cut(rt.Path, "{$}"); !strings.Contains(index, strings.NewReplacer("...}", "}").Replace(path)) {
			t.Errorf("the front page does not mention %s", path)
		}
	}
	page := d.get("/errors").want(t, 200)
	eq(t, "Content-Type", page.header.Get("Content-Type"), "text/markdown; charset=utf-8")
	for _, code := range event.Codes() {
		if !strings.Contains(string(page.body), string(code)) {
			t.Errorf("/errors does not explain %s", code)
		}
	}
}
