// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/ticket"
)

const (
	openPayload    = `{"op":"open","source_ref":"desk:1","title":"Web is slow <a&b> \u2028 é","body_ref":"desk:1/body","requester":"u1","priority":2}`
	executePayload = `{"plan_id":"p1","plan_hash":%q,"slice_id":"s1","mode":"apply","steps":[{"n":1,"action":"acl.block","target":"fw/1","params":{"address":"192.0.2.1"}}],"approval_ids":[],"lease_id":"l1","lease_scope":{"plan":"p1","target":"fw/1"}}`
	resultPayload  = `{"execute_id":%q,"plan_hash":%q,"slice_id":"s1","outcome":"success","steps":[{"n":1,"status":"done","evidence_ref":"e"}],"verification":{"passed":true,"checks":[]},"changed":["fw/1"],"started_at":"2026-01-01T12:00:00Z","ended_at":"2026-01-01T12:00:01Z"}`
	beatPayload    = `{"agent":"net","accepts":">=1.0.0 <2.0.0","domains":["network"],"capabilities":["acl.block"],"inflight":[{"execute_id":%q,"progress":0.5}],"capacity":1,"seq":1}`
)

// staffed registers an agent of each role.
func staffed(d *door) {
	d.t.Helper()
	for i, c := range []ticket.Change{
		addAgent(1, "desk", ticket.RoleIntake), addAgent(2, "orch", ticket.RoleOrchestrator), addAgent(3, "net", ticket.RoleDomainAgent, "network"), addAgent(4, "alice", ticket.RoleGate),
	} {
		c.Revision = int64(i) + 1
		d.call("POST", "/v1/agents", change(d.t, c, "admin")).want(d.t, 200)
	}
	d.agent = "orch"
}

