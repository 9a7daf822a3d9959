// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// agentKey is a key of tests: the seed is its name, repeated.
func agentKey(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(name+".", ed25519.SeedSize)[:ed25519.SeedSize]))
}

func agentPublic(name string) string {
	return ticket.EncodeKey(agentKey(name).Public().(ed25519.PublicKey))
}

func found(space, administrator string) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindControl, Control: eventlog.Control{
		Op: eventlog.OpFound, Founding: &eventlog.Founding{Space: space, Administrator: agentPublic(administrator)},
	}}
}

// changeAgent is a change as its signer sends it.
func changeAgent(t fataler, c ticket.Change, signer string) *eventlog.Proposal {
	t.Helper()
	c.Space, c.At = "main", time.UnixMilli(epoch).UTC()
	signed, err := c.Sign(agentKey(signer))
	if err != nil {
		t.Fatal(err)
	}
	return &eventlog.Proposal{Kind: eventlog.KindControl, Control: eventlog.Control{Op: eventlog.OpAgent, Change: string(signed.Bytes())}}
}

func addAgent(revision int64, name, key string) ticket.Change {
	return ticket.Change{Revision: revision, Op: ticket.ChangeAdd, Agent: name, Roles: []string{ticket.RoleDomainAgent}, Domains: []string{"network"}, Key: agentPublic(key)}
}

// registry is the registry as text: each agent with its keys and the positions
// that they count for.
func registry(r *rig) string {
	out := fmt.Sprintf("%s r%d", r.projector.Registry().Space, r.projector.Registry().Revision)
	for _, a := range r.projector.Registry().All() {
		out += fmt.Sprintf("; %s %s r%d", a.Name, strings.Join(append(a.Roles, a.Domains...), ","), a.Revision)
		for _, k := range a.Keys {
			out += fmt.Sprintf(" (%d", k.From)
			if k.Revoked {
				out += fmt.Sprint("-", k.Until)
			}
			out += ")"
		}
	}
	return out
}

func TestAgentsAreChangedByTheAdministratorOnly(t *testing.T) {
	r := newRig(t, defaultSettings())
	defer r.close()
	publish := func(id string) {
		ev, err := event.Draft{ID: id, Source: "/a", Type: "t"}.Event()
		if err != nil {
			t.Fatal(err)
		}
		r.do(&eventlog.Proposal{Kind: eventlog.KindEvents, Topic: "a", AdmittedMillis: epoch, Entries: []eventlog.Entry{entry(ev)}})
	}
	set := ticket.Change{Revision: 2, Op: ticket.ChangeSet, Agent: "net", Roles: []string{ticket.RoleDomainAgent}, Domains: []string{"network", "dns"}}
	rotate := ticket.Change{Revision: 3, Op: ticket.ChangeRotate, Agent: "net", Key: agentPublic("k2")}
	revoke := ticket.Change{Revision: 4, Op: ticket.ChangeRevoke, Agent: "net", Reason: "gone"}
	for i, step := range []struct {
		proposal *eventlog.Proposal
		code     event.Code
		want     string
	}{
		{changeAgent(t, addAgent(1, "net", "k1"), "admin"), event.CodeSignatureInvalid, " r0"}, // nobody may, yet
		{found("main", "admin"), "", "main r0"},
		{found("other", "net"), event.CodeAgentConflict, "main r0"},
		{changeAgent(t, addAgent(1, "net", "k1"), "k1"), event.CodeSignatureInvalid, "main r0"},
		{changeAgent(t, addAgent(2, "net", "k1"), "admin"), event.CodeAgentConflict, "main r0"},
		{changeAgent(t, addAgent(1, "net", "admin"), "admin"), event.CodeAgentConflict, "main r0"},
		{changeAgent(t, addAgent(1, "net", "k1"), "admin"), "", "main r1; net domain-agent,network r1 (1)"},
		{changeAgent(t, addAgent(1, "net", "k1"), "admin"), event.CodeAgentConflict, "main r1; net domain-agent,network r1 (1)"}, // replayed
		{changeAgent(t, addAgent(2, "net", "k2"), "admin"), event.CodeAgentConflict, "main r1; net domain-agent,network r1 (1)"},
		{changeAgent(t, addAgent(2, "dns", "k1"), "admin"), event.CodeAgentConflict, "main r1; net domain-agent,network r1 (1)"},
		{changeAgent(t, set, "admin"), "", "main r2; net domain-agent,network,dns r2 (1)"},
		{changeAgent(t, rotate, "admin"), "", "main r3; net domain-agent,network,dns r3 (1-3) (3)"},
		{changeAgent(t, revoke, "admin"), "", "main r4; net domain-agent,network,dns r4 (1-3) (3-4)"},
		{changeAgent(t, ticket.Change{Revision: 5, Op: ticket.ChangeRotate, Agent: "net", Key: agentPublic("k3")}, "admin"), event.CodeAgentUnknown, "main r4; net domain-agent,network,dns r4 (1-3) (3-4)"},
		{changeAgent(t, addAgent(5, "net", "k1"), "admin"), event.CodeAgentConflict, "main r4; net domain-agent,network,dns r4 (1-3) (3-4)"}, // a key that was revoked
		{changeAgent(t, addAgent(5, "net", "k3"), "admin"), "", "main r5; net domain-agent,network r5 (1-3) (3-4) (5)"},
		{changeAgent(t, ticket.Change{Revision: 6, Op: ticket.ChangeRevoke, Agent: "none"}, "admin"), event.CodeAgentUnknown, "main r5; net domain-agent,network r5 (1-3) (3-4) (5)"},
	} {
		leaves := r.projector.Space().Leaves
		result := r.do(step.proposal)
		code := event.Code("")
		if result.Err != nil {
			code = result.Err.Code
		}
		if got := registry(r); code != step.code || got != step.want {
			t.Errorf("step %d: %q, %s; want %q, %s", i, code, got, step.code, step.want)
		}
		if r.projector.Space().Leaves != leaves+1 {
			t.Errorf("step %d left no leaf in the audit chain", i)
		}
		if code == "" { // so that each change is made at a position of its own
			publish(fmt.Sprint(i))
		}
	}
	before := registry(r)
	r.reopen()
	if registry(r) != before {
		t.Errorf("after a restart: %s", registry(r))
	}
	checkSound(t, r)
}

