// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"maps"
	"slices"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
	"signalbox/ticket"
)

const (
	// agentsMax bounds the registry, which is in memory whole.
	agentsMax = 10_000
	// agentKeysMax bounds an agent's row. Old keys stay, for what they signed is
	// still checked.
	agentKeysMax = 1000
	// keysMax bounds the keys of all agents together, revoked ones too: some
	// 15 MB of memory.
	keysMax = 50_000
)

// Registry is the registry of agents as of some commit. It does not change.
type Registry struct {
	store.Registry
	Verbs  *ticket.Catalogue       // in force
	agents map[string]*store.Agent // none of them is ever changed
}

// Agent returns an agent, or code agent_unknown.
func (r *Registry) Agent(name string) (*store.Agent, error) {
	if a := r.agents[name]; a != nil {
		return a, nil
	}
	return nil, event.Errorf(event.CodeAgentUnknown, "There is no agent %.80q.", name).With("agent")
}

// Verify reports whether the administrator signed a change, with code
// signature_invalid if not, or if there is no administrator yet.
func (r *Registry) Verify(signed *ticket.SignedChange) error {
	administrator, err := ticket.DecodeKey(r.Administrator)
	if err == nil {
		err = signed.Verify(administrator)
	}
	if err != nil {
		return event.Errorf(event.CodeSignatureInvalid, "The change is not signed with the administrator key of the space.").With("sig")
	}
	return nil
}

// All returns all agents, by name.
func (r *Registry) All() []*store.Agent {
	all := make([]*store.Agent, 0, len(r.agents))
	for _, name := range slices.Sorted(maps.Keys(r.agents)) {
		all = append(all, r.agents[name])
	}
	return all
}

// loadRegistry reads the registry of a store.
func (p *Projector) loadRegistry() (err error) {
	r := &Registry{agents: map[string]*store.Agent{}}
	r.Registry, err = p.store.LoadRegistry(func(a store.Agent) error {
		r.agents[a.Name] = &a
		for _, k := range a.Keys {
			p.owners[k.Key] = a.Name
		}
		return nil
	})
	if p.registry = r; err != nil {
		return err
	}
	return p.loadVerbs()
}

// Registry returns the registry as of the last applied group.
func (p *Projector) Registry() *Registry { return p.registry }

// found gives the space its name and its administrator, once.
func (p *Projector) found(f *eventlog.Founding) *event.Error {
	if p.registry.Space != "" {
		return event.Errorf(event.CodeAgentConflict, "The space has a name, %q, and an administrator.", p.registry.Space)
	}
	if err := ticket.CheckName(f.Space); err != nil {
		return event.AsError(err)
	}
	if _, err := ticket.DecodeKey(f.Administrator); err != nil {
		return event.AsError(err)
	}
	if f.Verbs != "" {
		if refused := p.activate(f.Verbs); refused != nil {
			return refused
		}
	}
	next := *p.registry
	next.Space, next.Administrator = f.Space, f.Administrator
	p.registry = &next
	p.batch.SetRegistry(&next.Registry)
	if f.Bus != "" {
		return p.rekey(f.Bus)
	}
	return nil
}

// changeAgents applies a signed change of the registry. It verifies the signature
// itself: changes are few, and nothing else in the space says who may make one.
func (p *Projector) changeAgents(raw []byte) *event.Error {
	signed, err := ticket.ParseChange(raw)
	if err != nil {
		return event.AsError(err)
	}
	if err := p.registry.Verify(signed); err != nil {
		return event.AsError(err)
	}
	c := signed.Change()
	if c.Space != p.registry.Space || c.Revision != p.registry.Revision+1 {
		return event.Errorf(event.CodeAgentConflict, "The change is for revision %d of the space %.80q, and the next one is revision %d of %q.", c.Revision, c.Space, p.registry.Revision+1, p.registry.Space).
			With("revision").Fact("revision", p.registry.Revision)
	}
	next, refused := p.changed(&c)
	if refused != nil {
		return refused
	}
	next.Revision, next.UpdatedMillis = c.Revision, p.space.LogMillis
	p.setAgent(next)
	if c.Op == ticket.ChangeAdd || c.Op == ticket.ChangeRevoke {
		p.unexpect(c.Agent)
	}
	return nil
}

// changed returns an agent as it is after a change.
func (p *Projector) changed(c *ticket.Change) (*store.Agent, *event.Error) {
	before := p.registry.agents[c.Agent]
	next := &store.Agent{Name: c.Agent}
	if before != nil {
		*next = *before
		next.Keys = slices.Clone(before.Keys)
	}
	active := before != nil && before.InUse() != nil
	switch {
	case c.Op == ticket.ChangeAdd && active:
		return nil, event.Errorf(event.CodeAgentConflict, "The agent %q is registered. Use set for its roles and rotate for its key.", c.Agent).With("agent")
	case c.Op == ticket.ChangeAdd && before == nil && len(p.registry.agents) >= agentsMax:
		return nil, event.Errorf(event.CodeAgentLimit, "There are %d agents, revoked ones among them, which is the limit.", agentsMax).With("agent")
	case c.Op != ticket.ChangeAdd && !active:
		return nil, event.Errorf(event.CodeAgentUnknown, "There is no agent %q whose key is in use.", c.Agent).With("agent")
	}
	if c.Op == ticket.ChangeAdd || c.Op == ticket.ChangeSet {
		next.Roles, next.Domains = c.Roles, c.Domains
	}
	if c.Op != ticket.ChangeSet {
		if key := next.InUse(); key != nil {
			key.Until, key.Revoked = p.space.Position, true
		}
	}
	if c.Key == "" {
		return next, nil
	}
	if c.Key == p.registry.Administrator {
		return nil, event.Errorf(event.CodeAgentConflict, "The key is that of the administrator, and a key has one owner. Draw another one.").With("key")
	}
	if owner, ok := p.owners[c.Key]; ok {
		return nil, event.Errorf(event.CodeAgentConflict, "The key is or was that of the agent %q, and a key has one owner. Draw another one.", owner).With("key")
	}
	if len(next.Keys) >= agentKeysMax {
		return nil, event.Errorf(event.CodeAgentLimit, "The agent has had %d keys, which is the limit. Register another agent in its place.", agentKeysMax).With("key")
	}
	if len(p.owners) >= keysMax {
		return nil, event.Errorf(event.CodeAgentLimit, "All agents together have had %d keys, which is the limit of a space.", keysMax).With("key")
	}
	next.Keys = append(next.Keys, store.AgentKey{Key: c.Key, From: p.space.Position})
	return next, nil
}

// setAgent puts an agent into the registry. Whoever has the registry from before
// goes on seeing that.
func (p *Projector) setAgent(a *store.Agent) {
	next := *p.registry
	next.agents = maps.Clone(next.agents)
	next.agents[a.Name] = a
	if key := a.InUse(); key != nil {
		p.owners[key.Key] = a.Name
	}
	next.Revision, next.Agents = a.Revision, len(next.agents)
	p.bus.targets = nil
	p.registry = &next
	p.batch.SetAgent(a)
	p.batch.SetRegistry(&next.Registry)
}
