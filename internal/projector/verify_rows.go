// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"crypto/sha256"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/store"
)

// leaves checks that the audit leaves are without a gap and chain up to the
// head that the space has.
func (v *verifier) leaves() error {
	var chain [32]byte
	next := uint64(0)
	err := v.in.Leaves(func(l store.LeavesAt, err error) error {
		if err != nil {
			v.undecoded(Finding{Leaf: l.First, HasLeaf: true}, err)
			return v.row()
		}
		if l.First != next {
			v.found(Finding{What: "leaf_gap", Leaf: next, HasLeaf: true, Explanation: sprintf("The audit leaves from %d on are expected here, and those from %d on follow.", next, l.First)})
		}
		next = l.First + uint64(len(l.Leaves)/32)
		for b := l.Leaves; len(b) > 0; b = b[32:] {
			chain = audit.NextChain(chain, [32]byte(b))
			v.tally.Leaves++
			if v.watch.Leaf != nil {
				v.watch.Leaf([32]byte(b), chain)
			}
		}
		return v.row()
	})
	if err != nil {
		return err
	}
	if next != v.space.Leaves {
		v.found(Finding{What: "leaf_count", Leaf: next, HasLeaf: true, Explanation: sprintf("There are audit leaves up to %d, and the space has counted %d.", next, v.space.Leaves)})
	}
	if chain != v.space.Chain {
		v.found(Finding{What: "chain", Explanation: sprintf("The audit leaves chain up to %x, and the head that was stored with the last commit is %x: a leaf was changed, lost or added.", chain, v.space.Chain)})
	}
	if v.space.Leaves < v.space.Position {
		v.found(Finding{What: "leaf_count", Explanation: sprintf("There are %d audit leaves for %d events.", v.space.Leaves, v.space.Position)})
	}
	return nil
}

// entries checks that each entry of the audit trail gives its leaf, and that from the
// first one on none is missing: those before it were written when only leaves were kept.
func (v *verifier) entries() error {
	next, known := uint64(0), false
	missing := func(to uint64) {
		if known && to != next {
			v.found(Finding{What: "entry", Leaf: next, HasLeaf: true, Explanation: sprintf("The entries of the audit trail from %d to before %d are missing, and their leaves are there: they were removed.", next, to)})
		}
	}
	err := v.in.Entries(func(e store.EntriesAt, err error) error {
		if err != nil {
			v.undecoded(Finding{}, err)
			known = false
			return v.row()
		}
		missing(e.First)
		known = true
		index := e.First
		for b := e.Entries; len(b) > 0; index++ {
			var entry audit.Entry
			if entry, b, err = audit.DecodeEntry(b); err != nil {
				v.undecoded(Finding{Leaf: index, HasLeaf: true}, err)
				known = false
				break
			}
			v.tally.Entries++
			if err := v.entry(index, &entry); err != nil {
				return err
			}
		}
		next = index
		return v.row()
	})
	if err == nil && v.complete("leaves") {
		missing(v.space.Leaves)
	}
	return err
}

func (v *verifier) entry(index uint64, e *audit.Entry) error {
	e.Index = index
	want := e.Leaf()
	got, ok, err := v.in.Leaf(index)
	switch {
	case err != nil && v.complete("leaves"):
		return err
	case err != nil: // it was reported once
	case !ok || got != want:
		v.found(Finding{What: "entry", Topic: e.Topic, Position: e.Position, Leaf: index, HasLeaf: true,
			Explanation: sprintf("The entry gives the leaf %x, and %x is stored: the entry or the leaf was changed.", want, got)})
	case e.Detail != nil && sha256.Sum256(e.Detail) != e.Digest:
		v.found(Finding{What: "entry", Topic: e.Topic, Leaf: index, HasLeaf: true, Explanation: "The entry's detail does not give its digest: it was changed."})
	}
	return nil
}

