// SPDX-License-Identifier: Apache-2.0

package web

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/filter"
)

// route is one method of one path. Its parameters are all that its query may
// have: an unknown one is refused, because a misspelt cursor that is ignored
// would silently read from the beginning.
type route struct {
	method string
	path   string
	params []string
	handle func(*Server, http.ResponseWriter, *http.Request, url.Values) error
}

// The paths that lanes serve without the mux.
const (
	publishPath  = "/v1/topics/{topic}/events"
	messagesPath = "/v1/messages"
)

// table is the whole surface; a test holds it against api/openapi.yaml.
func table() []route {
	read := []string{"cursor", "view", "limit", "wait", "on_reset", "named", "window", "filter", "select", "agent", "live", tokenParameter}
	return []route{
		{"POST", publishPath, []string{"ack"}, (*Server).publish},
		{"GET", "/v1/topics/{topic}/events", read, (*Server).readTopic},
		{"GET", "/v1/events", append([]string{"topics"}, read...), (*Server).readTopics},
		{"GET", "/v1/topics/{topic}/state", []string{"filter", "select"}, (*Server).topicState},
		{"GET", "/v1/topics/{topic}/state/{key...}", []string{"select"}, (*Server).keyState},
		{"GET", "/v1/state", []string{"topics", "filter", "select"}, (*Server).topicsState},
		{"GET", "/v1/topics/{topic}/digest", nil, (*Server).digest},
		{"GET", "/v1/topics", nil, (*Server).listTopics},
		{"GET", "/v1/topics/{topic}", nil, (*Server).getTopic},
		{"PUT", "/v1/topics/{topic}", nil, (*Server).putTopic},
		{"DELETE", "/v1/topics/{topic}", nil, (*Server).deleteTopic},
		{"GET", "/v1/readers", nil, (*Server).listReaders},
		{"POST", "/v1/admin/backup", nil, (*Server).backup},
		{"POST", "/v1/admin/compact", nil, (*Server).compact},
		{"PUT", "/v1/presence/{agent...}", []string{"ttl"}, (*Server).putPresence},
		{"GET", "/v1/subscriptions", []string{"after", "limit"}, (*Server).listSubscriptions},
		{"POST", "/v1/subscriptions", nil, (*Server).createSubscription},
		{"OPTIONS", "/v1/subscriptions", nil, subscriptionMethods("GET,POST,OPTIONS")},
		{"GET", "/v1/subscriptions/{id}", nil, (*Server).getSubscription},
		{"PUT", "/v1/subscriptions/{id}", nil, (*Server).putSubscription},
		{"DELETE", "/v1/subscriptions/{id}", nil, (*Server).deleteSubscription},
		{"OPTIONS", "/v1/subscriptions/{id}", nil, subscriptionMethods("GET,PUT,DELETE,OPTIONS")},
		{"GET", "/v1/subscriptions/{id}/events", []string{"named", "window", tokenParameter}, (*Server).subscriptionEvents},
		{"POST", "/v1/subscriptions/{id}/pause", nil, (*Server).pauseSubscription},
		{"POST", "/v1/subscriptions/{id}/resume", nil, (*Server).resumeSubscription},
		{"POST", "/v1/subscriptions/{id}/seek", nil, (*Server).seekSubscription},
		{"POST", "/v1/subscriptions/{id}/fetch", nil, (*Server).fetchSubscription},
		{"POST", "/v1/subscriptions/{id}/ack", nil, (*Server).ackSubscription},
		{"POST", "/v1/subscriptions/{id}/nack", nil, (*Server).nackSubscription},
		{"POST", "/v1/subscriptions/{id}/extend", nil, (*Server).extendSubscription},
		{"POST", "/v1/subscriptions/{id}/reject", nil, (*Server).rejectSubscription},
		{"GET", "/v1/subscriptions/{id}/dead-letters", []string{"after", "limit", "cause", "topic", "type", "filter"}, (*Server).listLetters},
		{"POST", "/v1/subscriptions/{id}/redrive", nil, (*Server).redriveLetters},
		{"POST", "/v1/subscriptions/{id}/discard", nil, (*Server).discardLetters},
		{"POST", messagesPath, []string{"ack"}, (*Server).postMessage},
		{"GET", "/v1/tickets", []string{"state", "domain", "agent", "updated", "after", "limit"}, (*Server).listTickets},
		{"GET", "/v1/tickets/{ticket}", []string{"after", "limit"}, (*Server).getTicket},
		{"GET", "/v1/tickets/{ticket}/stream", []string{"cursor", "named", "agent", tokenParameter}, (*Server).ticketStream},
		{"GET", "/v1/verbs", nil, (*Server).getVerbs},
		{"GET", "/v1/agents", []string{"after", "limit"}, (*Server).listAgents},
		{"POST", "/v1/agents", nil, (*Server).changeAgents},
		{"GET", "/v1/agents/{agent}", nil, (*Server).getAgent},
		{"GET", "/v1/audit/key", nil, (*Server).auditKey},
		{"GET", "/v1/audit/checkpoint", []string{"fresh", "size"}, (*Server).auditCheckpoint},
		{"GET", "/v1/audit/proof", []string{"leaf", "position", "from", "to"}, (*Server).auditProof},
		{"GET", "/v1/audit/entries", []string{"from", "to", "from_position", "since", "until", "kind", "topic", "type", "source", "key", "trace", "ticket", "positions", "limit"}, (*Server).auditEntries},
		{"GET", "/v1/audit/export", []string{"from", "to"}, (*Server).auditExport},
		{"POST", "/v1/filters/dry-run", nil, (*Server).dryRun},
		{"GET", "/.well-known/webhook-keys", nil, (*Server).webhookKeys},
		{"POST", "/v1/admin/webhook-keys", nil, (*Server).rotateWebhookKey},
		{"GET", "/v1/webhook-consents/{token}", nil, (*Server).consent},
		{"POST", "/v1/webhook-consents/{token}", nil, (*Server).consent},
		{"GET", "/healthz", nil, (*Server).healthz},
		{"GET", "/readyz", nil, (*Server).readyz},
		{"GET", "/metrics", nil, (*Server).exposition},
		{"GET", "/openapi.yaml", nil, (*Server).openapi},
		{"GET", "/errors", nil, (*Server).errorsPage},
		{"GET", "/{$}", nil, (*Server).index},
	}
}

