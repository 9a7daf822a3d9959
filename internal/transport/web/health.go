// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/url"
	"strconv"

	"signalbox/api"
	"signalbox/docs"
	"signalbox/event"
	"signalbox/internal/broker"
)

// healthz says that the process answers; nothing restarts it while it does.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	return s.json(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz says whether publishes would be accepted, by proving the write path.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	err := s.broker.Ready(r.Context())
	if err == nil {
		return s.json(w, http.StatusOK, readiness(s.broker.External()))
	}
	// Load balancers look at the status alone, and know 503 best.
	e := event.AsError(err)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Retry-After", strconv.Itoa(max(1, retryAfter(e.Code))))
	return s.whole(w, http.StatusServiceUnavailable, "application/problem+json", appendProblem(nil, e, http.StatusServiceUnavailable))
}

// readiness says beside it whether ticket messages wait for the places outside that the
// audit trail goes to: then others are served all the same.
func readiness(e *broker.External) any {
	type external struct {
		Entries  uint64 `json:"entries,string"`
		Size     uint64 `json:"size,string"`
		Messages int    `json:"messages_held"`
		Waiting  bool   `json:"waiting"`
	}
	answer := struct {
		Status   string    `json:"status"`
		External *external `json:"audit_external,omitempty"`
	}{Status: "ready"}
	if e != nil {
		answer.External = &external{e.Entries, e.Size, e.Messages, e.Waiting}
	}
	return answer
}

func (s *Server) openapi(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	w.Header().Set("Cache-Control", "no-cache")
	return s.whole(w, http.StatusOK, "application/yaml", api.OpenAPI)
}

// errorsPage is where the type of every problem document leads.
func (s *Server) errorsPage(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	w.Header().Set("Cache-Control", "no-cache")
	return s.whole(w, http.StatusOK, "text/markdown; charset=utf-8", docs.Errors)
}

// index is for whoever opens the broker's address in a browser.
func (s *Server) index(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	return s.whole(w, http.StatusOK, "text/plain; charset=utf-8", []byte(indexText))
}

const indexText = `Signalbox: a durable, ordered event log for agents. Everything is CloudEvents 1.0.

POST   /v1/topics/{topic}/events        publish (binary, structured or batch mode)
GET    /v1/topics/{topic}/events        read; Accept: text/event-stream follows
GET    /v1/events?topics=a.*,b.>        the same for several topics
GET    /v1/topics/{topic}/state         the last event of every key, as NDJSON
GET    /v1/topics/{topic}/state/{key}   of one key
GET    /v1/state?topics=a,b             of several topics at one cursor
GET    /v1/topics/{topic}/digest        a digest of the state, to compare with
GET    /v1/topics                       all topics
GET    /v1/topics/{topic}               policy and figures; PUT sets, DELETE removes
GET    /v1/readers                      which open readers are behind
PUT    /v1/presence/{agent}              what an agent says of itself; read the topic $presence

POST   /v1/admin/backup                 a consistent copy of everything, as a tar archive
POST   /v1/admin/compact                reclaim disk now; NDJSON says how far it is

GET    /v1/subscriptions                durable subscriptions (CloudEvents Subscriptions API); POST creates
GET    /v1/subscriptions/{id}           one, and how far it is; PUT changes, DELETE ends
GET    /v1/subscriptions/{id}/events    follow it from its own cursor (stream)
POST   /v1/subscriptions/{id}/fetch     take events (pull), and settle them with /v1/subscriptions/{id}/ack,
       /v1/subscriptions/{id}/nack, /v1/subscriptions/{id}/extend, /v1/subscriptions/{id}/reject
POST   /v1/subscriptions/{id}/pause, /v1/subscriptions/{id}/resume, /v1/subscriptions/{id}/seek
GET    /v1/subscriptions/{id}/dead-letters
POST   /v1/subscriptions/{id}/redrive, /v1/subscriptions/{id}/discard

POST   /v1/messages                     send a signed message of the ticket protocol
GET    /v1/verbs                        the catalogue of what steps of tickets may do
GET    /v1/tickets                      tickets, by state, domain, agent or time of change
GET    /v1/tickets/{ticket}             one: its state, slices, deadlines, and its messages in order
GET    /v1/tickets/{ticket}/stream      follow its messages
GET    /v1/agents                       the registry of its agents
POST   /v1/agents                       change it, with the administrator's signature
GET    /v1/agents/{agent}               an agent, and what it may send and read

POST   /v1/filters/dry-run              what a filter makes of recent events, and why
GET    /.well-known/webhook-keys        the keys by which webhooks are checked; POST /v1/admin/webhook-keys draws one
POST   /v1/webhook-consents/{token}     an endpoint consents to webhooks

GET    /v1/audit/checkpoint             a signed checkpoint of the audit trail; GET /v1/audit/key is what to check it with
GET    /v1/audit/proof?position=1       the proof that an event is part of it
GET    /v1/audit/entries                what was decided, by trace, agent, type, topic, position or time
GET    /v1/audit/export                 the audit trail, to be checked without the broker

GET    /openapi.yaml                    the whole API
GET    /errors                          every error code and what to do
GET    /healthz, /readyz                is it alive, does it accept publishes
GET    /metrics                         figures for Prometheus
`
