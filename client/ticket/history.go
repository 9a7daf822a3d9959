// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"signalbox/client"
	"signalbox/event"
)

// history reads what was said in a space, in the order of the log and once, whether
// or not it has expired since. What cannot be read, since it is of a later version, is
// passed over and told of: it must not end an orchestrator, now and at every start.
type history struct {
	c      *client.Client
	topics string // a pattern
	tell   func(error)
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
			h.seen = e.Position
			ev, err := event.DecodeDelivered(e.Event)
			var m *Message
			if err == nil {
				m, err = DecodeMessage(ev.Data())
			}
			if err != nil {
				h.tell(fmt.Errorf("the message at %d is passed over: %w", e.Position, err))
				continue
			}
			each(m)
		}
		h.next = page.Next
		if page.Next >= page.Size {
			return nil
		}
	}
}
