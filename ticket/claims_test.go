// SPDX-License-Identifier: Apache-2.0

package ticket_test

import (
	"strings"
	"testing"

	"signalbox/ticket"
)

// TestClaimsHaveTheirForm: nothing that could not stand in a message is taken over.
func TestClaimsHaveTheirForm(t *testing.T) {
	id := "msg_" + strings.Repeat("0", 26)
	for raw, want := range map[string]ticket.Header{
		`{"ticket_id":"INC-1","id":"` + id + `","type":"execute","from":"net"}`: {TicketID: "INC-1", ID: id, Type: "execute", From: "net"},
		`{"ticket_id":"INC 1","id":"x","type":"Execute","from":"N"}`:            {},
		`{"ticket_id":"-","from":"net"}`:                                        {From: "net"},
		`{"ticket_id":["INC-1"],"from":[7],"type":"heartbeat"}`:                 {Type: "heartbeat"},
		`{"ticket_id":"INC-1","type":"exec`:                                     {TicketID: "INC-1"},
		`no JSON`:                                                               {},
		``:                                                                      {},
		`{"ticket_id":"INC-1","x":"` + strings.Repeat("x", ticket.MaxMessageBytes) + `"}`: {},
	} {
		if got := ticket.Claims([]byte(raw)); got != want {
			t.Errorf("%.80s claims %+v, want %+v", raw, got, want)
		}
	}
}
