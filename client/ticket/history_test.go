// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"crypto/ed25519"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"signalbox/client"
	"signalbox/ticket"
)

// TestHistoryPassesOverWhatItCannotRead: one message of a later version ends no
// orchestrator, and what comes after it is read.
func TestHistoryPassesOverWhatItCannotRead(t *testing.T) {
	m, err := ticket.Draft{
		Header:  ticket.Header{Type: ticket.TypeOpen, TicketID: "INC-1", TraceID: "t", From: "desk", To: ticket.RoleOrchestrator},
		Payload: &Open{Op: "open", SourceRef: "desk:1", Title: "Slow", BodyRef: "desk:1", Requester: "u1", Priority: 2},
	}.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	entry := func(position int, data string) string {
		return fmt.Sprintf(`{"index":"%[1]d","time":"2026-01-01T00:00:00Z","kind":"event","topic":"bus.main.ticket.orchestrator","outcome":"accepted","position":"%[1]d","event":{`+
			`"position":"%[1]d","topic":"bus.main.ticket.orchestrator","hlc":"1764422645000.00001","specversion":"1.0","id":"%[1]d","source":"desk","type":"signalbox.ticket.ticket.open","data":%[2]s}}`, position, data)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"entries":[%s,%s],"next":"2","size":"2"}`, entry(1, `{"of":"a later version"}`), entry(2, string(m.Bytes())))
	}))
	defer server.Close()
	c, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var told []error
	h := &history{c: c, topics: "bus.main.>", tell: func(err error) { told = append(told, err) }}
	var read []*Message
	if err := h.read(t.Context(), func(m *Message) { read = append(read, m) }); err != nil {
		t.Fatal(err)
	}
	if len(read) != 1 || read[0].ID != m.Header().ID || len(told) != 1 || h.seen != 2 {
		t.Errorf("it has read %d messages up to %d, and said %v", len(read), h.seen, told)
	}
}