// envelope signs a message.
func envelope(t testing.TB, from, kind, to, cause, payload string, how ...func(*ticket.Draft)) *ticket.Message {
	t.Helper()
	d := ticket.Draft{Header: ticket.Header{Type: kind, TicketID: "INC-1", TraceID: "trace-1", From: from, To: to, CausationID: cause}, Payload: []byte(payload)}
	if kind == ticket.TypeHeartbeat {
		d.TicketID = ticket.None
	}
	for _, h := range how {
		h(&d)
	}
	m, err := d.Sign(agentKey(from))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (d *door) message(m *ticket.Message) answer {
	return d.call("POST", "/v1/messages", string(m.Bytes()))
}

func openTicket(d *door, how ...func(*ticket.Draft)) answer {
	return d.message(envelope(d.t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload, how...))
}

func refusedMessages() map[event.Code]refusal {
	with := func(how func(*ticket.Draft)) func(d *door) answer {
		return func(d *door) answer { staffed(d); return openTicket(d, how) }
	}
	second := func(how func(first *ticket.Message, d *ticket.Draft)) func(d *door) answer {
		return func(d *door) answer {
			staffed(d)
			first := envelope(d.t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload)
			d.message(first).want(d.t, 200)
			return openTicket(d, func(draft *ticket.Draft) { how(first, draft) })
		}
	}
	execute := func(payload string) func(d *door) answer {
		return func(d *door) answer {
			staffed(d)
			return d.message(envelope(d.t, "orch", ticket.TypeExecute, "network", "msg_01KDTX9K5D8Z3N7QW2R4S6T8VA", payload))
		}
	}
	return map[event.Code]refusal{
		event.CodeMessageInvalid:  {400, func(d *door) answer { return d.call("POST", "/v1/messages", "[1e400]") }},
		event.CodeMessageRequired: {403, func(d *door) answer { return d.structured("bus.main.ticket.orchestrator", ev("1", "")) }},
		event.CodeMessageTypeUnknown: {422, func(d *door) answer {
			staffed(d)
			raw := string(envelope(d.t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload).Bytes())
			return d.call("POST", "/v1/messages", strings.Replace(raw, `"ticket.open"`, `"ticket.close"`, 1))
		}},
		event.CodeVersionUnsupported: {422, otherVersion},
		event.CodePayloadInvalid:     {422, with(func(d *ticket.Draft) { d.Payload = []byte(`{"op":"open"}`) })},
		event.CodeSecretRefused: {422, with(func(d *ticket.Draft) {
			d.Payload = []byte(strings.Replace(openPayload, "desk:1/body", "https://u:hunter2@desk/1", 1))
		})},
		event.CodeVerbUnknown:  {422, execute(strings.Replace(someExecute, "acl.block", "shell.run", 1))},
		event.CodeVerbDenied:   {403, execute(strings.Replace(someExecute, `acl.block","target":"fw/1","params":{"address":"192.0.2.1"}`, `firmware.wipe","target":"fw/1","params":{}`, 1))},
		event.CodeMessageStale: {409, with(func(d *ticket.Draft) { d.Time = time.Now().Add(-time.Hour) })},
		event.CodeNonceReused:  {409, second(func(first *ticket.Message, d *ticket.Draft) { d.Nonce = first.Header().Nonce })},
		event.CodeIdempotencyConflict: {409, second(func(first *ticket.Message, d *ticket.Draft) {
			d.IdempotencyKey = first.Header().IdempotencyKey
			d.Payload = []byte(strings.Replace(openPayload, "slow", "down", 1))
		})},
		event.CodeTicketExists: {409, second(func(*ticket.Message, *ticket.Draft) {})},
		event.CodeNotPermitted: {403, func(d *door) answer {
			staffed(d)
			return d.message(envelope(d.t, "alice", ticket.TypeOpen, "orchestrator", "", openPayload))
		}},
		event.CodeTicketUnknown: {404, with(func(d *ticket.Draft) { d.Payload = []byte(strings.Replace(openPayload, `"open"`, `"amend"`, 1)) })},
		event.CodeCorrelationInvalid: {409, second(func(_ *ticket.Message, d *ticket.Draft) {
			d.TraceID, d.Payload = "trace-2", []byte(strings.Replace(openPayload, `"open"`, `"amend"`, 1))
		})},
		event.CodeAlreadyAnswered: {409, func(d *door) answer {
			executed := executing(d)
			result := func() *ticket.Message {
				return envelope(d.t, "net", ticket.TypeResult, "orchestrator", executed.Header().ID, fmt.Sprintf(resultPayload, executed.Header().ID, planHash(d.t, 1)))
			}
			d.message(result()).want(d.t, 200)
			return d.message(result())
		}},
	}
}

func otherVersion(d *door) answer {
	raw := string(envelope(d.t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload).Bytes())
	return d.call("POST", "/v1/messages", strings.Replace(raw, `"schema_version":"1.`, `"schema_version":"2.`, 1))
}

// afterTheDeadline sends another execute when nobody has answered an escalation in time.
func afterTheDeadline(d *door) answer {
	w := planned(d, 1)
	w.execute()
	w.say("net", ticket.TypeEscalation, "orchestrator", `{"reason_code":"stuck","severity":"warning","refs":[],"context_ref":"c","asks":[],"ack_by":"2026-01-01T00:00:00Z"}`)
	eventually(d.t, "the deadline is missed, and the broker says so", func() bool {
		return strings.Contains(string(d.get("/v1/topics/bus.main.escalation.platform-ops/events").body), "ack_by_missed")
	})
	return d.message(w.message("orch", ticket.TypeExecute, "network", strings.Replace(fmt.Sprintf(executePayload, planHash(d.t, 1)), `"apply"`, `"verify"`, 1)))
}

// executing brings a ticket to its execute, which it returns.
func executing(d *door) *ticket.Message {
	d.t.Helper()
	return planned(d, 1).execute()
}

// TestMessageIsForwardedByteForByte: what a reader of any topic gets is what its
// sender signed, in whatever spelling.
func TestMessageIsForwardedByteForByte(t *testing.T) {
	d := openDoor(t, founded)
	staffed(d)
	m := envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload)
	raw := strings.NewReplacer(`"from":`, `"from" : `, "é", `\u00e9`, `<a&b>`, `\u003ca&b>`).Replace(string(m.Bytes()))
	if raw == string(m.Bytes()) {
		t.Fatal("nothing was spelt in another way")
	}
	receipt := d.call("POST", "/v1/messages", raw).want(t, 200).object(t)
	eq(t, "outcome", receipt["outcome"], any("accepted"))
	eq(t, "topic", receipt["topic"], any("bus.main.ticket.orchestrator"))
	check := func() {
		t.Helper()
		polled := string(d.get("/v1/events?topics=bus.main.%3E&cursor=@0").want(t, 200).body)
		if !strings.Contains(polled, `"data":`+raw) {
			t.Errorf("the envelope is not in %s", polled)
		}
		for _, attribute := range []string{
			`"type":"signalbox.ticket.ticket.open"`, `"source":"desk"`, `"subject":"INC-1"`, `"partitionkey":"INC-1"`, `"correlationid":"trace-1"`, `"id":"` + m.Header().ID + `"`, `"expirytime":"`,
		} {
			if !strings.Contains(polled, attribute) {
				t.Errorf("%s is not in %s", attribute, polled)
			}
		}
		data, err := event.DecodeDeliveredBatch([]byte(polled))
		if err != nil {
			t.Fatal(err)
		}
		read, err := ticket.Parse(data[0].Data())
		if err != nil || read.Verify(agentPublic("desk")) != nil {
			t.Errorf("what was read does not verify: %v", err)
		}
	}
	check()
	again := d.call("POST", "/v1/messages", raw).want(t, 200).object(t)
	eq(t, "outcome", again["outcome"], any("duplicate"))
	d.stop()
	d.start()
	check()
	eq(t, "outcome after a restart", d.call("POST", "/v1/messages", raw).want(t, 200).object(t)["outcome"], any("duplicate"))
	d.call("POST", "/v1/messages", strings.Replace(raw, `"from" : `, `"from" :  `, 1)).refused(t, 409, "id_reused")
	eq(t, "events", d.count("bus.main.ticket.orchestrator"), 1)
}