// TestRegistryBeforeAChangeStaysAsItWas: admission goes on reading it.
func TestRegistryBeforeAChangeStaysAsItWas(t *testing.T) {
	r := newRig(t, defaultSettings())
	defer r.close()
	r.do(found("main", "admin"))
	r.do(changeAgent(t, addAgent(1, "net", "k1"), "admin"))
	before := r.projector.Registry()
	r.do(changeAgent(t, ticket.Change{Revision: 2, Op: ticket.ChangeRevoke, Agent: "net"}, "admin"))
	if a, err := before.Agent("net"); err != nil || a.InUse() == nil || before.Revision != 1 {
		t.Errorf("it has changed: %+v, %v", a, err)
	}
	if a, err := r.projector.Registry().Agent("net"); err != nil || a.InUse() != nil {
		t.Errorf("it has not changed: %+v, %v", a, err)
	}
	if _, err := before.Agent("none"); event.AsError(err).Code != event.CodeAgentUnknown {
		t.Error(err)
	}
}

// drawAgents draws a log of changes to few agents and keys, right ones and wrong
// ones, with events and ticks between them.
func drawAgents(t *rapid.T) []*eventlog.Proposal {
	d := &drawn{t: t, now: epoch, topics: []string{"a"}}
	log := []*eventlog.Proposal{configure(defaultSettings()), tick(d.now)}
	revision := int64(0)
	for range rapid.IntRange(5, 40).Draw(t, "proposals") {
		switch rapid.IntRange(0, 7).Draw(t, "kind") {
		case 0:
			d.now += 1000
			log = append(log, tick(d.now))
		case 1:
			log = append(log, d.events())
		case 2:
			log = append(log, found(rapid.SampledFrom([]string{"main", "other"}).Draw(t, "space"), rapid.SampledFrom([]string{"admin", "admin", "k1"}).Draw(t, "administrator")))
		default:
			name, key := rapid.SampledFrom([]string{"net", "dns"}).Draw(t, "agent"), rapid.SampledFrom([]string{"k1", "k2", "k3", "k4"}).Draw(t, "key")
			c := addAgent(revision+1+int64(rapid.SampledFrom([]int{0, 0, 0, 0, -1, 1}).Draw(t, "off")), name, key)
			if c.Op = rapid.SampledFrom([]string{ticket.ChangeAdd, ticket.ChangeAdd, ticket.ChangeSet, ticket.ChangeRotate, ticket.ChangeRevoke}).Draw(t, "op"); c.Op != ticket.ChangeAdd && c.Op != ticket.ChangeSet {
				c.Roles, c.Domains = nil, nil
			}
			if c.Op == ticket.ChangeSet || c.Op == ticket.ChangeRevoke {
				c.Key = ""
			}
			c.Revision = max(1, c.Revision)
			log = append(log, changeAgent(t, c, "admin"))
			if rapid.IntRange(0, 2).Draw(t, "assumed") > 0 { // that it was applied
				revision = c.Revision
			}
		}
	}
	for i, p := range log {
		p.Sequence = uint64(i) + 1
	}
	return log
}

