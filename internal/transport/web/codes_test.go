// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/transport/web"
)

// steppedClock is the machine's clock and what a test adds to it.
type steppedClock struct {
	mu    sync.Mutex
	began time.Time
	added time.Duration // guarded by mu
}

func newSteppedClock() *steppedClock { return &steppedClock{began: time.Now()} }

func (c *steppedClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added += d
}

func (c *steppedClock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.began) + c.added
}

func (c *steppedClock) Wall() time.Time { return c.began.Add(c.Mono()) }

// heldKeys is how many keys an ephemeral topic may have in these tests.
const heldKeys = 2

// unreachable are the codes that no request can bring about, with the reason.
var unreachable = map[event.Code]string{
	event.CodeTopicLimit:    "a million topics would take minutes; the projector's tests reach it",
	event.CodePolicyChanged: "a policy would have to change in the middle of a request; the projector's scripts reach it",
	event.CodeInternal:      "is for what was not foreseen",
	event.CodeStoreDamaged:  "the process does not serve a damaged store",
	event.CodeStoreLocked:   "the process does not start",
	event.CodeStoreFormat:   "the process does not start",

	event.CodeOutboxFull:     "is an agent's, in package client",
	event.CodeLedgerFull:     "is an agent's, in package client",
	event.CodeJournalDamaged: "is an agent's, in package client",
	event.CodeBackupInvalid:  "a backup is read by the command that restores it",
	event.CodeRightsChanged:  "a reader that is open is told; TestRightsChangeUnderReaders has it",
	event.CodeAgentLimit:     "ten thousand agents would take minutes; nothing else leads there",

	event.CodeSubscriptionLimit: "a million subscriptions would take minutes; the projector's tests reach it",
}

// refusal is a request that is refused with the code it is listed under.
type refusal struct {
	status int
	send   func(d *door) answer
}

func post(body string, header ...string) func(*door) answer {
	return func(d *door) answer { return d.structured("a", body, header...) }
}

func read(path string, header ...string) func(*door) answer {
	return func(d *door) answer { return d.get(path, header...) }
}

func refusals(clock *steppedClock) map[event.Code]refusal {
	all := refusedEvents()
	maps.Copy(all, refusedByState(clock))
	maps.Copy(all, refusedRequests())
	maps.Copy(all, refusedSubscriptions())
	maps.Copy(all, refusedAgents())
	maps.Copy(all, refusedMessages())
	maps.Copy(all, refusedByTickets())
	maps.Copy(all, refusedReaders())
	return all
}

func refusedEvents() map[event.Code]refusal {
	return map[event.Code]refusal{
		event.CodeEventInvalid:      {400, post(`{"specversion":"1.0","id":"1","source":"/t"}`)},
		event.CodeAttributeReserved: {400, post(ev("1", "", `"position":"7"`))},
		event.CodeJSONInvalid:       {400, post(`{"specversion":"1.0",}`)},
		event.CodeDataInvalid:       {400, post(ev("1", "", `"data":{"a":1,"a":2}`))},
		event.CodeHeaderInvalid:     {400, func(d *door) answer { return d.binary("a", "1", "", "ce-subject: %zz") }},
		event.CodeBatchAborted:      {400, func(d *door) answer { return d.batch("a", "[{}]") }},
		event.CodeMediaTypeUnsupported: {415, func(d *door) answer {
			return d.do(request{method: "POST", path: "/v1/topics/a/events", body: "x", unchecked: true,
				header: []string{"Content-Type: application/cloudevents+avro"}})
		}},
		event.CodeEncodingUnsupported: {415, post(ev("1", ""), "Content-Encoding: gzip")},
		event.CodeEventTooLarge:       {413, post(ev("1", "", `"data":"`+strings.Repeat("x", event.DefaultMaxEventBytes)+`"`))},
		event.CodeRequestTooLarge:     {413, post(strings.Repeat(" ", web.SingleBytesMax+1))},
		event.CodeBatchTooLarge: {413, func(d *door) answer {
			return d.batch("a", "["+strings.Repeat(ev("1", "")+",", event.MaxBatch)+ev("1", "")+"]")
		}},
		event.CodeTopicInvalid:  {400, func(d *door) answer { return d.structured("a..b", ev("1", "")) }},
		event.CodeTopicReserved: {403, func(d *door) answer { return d.structured("$dlq", ev("1", "")) }},
		event.CodeTopicUnknown:  {404, read("/v1/topics/none")},
		event.CodeTopicEphemeral: {409, func(d *door) answer {
			d.put("e", `{"durability":"ephemeral"}`).want(d.t, 201)
			return d.structured("e", ev("1", "k", someData), "Idempotency-Key: k")
		}},
		event.CodeTopicFull: {507, func(d *door) answer {
			d.put("e", `{"durability":"ephemeral"}`).want(d.t, 201)
			for i := range heldKeys {
				d.structured("e", ev("1", fmt.Sprint(i), someData)).want(d.t, 200)
			}
			return d.structured("e", ev("1", "k", someData))
		}},
		event.CodeKeyRequired: {400, func(d *door) answer { return d.structured("s", ev("1", "", someData)) }},
		event.CodeKeyInvalid: {400, func(d *door) answer {
			return d.structured("s", ev("1", strings.Repeat("k", event.MaxKeyBytes+1), someData))
		}},
		event.CodeHLCInvalid: {400, post(ev("1", "", `"hlc":"now"`))},
	}
}