// TestRepeatedExecuteGetsItsResult: a duplicate execute is answered with the stored
// result and, as long as there is none, with the progress.
func TestRepeatedExecuteGetsItsResult(t *testing.T) {
	d := openDoor(t, founded)
	executed := executing(d)
	id := executed.Header().ID
	again := func() string {
		t.Helper()
		m := envelope(t, "orch", ticket.TypeExecute, "network", executed.Header().CausationID, string(executed.Payload()), func(d *ticket.Draft) {
			d.IdempotencyKey = executed.Header().IdempotencyKey
		})
		return string(d.message(m).want(t, 200).body)
	}
	if body := again(); !strings.Contains(body, `"outcome":"duplicate"`) || !strings.Contains(body, `"first":"`+id+`"`) || strings.Contains(body, "result") || strings.Contains(body, "progress") {
		t.Errorf("before anything is known: %s", body)
	}
	d.message(envelope(t, "net", ticket.TypeHeartbeat, "platform-ops", "", fmt.Sprintf(beatPayload, id))).want(t, 200)
	if body := again(); !strings.Contains(body, `"progress":{"execute_id":"`+id+`","progress":0.5}`) {
		t.Errorf("while it runs: %s", body)
	}
	result := envelope(t, "net", ticket.TypeResult, "orchestrator", id, fmt.Sprintf(resultPayload, id, planHash(t, 1)))
	d.message(result).want(t, 200)
	for range 2 {
		if body := again(); !strings.Contains(body, `"result":`+string(result.Bytes())) {
			t.Errorf("afterwards: %s", body)
		}
		d.stop()
		d.start()
	}
	eq(t, "executes", d.count("bus.main.execute.network"), 1)
}

// TestResultAccountsForItsSteps: that of a success that says nothing of them is not
// taken, and neither is one in which a step has failed; the agent can send it again,
// corrected, under the same idempotency key.
func TestResultAccountsForItsSteps(t *testing.T) {
	d := openDoor(t, founded)
	id := executing(d).Header().ID
	again := func(d *ticket.Draft) { d.IdempotencyKey = "result" }
	const told = `{"n":1,"status":"done","evidence_ref":"e"}`
	for _, steps := range []string{``, `{"n":2,"status":"done","evidence_ref":"e"}`, told + `,` + told, strings.Replace(told, "done", "failed", 1)} {
		payload := strings.Replace(fmt.Sprintf(resultPayload, id, planHash(t, 1)), told, steps, 1)
		p := d.message(envelope(t, "net", ticket.TypeResult, "orchestrator", id, payload, again)).want(t, 422).object(t)
		eq(t, "code of "+steps, p["code"], any("payload_invalid"))
		eq(t, "field of "+steps, p["field"], any("payload/steps"))
	}
	d.message(envelope(t, "net", ticket.TypeResult, "orchestrator", id, fmt.Sprintf(resultPayload, id, planHash(t, 1)), again)).want(t, 200)
}

