// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/audit"
	"signalbox/ticket"
)

func (d *door) auditKeys() audit.Keys {
	d.t.Helper()
	keys, err := audit.ParseKeys(string(d.get("/v1/audit/key").want(d.t, 200).body))
	if err != nil {
		d.t.Fatal(err)
	}
	return keys
}

func (d *door) checkpoint(query string) audit.Checkpoint {
	d.t.Helper()
	c, err := audit.OpenCheckpoint(d.get("/v1/audit/checkpoint"+query).want(d.t, 200).body, d.auditKeys())
	if err != nil {
		d.t.Fatal(err)
	}
	return c
}

func structured(id string) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/s","type":"t"}`, id)
}

func (d *door) publishOne(path, id string) answer {
	d.t.Helper()
	return d.do(request{method: "POST", path: path, body: structured(id), header: []string{"Content-Type: application/cloudevents+json"}}).want(d.t, 200)
}

func TestExportHoldsAgainstItsCheckpoints(t *testing.T) {
	d := openDoor(t)
	for i := range 5 {
		d.publishOne("/v1/topics/log/events", fmt.Sprint(i))
	}
	earlier := d.checkpoint("?fresh=true")
	for i := range 5 {
		d.publishOne("/v1/topics/log/events", fmt.Sprint("b", i))
	}
	whole := d.get("/v1/audit/export").want(t, 200)
	report, err := audit.Verify(context.Background(), bytes.NewReader(whole.body), audit.VerifyOptions{Keys: d.auditKeys(), Checkpoints: []audit.Checkpoint{earlier}})
	if err != nil || report.Total != 0 || report.Size != 11 || report.Proved != 11 || report.Bodies != 11 {
		t.Errorf("the export gives %+v, %v", report, err)
	}
	eq(t, "Signalbox-Audit-Size", whole.header.Get("Signalbox-Audit-Size"), "11")
	// In two pieces, each of which begins with what comes before it.
	first := d.get("/v1/audit/export?to=7").want(t, 200).body
	second := d.get("/v1/audit/export?from=7").want(t, 200).body
	if _, rest, _ := bytes.Cut(second, []byte("\n")); !bytes.Equal(append(first, rest...), whole.body) {
		t.Error("two pieces are not the whole")
	}
	report, err = audit.Verify(context.Background(), bytes.NewReader(second), audit.VerifyOptions{Keys: d.auditKeys()})
	if err != nil || report.Total != 0 || report.From != 7 || report.Proved != 11 {
		t.Errorf("the second piece gives %+v, %v", report, err)
	}
	if c := d.checkpoint(""); c.Size != 11 {
		t.Errorf("the newest checkpoint is over %d entries", c.Size)
	}
	if c := d.checkpoint("?size=6"); c.Size != 6 || !bytes.Equal(c.Note, earlier.Note) {
		t.Errorf("the checkpoint over 6 entries is %+v", c)
	}
}

func TestReceiptCarriesItsProof(t *testing.T) {
	d := openDoor(t)
	keys := d.auditKeys()
	check := func(raw json.RawMessage, position uint64) {
		t.Helper()
		var p audit.Proof
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatal(err)
		}
		if l, _, err := p.Check(keys); err != nil || l.Position != position || !strings.Contains(string(l.Body), `"source":"/s"`) {
			t.Errorf("the proof is of position %d, want %d: %v", l.Position, position, err)
		}
	}
	type receipt struct {
		Outcome string          `json:"outcome"`
		Proof   json.RawMessage `json:"proof"`
	}
	var one receipt
	if err := json.Unmarshal(d.publishOne("/v1/topics/log/events?ack=proof", "1").body, &one); err != nil {
		t.Fatal(err)
	}
	check(one.Proof, 1)
	// A repetition is proved by the entry of the first.
	if err := json.Unmarshal(d.publishOne("/v1/topics/log/events?ack=proof", "1").body, &one); err != nil {
		t.Fatal(err)
	}
	eq(t, "outcome", one.Outcome, "duplicate")
	check(one.Proof, 1)
	var batch []receipt
	a := d.do(request{method: "POST", path: "/v1/topics/log/events?ack=proof", body: "[" + structured("2") + "," + structured("3") + "]", header: []string{"Content-Type: application/cloudevents-batch+json"}})
	if err := json.Unmarshal(a.want(t, 200).body, &batch); err != nil || len(batch) != 2 {
		t.Fatalf("the batch gives %s, %v", a.body, err)
	}
	check(batch[0].Proof, 2)
	check(batch[1].Proof, 3)
}

