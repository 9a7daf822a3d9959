// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/event"
)

// TestMissingAttributesMeanTheSameAtEveryDoor: what an expression makes of an
// attribute that is not there is the same for a worker, for a stream of a
// subscription by SSE and by WebSocket, and for a live WebSocket; errors are
// counted in the subscription that met them, and disturb nothing else.
func TestMissingAttributesMeanTheSameAtEveryDoor(t *testing.T) {
	d := openDoor(t)
	type reader struct {
		text, want   string
		errors       float64
		pull, stream string
		opened       *peer
	}
	readers := []*reader{
		{text: `type = 'a' OR prio = 'x'`, want: "E1"},
		{text: `EXISTS prio AND prio > 3`, want: "E2"},
		{text: `prio = ''`, errors: 1}, // E1 has none; that of E2 is another
		{text: `NOT EXISTS prio`, want: "E1"},
		{text: `type = 'z' AND (1 != 1 / 0)`},
		{text: `prio = 'x' OR type = 'a'`, errors: 1},
		{text: `prio = 'x' OR type = 'b'`, want: "E2", errors: 1},
	}
	for _, r := range readers {
		filter, _ := jsonText(r.text)
		document := func(kind string) string {
			return `{"protocol":"SIGNALBOX","filters":[{"sql":` + filter + `}],"config":{"kind":"` + kind + `","topics":["a"]}}`
		}
		r.pull, r.stream = d.subscribe(document("pull")), d.subscribe(document("stream"))
		r.opened = d.dial(filtered("/v1/topics/a/events", r.text)+"&cursor=now", v1)
		r.opened.want("sync")
	}
	d.structured("a", strings.Replace(ev("E1", ""), `"t.x"`, `"a"`, 1)).want(t, 200)
	d.structured("a", strings.Replace(ev("E2", "", `"prio":5`), `"t.x"`, `"b"`, 1)).want(t, 200)
	for _, r := range readers {
		eq(t, r.text+": a worker", handedIDs(d.fetch(r.pull, `{"max":10}`)), r.want)
		path := "/v1/subscriptions/" + r.stream + "/events"
		events, _ := d.follow(path).untilSync()
		var ids []string
		for _, m := range events {
			id, _ := event.LookupJSON([]byte(m.data), "id")
			ids = append(ids, id)
		}
		eq(t, r.text+": a stream", strings.Join(ids, " "), r.want)
		ids, _ = d.dial(path, v1).untilSync()
		eq(t, r.text+": a stream over a socket", strings.Join(ids, " "), r.want)
		if r.want != "" {
			eq(t, r.text+": live", r.opened.want("event").id(), r.want)
		}
		eq(t, r.text+": errors", d.status(r.pull)["filter_errors"], any(r.errors))
	}
}

// TestSubscriptionsCastAttributesFromHeaders, which are Strings there.
func TestSubscriptionsCastAttributesFromHeaders(t *testing.T) {
	d := openDoor(t)
	id := d.subscribe(`{"protocol":"SIGNALBOX","filters":[{"sql":"n > 3 AND flag = FALSE AND neg = -5 AND zero = 0"}],"config":{"topics":["a"],"start":"earliest"}}`)
	d.do(request{method: http.MethodPost, path: "/v1/topics/a/events", body: "x", header: []string{"ce-specversion: 1.0", "ce-id: headers",
		"ce-source: /s", "ce-type: t", "ce-n: 5", "ce-flag: false", "ce-neg: -5", "ce-zero: 0", "Content-Type: text/plain"}}).want(t, 200)
	d.structured("a", ev("typed", "", `"n":5`, `"flag":false`, `"neg":-5`, `"zero":0`)).want(t, 200)
	d.structured("a", ev("other", "", `"n":3`, `"flag":false`, `"neg":-5`, `"zero":0`)).want(t, 200)
	eq(t, "what is handed out", handedIDs(d.fetch(id, `{"max":10}`)), "headers typed")
}

// TestInvalidFiltersAreRefusedAndStoreNothing: none panics, is stored as one that
// lets everything pass, or holds up a subscription that others use.
func TestInvalidFiltersAreRefusedAndStoreNothing(t *testing.T) {
	d := openDoor(t)
	working := d.subscribe(`{"protocol":"SIGNALBOX","config":{"topics":["a"]}}`)
	sql := func(text string) string {
		quoted, _ := jsonText(text)
		return `{"sql":` + quoted + `}`
	}
	refused := map[string]string{
		"LIKE without a pattern": sql(`x LIKE 123`), "open call": sql(`ABC(`), "empty": sql(``), "too large": sql(`2147483648 = 1`),
		"open string": sql(`type = 'a`), "no such function": sql(`NOSUCHFN(1)`),
		"empty value": `{"exact":{"subject":""}}`, "empty name": `{"exact":{"":"a"}}`, "no attribute": `{"prefix":{}}`,
		"empty all": `{"all":[]}`, "empty not": `{"not":{}}`,
		"unknown dialect": `{"regex":{"type":".*"}}`, "two dialects": `{"exact":{"type":"a"},"prefix":{"type":"a"}}`,
		"parentheses": sql(strings.Repeat("(", 100_000) + `type='a'` + strings.Repeat(")", 100_000)),
		"long":        sql(`type = '` + strings.Repeat("a", 1<<20) + `'`),
		"deep":        strings.Repeat(`{"all":[`, 10_000) + `{"exact":{"type":"a"}}` + strings.Repeat(`]}`, 10_000),
	}
	n := 0
	for what, filter := range refused {
		a := d.call("POST", "/v1/subscriptions", `{"protocol":"SIGNALBOX","filters":[`+filter+`],"config":{"topics":["a"]}}`)
		if a.status != 400 && a.status != 413 {
			t.Errorf("%s: %d %s", what, a.status, clip(a.body))
		}
		if p := a.object(t); a.status == 400 && p["field"] == nil {
			t.Errorf("%s: no field is named: %s", what, clip(a.body))
		}
		n++
		d.structured("a", ev(strconv.Itoa(n), "")).want(t, 200)
		got := d.fetch(working, `{"max":1,"wait":"10s"}`)
		eq(t, "what the other subscription gets after "+what, handedIDs(got), strconv.Itoa(n))
		d.settle(working, "ack", "", got...)
	}
	eq(t, "subscriptions", len(d.get("/v1/subscriptions").want(t, 200).list(t)), 1)
}

