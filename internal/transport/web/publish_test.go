// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"signalbox/event"
)

// published reads back the one event of a topic with an id.
func (d *door) published(topic, id string) map[string]any {
	d.t.Helper()
	for _, e := range d.get("/v1/topics/"+topic+"/events").want(d.t, 200).list(d.t) {
		if e["id"] == id {
			return e
		}
	}
	d.t.Fatalf("no event %q in topic %s", id, topic)
	return nil
}

func (d *door) count(topic string) int {
	d.t.Helper()
	return len(d.get("/v1/topics/"+topic+"/events?limit=10000").want(d.t, 200).list(d.t))
}

func TestReceiptSaysWhatWasDecided(t *testing.T) {
	d := openDoor(t)
	a := d.structured("a", ev("1", "k", someData)).want(t, 200)
	eq(t, "Content-Type", a.header.Get("Content-Type"), "application/json")
	var r event.Receipt
	if err := json.Unmarshal(a.body, &r); err != nil {
		t.Fatal(err)
	}
	eq(t, "outcome", r.Outcome, event.OutcomeAccepted)
	eq(t, "id", r.ID, "1")
	eq(t, "source", r.Source, "/t")
	eq(t, "topic", r.Topic, "a")
	eq(t, "position", r.Position, 1)
	eq(t, "cursor", r.Cursor.Position, 1)
	if r.HLC == 0 || r.Cursor.Incarnation == "" {
		t.Errorf("receipt %s lacks hlc or incarnation", a.body)
	}
	b := d.batch("a", "["+ev("2", "k", someData)+","+ev("3", "k", someData)+"]").want(t, 200).list(t)
	eq(t, "receipts of the batch", len(b), 2)
	eq(t, "position of the second", b[1]["position"].(string), "3")
	none := d.do(request{method: "POST", path: "/v1/topics/a/events?ack=none", body: ev("4", "k", someData),
		header: []string{"Content-Type: application/cloudevents+json"}})
	none.want(t, 202)
	eq(t, "the answer to ack=none", none.object(t)["ack"], "none")
	eventually(t, "the event of ack=none is stored", func() bool { return d.count("a") == 4 })
}

// Header values are percent-decoded exactly once.
func TestPercentEncodedHeaderValuesAreDecodedOnce(t *testing.T) {
	d := openDoor(t)
	for id, c := range map[string]struct{ sent, want string }{
		"F01a": {"B%C3%A4r%20%F0%9F%90%BB", "Bär 🐻"},
		"F01b": {"a%2520b", "a%20b"},
		"F01c": {`"a \"b\" c"`, `a "b" c`},
	} {
		d.binary("f", id, "", "ce-subject: "+c.sent).want(t, 200)
		eq(t, "subject of "+id, d.published("f", id)["subject"], any(c.want))
	}
	before := d.count("f")
	for id, sent := range map[string]string{"F01d": "%C0%A0", "F01e": "%ff", "F01f": "100%"} {
		d.binary("f", id, "", "ce-subject: "+sent).refused(t, 400, "header_invalid")
	}
	eq(t, "events after the refusals", d.count("f"), before)
}

// Falsy and typed extension values survive, and what is no CloudEvents
// type is refused.
func TestFalsyAndTypedExtensionsSurvive(t *testing.T) {
	d := openDoor(t)
	d.structured("f", ev("1", "", `"flag":false,"zero":0,"neg":-5,"txt":"false","big":2147483647`)).want(t, 200)
	e := d.published("f", "1")
	eq(t, "flag", e["flag"], any(false))
	eq(t, "zero", e["zero"], any(0.0))
	eq(t, "neg", e["neg"], any(-5.0))
	eq(t, "txt", e["txt"], any("false"))
	eq(t, "big", e["big"], any(2147483647.0))
	for i, bad := range []string{"2147483648", "1.5", "1e3", `{"a":1}`, "[1]"} {
		d.structured("f", ev(fmt.Sprint("bad", i), "", `"n":`+bad)).refused(t, 400, "event_invalid")
	}
	d.structured("f", ev("null", "", `"n":null`)).want(t, 200)
	if _, there := d.published("f", "null")["n"]; there {
		t.Error("a null extension was not treated as unset")
	}
	d.binary("f", "b", "", "ce-n: 5", "ce-flag: false").want(t, 200)
	eq(t, "n of the binary event", d.published("f", "b")["n"], any("5"))
	for _, bad := range []string{`"my_ext":"x"`, `"MyExt":"x"`} {
		d.structured("f", ev("name", "", bad)).refused(t, 400, "event_invalid")
	}
	for _, bad := range []string{"ce-my-ext: x", "ce-data: x"} {
		if a := d.binary("f", "name", "", bad); a.status != 400 {
			t.Errorf("%s was answered with %d", bad, a.status)
		}
	}
	d.binary("f", "caps", "", "CE-MyExt: x").want(t, 200)
	eq(t, "myext", d.published("f", "caps")["myext"], any("x"))
}

