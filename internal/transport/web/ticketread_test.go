// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/api"
	"signalbox/ticket"
)

// readTicket is a ticket as a reader sees it.
type readTicket struct {
	ID        string `json:"ticket_id"`
	State     string
	Tier      *int
	Slices    []struct{ State, Domain, Execute string }
	Approvals []json.RawMessage
	Deadlines []struct {
		Member  string `json:"deadline"`
		Message string
	}
	Messages []struct {
		Cursor, Topic string
		Message       json.RawMessage
	}
	Next string
}

func (d *door) ticket(agent, path string) (t readTicket) {
	d.t.Helper()
	d.get("/v1/tickets/"+path, as(agent)...).want(d.t, 200).into(d.t, &t)
	return t
}

// TestTicketIsReadByWhoeverMay: its state and, byte for byte and in order, its
// messages; each sees its own part, and who sees nothing is told that there is none.
func TestTicketIsReadByWhoeverMay(t *testing.T) {
	d := openDoor(t, founded)
	planned(d, 2)
	d.agent = ""
	c := addAgent(5, "eve", ticket.RoleAuditor)
	d.call("POST", "/v1/agents", change(t, c, "admin")).want(t, 200)
	d.call("POST", "/v1/agents", change(t, addAgent(6, "dns", ticket.RoleDomainAgent, "dns"), "admin")).want(t, 200)

	all := d.ticket("eve", "INC-1")
	if all.ID != "INC-1" || all.State != ticket.StateAwaitingApproval || all.Tier == nil || *all.Tier != 2 || len(all.Slices) != 1 || all.Slices[0].State != ticket.SliceFrozen || len(all.Approvals) != 1 {
		t.Errorf("the ticket is %+v", all)
	}
	var kinds, members []string
	for _, m := range all.Messages {
		parsed, err := ticket.Parse(m.Message)
		if err != nil || parsed.Verify(agentPublic(parsed.Header().From)) != nil {
			t.Fatalf("a message is not as it was signed: %v: %s", err, m.Message)
		}
		kinds = append(kinds, parsed.Header().Type)
	}
	sameList(t, "the messages", kinds, []string{ticket.TypeOpen, ticket.TypePlanRequest, ticket.TypeProposal, ticket.TypePlan, ticket.TypeApprovalRequest})
	for _, due := range all.Deadlines {
		members = append(members, due.Member)
	}
	slices.Sort(members)
	sameList(t, "the open deadlines", members, []string{"expires_at"})

	topics := func(agent string) (topics []string) {
		for _, m := range d.ticket(agent, "INC-1").Messages {
			topics = append(topics, m.Topic)
		}
		return topics
	}
	sameList(t, "the network's part", topics("net"), []string{"bus.main.plan.network", "bus.main.plan.network", "bus.main.plan.network"})
	sameList(t, "the gate's part", topics("alice"), []string{"bus.main.plan.network", "bus.main.plan.network", "bus.main.plan.network", "bus.main.approval.gate"})
	if desk := d.ticket("desk", "INC-1"); len(desk.Messages) != 0 || desk.State != ticket.StateAwaitingApproval || len(desk.Approvals) != 0 {
		t.Errorf("who has opened it sees %+v", desk)
	}
	if body := string(d.get("/v1/tickets/INC-1", as("desk")...).body); strings.Contains(body, "plan_request") || strings.Contains(body, "0001-01-01") {
		t.Errorf("who has opened it sees more of slices than every plan says: %s", body)
	}
	for _, path := range []string{"/v1/tickets/INC-1", "/v1/tickets/INC-9"} {
		d.get(path, as("dns")...).refused(t, 404, "ticket_unknown")
		d.get(path).refused(t, 401, "unauthenticated")
	}
	d.get("/v1/tickets").refused(t, 401, "unauthenticated")
	if text := d.stream("/v1/tickets/INC-1/stream", as("dns")); !strings.HasPrefix(text, "404") {
		t.Errorf("a stream of what may not be seen: %s", text)
	}

	// A cursor of another log tells nothing of where to go on in this one.
	for _, after := range []string{"@1.another0", "@999999"} {
		d.get("/v1/tickets/INC-1?after="+after, as("eve")...).refused(t, 410, "cursor_foreign")
		d.get("/v1/tickets/INC-1?after="+after, as("dns")...).refused(t, 404, "ticket_unknown")
	}

	// In parts, one message at a time.
	var parts []string
	for after := "@0"; after != ""; {
		part := d.ticket("eve", "INC-1?limit=1&after="+after)
		for _, m := range part.Messages {
			parts = append(parts, m.Cursor)
		}
		after = part.Next
	}
	if len(parts) != len(all.Messages) {
		t.Errorf("in parts there are %v", parts)
	}
}

