// SPDX-License-Identifier: Apache-2.0

package ticket

import "signalbox/event"

// Claims returns what bytes that were refused say that they are: the ticket, the id, the
// type and the sender, each of them "" if it does not have the form that it must have.
// Nothing is verified, so it is only of use to say what was refused.
func Claims(raw []byte) (h Header) {
	if len(raw) > MaxMessageBytes {
		return h
	}
	for _, f := range []struct {
		name string
		to   *string
		fits func(string) bool
	}{
		{"ticket_id", &h.TicketID, tokenForm},
		{"id", &h.ID, idForm},
		{"type", &h.Type, typeForm},
		{"from", &h.From, nameForm},
	} {
		if text, ok := event.LookupJSON(raw, f.name); ok && f.fits(text) {
			*f.to = text
		}
	}
	return h
}