// No body is no data; nothing is invented and nothing guessed.
func TestEmptyBodiesStayEmpty(t *testing.T) {
	d := openDoor(t)
	d.binary("f", "1", "", "Content-Type: text/plain").want(t, 200)
	d.binary("f", "2", "").want(t, 200)
	d.binary("f", "3", "", "Content-Type: application/json").want(t, 200)
	for _, id := range []string{"1", "2", "3"} {
		e := d.published("f", id)
		if e["data"] != nil || e["data_base64"] != nil {
			t.Errorf("event %s has data: %v", id, e)
		}
	}
	d.binary("f", "4", "hello world").want(t, 200)
	e := d.published("f", "4")
	eq(t, "data_base64", e["data_base64"], any(base64.StdEncoding.EncodeToString([]byte("hello world"))))
	if ct, there := e["datacontenttype"]; there {
		t.Errorf("datacontenttype %v was invented", ct)
	}
	if a := d.structured("f", ""); a.status != 400 {
		t.Errorf("an empty structured body was answered with %d", a.status)
	}
	if a := d.structured("f", "null"); a.status != 400 {
		t.Errorf("a structured null was answered with %d", a.status)
	}
}

// The content type alone decides the mode, and nothing is reinterpreted.
func TestContentTypeDecidesTheMode(t *testing.T) {
	d := openDoor(t)
	post := func(contentType, body string, header ...string) answer {
		return d.do(request{method: "POST", path: "/v1/topics/f/events", body: body, unchecked: true,
			header: append([]string{"Content-Type: " + contentType}, header...)})
	}
	post("application/cloudevents+json; charset=UTF-8", ev("1", "")).want(t, 200)
	post("Application/CloudEvents+JSON", ev("2", "")).want(t, 200)
	post("application/cloudevents+json; charset=iso-8859-1", ev("3", "caf\xe9")).refused(t, 415, "media_type_unsupported")
	post("application/cloudevents+avro", "x").refused(t, 415, "media_type_unsupported")
	// Not an event format: binary mode, which lacks its headers here.
	post("application/cloudeventsfoo", "x").refused(t, 400, "event_invalid")
	post("application/cloudevents-batch+json", ev("4", "")).refused(t, 400, "json_invalid")
	post("application/cloudevents+json", ev("5", ""), "ce-type: other", "ce-id: other").want(t, 200)
	eq(t, "type in the body", d.published("f", "5")["type"], any("t.x"))
	d.binary("f", "6", `{"a":1}`, "Content-Type: application/json", "ce-datacontenttype: text/xml").refused(t, 400, "header_invalid")
	utf16 := "\xff\xfeh\x00i\x00"
	d.binary("f", "7", utf16, "Content-Type: text/plain; charset=utf-16").want(t, 200)
	e := d.published("f", "7")
	eq(t, "datacontenttype", e["datacontenttype"], any("text/plain; charset=utf-16"))
	eq(t, "data_base64", e["data_base64"], any(base64.StdEncoding.EncodeToString([]byte(utf16))))
	two := d.do(request{method: "POST", path: "/v1/topics/f/events", body: ev("8", ""), unchecked: true,
		header: []string{"Content-Type: application/cloudevents+json", "Content-Type: text/plain"}})
	two.refused(t, 400, "header_invalid")
}