func refusedSubscriptions() map[event.Code]refusal {
	return map[event.Code]refusal{
		event.CodeSubscriptionInvalid: {400, func(d *door) answer {
			return d.call("POST", "/v1/subscriptions", `{"protocol":"SIGNALBOX","sinks":""}`)
		}},
		event.CodeFilterInvalid: {400, func(d *door) answer {
			return d.call("POST", "/v1/subscriptions", `{"protocol":"SIGNALBOX","filters":[{"sql":"type ="}]}`)
		}},
		event.CodeSubscriptionUnknown: {404, read("/v1/subscriptions/none")},
		event.CodeSubscriptionConflict: {409, func(d *door) answer {
			return d.call("POST", "/v1/subscriptions/"+d.subscribe(`{"protocol":"SIGNALBOX","config":{"kind":"stream"}}`)+"/fetch", "{}")
		}},
		event.CodeProtocolUnsupported: {400, func(d *door) answer {
			return d.call("POST", "/v1/subscriptions", `{"protocol":"KAFKA","sink":"https://example.com/hook"}`)
		}},
		event.CodeSinkRefused: {403, func(d *door) answer {
			return d.call("POST", "/v1/subscriptions", `{"protocol":"HTTP","sink":"https://127.0.0.1/hook"}`)
		}},
		event.CodeDeadLetterUnknown: {404, func(d *door) answer {
			return d.call("POST", "/v1/subscriptions/"+d.subscribe(`{"protocol":"SIGNALBOX"}`)+"/redrive", `{"positions":["@1"]}`)
		}},
	}
}

// refusedByState depend on what was published before, or on the time.
func refusedByState(clock *steppedClock) map[event.Code]refusal {
	hlc := func(at time.Time) string { return fmt.Sprintf(`"hlc":"%d.00000","data":1`, at.UnixMilli()) }
	first := func(d *door) { d.structured("s", ev("1", "k", someData)).want(d.t, 200) }
	return map[event.Code]refusal{
		event.CodeHLCRequired: {400, func(d *door) answer {
			d.put("strict", `{"require_hlc":true}`).want(d.t, 201)
			return d.structured("strict", ev("1", "", someData))
		}},
		event.CodeHLCDrift: {409, func(d *door) answer { return d.structured("a", ev("1", "", hlc(clock.Wall().Add(24*time.Hour)))) }},
		event.CodeHLCStale: {409, func(d *door) answer {
			old := clock.Wall().Add(-time.Minute)
			first(d)
			d.structured("s", ev("gone", "k")).want(d.t, 200)
			clock.advance(25 * time.Hour) // past delete_retention
			for i := 0; d.get("/v1/topics/s").object(d.t)["floor"] == nil; i++ {
				d.structured("a", ev(fmt.Sprint("tick", i), "")).want(d.t, 200)
				clock.advance(2 * time.Second)
			}
			return d.structured("s", ev("late", "k", hlc(old)))
		}},
		event.CodeHLCBehind: {409, func(d *door) answer {
			first(d)
			return d.structured("s", ev("2", "k", hlc(clock.Wall().Add(-time.Hour))), `If-Match: *`)
		}},
		event.CodeExpiryInvalid: {400, post(ev("1", "", `"expiry":0`))},
		event.CodeIDReused: {409, func(d *door) answer {
			d.structured("a", ev("1", "", someData)).want(d.t, 200)
			return d.structured("a", ev("1", "", `"data":"other"`))
		}},
		event.CodeIDReserved:            {400, post(ev("@1", ""))},
		event.CodeConflict:              {412, func(d *door) answer { return d.structured("s", ev("1", "k", someData), "If-Match: *") }},
		event.CodePreconditionInvalid:   {400, post(ev("1", ""), "If-Match: 1")},
		event.CodeIdempotencyKeyInvalid: {400, post(ev("1", ""), "Idempotency-Key: a b")},
		event.CodeIdempotencyKeyReused: {422, func(d *door) answer {
			d.structured("a", ev("1", ""), "Idempotency-Key: k").want(d.t, 200)
			return d.structured("a", ev("2", ""), "Idempotency-Key: k")
		}},
		event.CodePolicyInvalid:     {400, func(d *door) answer { return d.put("p", `{"retention":7}`) }},
		event.CodeSignedUnsupported: {400, func(d *door) answer { return d.put("p", `{"signed":true}`) }},
		event.CodeSchemaViolation: {422, func(d *door) answer {
			d.put("p", `{"schema":{"properties":{"n":{"minimum":1}}}}`).want(d.t, 201)
			return d.structured("p", ev("1", "", `"data":{"n":0}`))
		}},
		event.CodeDataNotJSON: {422, func(d *door) answer {
			d.put("p", `{"schema":{}}`).want(d.t, 201)
			return d.structured("p", ev("1", ""))
		}},
		event.CodePolicyImmutable: {409, func(d *door) answer {
			first(d)
			return d.put("s", "{}")
		}},
	}
}