// ofBus reports whether the bus has said something, which it does in its own time.
func ofBus(m message) bool { return strings.Contains(m.data, `"source":"bus"`) }

// eventsOf are the events of a stream up to the marker, without what the bus says.
func eventsOf(s *source) []message {
	all, _ := s.untilSync()
	return slices.DeleteFunc(withData(all), ofBus)
}

// TestTicketStreamBeginsWithItsFirstMessage: those whose time is over included, goes
// on from Last-Event-ID, and has nothing of other tickets.
func TestTicketStreamBeginsWithItsFirstMessage(t *testing.T) {
	clock := newSteppedClock()
	d := openDoor(t, founded, func(o *doorOptions) { o.broker.Clock = clock })
	staffed(d)
	clocked := func(draft *ticket.Draft) { draft.Time = clock.Wall() }
	other := func(draft *ticket.Draft) { clocked(draft); draft.TicketID = "INC-10" }
	d.message(envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload, other)).want(t, 200)
	opened := envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload, clocked)
	d.message(opened).want(t, 200)
	clock.advance(48 * time.Hour) // its delivery is over
	asked := envelope(t, "orch", ticket.TypePlanRequest, "network", opened.Header().ID, planRequestPayload, clocked)
	d.message(asked).want(t, 200)
	d.agent = ""
	path := "/v1/tickets/INC-1/stream"
	token := func(agent string) []string {
		now := clock.Wall()
		return []string{"Authorization: Bearer " + ticket.Token{Agent: agent, Space: "main", Issued: now, Expires: now.Add(time.Minute)}.Sign(agentKey(agent))}
	}
	s := d.follow(path, append(token("orch"), "Accept: text/event-stream")...)
	got := eventsOf(s)
	if len(got) != 2 || !strings.Contains(got[0].data, opened.Header().ID) || !strings.Contains(got[1].data, `"data":`+string(asked.Bytes())) {
		t.Fatalf("it begins with %+v", got)
	}
	amended := envelope(t, "desk", ticket.TypeOpen, "orchestrator", opened.Header().ID, strings.Replace(openPayload, `"open"`, `"amend"`, 1), clocked)
	d.message(amended).want(t, 200)
	live := s.dispatched()
	for ofBus(live) {
		live = s.dispatched()
	}
	if !strings.Contains(live.data, amended.Header().ID) {
		t.Errorf("live it got %+v", live)
	}
	s.close()
	s = d.follow(path, append(token("orch"), "Last-Event-ID: "+got[0].lastID)...)
	if again := eventsOf(s); len(again) != 2 || again[0].lastID != got[1].lastID {
		t.Errorf("resumed it got %+v", again)
	}
	s.close()
	s = d.follow(path, token("net")...)
	if own := eventsOf(s); len(own) != 1 || !strings.Contains(own[0].data, asked.Header().ID) {
		t.Errorf("the network got %+v", own)
	}
	d.get(path, token("orch")...).refused(t, 406, "not_acceptable")
}

