// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"signalbox/event"
)

const (
	// digestTries is how often Check compares digests before it reads the state. On a busy topic a ledger is seldom at
	// exactly the place that a digest is of.
	digestTries = 3
	// differencesMax bounds the keys that a verdict lists; a ledger that differs in more needs a repair, not a list.
	differencesMax = 1000
)

// Verdict says whether a ledger agreed with the broker about one topic. It is meant to be published, so that an agent
// that has diverged is seen.
type Verdict struct {
	Topic string `json:"topic"`
	// Cursor and LogTime say as of when.
	Cursor  event.Cursor `json:"cursor"`
	LogTime time.Time    `json:"log_time"`
	Agrees  bool         `json:"agrees"`
	// Keys is how many keys the ledger holds, Theirs how many the broker does. They may differ where both agree: the one
	// may be ahead.
	Keys   int `json:"keys"`
	Theirs int `json:"theirs"`
	// Differences are the keys that differ, by name; at most 1,000. Buckets are the digest's buckets that they are in.
	Differences []Difference `json:"differences,omitempty"`
	Buckets     []int        `json:"buckets,omitempty"`
	// More says that there are more differences than are listed.
	More bool `json:"more,omitempty"`
}

// DifferenceKind says how a key differs.
type DifferenceKind string

// The kinds of difference.
const (
	DifferenceMissing DifferenceKind = "missing" // the broker has the key, the ledger does not
	DifferenceStale   DifferenceKind = "stale"   // the ledger has an older event than the broker
	DifferenceExtra   DifferenceKind = "extra"   // the ledger has an event that the broker does not, or no longer, hold
)

// Difference is one key about which a ledger and the broker differ, with the positions of what they hold; 0 is nothing.
type Difference struct {
	Key    string         `json:"key"`
	Kind   DifferenceKind `json:"kind"`
	Own    uint64         `json:"own,string,omitempty"`
	Theirs uint64         `json:"theirs,string,omitempty"`
}

// Check compares the ledger with the broker's state of one topic. It asks for the topic's digest, waits until Run has
// taken in everything up to the digest's cursor, and compares. Where they differ it reads the state and compares key by
// key, which is exact even while events come in. It is meant to be called beside Run, from time to time, and may take
// as long as a heartbeat of the broker (15 s) where other topics are busier than this one.
//
// A verdict that does not agree is no error. [Ledger.Repair] mends what it found.
func (l *Ledger) Check(ctx context.Context, topic string) (Verdict, error) {
	var v Verdict
	for range digestTries {
		theirs, err := l.c.Digest(ctx, topic)
		if err != nil {
			return Verdict{}, err
		}
		if err := l.reach(ctx, theirs.Cursor); err != nil {
			return Verdict{}, err
		}
		l.mu.Lock()
		own := l.book.digest(topic, theirs.LogTime)
		l.mu.Unlock()
		v = Verdict{Topic: topic, Cursor: theirs.Cursor, LogTime: theirs.LogTime, Keys: own.Keys, Theirs: theirs.Keys}
		if v.Agrees = len(own.Diff(theirs)) == 0; v.Agrees {
			return l.found(v), nil
		}
	}
	return l.compare(ctx, topic)
}

// reach waits until the ledger has everything up to a cursor.
func (l *Ledger) reach(ctx context.Context, cursor event.Cursor) error {
	for {
		l.mu.Lock()
		own := l.book.cursor
		if own.Incarnation == cursor.Incarnation && own.Position >= cursor.Position {
			l.mu.Unlock()
			return nil
		}
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-moved:
		}
	}
}

// wake tells those who wait that the ledger's cursor has moved. It is called with the lock held.
func (l *Ledger) wake() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// compare reads the state and finds the keys that differ. At a cursor at or behind the state's the ledger holds, of
// every key, the state's event or a later one; and what it holds from before that cursor, the state has.
func (l *Ledger) compare(ctx context.Context, topic string) (Verdict, error) {
	s, err := l.c.State(ctx, topic)
	if err != nil {
		return Verdict{}, err
	}
	info, err := l.c.Topic(ctx, topic)
	if err != nil {
		return Verdict{}, err
	}
	theirs := map[string]*event.Event{}
	for ev, err := range s.Events() {
		if err != nil {
			return Verdict{}, err
		}
		if key, ok := KeyOf(ev, info.Policy.KeyFrom); ok {
			theirs[key] = ev
		}
	}
	if err := l.reach(ctx, s.Cursor()); err != nil {
		return Verdict{}, err
	}
	v := Verdict{Topic: topic, Cursor: s.Cursor(), LogTime: s.LogTime(), Theirs: len(theirs)}
	l.mu.Lock()
	own := l.book.topics[topic]
	v.Keys = l.book.digest(topic, s.LogTime()).Keys
	for key, ev := range theirs {
		if d, differs := difference(own[key], ev, v); differs {
			d.Key = key
			v.Differences = append(v.Differences, d)
		}
	}
	for key, r := range own {
		if theirs[key] == nil && live(r.event, s.LogTime()) && r.event.Position() <= s.Cursor().Position {
			v.Differences = append(v.Differences, Difference{Key: key, Kind: DifferenceExtra, Own: r.event.Position()})
		}
	}
	l.mu.Unlock()
	v.list()
	return l.found(v), nil
}

// difference compares what the ledger holds of a key with what the state has.
func difference(own *row, theirs *event.Event, v Verdict) (Difference, bool) {
	d := Difference{Theirs: theirs.Position()}
	if own != nil {
		d.Own = own.event.Position()
	}
	switch {
	case own == nil:
		d.Kind = DifferenceMissing
	case beats(theirs, own.event):
		d.Kind = DifferenceStale
	case beats(own.event, theirs) && own.event.Position() <= v.Cursor.Position:
		d.Kind = DifferenceExtra
	}
	return d, d.Kind != ""
}

// list puts the differences in order and within bounds.
func (v *Verdict) list() {
	v.Agrees = len(v.Differences) == 0
	slices.SortFunc(v.Differences, func(x, y Difference) int { return cmp.Compare(x.Key, y.Key) })
	buckets := map[int]bool{}
	for _, d := range v.Differences {
		buckets[int(Bucket(d.Key))] = true
	}
	v.Buckets = slices.Sorted(maps.Keys(buckets))
	if v.More = len(v.Differences) > differencesMax; v.More {
		v.Differences = v.Differences[:differencesMax]
	}
}

func (l *Ledger) found(v Verdict) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checks[v.Topic] = v
	return v
}

// LedgerStatus is all that others may want to know about a ledger. It is meant to be published.
type LedgerStatus struct {
	State   LedgerState   `json:"state"`
	Cursor  event.Cursor  `json:"cursor"`
	Keys    int           `json:"keys"` // tombstones that are still kept included
	Figures LedgerFigures `json:"figures"`
	// Diverged says that the last verdict on some topic did not agree.
	Diverged bool      `json:"diverged"`
	Verdicts []Verdict `json:"verdicts,omitempty"` // the last one on each topic that was checked
}

// Status returns the ledger's status.
func (l *Ledger) Status() LedgerStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LedgerStatus{State: l.state, Cursor: l.book.cursor, Keys: l.book.rows, Figures: l.figures}
	for _, topic := range slices.Sorted(maps.Keys(l.checks)) {
		s.Verdicts = append(s.Verdicts, l.checks[topic])
		s.Diverged = s.Diverged || !l.checks[topic].Agrees
	}
	return s
}