func TestProofsByIndexPositionAndSize(t *testing.T) {
	d := openDoor(t)
	keys := d.auditKeys()
	d.publishOne("/v1/topics/log/events", "1")
	earlier := d.checkpoint("?fresh=true")
	d.publishOne("/v1/topics/log/events", "2")
	for query, index := range map[string]uint64{"leaf=0": 0, "position=1": 1, "position=2": 2} {
		var p audit.Proof
		if err := json.Unmarshal(d.get("/v1/audit/proof?"+query).want(t, 200).body, &p); err != nil {
			t.Fatal(err)
		}
		if l, _, err := p.Check(keys); err != nil || l.Index != index {
			t.Errorf("%s proves entry %d: %v", query, l.Index, err)
		}
	}
	for _, query := range []string{"from=2", "from=2&to=3", "from=0"} {
		var p audit.Consistency
		if err := json.Unmarshal(d.get("/v1/audit/proof?"+query).want(t, 200).body, &p); err != nil {
			t.Fatal(err)
		}
		if query == "from=0" {
			earlier = audit.Checkpoint{}
		}
		if later, err := p.Check(earlier, keys); err != nil || later.Size != 3 {
			t.Errorf("%s proves %d entries: %v", query, later.Size, err)
		}
	}
	for query, status := range map[string]int{
		"proof": 400, "proof?leaf=3": 400, "proof?leaf=x": 400, "proof?position=0": 400, "proof?position=3": 400, "proof?leaf=1&position=1": 400,
		"proof?from=4": 400, "proof?from=2&to=1": 400, "proof?from=1&to=2": 200, "proof?from=0&to=1": 404,
		"checkpoint?fresh=maybe": 400, "checkpoint?size=-1": 400, "checkpoint?size=9": 404, "export?from=9": 400, "export?to=9": 400, "export?from=2&to=1": 400, "export?from=1&to=1": 200,
	} {
		if a := d.get("/v1/audit/" + query); a.status != status {
			t.Errorf("%s gives %d %s, want %d", query, a.status, a.body, status)
		}
	}
}

