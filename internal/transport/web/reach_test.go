// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"signalbox/event"
	"signalbox/ticket"
)

const planRequestPayload = `{"slice_id":"s1","revision":1,"objective":"keep it out","targets":["fw/1"],"constraints":[],"deadline":"2099-01-01T00:00:00Z"}`

// as is the header of a request that an agent makes; "" is nobody.
func as(agent string) []string {
	if agent == "" {
		return nil
	}
	now := time.Now()
	return []string{"Authorization: Bearer " + ticket.Token{Agent: agent, Space: "main", Issued: now, Expires: now.Add(time.Minute)}.Sign(agentKey(agent))}
}

// entitled is a door with agents, messages for several of them, and an event that is
// for everybody. It returns the ids by topic.
func entitled(t *testing.T, opts ...func(*doorOptions)) (*door, map[string]string) {
	t.Helper()
	d := openDoor(t, append(opts, founded)...)
	staffed(d)
	d.agent = ""
	for i, c := range []ticket.Change{
		addAgent(5, "dns", ticket.RoleDomainAgent, "dns"), addAgent(6, "eve", ticket.RoleAuditor), addAgent(7, "gone", ticket.RoleDomainAgent, "network"),
		{Revision: 8, Op: ticket.ChangeRevoke, Agent: "gone"},
	} {
		c.Revision = int64(i) + 5
		d.call("POST", "/v1/agents", change(t, c, "admin")).want(t, 200)
	}
	ids := map[string]string{"a": "open-to-all"}
	opened := envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload)
	ids["bus.main.ticket.orchestrator"] = opened.Header().ID
	d.message(opened).want(t, 200)
	for i, domain := range []string{"network", "dns"} {
		m := envelope(t, "orch", ticket.TypePlanRequest, domain, opened.Header().ID, strings.Replace(planRequestPayload, "s1", fmt.Sprint("s", i+1), 1))
		ids["bus.main.plan."+domain] = m.Header().ID
		d.message(m).want(t, 200)
	}
	d.structured("a", ev("open-to-all", "", someData)).want(t, 200)
	return d, ids
}

// mayRead is what each may read of these topics, beside a.
var mayRead = map[string][]string{
	"":      nil,
	"desk":  nil,
	"net":   {"bus.main.plan.network"},
	"dns":   {"bus.main.plan.dns"},
	"alice": {"bus.main.plan.network", "bus.main.plan.dns"},
	"orch":  {"bus.main.plan.network", "bus.main.plan.dns", "bus.main.ticket.orchestrator"},
	"eve":   {"bus.main.plan.network", "bus.main.plan.dns", "bus.main.ticket.orchestrator"},
}

// stream returns what an event stream says up to the sync marker, or the refusal.
func (d *door) stream(path string, header []string) string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", d.url(path), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	res, err := d.client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var text strings.Builder
	for lines := bufio.NewScanner(res.Body); lines.Scan() && !strings.Contains(lines.Text(), "signalbox.sync"); {
		text.WriteString(lines.Text() + "\n")
	}
	return fmt.Sprint(res.StatusCode, " ", text.String())
}

// socketAs returns what a WebSocket says up to the sync marker, or the refusal.
func (d *door) socketAs(path string, header []string) string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	h := http.Header{}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		h.Set(name, value)
	}
	conn, res, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(d.url(path), "http"), &websocket.DialOptions{Subprotocols: []string{"signalbox.v1"}, HTTPHeader: h})
	if err != nil {
		if res == nil {
			d.t.Fatal(err)
		}
		return res.Status
	}
	defer func() { _ = conn.CloseNow() }()
	var text strings.Builder
	for {
		_, b, err := conn.Read(ctx)
		if err != nil {
			d.t.Fatalf("%v after %s", err, text.String())
		}
		if strings.Contains(string(b), `"op":"sync"`) {
			return text.String()
		}
		text.Write(b)
	}
}

