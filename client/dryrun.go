// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"net/http"

	"signalbox/event"
)

// DryRun says what to try a filter on. Either Filter or Filters is set.
type DryRun struct {
	Filter  string          `json:"filter,omitempty"`  // a CESQL expression
	Filters json.RawMessage `json:"filters,omitempty"` // an array of filters in the dialects of the Subscriptions API
	Strict  bool            `json:"strict,omitempty"`  // refuse what is not in the standard
	Topics  []string        `json:"topics,omitempty"`  // names or patterns; none: all but the broker's own
	Last    int             `json:"last,omitempty"`    // how many of the latest events, up to 10,000; 0: 1,000
	// Event, Cursor and Latest name an event to explain; at most one of them is set.
	Event  *event.Event `json:"-"` // that need not have been published
	Cursor event.Cursor `json:"-"` // at which it is
	Latest bool         `json:"-"` // the latest one in the topics
}

// DryRunReport says what a filter makes of the events that were looked at, and why some do not pass.
type DryRunReport struct {
	Canonical  string         `json:"canonical"` // the filter in one spelling
	Cursor     event.Cursor   `json:"cursor"`    // at which all this is exact
	Complete   bool           `json:"complete"`  // false: the time was up before all were looked at
	Events     int            `json:"events"`
	Matched    int            `json:"matched"`
	Errors     int            `json:"errors"`      // events on which an evaluation ended so
	ErrorKinds map[string]int `json:"error_kinds"` // by the standard's names
	Matches    []DryRunMatch  `json:"matches"`     // the latest of them
	Failures   []DryRunFault  `json:"failures"`    // what most events failed at first
	Explained  *DryRunVerdict `json:"explained,omitempty"`
}

// DryRunMatch is an event that passes.
type DryRunMatch struct {
	Cursor event.Cursor `json:"cursor"`
	Topic  string       `json:"topic"`
	Source string       `json:"source"`
	ID     string       `json:"id"`
}

// DryRunFault is a clause that kept events from passing, and on how many it was the first to do so.
type DryRunFault struct {
	Clause string   `json:"clause"`
	Errors []string `json:"errors,omitempty"` // that were met in it
	Events int      `json:"events"`
}

// DryRunVerdict says what becomes of one event.
type DryRunVerdict struct {
	Cursor *event.Cursor `json:"cursor,omitempty"` // if it is in the log
	Source string        `json:"source"`
	ID     string        `json:"id"`
	Passes bool          `json:"passes"`
	// Tombstone says that it removes a key, and so passes, too, if the filter looked for something in data.
	Tombstone   bool        `json:"tombstone,omitempty"`
	Explanation Explanation `json:"explanation"`
}

// Explanation says what became of a part of a filter on one event, and of what it is made of.
type Explanation struct {
	Clause  string        `json:"clause"`
	Passes  bool          `json:"passes"`
	Reached bool          `json:"reached"`          // false: what is before it had decided
	Value   string        `json:"value,omitempty"`  // of an attribute, a path or a calculation
	Errors  []string      `json:"errors,omitempty"` // the standard's names
	Parts   []Explanation `json:"parts,omitempty"`
}

// DryRun tries a filter on the last events that are retained, and changes nothing. A filter that is not valid fails with
// code filter_invalid and, among the facts, the place and a caret line.
func (c *Client) DryRun(ctx context.Context, d DryRun) (DryRunReport, error) {
	q := struct {
		DryRun
		Event any `json:"event,omitempty"`
	}{DryRun: d}
	switch {
	case d.Event != nil:
		q.Event = json.RawMessage(d.Event.AppendJSON(nil))
	case d.Cursor != event.Cursor{}:
		q.Event = d.Cursor
	case d.Latest:
		q.Event = "latest"
	}
	body, err := json.Marshal(q)
	if err != nil {
		return DryRunReport{}, err
	}
	var report DryRunReport
	h := http.Header{"Content-Type": {"application/json"}}
	_, _, err = c.do(ctx, call{method: http.MethodPost, url: c.base + "/v1/filters/dry-run", header: h, body: body}, &report)
	return report, err
}
