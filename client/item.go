// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"fmt"
	"time"

	"signalbox/event"
)

// ItemKind says what a follower hands over.
type ItemKind uint8

const (
	// ItemEvent is an event.
	ItemEvent ItemKind = iota + 1
	// ItemSynced says that everything is in that existed when the stream was opened. It comes once per connection.
	ItemSynced
	// ItemProgress says that the cursor moved though no event came: nothing up to it concerns this follower. An agent
	// that stores its cursor stores this one too.
	ItemProgress
	// ItemReset says that events are gone which this follower had not seen.
	ItemReset
	// ItemGap says that events were removed before a subscription read them; see [Client.FollowSubscription].
	ItemGap
)

// Item is one thing a follower hands over.
type Item struct {
	Kind ItemKind
	// Cursor is where to resume once this item is dealt with.
	Cursor event.Cursor
	// Event is set for ItemEvent. One of an ephemeral topic has no position and moves no cursor: on each connection the
	// last value of each key comes first, and a key that is not among them by ItemSynced has none.
	Event *event.Event
	// LogTime is set for ItemSynced: the log's time at the cursor.
	LogTime time.Time
	// Reset is set for ItemReset.
	Reset *Reset
	// Gap is set for ItemGap.
	Gap *Gap
}

// Gap is what was removed before a subscription read it.
type Gap struct {
	From event.Cursor `json:"from"` // everything up to here was seen
	To   event.Cursor `json:"to"`   // up to here something was removed
}

// Reset says that a cursor cannot be resumed: the log removed something behind it, or it belongs to another log.
type Reset struct {
	Code   event.Code   // cursor_expired, cursor_foreign or cursor_unknown
	Oldest event.Cursor // where what is still retained begins
	Head   event.Cursor // the end of the log
	Topics []string
	State  string // the URL, relative to the broker, of the state from which to start over
	Detail string
}

// Err is the reset as an error, with its code and facts.
func (r *Reset) Err() error {
	return event.Errorf(r.Code, "%s", r.Detail).
		Fact("oldest", r.Oldest.String()).Fact("head", r.Head.String()).Fact("topics", r.Topics).Fact("state", r.State)
}

// parseReset reads the data of a signalbox.reset block.
func parseReset(data []byte) (*Reset, error) {
	var d struct {
		Code   event.Code      `json:"code"`
		Oldest string          `json:"oldest"`
		Head   json.RawMessage `json:"head"`
		Topics []string        `json:"topics"`
		State  string          `json:"state"`
		Detail string          `json:"detail"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("client: the reset block is unreadable: %w", err)
	}
	r := &Reset{Code: d.Code, Topics: d.Topics, State: d.State, Detail: d.Detail}
	var err error
	if r.Oldest, err = event.ParseCursor(d.Oldest); err != nil {
		return nil, fmt.Errorf("client: the reset block names no oldest cursor: %w", err)
	}
	var head string
	if json.Unmarshal(d.Head, &head) == nil {
		r.Head, _ = event.ParseCursor(head)
	}
	return r, nil
}

// parseSync reads the data of a signalbox.sync block.
func parseSync(data []byte) (time.Time, error) {
	var d struct {
		LogMillis json.Number `json:"log_ms"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return time.Time{}, fmt.Errorf("client: the sync block is unreadable: %w", err)
	}
	ms, err := d.LogMillis.Int64()
	if err != nil {
		return time.Time{}, nil // The marker stands without its time.
	}
	return time.UnixMilli(ms), nil
}