func refusedRequests() map[event.Code]refusal {
	return map[event.Code]refusal{
		event.CodeCursorInvalid: {400, read("/v1/topics/a/events?cursor=105")},
		event.CodeCursorExpired: {410, func(d *door) answer {
			d.fill("a", 2)
			d.do(request{method: http.MethodDelete, path: "/v1/topics/a"}).want(d.t, 204)
			return d.get("/v1/topics/a/events?cursor=@1")
		}},
		event.CodeCursorForeign:     {410, read("/v1/topics/a/events?cursor=@1.zzzzzzzz")},
		event.CodeCursorUnknown:     {410, read("/v1/topics/a/events", "Last-Event-ID: none")},
		event.CodeValuesReset:       {503, nil}, // TestStreamOfADeletedEphemeralTopicEnds
		event.CodeViewInvalid:       {400, read("/v1/topics/a/events?view=past")},
		event.CodeNotCompacted:      {409, func(d *door) answer { d.fill("a", 1); return d.get("/v1/topics/a/state") }},
		event.CodeKeyUnknown:        {404, read("/v1/topics/s/state/none")},
		event.CodeFilterUnsupported: {400, read("/v1/topics/s/digest?filter=x")},
		event.CodeFilterInvalid:     {400, read("/v1/topics/a/events?filter=x+%3D")},
		event.CodeParameterInvalid:  {400, read("/v1/topics/a/events?x=1")},
		event.CodeNotAcceptable:     {406, read("/v1/topics/a/events", "Accept: text/html")},
		event.CodeNotFound:          {404, read("/v2")},
		event.CodeMethodNotAllowed:  {405, func(d *door) answer { return d.do(request{method: http.MethodPatch, path: "/v1/topics/a"}) }},
		event.CodeHostRefused:       {403, read("/healthz", "Host: broker.example")},
		event.CodeOriginRefused:     {403, read("/v1/topics/a/events", "Upgrade: websocket", "Origin: http://evil.example")},
		event.CodeHandshakeInvalid:  {400, read("/v1/topics/a/events", "Upgrade: websocket")},
		event.CodeDiskFull:          {507, nil}, // TestFullDiskRefusesPublishesOnly
		event.CodeAuditWaiting:      {503, nil}, // TestReadinessSaysThatMessagesWait
		event.CodeOverloaded: {503, func(d *door) answer {
			// An answer is received a little before the server gives back what it held.
			eventually(d.t, "nothing else is held", func() bool { return d.server.HeldBytes() == 0 })
			if err := d.server.HoldBytes(web.HeldBytesMax); err != nil {
				d.t.Fatal(err)
			}
			return d.structured("a", ev("1", ""))
		}},
		event.CodeShuttingDown: {503, func(d *door) answer {
			d.broker.Drain()
			return d.structured("a", ev("1", ""))
		}},
	}
}