// subscribeAs makes a subscription of an agent, "" if it is refused.
func (d *door) subscribeAs(header []string, document string) (id string, a answer) {
	d.t.Helper()
	a = d.do(request{method: "POST", path: "/v1/subscriptions", body: document, header: append(header, "Content-Type: application/json")})
	if a.status == 201 {
		id = a.object(d.t)["id"].(string)
	}
	return id, a
}

func (d *door) postAs(header []string, path, body string) answer {
	d.t.Helper()
	return d.do(request{method: "POST", path: path, body: body, header: append(header, "Content-Type: application/json")})
}

var auditBody = regexp.MustCompile(`"body":"([^"]*)"`)

// decoded is an answer with what is in base64 in it.
func decoded(path string) func(*door, []string) string {
	return func(d *door, header []string) string {
		text := string(d.get(path, header...).body)
		for _, part := range auditBody.FindAllStringSubmatch(text, -1) {
			body, err := base64.StdEncoding.DecodeString(part[1])
			if err != nil {
				d.t.Error(err)
			}
			text += string(body)
		}
		return text
	}
}

// readDoor is a way to read; reads are the topics of which it shows the events to
// whoever may read them.
type readDoor struct {
	name  string
	reads []string
	read  func(d *door, header []string) string
}

func readDoors() []readDoor {
	every := []string{"a", "bus.main.plan.network", "bus.main.plan.dns", "bus.main.ticket.orchestrator"}
	messages, plans, network := every[1:], every[1:3], every[1:2]
	get := func(path string) func(*door, []string) string {
		return func(d *door, header []string) string { return string(d.get(path, header...).body) }
	}
	pull := func(topics string) func(*door, []string) string {
		return func(d *door, header []string) string {
			id, a := d.subscribeAs(header, `{"protocol":"SIGNALBOX","config":{"start":"earliest","topics":`+topics+`}}`)
			if id == "" {
				return string(a.body)
			}
			return string(d.postAs(header, "/v1/subscriptions/"+id+"/fetch", `{"max":100}`).body)
		}
	}
	follow := func(read func(*door, string, []string) string) func(*door, []string) string {
		return func(d *door, header []string) string {
			id, a := d.subscribeAs(header, `{"protocol":"SIGNALBOX","config":{"kind":"stream","start":"earliest","topics":[">"]}}`)
			if id == "" {
				return string(a.body)
			}
			return read(d, "/v1/subscriptions/"+id+"/events", header)
		}
	}
	dryRun := func(body string) func(*door, []string) string {
		return func(d *door, header []string) string {
			return string(d.postAs(header, "/v1/filters/dry-run", body).body)
		}
	}
	const wild = "/v1/events?topics=%3E"
	return []readDoor{
		{"poll of a topic", network, get("/v1/topics/bus.main.plan.network/events")},
		{"poll of everything", every, get(wild)},
		{"poll of all messages", messages, get("/v1/events?topics=bus.%3E")},
		{"poll of a pattern", plans, get("/v1/events?topics=*.main.plan.*")},
		{"poll through a filter", every, get(wild + "&filter=" + "id%20LIKE%20%27%25%27")},
		{"poll after an id", []string{}, get("/v1/topics/bus.main.plan.network/events?cursor=now")},
		{"stream of a topic", network, func(d *door, h []string) string { return d.stream("/v1/topics/bus.main.plan.network/events", h) }},
		{"stream of everything", every, func(d *door, h []string) string { return d.stream(wild, h) }},
		{"stream of everything in the history", every, func(d *door, h []string) string { return d.stream(wild+"&view=history", h) }},
		{"socket of a topic", network, func(d *door, h []string) string { return d.socketAs("/v1/topics/bus.main.plan.network/events", h) }},
		{"socket of everything", every, func(d *door, h []string) string { return d.socketAs(wild, h) }},
		{"state of a topic", nil, get("/v1/topics/bus.main.plan.network/state")},
		{"state of everything", nil, get("/v1/state?topics=%3E")},
		{"state of a key", nil, get("/v1/topics/bus.main.plan.network/state/INC-1")},
		{"digest", nil, get("/v1/topics/bus.main.plan.network/digest")},
		{"pull of everything", every, pull(`[">"]`)},
		{"pull of a topic", network, pull(`["bus.main.plan.network"]`)},
		{"stream of a subscription", every, follow((*door).stream)},
		{"socket of a subscription", every, follow((*door).socketAs)},
		{"dry run", []string{"a", "bus.main.plan.network", "bus.main.plan.dns"}, dryRun(`{"filter":"TRUE"}`)},
		{"dry run on a topic", network, dryRun(`{"filter":"TRUE","topics":["bus.main.plan.network"]}`)},
		{"explanation", network, dryRun(`{"filter":"id = 'x'","event":"@2"}`)},
		{"entries of the audit trail", every, get("/v1/audit/entries?limit=1000")},
		{"entries of a trace", messages, get("/v1/audit/entries?limit=1000&trace=trace-1")},
		{"export of the audit trail", every, decoded("/v1/audit/export")},
		{"proof", network, decoded("/v1/audit/proof?position=2")},
		{"messages of a ticket", messages, func(d *door, h []string) string {
			text := string(d.get("/v1/tickets/INC-1", h...).body)
			if _, said, ok := strings.Cut(text, `"messages":`); ok { // its state cites ids
				return said
			}
			return text
		}},
		{"stream of a ticket", messages, func(d *door, h []string) string { return d.stream("/v1/tickets/INC-1/stream", h) }},
		{"tickets", nil, get("/v1/tickets")},
		{"topics", nil, get("/v1/topics")},
		{"readers", nil, get("/v1/readers")},
	}
}

