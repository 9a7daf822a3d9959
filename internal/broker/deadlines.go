// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"strings"
	"time"

	"signalbox/internal/store"
)

// TicketDeadline is a deadline of a message that nothing has met yet.
type TicketDeadline struct {
	Message string    `json:"message"`  // id
	Type    string    `json:"type"`     // of the message
	To      string    `json:"to"`       // who has to meet it
	Member  string    `json:"deadline"` // of the payload, such as ack_by
	Due     time.Time `json:"due"`
}

// deadlinesShown bounds the deadlines of a ticket that are shown.
const deadlinesShown = 1000

// ticketDeadlines returns the open deadlines of a ticket, by message.
func ticketDeadlines(view *store.View, of string) ([]TicketDeadline, error) {
	list := []TicketDeadline{}
	err := view.MessagesOfKind(store.MessageDeadline, of+"\x00", func(key string, value []byte) (bool, error) {
		var row store.DeadlineRow
		if err := store.DecodeMessage(store.MessageDeadline, value, &row); err != nil {
			return false, err
		}
		_, rest, _ := strings.Cut(key, "\x00")
		id, member, _ := strings.Cut(rest, "\x00")
		list = append(list, TicketDeadline{Message: id, Type: row.Type, To: row.To, Member: member, Due: moment(row.Due)})
		return len(list) < deadlinesShown, nil
	})
	return list, err
}
