// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"net/url"
	"strconv"

	"signalbox/client"
	"signalbox/event"
)

// history reads what was said in a space, in the order of the log and once, whether
// or not it has expired since.
type history struct {
	c      *client.Client
	topics string // a pattern
	next   uint64 // the entry of the audit trail to go on from
	seen   uint64 // the position of the last event
}

// read hands over what was said since the last call.
func (h *history) read(ctx context.Context, each func(*Message)) error {
	for {
		page, err := h.c.AuditEntries(ctx, url.Values{
			"from": {strconv.FormatUint(h.next, 10)}, "kind": {"event"}, "topic": {h.topics}, "limit": {"1000"},
		})
		if err != nil {
			return err
		}
		for i := range page.Entries {
			e := &page.Entries[i]
			if e.Outcome != event.OutcomeAccepted || e.Event == nil {
				continue // a repetition
			}
			ev, err := event.DecodeDelivered(e.Event)
			if err != nil {
				return err
			}
			m, err := DecodeMessage(ev.Data())
			if err != nil {
				return err
			}
			h.seen = e.Position
			each(m)
		}
		h.next = page.Next
		if page.Next >= page.Size {
			return nil
		}
	}
}
