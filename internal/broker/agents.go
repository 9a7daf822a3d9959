// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// RegistryInfo is what there is to say of the agents of a space as a whole.
type RegistryInfo struct {
	Space         string // "": the space was not founded, and has no agents
	Administrator string // the public key that signs changes
	Revision      int64  // counts the changes
	Staffed       bool   // there are agents beside the broker's own
}

// AgentInfo is an agent of the registry.
type AgentInfo struct {
	Name     string
	Roles    []string
	Domains  []string
	Keys     []AgentKey // in the order in which it got them; the last one may be in use
	Active   bool       // a key is in use
	Revision int64      // that changed it last
	Updated  time.Time
}

// AgentKey is a public key of an agent. It counts for what comes after From and,
// once it is revoked, up to Until.
type AgentKey struct {
	Key         string
	From, Until event.Cursor
	Revoked     bool
}

// Registry returns what there is to say of all agents.
func (b *Broker) Registry() RegistryInfo { return registryInfo(b.registry.Load()) }

func registryInfo(r *projector.Registry) RegistryInfo {
	return RegistryInfo{Space: r.Space, Administrator: r.Administrator, Revision: r.Revision, Staffed: staffed(r)}
}

func staffed(r *projector.Registry) bool {
	_, err := r.Agent(ticket.RoleBus)
	return r.Agents > 1 || r.Agents == 1 && err != nil
}

// Agents returns up to limit agents whose names are after one, by name, the registry
// that they are of, and whether there are more.
func (b *Broker) Agents(after string, limit int) (info RegistryInfo, agents []AgentInfo, more bool) {
	r := b.registry.Load()
	for _, a := range r.All() {
		if a.Name <= after {
			continue
		}
		if len(agents) == limit {
			return registryInfo(r), agents, true
		}
		agents = append(agents, b.agentInfo(a))
	}
	return registryInfo(r), agents, false
}

// Agent returns an agent and the registry that it is of, or code agent_unknown.
func (b *Broker) Agent(name string) (RegistryInfo, AgentInfo, error) {
	r := b.registry.Load()
	a, err := r.Agent(name)
	if err != nil {
		return RegistryInfo{}, AgentInfo{}, err
	}
	return registryInfo(r), b.agentInfo(a), nil
}

func (b *Broker) agentInfo(a *store.Agent) AgentInfo {
	incarnation := b.dispatch.Head().Incarnation
	info := AgentInfo{
		Name: a.Name, Roles: a.Roles, Domains: a.Domains, Active: a.InUse() != nil, Revision: a.Revision, Updated: time.UnixMilli(a.UpdatedMillis),
	}
	for _, k := range a.Keys {
		info.Keys = append(info.Keys, AgentKey{
			Key: k.Key, Revoked: k.Revoked,
			From: event.Cursor{Position: k.From, Incarnation: incarnation}, Until: event.Cursor{Position: k.Until, Incarnation: incarnation},
		})
	}
	return info
}

// ChangeAgents applies a change that the administrator signed, and returns the
// agent as it is then.
func (b *Broker) ChangeAgents(ctx context.Context, p identity.Principal, raw []byte) (RegistryInfo, AgentInfo, error) {
	signed, err := ticket.ParseChange(raw)
	if err == nil {
		// So that only the administrator can make work for apply, which verifies
		// again: the administrator never changes.
		err = b.registry.Load().Verify(signed)
	}
	if err == nil {
		err = b.open()
	}
	if err != nil {
		return RegistryInfo{}, AgentInfo{}, b.refuse(p, "", err)
	}
	result, err := b.propose(ctx, &eventlog.Proposal{
		Kind: eventlog.KindControl, AdmittedMillis: b.clock.Millis(), Principal: p.Subject(),
		Control: eventlog.Control{Op: eventlog.OpAgent, Change: string(raw)},
	})
	if err == nil && result.Err != nil {
		err = result.Err
	}
	if err != nil {
		return RegistryInfo{}, AgentInfo{}, err
	}
	return b.Agent(signed.Change().Agent)
}
