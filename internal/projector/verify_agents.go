// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"signalbox/internal/store"
	"signalbox/ticket"
)

// agents checks the rows of the registry of agents against each other.
func (v *verifier) agents() error {
	registry, err := v.in.Registry()
	if err != nil {
		return err
	}
	owners := map[string]string{}
	count := 0
	err = v.in.Agents(func(a store.Agent, err error) error {
		if err != nil {
			v.undecoded(Finding{}, err)
			return v.row()
		}
		count++
		v.agent(&a, &registry, owners)
		return v.row()
	})
	if err == nil && count != registry.Agents {
		v.found(Finding{What: "agent", Explanation: sprintf("There are %d agents, and %d were counted.", count, registry.Agents)})
	}
	v.tally.Agents = uint64(count)
	return err
}

func (v *verifier) agent(a *store.Agent, registry *store.Registry, owners map[string]string) {
	bad := func(format string, args ...any) {
		v.found(Finding{What: "agent", Key: a.Name, Explanation: sprintf(format, args...)})
	}
	if a.Revision < 1 && a.Name != ticket.RoleBus || a.Revision > registry.Revision { // the bus makes no revision
		bad("The agent is of revision %d, and the registry of revision %d.", a.Revision, registry.Revision)
	}
	last := uint64(0)
	for i, k := range a.Keys {
		if _, err := ticket.DecodeKey(k.Key); err != nil || owners[k.Key] != "" {
			bad("The key %s is none, or is that of another agent, too.", k.Key)
		}
		owners[k.Key] = a.Name
		switch {
		case k.From < last || k.From > v.space.Position || k.Revoked && (k.Until < k.From || k.Until > v.space.Position):
			bad("The key %s counts from position %d to %d, which is not behind the key before it, or beyond the last position %d.", k.Key, k.From, k.Until, v.space.Position)
		case !k.Revoked && i != len(a.Keys)-1:
			bad("The key %s is in use, and is not the last one.", k.Key)
		}
		last = k.Until
	}
}
