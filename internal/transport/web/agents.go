// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/url"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/ticket"
)

// registryDocument is the registry of agents as the API shows it.
type registryDocument struct {
	Space         string          `json:"space"`
	Administrator string          `json:"administrator"`
	Revision      int64           `json:"revision"`
	Agents        []agentDocument `json:"agents"`
	Next          string          `json:"next,omitempty"` // the agent after which to go on
}

// agentDocument is an agent as the API shows it.
type agentDocument struct {
	Agent    string        `json:"agent"`
	Active   bool          `json:"active"`
	Roles    []string      `json:"roles"`
	Domains  []string      `json:"domains"`
	Keys     []keyDocument `json:"keys"`
	Revision int64         `json:"revision"`
	Updated  time.Time     `json:"updated"`

	// Not in lists.
	Registry *int64         `json:"registry,omitempty"` // the revision of the registry that this is from
	MaySend  []ticket.Right `json:"may_send,omitzero"`
	MayRead  []string       `json:"may_read,omitzero"`
}

type keyDocument struct {
	Key   string        `json:"key"`
	From  event.Cursor  `json:"from"`
	Until *event.Cursor `json:"until,omitempty"` // of one that was revoked
}

func agentOf(a *broker.AgentInfo) agentDocument {
	d := agentDocument{Agent: a.Name, Active: a.Active, Roles: a.Roles, Domains: a.Domains, Keys: []keyDocument{}, Revision: a.Revision, Updated: a.Updated.UTC()}
	if d.Domains == nil {
		d.Domains = []string{}
	}
	for i := range a.Keys {
		k := &a.Keys[i]
		document := keyDocument{Key: k.Key, From: k.From}
		if k.Revoked {
			document.Until = &k.Until
		}
		d.Keys = append(d.Keys, document)
	}
	return d
}

// explained is an agent with what it may send and read.
func explained(r *broker.RegistryInfo, a *broker.AgentInfo) agentDocument {
	d := agentOf(a)
	d.Registry = &r.Revision
	if a.Active {
		sends, reads := ticket.Rights(r.Space, a.Roles, a.Domains)
		d.MaySend, d.MayRead = append([]ticket.Right{}, sends...), append([]string{}, reads...) // to have no right is to have an empty list
	}
	return d
}

// agentsMax bounds the agents of one answer, each of which may have a thousand keys.
const agentsMax = 1000

// listAgents answers with agents by name; a Link leads to the rest.
func (s *Server) listAgents(w http.ResponseWriter, r *http.Request, q url.Values) error {
	limit, err := limitOf(q, agentsMax)
	if err != nil {
		return err
	}
	registry, agents, more := s.broker.Agents(q.Get("after"), limit)
	d := registryDocument{Space: registry.Space, Administrator: registry.Administrator, Revision: registry.Revision, Agents: make([]agentDocument, len(agents))}
	for i := range agents {
		d.Agents[i] = agentOf(&agents[i])
	}
	if more {
		d.Next = agents[len(agents)-1].Name
		linkNext(w, r, "after", d.Next)
	}
	return s.json(w, http.StatusOK, d)
}

// getVerbs answers with the catalogue of verbs in force, as it was activated: whoever
// makes a plan computes its tier from these bytes.
func (s *Server) getVerbs(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	text, err := s.broker.Verbs()
	if err == nil && text == "" {
		err = event.Errorf(event.CodeNotFound, "The space has no catalogue of verbs.")
	}
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.whole(w, http.StatusOK, "application/json", []byte(text))
}

func (s *Server) getAgent(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	registry, a, err := s.broker.Agent(r.PathValue("agent"))
	if err != nil {
		return err
	}
	return s.json(w, http.StatusOK, explained(&registry, &a))
}

// changeAgents reads the body as JSON whatever it says it is, as for policies.
func (s *Server) changeAgents(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	caller := principalOf(r)
	body, held, err := s.readBody(r, ticket.MaxMessageBytes)
	defer s.held.give(held)
	if err != nil {
		s.broker.Refused(caller, "", event.AsError(err))
		return err
	}
	registry, a, err := s.broker.ChangeAgents(r.Context(), caller, body)
	if err != nil {
		return err
	}
	return s.json(w, http.StatusOK, explained(&registry, &a))
}
