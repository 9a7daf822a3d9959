// SPDX-License-Identifier: Apache-2.0

package ticketclient_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
)

// TestOrchestratorPassesOverWhatItCannotRead: one message of a later version ends no
// orchestrator, and what else was said of the ticket is read.
func TestOrchestratorPassesOverWhatItCannotRead(t *testing.T) {
	s := newSpace(t)
	s.ask(s.open("INC-1"), "network")
	broker, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	later := httputil.NewSingleHostReverseProxy(broker)
	later.ModifyResponse = func(res *http.Response) error {
		if !strings.HasPrefix(res.Request.URL.Path, "/v1/tickets/") {
			return nil
		}
		body, err := io.ReadAll(res.Body)
		res.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(body, []byte(`"type":"plan.request"`), []byte(`"type":"plan.of-later"`))))
		res.Header.Del("Content-Length")
		return err
	}
	between := httptest.NewServer(later)
	defer between.Close()
	c, err := client.New(between.URL)
	if err != nil {
		t.Fatal(err)
	}
	told, read := 0, 0
	o, err := ticketclient.NewOrchestrator(c, ticketclient.OrchestratorOptions{
		Name: "orch", Key: tickettest.Key("orch"), DryRun: true,
		Decide: func(t *ticketclient.Ticket, _ time.Time) ([]ticketclient.Move, time.Time) {
			read = len(t.Messages)
			return nil, time.Time{}
		},
		OnError: func(error) { told++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Run(t.Context()); err != nil || told != 1 || read != 1 {
		t.Errorf("it was told of %d messages, and decided about %d: %v", told, read, err)
	}
}
