// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/ticket"
)

// agentKey is a key of tests: the seed is its name, repeated.
func agentKey(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(name+".", ed25519.SeedSize)[:ed25519.SeedSize]))
}

func agentPublic(name string) ed25519.PublicKey { return agentKey(name).Public().(ed25519.PublicKey) }

// founded has a door's space founded.
func founded(o *doorOptions) {
	o.broker.Found = func() (string, ed25519.PublicKey, error) { return "main", agentPublic("admin"), nil }
}

// change signs a change of the registry.
func change(t *testing.T, c ticket.Change, signer string) string {
	t.Helper()
	c.Space, c.At = "main", time.Now().UTC()
	signed, err := c.Sign(agentKey(signer))
	if err != nil {
		t.Fatal(err)
	}
	return string(signed.Bytes())
}

func addAgent(revision int64, name, role string, domains ...string) ticket.Change {
	return ticket.Change{Revision: revision, Op: ticket.ChangeAdd, Agent: name, Roles: []string{role}, Domains: domains, Key: ticket.EncodeKey(agentPublic(name))}
}

func refusedAgents() map[event.Code]refusal {
	add := func(d *door, c ticket.Change, signer string) answer {
		return d.call("POST", "/v1/agents", change(d.t, c, signer))
	}
	return map[event.Code]refusal{
		event.CodeAgentInvalid: {400, func(d *door) answer {
			return d.call("POST", "/v1/agents", `{"op":"delete","sig":"ed25519:`+strings.Repeat("A", 86)+`"}`)
		}},
		event.CodeAgentUnknown:     {404, read("/v1/agents/none")},
		event.CodeAgentConflict:    {409, func(d *door) answer { return add(d, addAgent(7, "net", ticket.RoleGate), "admin") }},
		event.CodeSignatureInvalid: {403, func(d *door) answer { return add(d, addAgent(1, "net", ticket.RoleGate), "net") }},
	}
}

func TestAgentsAreManaged(t *testing.T) {
	d := openDoor(t, founded)
	list := d.get("/v1/agents").want(t, 200).object(t)
	eq(t, "space", list["space"], any("main"))
	eq(t, "administrator", list["administrator"], any(ticket.EncodeKey(agentPublic("admin"))))
	eq(t, "revision", list["revision"], any(0.0))

	added := d.call("POST", "/v1/agents", change(t, addAgent(1, "net", ticket.RoleDomainAgent, "network"), "admin")).want(t, 200)
	for _, part := range []string{
		`"agent":"net","active":true`, `"registry":1`, `{"type":"proposal","topics":["bus.main.plan.network"]}`, `"may_read":["bus.main.plan.network","bus.main.execute.network"]`,
	} {
		if !strings.Contains(string(added.body), part) {
			t.Errorf("%s is not in %s", part, added.body)
		}
	}
	if strings.Contains(string(added.body), `"approval.grant"`) {
		t.Errorf("a network agent may grant: %s", added.body)
	}
	eq(t, "the agent", string(d.get("/v1/agents/net").want(t, 200).body), string(added.body))
	eq(t, "revision", d.get("/v1/agents").object(t)["revision"], any(1.0))

	// Who may send or read nothing is told so; a list says neither of anybody.
	auditor := d.call("POST", "/v1/agents", change(t, addAgent(2, "eve", ticket.RoleAuditor), "admin")).want(t, 200).body
	if !strings.Contains(string(auditor), `"may_send":[],"may_read":["bus.main.>"]`) || strings.Contains(string(d.get("/v1/agents").body), "may_") {
		t.Errorf("an auditor is %s", auditor)
	}

	d.call("POST", "/v1/agents", change(t, ticket.Change{Revision: 3, Op: ticket.ChangeRevoke, Agent: "net"}, "admin")).want(t, 200)
	revoked := string(d.get("/v1/agents/net").want(t, 200).body)
	if strings.Contains(revoked, "may_send") || !strings.Contains(revoked, `"until":"@`) || !strings.Contains(revoked, `"active":false`) {
		t.Errorf("a revoked agent: %s", revoked)
	}

	// What was registered is there after a restart, and the space is not founded anew.
	d.stop()
	d.opt.broker.Found = func() (string, ed25519.PublicKey, error) { return "other", agentPublic("net"), nil }
	d.start()
	eq(t, "the agent after a restart", string(d.get("/v1/agents/net").want(t, 200).body), revoked)
	eq(t, "space", d.get("/v1/agents").object(t)["space"], any("main"))
}

// TestMalformedChangesAreNoMessages: whatever is wrong with a change is said of a change.
func TestMalformedChangesAreNoMessages(t *testing.T) {
	d := openDoor(t, founded)
	at := addAgent(1, "net", ticket.RoleGate)
	whole := change(t, at, "admin")
	for _, body := range []string{"", "[1e400]", "{", `{"a":1,"A":2}`, whole + "x", strings.Replace(whole, `"at":"`, `"reason":"`, 1)} {
		refused := d.call("POST", "/v1/agents", body).want(t, 400)
		if text := string(refused.body); !strings.Contains(text, `"agent_invalid"`) || strings.Contains(text, "The message") {
			t.Errorf("%q: %s", body, text)
		}
	}
}
