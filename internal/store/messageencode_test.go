// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/store"
)

// TestRowsAreEncodedAsBefore: the bytes of a row are those that encoding/json writes,
// whatever is in it, so that logs of all versions have the same state.
func TestRowsAreEncodedAsBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,40}`), rapid.StringMatching(`[A-Za-z0-9._:-]{0,40}`), rapid.String())
		draw := func(name string) string { return text.Draw(t, name) }
		row := store.MessageRow{
			Type: draw("type"), Ticket: draw("ticket"), From: draw("from"), To: draw("to"), Topic: draw("topic"), Position: rapid.Uint64().Draw(t, "position"), HLC: rapid.Uint64().Draw(t, "hlc"),
		}
		copy(row.Content[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "content"))
		for _, r := range []any{
			row, &row, row.Type, store.OfTicketRow{ID: row.Ticket, Type: row.Type, From: row.From, Topic: row.Topic}, store.IdempotencyRow{Payload: row.Ticket, ID: row.Type}, store.TicketRow{Trace: row.From},
		} {
			want, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := store.EncodeMessage(r); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%+v is %s, %v, and was %s", r, got, err, want)
			}
		}
	})
}