// TestNoDoorShowsMessagesToOthers walks over all doors as everybody: each shows
// exactly what may be read.
func TestNoDoorShowsMessagesToOthers(t *testing.T) {
	d, ids := entitled(t)
	ids["bus.main.ticket.orchestrator"] = "Web is slow" // for others cite its id
	for _, way := range readDoors() {
		for agent, may := range mayRead {
			text := way.read(d, as(agent))
			for topic, id := range ids {
				allowed := slices.Contains(way.reads, topic) && (topic == "a" || slices.Contains(may, topic))
				if got := strings.Contains(text, id); got != allowed {
					t.Errorf("%s by %q: shows the event of %s: %t\n%s", way.name, agent, topic, got, clip([]byte(text)))
				}
			}
		}
		if text := way.read(d, as("gone")); !strings.Contains(text, "token_invalid") && !strings.HasPrefix(text, "401") {
			t.Errorf("%s by a revoked agent: %s", way.name, clip([]byte(text)))
		}
	}
}

func refusedReaders() map[event.Code]refusal {
	return map[event.Code]refusal{
		event.CodeUnauthenticated: {401, func(d *door) answer {
			staffed(d)
			d.agent = ""
			return d.get("/v1/topics/bus.main.plan.network/events")
		}},
		event.CodeTokenInvalid: {401, func(d *door) answer {
			staffed(d)
			d.agent = ""
			return d.get("/v1/topics", "Authorization: Bearer none")
		}},
	}
}