// routes builds the mux: every route, every other method of its path, and
// everything else, so that each of them is answered with a problem document.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, rt := range table() {
		h := s.handler(rt)
		mux.Handle(rt.method+" "+rt.path, h)
		switch {
		case rt.method != http.MethodPost:
		case rt.path == publishPath:
			s.publisher = h
		case rt.path == messagesPath:
			s.messenger = h
		}
		methods[rt.path] = append(methods[rt.path], rt.method)
	}
	for p, allowed := range methods {
		mux.Handle(p, s.otherMethod(allowed))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.problem(w, r, event.Errorf(event.CodeNotFound, "There is nothing at %.80q; GET / lists what there is.", r.URL.Path))
	})
	return mux
}

func (s *Server) handler(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := parseQuery(r.URL.RawQuery, rt.params)
		if err == nil {
			q, err = takeFilterHeader(r.Header["Signalbox-Filter"], q, rt.params)
		}
		asked := r
		if err == nil {
			asked, err = s.authenticate(r, q)
		}
		if err == nil {
			err = rt.handle(s, w, asked, q)
		}
		if err != nil {
			s.problem(w, r, err)
		}
	}
}

// otherMethod answers OPTIONS and refuses the methods that a path lacks.
func (s *Server) otherMethod(allowed []string) http.HandlerFunc {
	set := map[string]bool{"OPTIONS": true}
	for _, m := range allowed {
		set[m] = true
		if m == "GET" {
			set["HEAD"] = true // the mux answers it by the GET handler
		}
	}
	allow := strings.Join(slices.Sorted(maps.Keys(set)), ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.problem(w, r, event.Errorf(event.CodeMethodNotAllowed, "%.20s is not a method of this URL; it has %s.", r.Method, allow))
	}
}

// parseQuery splits a query strictly: every parameter known and given once.
func parseQuery(raw string, allowed []string) (url.Values, error) {
	if raw == "" {
		return nil, nil
	}
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, event.Errorf(event.CodeParameterInvalid, "The query cannot be parsed: separate parameters with & and percent-encode their values.")
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case slices.Contains(allowed, name):
		case name == "filter":
			return nil, filterUnsupported("filter")
		case len(allowed) == 0:
			return nil, event.Errorf(event.CodeParameterInvalid, "The parameter %.40q is unknown: this URL takes none.", name).With(name)
		default:
			return nil, event.Errorf(event.CodeParameterInvalid,
				"The parameter %.40q is unknown: this URL takes %s.", name, strings.Join(allowed, ", ")).With(name)
		}
		if len(q[name]) > 1 {
			return nil, event.Errorf(event.CodeParameterInvalid, "The parameter %s is given %d times: give it once.", name, len(q[name])).With(name)
		}
	}
	return q, nil
}

// takeFilterHeader makes the header a parameter, for clients to whom a long
// expression in a URL is inconvenient. Where there are no filters it is refused:
// an answer that ignored it would be taken for filtered.
func takeFilterHeader(values []string, q url.Values, allowed []string) (url.Values, error) {
	switch {
	case len(values) == 0:
		return q, nil
	case !slices.Contains(allowed, "filter"):
		return nil, filterUnsupported("Signalbox-Filter")
	case len(values) > 1 || q.Has("filter"):
		return nil, event.Errorf(event.CodeParameterInvalid, "There are several filters: give one, in the parameter or in the header, and join conditions with AND.").With("Signalbox-Filter")
	}
	if q == nil {
		q = url.Values{}
	}
	q.Set("filter", values[0])
	return q, nil
}

// parseFilter returns the filter of a request; nil for none.
func parseFilter(q url.Values) (*filter.Filter, error) {
	if !q.Has("filter") {
		return nil, nil
	}
	return filter.ParseText(q.Get("filter"))
}

func filterUnsupported(field string) error {
	return event.Errorf(event.CodeFilterUnsupported, "This URL has no filters: leave %s out.", field).With(field)
}
