// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"signalbox/event"
)

// The subprotocols that a WebSocket can speak.
const (
	// protocolEvents is that of the WebSockets Protocol Binding for CloudEvents.
	protocolEvents = "cloudevents.json"
	// protocolSignalbox is ours, see docs/websocket.md.
	protocolSignalbox = "signalbox.v1"
)

// wantsSocket says whether a request asks to become a WebSocket. A handshake
// whose Connection header a proxy has taken away is told so, and not answered
// with a poll.
func wantsSocket(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Method == http.MethodGet && hasToken(r.Header["Upgrade"], "websocket")
}

// hasToken looks for a token in the values of a header, as RFC 9110, section
// 5.6.1, joins them.
func hasToken(values []string, token string) bool {
	return slices.ContainsFunc(tokens(values), func(t string) bool { return strings.EqualFold(t, token) })
}

func tokens(values []string) []string {
	list := strings.Split(strings.Join(values, ","), ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}

// checkHandshake checks the client's handshake (RFC 6455, section 4.2.1) and
// returns the subprotocol that is spoken and what the key is answered with.
func (s *Server) checkHandshake(h http.Header, r *http.Request) (protocol, accept string, err error) {
	if err := s.checkOrigin(r); err != nil {
		return "", "", err
	}
	invalid := func(field, what string) error {
		return event.Errorf(event.CodeHandshakeInvalid, "%s", what).With(field)
	}
	key := r.Header["Sec-Websocket-Key"]
	switch {
	case !r.ProtoAtLeast(1, 1):
		return "", "", invalid("Upgrade", "A WebSocket begins with a request of HTTP/1.1.")
	case !hasToken(r.Header["Connection"], "upgrade"):
		return "", "", invalid("Connection", "Connection does not say Upgrade; a proxy on the way may have taken it away.")
	case !slices.Equal(r.Header["Sec-Websocket-Version"], []string{"13"}):
		h.Set("Sec-WebSocket-Version", "13")
		return "", "", invalid("Sec-WebSocket-Version", "The version of WebSockets is 13.")
	case len(key) != 1 || !isSocketKey(key[0]):
		return "", "", invalid("Sec-WebSocket-Key", "Sec-WebSocket-Key is not 16 bytes in base64, given once.")
	case r.ContentLength != 0:
		return "", "", invalid("Content-Length", "A handshake has no body.")
	}
	// The client's order is that of its preference (section 1.9).
	offered := tokens(r.Header["Sec-Websocket-Protocol"])
	at := slices.IndexFunc(offered, func(p string) bool { return p == protocolEvents || p == protocolSignalbox })
	if at < 0 {
		return "", "", invalid("Sec-WebSocket-Protocol", "Offer "+protocolSignalbox+" or "+protocolEvents+" as subprotocol.")
	}
	return offered[at], socketAccept(key[0]), nil
}

func isSocketKey(key string) bool {
	b, err := base64.StdEncoding.DecodeString(key)
	return err == nil && len(b) == 16
}

// socketAccept proves that the handshake was understood (section 1.3), which
// has nothing to do with secrecy.
func socketAccept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// checkPage refuses whatever changes something and is sent by a browser for a page
// of another site. The browser keeps the answer from that page, but sends a POST
// of a plain media type without asking anybody: a subscription by which everything
// is sent to that site would need no more.
func (s *Server) checkPage(r *http.Request) error {
	if s.pages.Check(r) == nil {
		return nil
	}
	return event.Errorf(event.CodeOriginRefused,
		"Pages of the origin %.80q may not do this: use a program, or have the operator allow it with --allow-origin.", r.Header.Get("Origin")).With("Origin")
}

// changing is a request as one that changes something, whatever its method says.
func changing(r *http.Request) *http.Request {
	c := *r
	c.Method = http.MethodPost
	return &c
}

// checkOrigin keeps the pages of other sites out. A browser lets any page open
// a WebSocket to this machine and only says whose page it is, so the origin is
// compared as a whole with the broker's own and with those that are allowed.
// Programs send none.
func (s *Server) checkOrigin(r *http.Request) error {
	origin := r.Header["Origin"]
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	if len(origin) == 0 || len(origin) == 1 && (origin[0] == scheme+strings.ToLower(r.Host) || slices.Contains(s.opt.Origins, origin[0])) {
		return nil
	}
	return event.Errorf(event.CodeOriginRefused,
		"Pages of the origin %.80q may not open a WebSocket here; the operator can allow it with --allow-origin.", strings.Join(origin, ", ")).With("Origin")
}
