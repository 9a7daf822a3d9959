// SPDX-License-Identifier: Apache-2.0

package store

import "encoding/json"

// Registry is what there is to say of a space's agents as a whole.
type Registry struct {
	Space         string `json:"space"`         // "": not founded
	Administrator string `json:"administrator"` // public key
	Revision      int64  `json:"revision"`      // counts the changes
	Agents        int    `json:"agents"`        // how many there are
}

// Agent is the row of an agent.
type Agent struct {
	Name          string     `json:"-"` // in its key
	Roles         []string   `json:"roles"`
	Domains       []string   `json:"domains,omitempty"`
	Keys          []AgentKey `json:"keys"` // in the order in which it got them
	Revision      int64      `json:"revision"`
	UpdatedMillis int64      `json:"updated_ms"`
}

// AgentKey is a public key of an agent. It counts for what has a position after
// From and, unless it is still in use, up to Until.
type AgentKey struct {
	Key     string `json:"key"`
	From    uint64 `json:"from,string"`
	Until   uint64 `json:"until,string,omitempty"`
	Revoked bool   `json:"revoked,omitempty"`
}

// InUse returns the key that an agent signs with; nil if all were revoked.
func (a *Agent) InUse() *AgentKey {
	if n := len(a.Keys); n > 0 && !a.Keys[n-1].Revoked {
		return &a.Keys[n-1]
	}
	return nil
}

// LoadRegistry returns the registry of agents, and calls each with every agent, by
// name.
func (s *Store) LoadRegistry(each func(Agent) error) (r Registry, err error) {
	_, err = get(s.db, appendNameKey(nil, prefixMeta, metaRegistry), func(b []byte) (err error) {
		r, err = decodeRegistry(b)
		return err
	})
	if err != nil {
		return r, err
	}
	return r, scan(s.db, []byte{prefixAgent}, func(key, value []byte) error {
		a, err := decodeAgent(key, value)
		if err != nil {
			return err
		}
		return each(a)
	})
}

func decodeRegistry(b []byte) (r Registry, err error) {
	if err := json.Unmarshal(b, &r); err != nil {
		return r, Damagedf("the registry of agents: %w", err)
	}
	return r, nil
}

func decodeAgent(key, value []byte) (a Agent, err error) {
	if err := json.Unmarshal(value, &a); err != nil {
		return a, Damagedf("an agent: %w", err)
	}
	a.Name = string(key[1:])
	return a, nil
}

// SetRegistry stores what there is to say of all agents.
func (b *Batch) SetRegistry(r *Registry) { b.setJSON(appendNameKey(nil, prefixMeta, metaRegistry), r) }

// SetAgent stores an agent.
func (b *Batch) SetAgent(a *Agent) { b.setJSON(appendNameKey(nil, prefixAgent, a.Name), a) }

// LoadVerbs returns the catalogue of verbs in force; "" if there is none.
func (s *Store) LoadVerbs() (text string, err error) {
	_, err = get(s.db, appendNameKey(nil, prefixMeta, metaVerbs), func(b []byte) error {
		text = string(b)
		return nil
	})
	return text, err
}

// SetVerbs stores the catalogue of verbs in force.
func (b *Batch) SetVerbs(text string) {
	b.rows.write(kindSet, appendNameKey(nil, prefixMeta, metaVerbs), []byte(text))
}

// Registry returns what is said of all agents.
func (in *Inspector) Registry() (r Registry, err error) {
	_, err = get(in.snapshot, appendNameKey(nil, prefixMeta, metaRegistry), func(b []byte) (err error) {
		r, err = decodeRegistry(b)
		return err
	})
	return r, err
}

// Agents walks the A rows.
func (in *Inspector) Agents(each func(Agent, error) error) error {
	return walk(in, prefixAgent, decodeAgent, each)
}
