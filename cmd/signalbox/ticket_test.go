// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// ticketRig is a broker with a ticket that was opened and planned for, and the
// command as an agent of it.
func ticketRig(t *testing.T) (as func(agent string, args ...string) (string, string, int)) {
	t.Helper()
	url, stop, err := tickettest.Serve(t.TempDir(), append(tickettest.Staff(), ticket.Change{Op: ticket.ChangeAdd, Agent: "eve", Roles: []string{ticket.RoleAuditor}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	send := func(from string, d ticket.Draft) *ticket.Header {
		t.Helper()
		m, err := ticketclient.NewSender(c, from, tickettest.Key(from)).Sign(d)
		if err == nil {
			_, err = c.PostMessage(t.Context(), m.Bytes())
		}
		if err != nil {
			t.Fatal(err)
		}
		h := m.Header()
		return &h
	}
	opened := send("desk", ticket.Draft{Header: ticket.Header{Type: ticket.TypeOpen, TicketID: "INC-1", TraceID: "trace-1", To: "orchestrator"},
		Payload: &ticketclient.Open{Op: "open", SourceRef: "desk:1", Title: "The web is slow", BodyRef: "desk:1/body", Requester: "u1", Priority: 2}})
	send("orch", ticketclient.Answer(opened, ticket.TypePlanRequest, "network", "", &ticketclient.PlanRequest{
		SliceID: "s1", Revision: 1, Objective: "Keep the attacker out", Targets: []string{"fw/1"},
	}))
	dir := t.TempDir()
	return func(agent string, args ...string) (string, string, int) {
		t.Helper()
		key := filepath.Join(dir, agent+".key")
		if err := os.WriteFile(key, ticket.EncodePrivateKey(tickettest.Key(agent)), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, failed bytes.Buffer
		code := run(t.Context(), append([]string{"--url", url, "--as", agent, "--agent-key", key}, args...), stdio{in: strings.NewReader(""), out: &out, err: io.MultiWriter(&failed)})
		return out.String(), failed.String(), code
	}
}

// TestTicketCommands print what their agent may read: a list, a timeline, and the
// messages as they were signed.
func TestTicketCommands(t *testing.T) {
	as := ticketRig(t)
	for _, c := range []struct {
		agent string
		args  string
		want  []string
		not   string
	}{
		{"eve", "ticket list --format text", []string{"INC-1", "PLANNING", "network"}, ""},
		{"eve", "ticket list --state CLOSED --format text", []string{"TICKET"}, "INC-1"},
		{"eve", "ticket show INC-1 --format text", []string{"state       PLANNING", "slice       s1 of network: REQUESTED", "deadline    deadline", "ticket.open       desk → orchestrator  op open  title The web is slow", "plan.request      orch → network  slice_id s1  objective Keep the attacker out"}, ""},
		{"net", "ticket show INC-1 --format text", []string{"plan.request"}, "The web is slow"},
		{"eve", "ticket follow INC-1 --until-synced --format text", []string{"ticket.open", "plan.request"}, ""},
		{"net", "ticket follow INC-1 --until-synced --json", []string{`"type":"plan.request"`, `"sig":"ed25519:`}, "ticket.open"},
		{"eve", "follow bus.> --until-synced --json", []string{"ticket.open", "plan.request"}, ""},
		{"eve", "audit entries --kind control --format text", []string{"agent  add net  roles domain-agent  domains network  key ed25519:", "agent  add alice  roles gate  key ed25519:"}, ""},
	} {
		out, failed, code := as(c.agent, strings.Fields(c.args)...)
		if code != 0 {
			t.Errorf("%s as %s exited with %d: %s", c.args, c.agent, code, failed)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s as %s printed %q, want %q in it", c.args, c.agent, out, want)
			}
		}
		if c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s as %s printed %q, with %q in it", c.args, c.agent, out, c.not)
		}
	}
	out, _, _ := as("eve", "ticket", "show", "INC-1", "--json")
	var shown client.Ticket
	if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.Messages) != 2 {
		t.Errorf("as JSON it is %s, %v", out, err)
	}
	for args, want := range map[string]string{"ticket show INC-9": "ticket_unknown", "follow bus.main.plan.network": "not_permitted"} {
		if _, failed, code := as("comp", strings.Fields(args)...); code != 2 || !strings.Contains(failed, want) {
			t.Errorf("%s exited with %d: %s", args, code, failed)
		}
	}
	var failed bytes.Buffer
	if code := run(t.Context(), []string{"ticket", "list", "--as", "eve"}, stdio{out: io.Discard, err: &failed}); code != exitUsage {
		t.Errorf("without a key it exited with %d: %s", code, failed.String())
	}
}

// TestErrorsNameWhatWasTyped: a command that makes members of a message of its arguments
// says of each what is wrong with it as it was given.
func TestErrorsNameWhatWasTyped(t *testing.T) {
	as := ticketRig(t)
	const open = "ticket open INC-2 --source-ref desk:2 --title Slow "
	for _, c := range []struct{ args, want string }{
		{"ticket open bad/id --source-ref desk:2 --title Slow", `"bad/id" is the name of no ticket`},
		{"ticket amend bad/id --source-ref desk:2 --title Slow", `"bad/id" is the name of no ticket`},
		{"ticket cancel bad/id", `"bad/id" is the name of no ticket`},
		{"ticket show bad/id", `"bad/id" is the name of no ticket`},
		{"ticket follow bad/id", `"bad/id" is the name of no ticket`},
		{open + "--priority 9", "--priority 9 is none of 1"},
		{"ticket open INC-1 --source-ref desk:1 --title Other", "signalbox ticket amend"},
		{"ticket list --state PLANING", `state="PLANING" is none of`},
		{open + "--requester " + strings.Repeat("r", 5000), "--requester"},
		{open + "--body-ref " + strings.Repeat("b", 5000), "--body-ref"},
		{"ticket open INC-2 --source-ref desk:2 --title " + strings.Repeat("t", 600), "--title"},
		{"agent add x --key x.key", "--role"},
		{"agent add x --role gate", "--key"},
		{"agent rotate x", "--key"},
		{"agent set x", "--role"},
		{"orchestrator --policy orchestrator.yaml --dry-run", "has the role orchestrator"},
	} {
		_, failed, code := as("desk", strings.Fields(c.args)...)
		if code != exitUsage || !strings.Contains(failed, c.want) || strings.Contains(failed, "trace_id") || strings.Contains(failed, "payload") {
			t.Errorf("%.60s exited with %d: %s", c.args, code, failed)
		}
	}
	long := strings.Repeat("L", 128)
	var id string
	for _, want := range []string{"accepted", "duplicate"} {
		out, failed, code := as("desk", "ticket", "open", long, "--source-ref", "desk:3", "--title", "Slow", "--format", "text")
		if code != 0 || !strings.Contains(out, want) || !strings.Contains(out, id) {
			t.Errorf("the longest name of a ticket exited with %d: %s%s", code, out, failed)
		}
		id = out[strings.Index(out, "msg_"):][:len("msg_")+26]
	}
	other := filepath.Join(t.TempDir(), "other.key")
	if err := os.WriteFile(other, ticket.EncodePrivateKey(tickettest.Key("eve")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"ticket open INC-3 --source-ref desk:3 --title Slow", "ticket show INC-1", "gate list"} {
		if _, failed, code := as("desk", append(strings.Fields(args), "--agent-key", other)...); code != 2 || !strings.Contains(failed, "not signed with the key in use") || strings.Contains(failed, "no answer") {
			t.Errorf("%s with the key of another agent exited with %d: %s", args, code, failed)
		}
	}
}
