// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"signalbox/client"
	"signalbox/event"
)

// Over https everything shares one connection of HTTP/2, if the authority is one
// that the client was told to trust. No other is tried twice.
func TestClientOverTLS(t *testing.T) {
	var requests atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.ProtoMajor != 2 {
			t.Errorf("%s %s came by %s", r.Method, r.URL.Path, r.Proto)
		}
		if r.Method == http.MethodPost {
			receipt(w, event.OutcomeAccepted, 1, 0)
			return
		}
		stream(w)
		send(w, frame(1))
		<-r.Context().Done()
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	c := connect(t, srv.URL, client.WithRootCAs(roots))
	if _, err := c.Publish(ctx, "t", event.Draft{Source: "/s", Type: "t.x"}); err != nil {
		t.Fatal(err)
	}
	for item, err := range c.Follow(ctx, []string{"t"}, client.FollowOptions{}) {
		if err != nil || item.Event.ID() != "e1" {
			t.Errorf("the stream has %+v, %v", item, err)
		}
		break
	}
	before := requests.Load()
	_, err := connect(t, srv.URL, client.WithRootCAs(x509.NewCertPool())).Publish(ctx, "t", event.Draft{Source: "/s", Type: "t.x"})
	if u := (*client.UnreachableError)(nil); !errors.As(err, &u) || u.Attempts != 1 {
		t.Errorf("without the authority: %v", err)
	}
	if requests.Load() != before {
		t.Error("a request was sent to a server that nobody vouches for")
	}
}