func (v *verifier) events() error {
	return v.in.Events(func(e store.EventAt, err error) error {
		t := v.topics[e.Topic]
		switch {
		case err != nil:
			v.undecoded(Finding{Topic: v.name(e.Topic), Position: e.Position}, err)
			if t != nil && e.Position > t.RetiredTo {
				t.events++ // it is there, so that it is not reported as missing, too
			}
		case t == nil:
			v.orphan(e.Topic, e.Position, "event")
		default:
			if err := v.event(t, &e); err != nil {
				return err
			}
		}
		return v.row()
	})
}

// event checks one event. Its audit leaf proves that position, times and bytes
// are those that were acknowledged.
func (v *verifier) event(t *verified, e *store.EventAt) error {
	bad := v.about(t, e)
	if e.Position == 0 || e.Position > v.space.Position || e.Position > t.Last {
		bad("position", "The event's position is beyond its topic's last, %d, or the space's, %d.", t.Last, v.space.Position)
	}
	if err := v.eventLeaf(t, e, bad); err != nil {
		return err
	}
	if e.Position <= t.RetiredTo {
		v.tally.Reclaim++
		return nil
	}
	v.tally.Events++
	t.events++
	t.retained += uint64(len(e.Members))
	if e.Flags&store.EventSuperseded != 0 {
		bad("flags", "The event was superseded when it was applied, and such an event is at most kept as history.")
	}
	v.content(t, e, &t.last, bad)
	if !t.Policy.Compacts() && e.Count <= t.Count-t.Events {
		bad("figures", "The event is number %d of its topic, and the figures retain the last %d of %d.", e.Count, t.Events, t.Count)
	}
	if err := v.armed(e, bad); err != nil {
		return err
	}
	return v.eventKey(t, e, bad)
}

// armed checks that an event that expires will go.
func (v *verifier) armed(e *store.EventAt, bad report) error {
	if e.ExpiryMillis == 0 || !v.complete("timers") || TicketTopic(v.name(e.Topic)) {
		return nil
	}
	armed, err := v.in.HasTimer(store.Timer{DueMillis: e.ExpiryMillis, Topic: e.Topic, Position: e.Position, Kind: store.TimerExpire})
	if err == nil && !armed {
		bad("timer", "The event expires and no timer is armed for it.")
	}
	return err
}

type report func(what, format string, args ...any)

// content checks what a stored event says by itself, and beside the one before.
func (v *verifier) content(t *verified, e *store.EventAt, last *running, bad report) {
	if uint64(e.DataOffset)+uint64(e.DataLength) > uint64(len(e.Members)) {
		bad("data", "The event's data is said to be at %d, %d bytes long, and the event has %d bytes.", e.DataOffset, e.DataLength, len(e.Members))
	}
	if e.HLC > t.HighestHLC || e.LogMillis > v.space.LogMillis {
		bad("time", "The event's HLC %s is above its topic's highest, %s, or its log time is after the space's.", e.HLC, t.HighestHLC)
	}
	if e.Count <= last.count || e.Bytes < last.bytes+uint64(len(e.Members)) || e.Count > t.Count || e.Bytes > t.Bytes {
		bad("counters", "The event's running counts, %d events and %d bytes, do not fit between the last event's, %d and %d, and the topic's, %d and %d.", e.Count, e.Bytes, last.count, last.bytes, t.Count, t.Bytes)
	}
	*last = running{e.Count, e.Bytes}
}

// eventLeaf recomputes the event's audit leaf from its row.
func (v *verifier) eventLeaf(t *verified, e *store.EventAt, bad report) error {
	h := sha256.New()
	h.Write(e.Salt[:])
	h.Write(e.Members)
	outcome := Accepted
	if e.Flags&store.EventSuperseded != 0 {
		outcome = Superseded
	}
	l := audit.Entry{Index: e.Leaf, Kind: audit.KindEvent, LogMillis: e.LogMillis, Position: e.Position, HLC: e.HLC, Flags: outcome, Topic: t.Name, Digest: [32]byte(h.Sum(nil))}
	want := l.Leaf()
	got, ok, err := v.in.Leaf(e.Leaf)
	switch {
	case err != nil:
		if !v.complete("leaves") {
			return nil // it was reported once
		}
		return err
	case !ok:
		bad("leaf", "The event refers to audit leaf %d, and there is none.", e.Leaf)
	case got != want:
		bad("leaf", "The event's audit leaf, recomputed from the stored event, is %x, and %x is stored: the event or the leaf was changed.", want, got)
	}
	return nil
}

