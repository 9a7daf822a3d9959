// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"

	"signalbox/event"
	"signalbox/internal/broker"
)

// topicDocument is a topic as the API shows it.
type topicDocument struct {
	Name       string       `json:"name"`
	Policy     event.Policy `json:"policy"`
	Published  uint64       `json:"published"`
	Events     uint64       `json:"events"`
	Bytes      uint64       `json:"bytes"`
	Keys       uint64       `json:"keys"`
	Tombstones uint64       `json:"tombstones"`
	Oldest     event.Cursor `json:"oldest"`
	Head       event.Cursor `json:"head"`
	Floor      string       `json:"floor,omitempty"`
}

func document(t *broker.TopicInfo) topicDocument {
	d := topicDocument{
		Name: t.Name, Policy: t.Policy,
		Published: t.Published, Events: t.Events, Bytes: t.Bytes, Keys: t.Keys, Tombstones: t.Tombstones,
		Oldest: t.Oldest, Head: t.Head,
	}
	if t.Floor != 0 {
		d.Floor = t.Floor.String()
	}
	return d
}

func (s *Server) listTopics(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	topics := s.broker.Topics()
	documents := make([]topicDocument, len(topics))
	for i := range topics {
		documents[i] = document(&topics[i])
	}
	return s.json(w, http.StatusOK, documents)
}

func (s *Server) getTopic(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	t, err := s.broker.Topic(r.PathValue("topic"))
	if err != nil {
		return err
	}
	return s.json(w, http.StatusOK, document(&t))
}

// putTopic sets the whole policy: what the body leaves out has its default.
func (s *Server) putTopic(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	caller, name := principalOf(r), r.PathValue("topic")
	policy, held, err := s.decodePolicy(r)
	defer s.held.give(held)
	if err != nil {
		s.broker.Refused(caller, name, event.AsError(err))
		return err
	}
	t, created, err := s.broker.PutTopic(r.Context(), caller, name, policy)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		w.Header().Set("Location", "/v1/topics/"+name)
	}
	return s.json(w, status, document(&t))
}

// decodePolicy reads the body as JSON whatever it says it is: curl -d says
// form data, and there is nothing else that a policy could be.
func (s *Server) decodePolicy(r *http.Request) (event.Policy, int, error) {
	body, held, err := s.readBody(r, policyBytesMax)
	if err != nil {
		return event.Policy{}, held, err
	}
	if len(body) == 0 {
		return event.DefaultPolicy(), held, nil
	}
	policy, err := event.ParsePolicy(body)
	return policy, held, err
}

func (s *Server) deleteTopic(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := s.broker.DeleteTopic(r.Context(), principalOf(r), r.PathValue("topic")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// json answers with v as JSON.
func (s *Server) json(w http.ResponseWriter, status int, v any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // for people read this, and expressions have a > in them
	if err := enc.Encode(v); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.whole(w, status, "application/json", body.Bytes())
}
