// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
)

// read looks for events behind the cursor until there are enough, or as many
// are pending as may be.
func (pl *plan) read(ctx context.Context) error {
	room := min(pl.req.Max-len(pl.hand.Again), pl.settings().MaxOutstanding-int(pl.state.Outstanding))
	if pl.settings().Order == event.OrderStrict {
		room = min(room, 1-int(pl.state.Outstanding))
	}
	if room <= 0 {
		return nil
	}
	if err := pl.open(ctx); err != nil {
		return err
	}
	reader := pl.s.reader
	pl.s.ahead = ahead{} // until nothing was found again
	pl.arrived = reader.Changed()
	pl.locked, pl.parked = map[[16]byte]bool{}, int(pl.state.Parked)
	bytes := 0
	for began := time.Now(); room > 0 && len(pl.hand.Events) < candidatesMax && bytes < fetchBytes; {
		pl.s.passed = dispatch.Counts{}
		window, err := reader.Poll(dispatch.Limit{Events: room, Bytes: fetchBytes})
		if err != nil {
			pl.closeReader()
			return pl.gap(ctx, err)
		}
		for i := range window.Deliveries {
			d := &window.Deliveries[i]
			free, err := pl.candidate(d)
			if err != nil {
				return err
			}
			if pl.parked > pl.settings().MaxParked {
				pl.full()
				return nil
			}
			if free {
				room--
			}
			bytes += len(d.JSON())
		}
		// What is told apart within a window only is counted behind it.
		pl.counts.Dropped += pl.s.passed.Dropped
		pl.counts.Errors += pl.s.passed.Failed
		pl.hand.To = eventlog.Place{Cursor: window.Cursor.Position, Began: window.Cursor.Began, Since: pl.state.Since}
		if pl.more = !window.CaughtUp; !pl.more {
			break
		}
		if time.Since(began) > planTime {
			done := make(chan struct{})
			close(done)
			pl.arrived = done // there is more
			break
		}
	}
	pl.hand.Rest = pl.counts
	if len(pl.hand.Events) == 0 {
		pl.s.ahead = ahead{pl.hand.Epoch, pl.hand.From, pl.hand.To, pl.counts}
	}
	return nil
}

// full ends the plan before the last candidate, which would have to be parked
// where nothing more may be. Until something is settled there is no use in
// looking again.
func (pl *plan) full() {
	last := len(pl.hand.Events) - 1
	pl.hand.Events = pl.hand.Events[:last]
	pl.hand.To = pl.hand.From
	if last > 0 {
		pl.hand.To.Cursor = pl.hand.Events[last-1].Position
	}
	pl.arrived, pl.more = nil, false
}

// candidate adds an event, and reports whether nothing keeps it from being
// handed out.
func (pl *plan) candidate(d *dispatch.Delivery) (free bool, err error) {
	c := eventlog.Candidate{Position: d.Position, Before: pl.counts}
	pl.counts = eventlog.Counts{}
	c.Topic, _ = event.LookupJSON(d.JSON(), "topic")
	free = true
	if pl.settings().Order == event.OrderKey {
		if key := pl.b.keyOf(c.Topic, d.JSON()); key != "" {
			c.Ordered = true
			sum := sha256.Sum256([]byte(c.Topic + "\x00" + key))
			copy(c.Key[:], sum[:])
			waits := pl.locked[c.Key]
			if !waits {
				if waits, err = pl.b.store.HasKeyList(pl.number, pl.state.Epoch, c.Key); err != nil {
					return false, err
				}
			}
			pl.locked[c.Key] = true
			if free = !waits; waits {
				pl.parked++
			}
		}
	}
	pl.hand.Events = append(pl.hand.Events, c)
	pl.json[d.Position] = append([]byte(nil), d.JSON()...)
	return free, nil
}

// keyOf returns the entity that an event is about, "" if it has none.
func (b *Broker) keyOf(topic string, json []byte) string {
	for _, name := range []string{"partitionkey", "subject"} {
		if key, ok := event.LookupJSON(json, name); ok && key != "" {
			return key
		}
	}
	t, err := b.dispatch.Topic(topic)
	if err != nil || t.Policy.KeyFrom == "" {
		return ""
	}
	path := "data." + t.Policy.KeyFrom
	if strings.HasPrefix(t.Policy.KeyFrom, "[") {
		path = "data" + t.Policy.KeyFrom
	}
	key, _ := event.LookupJSON(json, path)
	return key
}

// open sees to it that the session's reader is where the subscription is.
func (pl *plan) open(ctx context.Context) error {
	filter := string(pl.config.Document.AppendJSON(nil, false))
	if r := pl.s.reader; r != nil && pl.s.filter == filter {
		c, a := r.Cursor(), &pl.s.ahead
		if c.Position == pl.state.Cursor && c.Began <= max(pl.state.Began, c.Position) {
			return nil
		}
		if a.epoch == pl.hand.Epoch && a.from == pl.hand.From && a.to.Cursor == c.Position {
			pl.counts = a.counts
			return nil
		}
	}
	pl.closeReader()
	// The reader outlives this plan, so what it counts is the session's.
	spec, err := pl.b.specOf(pl.reach, &pl.config.Document, &pl.state, pl.s.count)
	if err != nil {
		return err
	}
	reader, err := pl.b.dispatch.Open(spec)
	if err != nil {
		return pl.gap(ctx, err)
	}
	pl.s.reader, pl.s.filter = reader, filter
	return nil
}

func (pl *plan) closeReader() {
	if pl.s.reader != nil {
		pl.s.reader.Close()
		pl.s.reader = nil
	}
}