// eventKey checks that the event of a compacted topic is the winner of its key,
// and that a repetition of the event would be recognised.
func (v *verifier) eventKey(t *verified, e *store.EventAt, bad report) error {
	var id, source string
	if t.Policy.Compacts() {
		w, ok, err := v.in.Winner(e.Topic, string(e.Key))
		switch {
		case err != nil:
			return err
		case !ok || w.Position != e.Position:
			bad("winner", "The event is stored, and the winner of its key is at position %d: what does not win is not retained.", w.Position)
			return nil
		case w.HLC != e.HLC || w.ExpiryMillis != e.ExpiryMillis || int(w.Size) != len(e.Members) ||
			w.Flags&store.WinnerTombstone != 0 != (e.Flags&store.EventTombstone != 0):
			bad("winner", "The event and the row of its key disagree about HLC, expiry, size or whether it is a tombstone.")
		}
		id, source = w.ID, w.Source
	} else {
		object := append([]byte{'{'}, e.Members...)
		id, _ = event.LookupJSON(object, "id")
		source, _ = event.LookupJSON(object, "source")
	}
	return v.remembered(e, id, source, bad)
}

// remembered checks that a repetition of a stored event would be recognised.
func (v *verifier) remembered(e *store.EventAt, id, source string, bad report) error {
	// Only in the generation that is still open is it certain that the record
	// must be there, and only for events after the tick that opened it. It may be
	// that of a later event, where the window was made shorter meanwhile.
	if e.LogMillis <= v.space.GenerationMillis || v.space.GenerationMillis == 0 {
		return nil
	}
	seen, ok, err := v.in.Remembered(v.space.Generation, e.Topic, event.HashID(id), event.HashSource(source))
	if err == nil && (!ok || seen.Position < e.Position || seen.Position == e.Position && seen.HLC != e.HLC) {
		bad("seen", "A repetition of event %q of source %q would not be recognised: its deduplication record is missing or is that of position %d.", id, source, seen.Position)
	}
	return err
}

func (v *verifier) winners() error {
	return v.in.Winners(func(w store.WinnerAt, err error) error {
		t := v.topics[w.Topic]
		switch {
		case err != nil:
			v.undecoded(Finding{Topic: v.name(w.Topic), Key: w.Key}, err)
		case t == nil:
			v.orphan(w.Topic, w.Position, "winner")
		default:
			if err := v.winner(t, &w); err != nil {
				return err
			}
		}
		return v.row()
	})
}

func (v *verifier) winner(t *verified, w *store.WinnerAt) error {
	v.tally.Winners++
	bad := func(what, format string, args ...any) {
		v.found(Finding{What: what, Topic: t.Name, Position: w.Position, Key: w.Key, Explanation: sprintf(format, args...)})
	}
	if !t.Policy.Compacts() {
		bad("winner", "The topic is not compacted, and there is a row for this key.")
		return nil
	}
	if w.Flags == 0 {
		t.keys++
	} else {
		t.tombstones++
	}
	if w.Flags&^(store.WinnerTombstone|store.WinnerHidden) != 0 {
		bad("flags", "The row of the key has unknown flags, %x.", w.Flags)
	}
	if w.Position > t.Last || w.HLC > t.HighestHLC {
		bad("position", "The winner's position or HLC is beyond its topic's, %d and %s.", t.Last, t.HighestHLC)
	}
	stored, err := v.in.HasEvent(w.Topic, w.Position)
	if err != nil {
		return err
	}
	switch hidden := w.Flags&store.WinnerHidden != 0; {
	case !hidden && !stored:
		bad("event_missing", "The key's winner is not stored: an acknowledged event is lost.")
	case hidden && stored && w.Position > t.RetiredTo:
		bad("winner", "The key's winner has expired, and its event is still stored.")
	}
	if w.Flags != 0 && v.complete("timers") && !v.purges[timerAt{w.Topic, w.Position}] {
		bad("timer", "The key was removed or has expired, and no timer is armed that will forget it.")
	}
	return nil
}

