// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"net/url"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
)

// putPresence shows what an agent says of itself beside its presence.
func (s *Server) putPresence(w http.ResponseWriter, r *http.Request, q url.Values) error {
	ttl := broker.StatusTTL
	if q.Has("ttl") {
		d, err := event.ParseDuration(q.Get("ttl"))
		if err != nil {
			return event.Errorf(event.CodeParameterInvalid, "ttl=%.20q is not a duration such as 90s or 15m.", q.Get("ttl")).With("ttl")
		}
		ttl = time.Duration(d)
	}
	body, held, err := s.readBody(r, broker.StatusBytesMax)
	defer s.held.give(held)
	if err != nil {
		return err
	}
	if err := s.broker.Report(r.PathValue("agent"), body, ttl); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