// TestEveryCodeIsReached brings about each code of the closed list by a
// request, and holds the answer against the table of package event.
func TestEveryCodeIsReached(t *testing.T) {
	listed := refusals(newSteppedClock())
	for _, code := range event.Codes() {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			r, ok := listed[code]
			switch {
			case !ok && unreachable[code] == "":
				t.Fatal("no request for this code, and no reason why there is none")
			case !ok || r.send == nil:
				return
			}
			clock := newSteppedClock()
			d := openDoor(t, founded, func(o *doorOptions) { o.broker.Clock, o.broker.Held.Keys = clock, heldKeys })
			d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
			a := refusals(clock)[code].send(d)
			p := a.refused(t, r.status, string(code))
			class := code.Class()
			eq(t, "title", p["title"], any(class.Title))
			eq(t, "retryable", p["retryable"], any(class.Retryable))
			if code != event.CodeBatchAborted {
				eq(t, "status in the table", class.HTTP, r.status)
			}
			if class.Retryable != (a.header.Get("Retry-After") != "") {
				t.Errorf("retryable is %v, Retry-After %q", class.Retryable, a.header.Get("Retry-After"))
			}
			eq(t, "Cache-Control", a.header.Get("Cache-Control"), "no-store")
		})
	}
}

func TestFullDiskRefusesPublishesOnly(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	d.structured("s", ev("1", "k", someData)).want(t, 200)
	d.stop()
	d.opt.broker.MinFree = 1 << 62
	d.start()
	defer d.stop()
	a := d.structured("s", ev("2", "k", someData))
	a.refused(t, 507, "disk_full")
	eq(t, "Retry-After", a.header.Get("Retry-After"), "30")
	eq(t, "events", d.count("s"), 1)
	d.get("/v1/topics/s/state/k").want(t, 200)
	d.do(request{method: http.MethodDelete, path: "/v1/topics/s"}).want(t, 204)
}

// A web page whose name was made to resolve to this machine is told apart by
// its Host alone.
func TestOnlyLoopbackHostsAreServed(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:8080": true, "127.0.0.1": true, "127.0.0.1:80": true, "127.9.9.9:1": true,
		"[::1]": true, "[::1]:8080": true, "[::ffff:127.0.0.1]:1": true,
		"": false, ":8080": false, "example.com": false, "localhost.example.com": false, "localhost.": false, "a.localhost": false,
		"127.0.0.1.example.com": false, "128.0.0.1": false, "0.0.0.0": false, "10.0.0.1": false, "127.1": false, "2130706433": false,
		"0x7f000001": false, "0177.0.0.1": false, "[::]": false, "[::1": false, "[::1]x": false, "[::1%lo]": false, "::1": false, "[fe80::1]": false,
		"127.0.0.1@example.com": false, "example.com:127.0.0.1": false, "1": false,
	} {
		eq(t, "host "+host, web.LoopbackHost(host), want)
	}
	d := openDoor(t)
	for _, path := range []string{"/", "/healthz", "/v1/topics", "/nowhere"} {
		d.get(path, "Host: rebound.example:8080").refused(t, 403, "host_refused")
	}
	d.get("/v1/topics/a/events", "Host: rebound.example", "Accept: text/event-stream").refused(t, 403, "host_refused")
	d.structured("a", ev("1", ""), "Host: rebound.example").refused(t, 403, "host_refused")
	d.get("/healthz", "Host: localhost").want(t, 200)
}

func TestOtherPathsAndMethodsAreProblems(t *testing.T) {
	d := openDoor(t)
	for _, path := range []string{"/v1", "/v1/", "/v1/topics/", "/v1/topics/a/", "/v1/topics/a/events/", "/v1/topics/a/b", "/v2/topics",
		"/favicon.ico", "//v1/topics", "/v1//topics", "/v1/./topics", "/v1/x/../topics", "/healthz/"} {
		a := d.do(request{path: path, unchecked: true})
		if a.status != 404 || a.object(t)["code"] != "not_found" {
			t.Errorf("GET %s: %d %s", path, a.status, clip(a.body))
		}
	}
	for method, paths := range map[string][]string{
		http.MethodPost:   {"/v1/topics", "/v1/topics/a", "/v1/events", "/v1/topics/a/state", "/healthz", "/"},
		http.MethodPut:    {"/v1/topics/a/events", "/v1/topics"},
		http.MethodDelete: {"/v1/topics/a/events", "/v1/topics", "/v1/topics/a/state/k"},
		"BREW":            {"/v1/topics"},
	} {
		for _, path := range paths {
			a := d.do(request{method: method, path: path, unchecked: true})
			a.refused(t, 405, "method_not_allowed")
			if allow := a.header.Get("Allow"); allow == "" || strings.Contains(allow, method) {
				t.Errorf("%s %s: Allow %q", method, path, allow)
			}
		}
	}
}