func (v *verifier) timers() error {
	return v.in.Timers(func(t store.Timer, err error) error {
		v.tally.Timers++
		if err != nil {
			v.undecoded(Finding{}, err)
			return v.row()
		}
		bad := func(format string, args ...any) {
			v.found(Finding{What: "timer", Topic: v.name(t.Topic), Position: t.Position, Key: t.Key, Explanation: sprintf(format, args...)})
		}
		switch {
		case t.Kind == store.TimerDeadline || t.Kind == store.TimerUnused: // of a subscription, which may have ended
		case t.Kind == store.TimerMessage || t.Kind == store.TimerSilence:
			if ok, err := v.messageTimer(&t); err != nil {
				return err
			} else if !ok {
				bad("A timer is for a deadline or an agent that does not have it: %q.", t.Key)
			}
		case t.Topic == 0 || t.Topic > v.space.TopicLast:
			bad("A timer refers to topic number %d, which was never given out.", t.Topic)
		case t.Position == 0 || t.Position > v.space.Position:
			bad("A timer refers to a position beyond the last, %d.", v.space.Position)
		case t.Kind == store.TimerPurge && t.Key == "":
			bad("A timer is to forget a key and does not say which.")
		case t.Kind == store.TimerPurge:
			v.purges[timerAt{t.Topic, t.Position}] = true
		case t.Kind != store.TimerExpire:
			bad("A timer is of unknown kind %d.", t.Kind)
		}
		return v.row()
	})
}

// generation checks that a deduplication record is in a generation that a
// look-up sees.
func (v *verifier) generation(number uint32) {
	if number != v.space.Generation && number+1 != v.space.Generation {
		v.found(Finding{What: "generation", Explanation: sprintf("There is a deduplication record of generation %d; the current one is %d, and only the one before it is kept.", number, v.space.Generation)})
	}
}

func (v *verifier) seen() error {
	return v.in.Seen(func(s store.SeenAt, err error) error {
		v.tally.Seen++
		if err != nil {
			v.undecoded(Finding{Topic: v.name(s.Topic)}, err)
			return v.row()
		}
		v.generation(s.Generation)
		if s.Topic == 0 || s.Topic > v.space.TopicLast || s.Position == 0 || s.Position > v.space.Position || s.HLC > v.space.HLC || s.LogMillis > v.space.LogMillis {
			v.found(Finding{What: "seen", Topic: v.name(s.Topic), Position: s.Position, Explanation: sprintf("A deduplication record (topic number %d) is beyond the space's position, HLC or time.", s.Topic)})
		}
		if s.Hidden {
			v.found(Finding{What: "seen", Topic: v.name(s.Topic), Position: s.Position, Explanation: sprintf("A repetition of the event at this position would not be recognised: the filter of deduplication segment %d denies its record.", s.Segment)})
		}
		return v.row()
	})
}

func (v *verifier) answered() error {
	return v.in.Answered(func(a store.AnsweredAt, err error) error {
		v.tally.Answered++
		if err != nil {
			v.undecoded(Finding{}, err)
			return v.row()
		}
		v.generation(a.Generation)
		for _, verdict := range a.Verdicts {
			if verdict.Outcome < Accepted || verdict.Outcome > Duplicate || verdict.Position == 0 || verdict.Position > v.space.Position {
				v.found(Finding{What: "answered", Position: verdict.Position, Explanation: "The stored answer to an idempotent request has an unknown outcome, or a position beyond the last."})
			}
		}
		return v.row()
	})
}

func (v *verifier) minutes() error {
	var last store.MinuteAt
	return v.in.Minutes(func(m store.MinuteAt, err error) error {
		v.tally.Minutes++
		if err != nil {
			v.undecoded(Finding{}, err)
			return v.row()
		}
		if m.Position <= last.Position || m.Position > v.space.Position || m.Minute > v.space.Minute {
			v.found(Finding{What: "minute", Position: m.Position, Explanation: sprintf("Minute %d begins at a position that is not after the minute's before, %d, or beyond the last, %d.", m.Minute, last.Position, v.space.Position)})
		}
		last = m
		return v.row()
	})
}