// TestFilteredReadersReceiveWhatTheyWant and little else: who wants a tenth of the
// events receives at most 12 % of the bytes that all of them take, whatever the
// door.
func TestFilteredReadersReceiveWhatTheyWant(t *testing.T) {
	d := openDoor(t)
	const events = 1000
	for from := 0; from < events; from += 100 {
		var list []string
		for i := from; i < from+100; i++ {
			list = append(list, ev(strconv.Itoa(i), fmt.Sprint("key-", i%50), fmt.Sprintf(`"wanted":%t`, i%10 == 0), someData))
		}
		d.batch("a", "["+strings.Join(list, ",")+"]").want(t, 200)
	}
	id := d.subscribe(`{"protocol":"SIGNALBOX","filters":[{"sql":"wanted"}],"config":{"topics":["a"],"start":"earliest","order":"unordered"}}`)
	all := d.subscribe(`{"protocol":"SIGNALBOX","config":{"topics":["a"],"start":"earliest","order":"unordered"}}`)
	fetched := func(id string) int {
		return len(d.call("POST", "/v1/subscriptions/"+id+"/fetch", `{"max":1000}`).want(t, 200).body)
	}
	const path = "/v1/topics/a/events"
	for door, sizes := range map[string][2]int{
		"poll":   {len(d.get(path + "?limit=1000").body), len(d.get(filtered(path, "wanted") + "&limit=1000").body)},
		"SSE":    {d.streamedBytes(path), d.streamedBytes(filtered(path, "wanted"))},
		"worker": {fetched(all), fetched(id)},
	} {
		if whole, part := sizes[0], sizes[1]; part*100 > whole*12 || part*100 < whole*8 {
			t.Errorf("%s: %d bytes of %d, which is %.1f %%", door, part, whole, 100*float64(part)/float64(whole))
		}
	}
}

// streamedBytes counts what a stream sends up to its marker.
func (d *door) streamedBytes(path string) (n int) {
	d.t.Helper()
	req, err := http.NewRequest(http.MethodGet, d.url(path), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	var text strings.Builder
	for !strings.Contains(text.String()[max(0, text.Len()-200):], "signalbox.sync") {
		m, err := io.CopyN(&text, res.Body, 1)
		if err != nil {
			d.t.Fatalf("after %d bytes: %v", n, err)
		}
		n += int(m)
	}
	return n
}

// TestStalledStreamOfASubscriptionHoldsUpNobody: one that takes nothing is cut, and
// loses nothing: its cursor is where it acknowledged. Others of the same topic,
// workers among them, go on meanwhile.
func TestStalledStreamOfASubscriptionHoldsUpNobody(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.StallTimeout = 300 * time.Millisecond })
	stalled := d.subscribe(`{"protocol":"SIGNALBOX","config":{"kind":"stream","topics":["a"],"start":"earliest"}}`)
	worker := d.subscribe(`{"protocol":"SIGNALBOX","config":{"topics":["a"],"start":"earliest"}}`)
	conn, _, _ := d.raw("GET /v1/subscriptions/"+stalled+"/events HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream")
	_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	const batches = 100 // 20 MB, far more than the kernel takes for both sides
	pad := `"data":"` + strings.Repeat("x", 10_000) + `"`
	for i := range batches {
		var list []string
		for n := range 20 {
			list = append(list, ev(fmt.Sprint(i, ".", n), "", pad))
		}
		d.batch("a", "["+strings.Join(list, ",")+"]").want(t, 200)
		got := d.fetch(worker, `{"max":20,"wait":"10s"}`)
		eq(t, "what the worker gets", len(got), 20)
		eq(t, "what it settles", d.settle(worker, "ack", "", got...), 20)
	}
	d.opt.web.StallTimeout = patience // a busy machine may hold up the next reader, too
	eventually(t, "it is cut", func() bool { return d.server.OpenStreams() == 0 })
	d.restart()
	if cursor := d.status(stalled)["cursor"].(string); !strings.HasPrefix(cursor, "@0.") {
		t.Errorf("its cursor is at %s", cursor)
	}
	events, _ := d.follow("/v1/subscriptions/" + stalled + "/events").untilSync()
	eq(t, "what it gets when it comes back", len(events), 20*batches)
}