// TestEntriesAreFoundByWhatTheyAreAbout asks by each of the parameters.
func TestEntriesAreFoundByWhatTheyAreAbout(t *testing.T) {
	d := openDoor(t)
	publish := func(topic, id, rest string) {
		t.Helper()
		d.structured(topic, fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/agents/%s","type":"task.%s"%s}`, id, topic, id, rest)).want(t, 200)
	}
	publish("a", "one", `,"subject":"k1","correlationid":"c1","data":"line\u000abreak"`)                                   // entry 1
	publish("b", "two", `,"partitionkey":"k2","correlationid":"c1","causationid":"one"`)                                   // 2
	publish("a", "three", `,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`)                      // 3
	publish("b", "two", `,"partitionkey":"k2","correlationid":"c1","causationid":"one"`)                                   // 4, a repetition
	d.structured("b", `{"specversion":"1.0","id":"two","source":"/agents/b","type":"other"}`).refused(t, 409, "id_reused") // 5
	for query, want := range map[string]string{
		"":                                       "0 1 2 3 4 5",
		"trace=c1":                               "1 2",
		"trace=one":                              "1 2",
		"trace=0af7651916cd43dd8448eb211c80319c": "3",
		"topic=b":                                "2 4 5",
		"topic=>":                                "1 2 3 4 5",
		"type=task.three":                        "3",
		"source=/agents/a":                       "1 3",
		"key=k1":                                 "1",
		"key=k2":                                 "2",
		"kind=refusal":                           "5",
		"kind=control":                           "0",
		"positions=2":                            "2 4",
		"positions=1,3-9":                        "1 3",
		"from=3":                                 "3 4 5",
		"from=1&to=3":                            "1 2",
		"from_position=2":                        "2 3 4 5",
		"limit=2":                                "0 1",
		"from=2&limit=2&topic=a":                 "3",
		"since=2001-01-01T00:00:00Z":             "1 2 3 4 5",
		"since=2101-01-01T00:00:00Z":             "",
		"until=2001-01-01T00:00:00Z":             "0",
	} {
		var page struct {
			Entries    []struct{ Index string }
			Next, Size string
		}
		if err := json.Unmarshal(d.get("/v1/audit/entries?"+query).want(t, 200).body, &page); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range page.Entries {
			got = append(got, e.Index)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s finds %q, want %q", query, got, want)
		}
		if page.Size != "6" || !strings.Contains(query, "limit=") && page.Next != page.Size {
			t.Errorf("%s ends at %s of %s", query, page.Next, page.Size)
		}
	}
	a := d.get("/v1/audit/entries?limit=2", "Accept: application/x-ndjson").want(t, 200)
	eq(t, "Signalbox-Audit-Next", a.header.Get("Signalbox-Audit-Next"), "2")
	if lines := strings.Split(strings.TrimSpace(string(a.body)), "\n"); len(lines) != 2 || !json.Valid([]byte(lines[1])) || !strings.Contains(lines[1], `"data":"line\u000abreak"`) {
		t.Errorf("the lines are %q", lines)
	}
	for _, query := range []string{"kind=x", "limit=0", "limit=1001", "since=yesterday", "positions=3-1", "positions=x", "topic=a..b", "from=-1", "from_position=9"} {
		d.get("/v1/audit/entries?"+query).refused(t, 400, map[bool]string{true: "topic_invalid", false: "parameter_invalid"}[query == "topic=a..b"])
	}
}

// TestDeliveriesAreEntries follows an event through a subscription.
func TestDeliveriesAreEntries(t *testing.T) {
	d := openDoor(t)
	id := d.subscribe(`{"protocol":"SIGNALBOX"}`)
	d.publishOne("/v1/topics/log/events", "1")
	var fetched struct {
		Events []struct {
			Token string `json:"token"`
		} `json:"events"`
	}
	a := d.do(request{method: "POST", path: "/v1/subscriptions/" + id + "/fetch", body: `{"max":1}`, header: []string{"Content-Type: application/json"}}).want(t, 200)
	if err := json.Unmarshal(a.body, &fetched); err != nil {
		t.Fatal(err)
	}
	entries := string(d.get("/v1/audit/entries?kind=delivery&positions=1").want(t, 200).body)
	if !strings.Contains(entries, `"detail":{"op":"hand_out","subscription":"`+id+`","handed":"1"}`) {
		t.Errorf("the hand-out of position 1 is not in the trail: %s; the fetch gave %s", entries, a.body)
	}
}

// TestEntriesOfATicketAreFoundByIt: each names it, a refusal in its detail too, and page
// by page nothing is left out or twice.
func TestEntriesOfATicketAreFoundByIt(t *testing.T) {
	d := openDoor(t, founded)
	planned(d, 1)
	d.agent = ""
	d.call("POST", "/v1/agents", change(t, addAgent(5, "eve", ticket.RoleAuditor), "admin")).want(t, 200)
	bad := envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", `{}`)
	d.do(request{method: "POST", path: "/v1/messages", body: string(bad.Bytes()), header: as("desk")}).refused(t, 422, "payload_invalid")
	type entry struct {
		Index, Kind, Ticket string
		Detail              struct{ Code, Ticket, Message, Type, From string }
	}
	var all []entry
	for next := "0"; ; {
		var page struct {
			Entries    []entry
			Next, Size string
		}
		d.get("/v1/audit/entries?limit=2&ticket=INC-1&from="+next, as("eve")...).want(t, 200).into(t, &page)
		all = append(all, page.Entries...)
		if next = page.Next; next == page.Size {
			break
		}
	}
	if len(all) < 5 {
		t.Fatalf("the trail of the ticket is %+v", all)
	}
	for i, e := range all {
		if e.Ticket != "INC-1" || i > 0 && e.Index == all[i-1].Index {
			t.Errorf("entry %d is %+v", i, e)
		}
	}
	h := bad.Header()
	if last := all[len(all)-1]; last.Kind != "refusal" || last.Detail.Code != "payload_invalid" || last.Detail.Ticket != "INC-1" || last.Detail.Message != h.ID || last.Detail.Type != h.Type || last.Detail.From != "desk" {
		t.Errorf("the refusal is %+v", last)
	}
	d.get("/v1/audit/entries?ticket=INC-1").refused(t, 401, "unauthenticated")
	d.get("/v1/audit/entries?ticket=INC%001", as("eve")...).refused(t, 400, "parameter_invalid")
}