// TestParallelRetriesHaveOneEffect: the same key and payload in parallel, each with
// an id and a nonce of its own.
func TestParallelRetriesHaveOneEffect(t *testing.T) {
	d := openDoor(t, founded)
	staffed(d)
	var bodies [50]string
	for i := range bodies {
		bodies[i] = string(envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload, func(d *ticket.Draft) { d.IdempotencyKey = "k" }).Bytes())
	}
	var wait sync.WaitGroup
	var outcomes sync.Map
	for _, body := range bodies {
		wait.Go(func() {
			a := d.call("POST", "/v1/messages", body)
			n, _ := outcomes.LoadOrStore(fmt.Sprint(a.status, strings.Contains(string(a.body), "duplicate")), new(sync.Map))
			n.(*sync.Map).Store(body, true)
		})
	}
	wait.Wait()
	count := func(key string) (n int) {
		if m, ok := outcomes.Load(key); ok {
			m.(*sync.Map).Range(func(any, any) bool { n++; return true })
		}
		return n
	}
	if accepted, repeated := count("200 false"), count("200 true"); accepted != 1 || repeated != len(bodies)-1 {
		t.Errorf("%d accepted, %d duplicates", accepted, repeated)
	}
	eq(t, "events", d.count("bus.main.ticket.orchestrator"), 1)
}

// TestMessageThroughAnotherDoor: the same rules hold for an event of the form that
// messages are carried as, and nothing else gets into their topics.
func TestMessageThroughAnotherDoor(t *testing.T) {
	d := openDoor(t, founded)
	staffed(d)
	const topic = "bus.main.ticket.orchestrator"
	m := envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload)
	carried, err := m.Event()
	if err != nil {
		t.Fatal(err)
	}
	body := string(carried.AppendJSON(nil))
	d.structured("bus.main.ticket.intake", body).refused(t, 400, "message_invalid")
	d.structured(topic, strings.Replace(body, `"source":"desk"`, `"source":"alice"`, 1)).refused(t, 400, "message_invalid")
	d.structured(topic, strings.Replace(body, `"partitionkey":"INC-1"`, `"partitionkey":"INC-2"`, 1)).refused(t, 400, "message_invalid")
	for _, says := range []string{`"subject":"INC-2"`, `"correlationid":"another"`, `"causationid":"msg_1"`, `"time":"2020-01-01T00:00:00Z"`, `"expirytime":"2030-01-01T00:00:00Z"`} {
		name, _, _ := strings.Cut(says, ":")
		contradicts := regexp.MustCompile(name+`:"[^"]*",`).ReplaceAllString(body, "")
		d.structured(topic, "{"+says+","+contradicts[1:]).refused(t, 400, "message_invalid")
	}
	d.structured(topic, strings.Replace(body, `"Web is slow`, `"Web is down`, 1)).refused(t, 403, "signature_invalid")
	d.structured(topic, body, "Idempotency-Key: k").refused(t, 403, "message_required")
	d.batch(topic, "["+body+"]").refused(t, 403, "message_required")
	d.structured("fleet", body).refused(t, 400, "attribute_reserved")
	asked := regexp.MustCompile(`"(expirytime|subject|correlationid)":"[^"]*",`).ReplaceAllString(body, "") // what the envelope says need not be said again
	asked = regexp.MustCompile(`"time":"([^"]*)Z"`).ReplaceAllString(asked, `"time":"${1}+00:00"`)
	eq(t, "outcome", d.structured(topic, asked).want(t, 200).object(t)["outcome"], any("accepted"))
	eq(t, "outcome again", d.structured(topic, body).want(t, 200).object(t)["outcome"], any("duplicate"))
	eq(t, "outcome of the envelope", d.message(m).want(t, 200).object(t)["outcome"], any("duplicate"))
	eq(t, "events", d.count(topic), 1)
}

// TestTopicsOfMessagesKeepAll: no policy makes a topic of messages forget or refuse.
func TestTopicsOfMessagesKeepAll(t *testing.T) {
	d := openDoor(t, founded)
	staffed(d)
	openTicket(d).want(t, 200)
	const topic = "bus.main.ticket.orchestrator"
	for _, policy := range []string{`{"cleanup_policy":"compact"}`, `{"durability":"ephemeral"}`, `{"schema":{}}`, `{"require_hlc":true}`} {
		d.put("bus.main.execute.network", policy).refused(t, 400, "policy_invalid")
	}
	d.do(request{method: "DELETE", path: "/v1/topics/" + topic}).refused(t, 403, "topic_reserved")
	if body := string(d.get("/v1/topics/"+topic).want(t, 200).body); !strings.Contains(body, `"retention":null`) {
		t.Errorf("the topic is %s", body)
	}
}
