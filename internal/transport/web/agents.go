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
	MaySend  []ticket.Right `json:"may_send,omitempty"`
	MayRead  []string       `json:"may_read,omitempty"`
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
		d.MaySend, d.MayRead = ticket.Rights(r.Space, a.Roles, a.Domains)
	}
	return d
}

func (s *Server) listAgents(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	r, agents := s.broker.Agents()
	d := registryDocument{Space: r.Space, Administrator: r.Administrator, Revision: r.Revision, Agents: make([]agentDocument, len(agents))}
	for i := range agents {
		d.Agents[i] = agentOf(&agents[i])
	}
	return s.json(w, http.StatusOK, d)
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