// TestTicketsAreListedInParts: by state, domain, agent and time of the last message.
func TestTicketsAreListedInParts(t *testing.T) {
	d := openDoor(t, founded)
	staffed(d)
	before := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	var opened []*ticket.Message
	for i := range 5 {
		m := envelope(t, "desk", ticket.TypeOpen, "orchestrator", "", openPayload, func(d *ticket.Draft) { d.TicketID = fmt.Sprint("INC-", i) })
		d.message(m).want(t, 200)
		opened = append(opened, m)
	}
	d.message(envelope(t, "orch", ticket.TypePlanRequest, "network", opened[2].Header().ID, planRequestPayload, func(d *ticket.Draft) { d.TicketID = "INC-2" })).want(t, 200)
	list := func(agent, query string) (ids []string, next string) {
		t.Helper()
		var page struct {
			Tickets []struct {
				ID string `json:"ticket_id"`
			}
			Next string
		}
		d.get("/v1/tickets"+query, as(agent)...).want(t, 200).into(t, &page)
		for _, s := range page.Tickets {
			ids = append(ids, s.ID)
		}
		return ids, page.Next
	}
	d.agent = ""
	for query, want := range map[string]string{
		"": "INC-0 INC-1 INC-2 INC-3 INC-4", "?limit=2": "INC-0 INC-1", "?limit=2&after=INC-1": "INC-2 INC-3", "?after=INC-4": "",
		"?state=PLANNING": "INC-2", "?state=OPEN,PLANNING&limit=3": "INC-0 INC-1 INC-2", "?state=CLOSED": "",
		"?domain=network": "INC-2", "?domain=dns": "", "?agent=orch": "INC-2", "?agent=net": "", "?updated=" + before: "INC-0 INC-1 INC-2 INC-3 INC-4", "?updated=2099-01-01T00:00:00Z": "",
	} {
		if ids, _ := list("orch", query); strings.Join(ids, " ") != want {
			t.Errorf("%q lists %v, want %s", query, ids, want)
		}
	}
	for _, unknown := range []string{"FOO", "open", "OPEN,,PLANNING", ""} {
		d.get("/v1/tickets?state="+unknown, as("orch")...).refused(t, 400, "parameter_invalid")
	}
	if _, next := list("orch", "?limit=2"); next != "INC-1" {
		t.Errorf("the list goes on after %q", next)
	}
	for agent, want := range map[string]string{"net": "INC-2", "alice": "INC-2", "desk": "INC-0 INC-1 INC-2 INC-3 INC-4"} {
		if ids, _ := list(agent, ""); strings.Join(ids, " ") != want {
			t.Errorf("%s sees %v, want %s", agent, ids, want)
		}
	}
	d.get("/v1/tickets?updated=yesterday", as("orch")...).refused(t, 400, "parameter_invalid")
}

// TestAgentsAreListedInParts: the registry may have ten thousand.
func TestAgentsAreListedInParts(t *testing.T) {
	d := openDoor(t, founded)
	staffed(d)
	var names []string
	path := "/v1/agents?limit=3"
	for path != "" {
		var page struct {
			Agents   []struct{ Agent string }
			Revision int
			Next     string
		}
		a := d.get(path).want(t, 200)
		a.into(t, &page)
		for _, agent := range page.Agents {
			names = append(names, agent.Agent)
		}
		if page.Revision != 4 || len(page.Agents) > 3 {
			t.Errorf("a part is %+v", page)
		}
		path = ""
		if link := a.header.Get("Link"); link != "" {
			path = strings.TrimSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
		}
	}
	sameList(t, "the agents", names, []string{"alice", "bus", "desk", "net", "orch"})
}

// TestVerbsInForceAreRead as they were activated; a space without any says so.
func TestVerbsInForceAreRead(t *testing.T) {
	d := openDoor(t, founded)
	a := d.get("/v1/verbs").want(t, 200)
	if !bytes.Equal(a.body, api.Verbs) {
		t.Errorf("the catalogue is %.80s", a.body)
	}
	if c, err := ticket.ParseCatalogue(a.body); err != nil || c.Version == "" {
		t.Errorf("it is of version %v, %v", c, err)
	}
	openDoor(t).get("/v1/verbs").refused(t, 404, "not_found")
}
