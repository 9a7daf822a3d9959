// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"context"
	"errors"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// Finding is something in a store that apply cannot have left there.
type Finding struct {
	What        string // a short name of the broken rule, the same for all findings of its kind
	Topic       string
	Position    uint64
	Key         string
	Leaf        uint64
	HasLeaf     bool
	Explanation string
}

// Tally counts the rows that were checked.
type Tally struct {
	Leaves    uint64
	Entries   uint64 // of these leaves that have one
	Events    uint64 // retained, without History
	History   uint64 // retained although they are superseded
	Reclaim   uint64 // events that are gone, and whose space is not reclaimed yet
	Winners   uint64
	Seen      uint64
	Answered  uint64
	Timers    uint64
	Minutes   uint64
	Topics    uint64 // deleted ones included
	Garbage   uint64 // deleted topics whose space is not reclaimed yet
	Position  uint64 // of the last event
	Chain     [32]byte
	LogMillis int64
	Settings  eventlog.Settings

	Subscriptions uint64
	Agents        uint64
	Messages      uint64
	Deadlines     uint64 // of messages, open
	Obligations   uint64 // messages that the bus has still to send

	Incomplete []string // kinds of rows that could not be read to the end
}

// Watch is told what a verification finds and how far it is.
type Watch struct {
	Found    func(Finding)
	Progress func(step string, rows uint64)
	// Leaf, if set, is told of every audit leaf in order, and of the chain behind it.
	Leaf func(leaf, chain [32]byte)
}

// verifier checks a store against what apply guarantees. It compares rows of
// different kinds in both directions, as each is written twice in some form:
// what is wrong in one of them shows in the other.
type verifier struct {
	ctx     context.Context
	in      *store.Inspector
	watch   Watch
	tally   Tally
	space   store.Space
	topics  map[uint32]*verified
	garbage map[uint32]bool
	purges  map[timerAt]bool // armed purge timers
	step    string
	rows    uint64

	letterTopics map[string]*verified // by name; set by subscriptions
}

// verified is what was counted of one topic.
type verified struct {
	store.Topic
	figures    bool // its T row was found
	events     uint64
	retained   uint64
	history    uint64
	last       running // of its last event row
	lastPast   running // of its last history row
	keys       uint64
	tombstones uint64
}

// running are the counts that grow from event to event.
type running struct{ count, bytes uint64 }

type timerAt struct {
	topic    uint32
	position uint64
}

// Verify reads every row of a store and checks it against the others. It fails
// only when ctx ends; what it finds is told to watch.
func Verify(ctx context.Context, s *store.Store, watch Watch) (Tally, error) {
	v := &verifier{ctx: ctx, watch: watch, topics: map[uint32]*verified{}, garbage: map[uint32]bool{}, purges: map[timerAt]bool{}}
	space, settings, ok, err := s.LoadSpace()
	if err != nil {
		v.found(Finding{What: "space", Explanation: "The space's own row cannot be read, so nothing can be compared with it: " + text(err) + "."})
		return v.tally, ctx.Err()
	}
	if !ok {
		return v.tally, ctx.Err() // nothing was ever committed
	}
	v.space, v.tally.Settings = space, settings
	v.tally.Position, v.tally.Chain, v.tally.LogMillis = space.Position, space.Chain, space.LogMillis
	if v.in, err = s.NewInspector(); err != nil {
		v.found(Finding{What: "unreadable", Explanation: "The rows cannot be read: " + text(err) + "."})
		return v.tally, ctx.Err()
	}
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"unknown", v.unknown}, {"topics", v.names}, {"garbage", v.garbageMarks}, {"figures", v.figureRows}, {"leaves", v.leaves}, {"entries", v.entries},
		{"timers", v.timers}, {"events", v.events}, {"history", v.histories}, {"winners", v.winners}, {"seen", v.seen}, {"answered", v.answered}, {"minutes", v.minutes},
		{"subscriptions", v.subscriptions}, {"agents", v.agents}, {"messages", v.messages},
	} {
		v.step, v.rows = step.name, 0
		if err := step.run(); err != nil {
			if ctx.Err() != nil {
				break
			}
			v.tally.Incomplete = append(v.tally.Incomplete, step.name)
			v.found(Finding{What: "unreadable", Explanation: "The rows of this kind (" + step.name + ") cannot be read to the end: " + text(err) + ". What follows in them was not checked."})
		}
	}
	v.compareFigures()
	if err := v.in.Close(); err != nil && v.complete("leaves", "events") {
		v.found(Finding{What: "unreadable", Explanation: "The rows cannot be read: " + text(err) + "."})
	}
	return v.tally, ctx.Err()
}

// text is what an error says to the operator.
func text(err error) string {
	if inner := errors.Unwrap(event.AsError(err)); inner != nil {
		return inner.Error()
	}
	return err.Error()
}

func (v *verifier) found(f Finding) {
	if v.watch.Found != nil {
		v.watch.Found(f)
	}
}

// progressRows is how many rows lie between two reports.
const progressRows = 10_000

// row counts a row of the current step, and fails once ctx has ended.
func (v *verifier) row() error {
	v.rows++
	if v.rows%progressRows == 0 {
		if v.watch.Progress != nil {
			v.watch.Progress(v.step, v.rows)
		}
		return v.ctx.Err()
	}
	return nil
}

// undecoded reports a row that does not decode.
func (v *verifier) undecoded(f Finding, err error) {
	f.What, f.Explanation = "undecodable", "A row of this kind ("+v.step+") does not decode: "+text(err)+"."
	v.found(f)
}

// complete reports whether the rows of a kind were all seen, so that what is
// not among them is missing.
func (v *verifier) complete(steps ...string) bool {
	for _, step := range steps {
		for _, incomplete := range v.tally.Incomplete {
			if step == incomplete {
				return false
			}
		}
	}
	return true
}

// name is how a topic number is shown.
func (v *verifier) name(number uint32) string {
	if t := v.topics[number]; t != nil {
		return t.Name
	}
	return ""
}

func (v *verifier) unknown() error {
	return v.in.Unknown(func(key []byte) error {
		v.found(Finding{What: "unknown_row", Explanation: sprintf("There is a row under the key %x, which is of no known kind.", key)})
		return v.row()
	})
}