// A batch is all or nothing, under its own media type only.
func TestBatchIsAllOrNothing(t *testing.T) {
	d := openDoor(t)
	good := func(id, data string) string { return ev(id, "", `"data":`+data) }
	typeless := `{"specversion":"1.0","id":"2","source":"/t"}`
	p := d.batch("f", "["+good("1", "1")+","+typeless+","+good("3", "3")+"]").refused(t, 400, "batch_aborted")
	eq(t, "index", p["index"], any(1.0))
	eq(t, "cause", p["cause"], any("event_invalid"))
	eq(t, "events after a refused batch", d.count("f"), 0)
	fixed := "[" + good("1", "1") + "," + good("2", "2") + "," + good("3", "3") + "]"
	d.batch("f", fixed).want(t, 200)
	for _, r := range d.batch("f", fixed).want(t, 200).list(t) {
		eq(t, "outcome of the repetition", r["outcome"], any("duplicate"))
	}
	eq(t, "events after the repetition", d.count("f"), 3)
	eq(t, "receipts of an empty batch", len(d.batch("f", "[]").want(t, 200).list(t)), 0)
	d.structured("f", fixed).refused(t, 400, "json_invalid")
	twice := d.batch("g", "["+good("1", "1")+","+good("1", "1")+"]").want(t, 200).list(t)
	eq(t, "first of two equal events", twice[0]["outcome"], any("accepted"))
	eq(t, "second of two equal events", twice[1]["outcome"], any("duplicate"))
	p = d.batch("h", "["+good("1", "1")+","+good("1", "2")+"]").refused409(t)
	eq(t, "cause of two different events with one id", p["cause"], any("id_reused"))
	eq(t, "index", p["index"], any(1.0))
	big := good("big", `"`+strings.Repeat("x", event.DefaultMaxEventBytes)+`"`)
	a := d.batch("f", "["+good("9", "9")+","+big+"]")
	a.want(t, 413)
	eq(t, "cause of one too large", a.object(t)["cause"], any("event_too_large"))
	d.batch("f", "["+good("9", "9")+",[]]").want(t, 400)
	eq(t, "events in the end", d.count("f"), 3)
}

// refused409 is refused for an aborted batch, whose status is its cause's.
func (a answer) refused409(t *testing.T) map[string]any {
	t.Helper()
	a.want(t, 409)
	return a.object(t)
}

func TestPreconditionsOnPublish(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	d.structured("s", ev("1", "k", someData), "If-None-Match: *").want(t, 200)
	p := d.structured("s", ev("2", "k", someData), "If-None-Match: *")
	p.refused(t, 412, "conflict")
	eq(t, "outcome", p.object(t)["outcome"], any("conflict"))
	eq(t, "ETag of the conflict", p.header.Get("ETag"), `"@1"`)
	state := d.get("/v1/topics/s/state/k").want(t, 200)
	eq(t, "ETag of the state", state.header.Get("ETag"), `"@1"`)
	d.structured("s", ev("2", "k", someData), `If-Match: "@7", "@1"`).want(t, 200)
	d.structured("s", ev("3", "k", someData), `If-Match: "@1"`).refused(t, 412, "conflict")
	d.structured("s", ev("3", "k", someData), `If-Match: *`).want(t, 200)
	absent := d.structured("s", ev("4", "other", someData), `If-Match: *`)
	absent.refused(t, 412, "conflict")
	eq(t, "ETag where the key has no state", absent.header.Get("ETag"), "")
	for _, bad := range []string{`If-Match: W/"@1"`, `If-Match: @1`, `If-Match: "1"`, `If-Match: "@1.k3f9x0ab"`, `If-None-Match: "@1"`} {
		d.structured("s", ev("5", "k", someData), bad).refused(t, 400, "precondition_invalid")
	}
	d.structured("s", ev("5", "k", someData), `If-Match: *`, `If-None-Match: *`).refused(t, 400, "precondition_invalid")
	d.batch("s", "["+ev("5", "k", someData)+"]", `If-None-Match: *`).refused(t, 400, "precondition_invalid")
}