// TestRefusedReadersAreTold: who is nobody is asked for a token, and who is
// somebody is told that it may not; both are entries of the audit trail.
func TestRefusedReadersAreTold(t *testing.T) {
	d, _ := entitled(t)
	nobody := d.get("/v1/topics/bus.main.plan.network/events")
	nobody.refused(t, 401, "unauthenticated")
	if h := nobody.header.Get("WWW-Authenticate"); !strings.HasPrefix(h, "Bearer") {
		t.Errorf("WWW-Authenticate is %q", h)
	}
	d.get("/v1/events?topics=bus.%3E").refused(t, 401, "unauthenticated")
	d.get("/v1/topics/bus.main.plan.network/events", as("dns")...).refused(t, 403, "not_permitted")
	d.get("/v1/events?topics=bus.main.execute.*,a", as("desk")...).refused(t, 403, "not_permitted")
	d.get("/v1/topics/a/events", "Authorization: Bearer x.y.z").refused(t, 401, "token_invalid")
	d.get("/v1/topics/a/events", as("gone")...).refused(t, 401, "token_invalid")
	d.structured("a", ev("2", ""), as("gone")...).refused(t, 401, "token_invalid")
	d.structured("a", ev("2", ""), as("net")...).want(t, 200)
	d.postAs(as("net"), "/v1/messages", string(envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload).Bytes())).refused(t, 403, "not_permitted")
	d.get("/v1/events?topics=a&access_token=x").refused(t, 400, "parameter_invalid")
	eventually(t, "the refusals are entries", func() bool {
		text := string(d.get("/v1/audit/entries?kind=refusal&limit=1000").want(t, 200).body)
		return strings.Contains(text, `"code":"unauthenticated"`) && strings.Contains(text, `"principal":"dns"`) && strings.Contains(text, `"token_invalid"`)
	})
}

// TestTokenInTheQuery is for an EventSource, which cannot set headers.
func TestTokenInTheQuery(t *testing.T) {
	d, ids := entitled(t)
	token := strings.TrimPrefix(as("net")[0], "Authorization: Bearer ")
	for name, text := range map[string]string{
		"stream": d.stream("/v1/topics/bus.main.plan.network/events?access_token="+token, nil),
		"socket": d.socketAs("/v1/topics/bus.main.plan.network/events?access_token="+token, nil),
	} {
		if !strings.Contains(text, ids["bus.main.plan.network"]) {
			t.Errorf("%s: %s", name, clip([]byte(text)))
		}
	}
	if text := d.stream("/v1/topics/bus.main.plan.dns/events?access_token="+token, nil); !strings.HasPrefix(text, "403") {
		t.Errorf("another domain's: %s", text)
	}
}

// TestSubscriptionsOfAgentsAreTheirOwn: nobody else reads, settles or ends one, or
// reads its dead letters, by whichever door.
func TestSubscriptionsOfAgentsAreTheirOwn(t *testing.T) {
	d, ids := entitled(t)
	network := ids["bus.main.plan.network"]
	id, _ := d.subscribeAs(as("net"), `{"protocol":"SIGNALBOX","config":{"start":"earliest","topics":["bus.main.plan.network"]}}`)
	var out struct{ Events []handed }
	fetched := d.postAs(as("net"), "/v1/subscriptions/"+id+"/fetch", `{"max":1}`).want(t, 200)
	fetched.into(t, &out)
	if len(out.Events) != 1 || out.Events[0].id() != network {
		t.Fatalf("fetched %s", fetched.body)
	}
	token := `{"token":"` + out.Events[0].Token + `"}`
	for _, who := range []string{"", "dns", "orch", "eve"} {
		status, code := 403, "not_permitted"
		if who == "" {
			status, code = 401, "unauthenticated"
		}
		for verb, body := range map[string]string{
			"fetch": `{}`, "ack": token, "nack": token, "reject": token, "extend": `{"token":"` + out.Events[0].Token + `","visibility":"1m"}`, "pause": "", "resume": "", "seek": `{"start":"earliest"}`,
			"redrive": `{}`, "discard": `{"reason":"x"}`,
		} {
			d.postAs(as(who), "/v1/subscriptions/"+id+"/"+verb, body).refused(t, status, code)
		}
		d.do(request{method: "DELETE", path: "/v1/subscriptions/" + id, header: as(who)}).refused(t, status, code)
	}
	d.postAs(as("net"), "/v1/subscriptions/"+id+"/reject", token).want(t, 200)
	for who, may := range map[string]bool{"": false, "dns": false, "orch": false, "net": true, "eve": true} {
		for _, path := range []string{"/v1/subscriptions/" + id + "/dead-letters", "/v1/topics/$dlq." + id + "/events"} {
			if text := string(d.get(path, as(who)...).body); strings.Contains(text, network) != may {
				t.Errorf("%s by %q: %s", path, who, text)
			}
		}
		if text := string(d.get("/v1/events?topics=$dlq.%3E", as(who)...).body); strings.Contains(text, network) != (who == "eve") {
			t.Errorf("all dead letters by %q: %s", who, text)
		}
	}
	// Who has lost its key reads nothing any more, and what it leaves can be ended.
	token = `{"max":1}`
	d.call("POST", "/v1/agents", change(t, ticket.Change{Revision: 9, Op: ticket.ChangeRevoke, Agent: "net"}, "admin")).want(t, 200)
	d.postAs(as("net"), "/v1/subscriptions/"+id+"/fetch", token).refused(t, 401, "token_invalid")
	d.do(request{method: "DELETE", path: "/v1/subscriptions/" + id}).want(t, 200)
}