// TestGroupingOfAgents is TestGrouping for the registry of agents.
func TestGroupingOfAgents(t *testing.T) { checkGrouping(t, drawAgents) }

func TestVerifyFindsBrokenAgents(t *testing.T) {
	key := func(name string, from uint64) []store.AgentKey {
		return []store.AgentKey{{Key: agentPublic(name), From: from}}
	}
	for name, agent := range map[string]store.Agent{
		"one that was not counted": {Revision: 1, Keys: key("k2", 0)},
		"a revision to come":       {Name: "net", Revision: 9, Keys: key("k1", 0)},
		"a key of another":         {Revision: 1, Keys: key("k1", 0)},
		"a key from nowhere":       {Name: "net", Revision: 1, Keys: key("k1", 99)},
		"two keys in use":          {Name: "net", Revision: 1, Keys: append(key("k1", 0), key("k2", 0)...)},
		"no key":                   {Name: "net", Revision: 1, Keys: []store.AgentKey{{Key: "x"}}},
	} {
		r := newRig(t, defaultSettings())
		r.do(found("main", "admin"))
		r.do(changeAgent(t, addAgent(1, "net", "k1"), "admin"))
		checkSound(t, r)
		if agent.Name == "" {
			agent.Name = "zz"
		}
		b := r.store.NewBatch()
		b.SetAgent(&agent)
		if err := r.store.Commit(b, func() {}); err != nil {
			t.Fatal(err)
		}
		b.Close()
		if !slices.ContainsFunc(inspect(t, r), func(f projector.Finding) bool { return f.What == "agent" }) {
			t.Errorf("%s: nothing was found", name)
		}
		r.close()
	}
}

// TestRolesBelongToTheFeatureLevel: apply takes them from the code. Whoever changes
// this list raises FeatureLevel, for older code would decide otherwise.
func TestRolesBelongToTheFeatureLevel(t *testing.T) {
	var roles []string
	for _, r := range ticket.Roles() {
		roles = append(roles, r.Name)
	}
	got := fmt.Sprint(projector.FeatureLevel, " ", strings.Join(roles, " "))
	if want := "8 intake orchestrator domain-agent gate platform-ops auditor bus"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestKeysOfAllAgentsTogetherAreBounded: every agent may have many, and all are in
// memory.
func TestKeysOfAllAgentsTogetherAreBounded(t *testing.T) {
	r := newRig(t, defaultSettings())
	defer r.close()
	r.do(found("main", "admin"))
	batch := r.store.NewBatch()
	defer batch.Close()
	for i := range 50 {
		a := &store.Agent{Name: fmt.Sprint("a", i), Roles: []string{ticket.RoleAuditor}}
		for k := range 1000 {
			a.Keys = append(a.Keys, store.AgentKey{Key: fmt.Sprint("key", i, ".", k), Revoked: true})
		}
		if i == 0 {
			a.Keys = a.Keys[1:]
		}
		batch.SetAgent(a)
	}
	if err := r.store.Commit(batch, func() {}); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	if result := r.do(changeAgent(t, addAgent(1, "last", "k1"), "admin")); result.Err != nil {
		t.Error(result.Err)
	}
	if result := r.do(changeAgent(t, addAgent(2, "more", "k2"), "admin")); result.Err == nil || result.Err.Code != event.CodeAgentLimit {
		t.Errorf("more keys than the limit: %v", result.Err)
	}
	if result := r.do(changeAgent(t, ticket.Change{Revision: 2, Op: ticket.ChangeRevoke, Agent: "last"}, "admin")); result.Err != nil {
		t.Errorf("a key cannot be revoked any more: %v", result.Err)
	}
}
