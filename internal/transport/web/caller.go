// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/identity"
)

// caller is who makes a request, and until when that counts.
type caller struct {
	identity.Principal
	until time.Time // zero: for good
}

type callerKey struct{}

// callerOf returns who makes a request.
func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}

// principalOf returns who makes a request, where it is answered at once.
func principalOf(r *http.Request) identity.Principal { return callerOf(r).Principal }

// tokenParameter is for an EventSource and a browser's WebSocket, which cannot set
// headers. Nothing logs a query.
const tokenParameter = "access_token"

// authenticate finds out who makes a request. A token that does not count is
// refused on every route: whoever sends one must not go on as somebody without
// rights and take an empty answer for the truth. Where there are no agents there are
// no tokens of ours either, and what a proxy may have sent is passed over.
func (s *Server) authenticate(r *http.Request, q url.Values) (*http.Request, error) {
	headers, parameter := r.Header["Authorization"], q.Has(tokenParameter)
	if len(headers) == 0 && !parameter || !s.broker.Registry().Staffed {
		q.Del(tokenParameter)
		return r, nil
	}
	var texts []string
	if parameter {
		if stream, _ := wantsStream(r.Header["Accept"]); !stream && !wantsSocket(r) {
			return nil, event.Errorf(event.CodeParameterInvalid, "access_token belongs to event streams and WebSockets: send the token as Authorization: Bearer.").With(tokenParameter)
		}
		texts = append(texts, q.Get(tokenParameter))
		q.Del(tokenParameter)
	}
	for _, h := range headers {
		if scheme, text, _ := strings.Cut(h, " "); strings.EqualFold(scheme, "Bearer") {
			texts = append(texts, strings.TrimSpace(text))
		}
	}
	switch texts = slices.Compact(texts); len(texts) {
	case 0:
		return r, nil
	case 1:
	default:
		return nil, event.Errorf(event.CodeTokenInvalid, "There are several tokens: send one.").With("Authorization")
	}
	p, until, err := s.broker.Authenticate(texts[0])
	if err != nil {
		s.broker.Refused(identity.Anonymous(), "", event.AsError(err))
		return nil, err
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, caller{p, until})), nil
}