// TestRightsChangeUnderReaders: what is lost is not delivered from the change on,
// on streams that are open, too.
func TestRightsChangeUnderReaders(t *testing.T) {
	d, ids := entitled(t)
	dial := func(path, agent string) *peer {
		t.Helper()
		d.agent = agent
		defer func() { d.agent = "" }()
		p := d.dial(path, "signalbox.v1")
		p.untilSync()
		return p
	}
	id, _ := d.subscribeAs(as("net"), `{"protocol":"SIGNALBOX","config":{"kind":"stream","start":"now","topics":["bus.main.plan.network"]}}`)
	topic, all, own := dial("/v1/topics/bus.main.plan.network/events", "net"), dial("/v1/events?topics=%3E", "net"), dial("/v1/subscriptions/"+id+"/events", "net")
	everybody := dial("/v1/events?topics=%3E", "")
	moved := ticket.Change{Revision: 9, Op: ticket.ChangeSet, Agent: "net", Roles: []string{ticket.RoleDomainAgent}, Domains: []string{"storage"}}
	d.call("POST", "/v1/agents", change(t, moved, "admin")).want(t, 200)
	cause := ids["bus.main.ticket.orchestrator"]
	d.message(envelope(t, "orch", ticket.TypePlanRequest, "network", cause, strings.Replace(planRequestPayload, "s1", "s3", 1))).want(t, 200)
	d.structured("a", ev("later", "", someData)).want(t, 200)
	for name, p := range map[string]*peer{"not_permitted": topic, "rights_changed": all} {
		if e := p.closed(); !strings.HasPrefix(e.Reason, name) {
			t.Errorf("the socket ended with %d %q, want %s", e.Code, e.Reason, name)
		}
	}
	if e := own.closed(); e.Code != websocket.StatusPolicyViolation {
		t.Errorf("the stream of the subscription ended with %d %q", e.Code, e.Reason)
	}
	if m := everybody.want("event"); m.id() != "later" {
		t.Errorf("somebody whose rights are the same got %s", m.id())
	}
	again := string(d.get("/v1/events?topics=%3E&cursor=@0", as("net")...).want(t, 200).body)
	if strings.Contains(again, ids["bus.main.plan.network"]) || !strings.Contains(again, "later") {
		t.Errorf("afterwards it reads %s", again)
	}
}

// dialBriefly dials with a token that is over in a moment, and with another one if it was
// over before the broker had seen it.
func (d *door) dialBriefly(path, subprotocol string) *peer {
	d.t.Helper()
	for end := time.Now().Add(patience); ; {
		over := time.Now().Add(-28 * time.Second) // the clocks may differ by thirty
		token := ticket.Token{Agent: "net", Space: "main", Issued: over.Add(-time.Minute), Expires: over}.Sign(agentKey("net"))
		p, err := d.tryDial(path+"access_token="+token, subprotocol)
		if err == nil {
			return p
		}
		if time.Now().After(end) {
			d.t.Fatal(err)
		}
	}
}