// An idempotency key names one request.
func TestIdempotencyKeyNamesOneRequest(t *testing.T) {
	d := openDoor(t)
	const key = "Idempotency-Key: 4f1d"
	var wg sync.WaitGroup
	answers := make([]answer, 50)
	for i := range answers {
		wg.Go(func() { answers[i] = d.structured("f", ev("1", "", someData), key) })
	}
	wg.Wait()
	replayed := 0
	for _, a := range answers {
		a.want(t, 200)
		eq(t, "receipt of a repetition", string(a.body), string(answers[0].body))
		if a.header.Get("Idempotency-Replayed") == "true" {
			replayed++
		}
	}
	eq(t, "replays among 50 equal requests", replayed, 49)
	eq(t, "events", d.count("f"), 1)

	won := map[int]int{}
	for i := range answers {
		wg.Go(func() { answers[i] = d.structured("g", ev(fmt.Sprint(i%2), "", someData), "Idempotency-Key: two") })
	}
	wg.Wait()
	for _, a := range answers {
		won[a.status]++
		if a.status != 200 {
			a.refused(t, 422, "idempotency_key_reused")
		}
	}
	eq(t, "events of two mixed bodies", d.count("g"), 1)
	if won[200] != 25 || won[422] != 25 {
		t.Errorf("answers of two mixed bodies: %v, want 25 of each", won)
	}
	d.structured("f", ev("2", "", someData), key).refused(t, 422, "idempotency_key_reused")
	d.structured("other", ev("2", "", someData), key).want(t, 200) // another URL is another request
	// The same events are the same request, whatever their spelling.
	a := d.structured("f", `{ "type":"t.x", "id":"1", "source":"/t", "data":{"a":1}, "specversion":"1.0" }`, `Idempotency-Key: "4f1d"`).want(t, 200)
	eq(t, "Idempotency-Replayed", a.header.Get("Idempotency-Replayed"), "true")
	for _, bad := range [][]string{
		{"Idempotency-Key: "}, {`Idempotency-Key: ""`}, {"Idempotency-Key: " + strings.Repeat("k", 300)},
		{"Idempotency-Key: naïve"}, {"Idempotency-Key: a b"}, {"Idempotency-Key: a", "Idempotency-Key: b"},
	} {
		d.structured("f", ev("9", "", someData), bad...).refused(t, 400, "idempotency_key_invalid")
	}
}

// The pair of source and id identifies an event, across restarts.
func TestDuplicatesAreFoundAfterRestart(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	first := d.structured("s", ev("1", "k", someData)).want(t, 200).object(t)
	duplicate := func(when string) {
		t.Helper()
		r := d.structured("s", ev("1", "k", someData)).want(t, 200).object(t)
		eq(t, "outcome "+when, r["outcome"], any("duplicate"))
		eq(t, "position "+when, r["position"], first["position"])
	}
	duplicate("at once")
	d.structured("s", ev("2", "k", `"data":2`)).want(t, 200) // the record of 1 is compacted away
	duplicate("after compaction")
	d.restart()
	duplicate("after a restart")
	other := strings.Replace(ev("1", "k", someData), `"/t"`, `"/other"`, 1)
	eq(t, "outcome for another source", d.structured("s", other).want(t, 200).object(t)["outcome"], any("accepted"))
	eq(t, "outcome in another topic", d.structured("z", ev("1", "k", someData)).want(t, 200).object(t)["outcome"], any("accepted"))
	d.structured("s", ev("1", "k", `"data":"other"`)).refused(t, 409, "id_reused")
}

func TestHeadAndOptions(t *testing.T) {
	d := openDoor(t)
	d.structured("a", ev("1", "k", someData)).want(t, 200)
	for _, path := range []string{"/", "/healthz", "/v1/topics", "/v1/topics/a", "/v1/topics/a/events", "/v1/events?topics=a"} {
		head := d.do(request{method: http.MethodHead, path: path})
		head.want(t, 200)
		eq(t, "body of HEAD "+path, len(head.body), 0)
		eq(t, "Content-Type of HEAD "+path, head.header.Get("Content-Type"), d.get(path).header.Get("Content-Type"))
		options := d.do(request{method: http.MethodOptions, path: path}).want(t, 204)
		if allow := options.header.Get("Allow"); !strings.Contains(allow, "GET") || !strings.Contains(allow, "OPTIONS") {
			t.Errorf("OPTIONS %s allows %q", path, allow)
		}
	}
	stream := d.do(request{method: http.MethodHead, path: "/v1/topics/a/events", header: []string{"Accept: text/event-stream"}}).want(t, 200)
	eq(t, "Content-Type of a stream's HEAD", stream.header.Get("Content-Type"), "text/event-stream; charset=utf-8")
	for name := range stream.header {
		if strings.HasPrefix(name, "Access-Control") {
			t.Errorf("%s is sent: other origins must not read", name)
		}
	}
}