// TestStreamEndsWithItsToken: and a socket says so.
func TestStreamEndsWithItsToken(t *testing.T) {
	d, _ := entitled(t)
	p := d.dialBriefly("/v1/topics/bus.main.plan.network/events?", v1)
	if e := p.closed(); e.Code != websocket.StatusPolicyViolation || !strings.HasPrefix(e.Reason, "token_invalid: resume from @") {
		t.Errorf("it ended with %d %q", e.Code, e.Reason)
	}
}

// TestSocketGoesOnWithAnotherToken: any client does, of either subprotocol, with the
// cursor that it was told at the end; nothing is lost in between, or comes twice.
func TestSocketGoesOnWithAnotherToken(t *testing.T) {
	d, ids := entitled(t)
	ask := func(slice string) string {
		m := envelope(t, "orch", ticket.TypePlanRequest, "network", ids["bus.main.ticket.orchestrator"], strings.Replace(planRequestPayload, "s1", slice, 1))
		d.message(m).want(t, 200)
		return m.Header().ID
	}
	path := "/v1/topics/bus.main.plan.network/events?"
	want, got, cursor := []string{ids["bus.main.plan.network"]}, []string{}, ""
	for i, subprotocol := range []string{"cloudevents.json", v1} {
		p := d.dialBriefly(path+cursor, subprotocol)
		want = append(want, ask(fmt.Sprint("live", i)))
		caught, e := p.untilClosed()
		got = append(got, caught...)
		at, ok := strings.CutPrefix(e.Reason, "token_invalid: resume from ")
		if !ok {
			t.Fatalf("it ended with %d %q", e.Code, e.Reason)
		}
		cursor = "cursor=" + at + "&"
		want = append(want, ask(fmt.Sprint("between", i)))
	}
	last, _ := d.dial(path+cursor+"access_token="+strings.TrimPrefix(as("net")[0], "Authorization: Bearer "), v1).untilSync()
	if got = append(got, last...); !slices.Equal(got, want) {
		t.Errorf("it got %v, want %v", got, want)
	}
}

// TestNothingChangesWithoutAgents: who has no use for tickets meets no tokens, and
// what a proxy may send is passed over.
func TestNothingChangesWithoutAgents(t *testing.T) {
	d := openDoor(t, founded)
	d.structured("a", ev("1", "", someData)).want(t, 200)
	for _, header := range [][]string{nil, {"Authorization: Bearer of-a-proxy"}, {"Authorization: Basic dTpw"}} {
		for _, path := range []string{"/v1/topics/a/events", "/v1/events?topics=%3E", "/v1/topics/bus.main.plan.network/events", "/v1/events?topics=bus.%3E", "/v1/audit/entries"} {
			d.get(path, header...).want(t, 200)
		}
	}
	// Who was there before the first agent goes on, with what is for everybody.
	p := d.dial("/v1/events?topics=%3E", "signalbox.v1")
	p.untilSync()
	staffed(d)
	openTicket(d).want(t, 200)
	if e := p.closed(); !strings.HasPrefix(e.Reason, "rights_changed") {
		t.Errorf("it ended with %d %q", e.Code, e.Reason)
	}
}

// TestEachAgentSendsItsOwn, at the door of messages and at that of events.
func TestEachAgentSendsItsOwn(t *testing.T) {
	d, _ := entitled(t)
	m := envelope(t, "orch", ticket.TypePlanRequest, "dns", "msg_01KDTX9K5D8Z3N7QW2R4S6T8VA", planRequestPayload)
	d.do(request{method: "POST", path: "/v1/messages", body: string(m.Bytes()), header: append(as("net"), "Content-Type: application/json")}).refused(t, 403, string(event.CodeNotPermitted))
	ev, err := m.Event()
	if err != nil {
		t.Fatal(err)
	}
	d.structured("bus.main.plan.dns", string(ev.AppendJSON(nil)), as("net")...).refused(t, 403, string(event.CodeNotPermitted))
}
