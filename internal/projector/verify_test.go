// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// soundRig has rows of every kind: topics of both policies and a deleted one,
// tombstones, hidden winners, timers, two generations, an idempotent request, and a
// topic that keeps what is superseded.
func soundRig(t *testing.T) *rig {
	t.Helper()
	settings := defaultSettings()
	settings.DedupMillis = 60_000
	r := newRig(t, settings)
	r.do(tick(epoch))
	for _, name := range []string{"state", "gone"} {
		r.do(putTopic(name, compacted()))
	}
	n, now := 0, int64(epoch)
	publish := func(topic, key string, draft event.Draft) {
		n++
		draft.ID, draft.Source, draft.Type, draft.Subject = string(rune('A'+n)), "/s", "t", key
		ev, err := draft.Event()
		if err != nil {
			t.Fatal(err)
		}
		p := &eventlog.Proposal{Kind: eventlog.KindEvents, Topic: topic, AdmittedMillis: now, Entries: []eventlog.Entry{entry(ev)}}
		if n == 1 {
			p.Idempotency = eventlog.Idempotency{Set: true, Scope: [16]byte{1}, Request: [16]byte{2}}
		}
		if result := r.do(p); result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	at := func(after time.Duration) map[string]any {
		return map[string]any{"expirytime": time.UnixMilli(epoch).Add(after).UTC().Format(time.RFC3339Nano)}
	}
	publish("log", "", event.Draft{Data: []byte("1")})
	publish("log", "", event.Draft{Data: []byte("2"), Extensions: at(time.Hour)})
	publish("gone", "k", event.Draft{Data: []byte("3")})
	r.do(deleteTopic("gone"))
	publish("state", "live", event.Draft{Data: []byte("4")})
	publish("state", "live", event.Draft{Data: []byte("5"), Extensions: at(time.Hour)})
	publish("state", "removed", event.Draft{})
	publish("state", "expired", event.Draft{Data: []byte("6"), Extensions: at(time.Minute)})
	now = epoch + 61_000
	r.do(tick(now)) // "expired" is hidden, and the second generation begins
	now++
	r.do(tick(now))
	publish("log", "", event.Draft{Data: []byte("7")})
	publish("state", "fresh", event.Draft{Data: []byte("8")})
	past := compacted()
	past.MinCompactionLag = event.Duration(time.Hour)
	r.do(putTopic("past", past))
	publish("past", "k", event.Draft{Data: []byte("9")})
	publish("past", "k", event.Draft{Data: []byte("10")})
	publish("past", "k", event.Draft{Data: []byte("11"), Extensions: map[string]any{"hlc": event.NewHLC(epoch, 0).String()}})
	return r
}

// inspect verifies the rig's store and returns what was found.
func inspect(t *testing.T, r *rig) []projector.Finding {
	t.Helper()
	var found []projector.Finding
	_, err := projector.Verify(context.Background(), r.store, projector.Watch{Found: func(f projector.Finding) { found = append(found, f) }})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// eventRow returns a stored event, and winnerRow a winner, to be written back
// with a change.
func eventRow(t *testing.T, r *rig, topic string, position uint64) (number uint32, row store.EventRow) {
	t.Helper()
	info, _ := r.topic(topic)
	ok, err := r.store.Event(info.Number, position, func(e store.EventRow) error {
		row = e
		row.Key, row.Members = slices.Clone(e.Key), slices.Clone(e.Members)
		return nil
	})
	if err != nil || !ok {
		t.Fatalf("%s has no event at %d: %v", topic, position, err)
	}
	return info.Number, row
}

func TestVerifyFindsNothingInSoundRows(t *testing.T) {
	r := soundRig(t)
	defer r.close()
	for _, f := range inspect(t, r) {
		t.Errorf("found %+v", f)
	}
	tally, err := projector.Verify(context.Background(), r.store, projector.Watch{})
	if err != nil {
		t.Fatal(err)
	}
	want := projector.Tally{Leaves: 18, Entries: 18, Events: 7, History: 2, Reclaim: 0, Winners: 5, Seen: 12, Answered: 1, Timers: 4, Minutes: 2, Topics: 4, Garbage: 1, Position: 12}
	got := tally
	got.Chain, got.LogMillis, got.Settings = want.Chain, want.LogMillis, want.Settings
	if got.Leaves != want.Leaves || got.Entries != want.Entries || got.Events != want.Events || got.History != want.History || got.Winners != want.Winners || got.Seen != want.Seen || got.Answered != want.Answered ||
		got.Timers != want.Timers || got.Minutes != want.Minutes || got.Topics != want.Topics || got.Garbage != want.Garbage || got.Position != want.Position {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// damage is a change of rows and the finding that tells of it.
type damage struct {
	name  string
	what  string // of a finding that must be there
	place string // that must be in it: topic, key or part of the explanation
	write write
}

type write func(t *testing.T, r *rig, b *store.Batch)

func changeEvent(topic string, position uint64, how func(*store.EventRow)) write {
	return func(t *testing.T, r *rig, b *store.Batch) {
		number, row := eventRow(t, r, topic, position)
		how(&row)
		b.SetEvent(number, position, &row)
	}
}

func changeWinner(key string, how func(*store.WinnerRow)) write {
	return func(t *testing.T, r *rig, b *store.Batch) {
		info, _ := r.topic("state")
		row, ok := r.winners("state")[key]
		if !ok {
			t.Fatalf("no winner of %q", key)
		}
		how(&row)
		b.SetWinner(info.Number, key, &row)
	}
}

func changeFigures(topic string, how func(*store.Figures)) write {
	return func(_ *testing.T, r *rig, b *store.Batch) {
		info, _ := r.topic(topic)
		how(&info.Figures)
		b.SetFigures(info.Number, &info.Figures)
	}
}

func changeSpace(how func(*store.Space)) write {
	return func(_ *testing.T, r *rig, b *store.Batch) {
		space := r.projector.Space()
		how(&space)
		b.SetSpace(&space)
	}
}

// eventDamages are those to events.
func eventDamages() []damage {
	return []damage{
		{"data changed", "leaf", "log", changeEvent("log", 1, func(e *store.EventRow) { e.Members[len(e.Members)-2] = '9' })},
		{"HLC changed", "leaf", "log", changeEvent("log", 1, func(e *store.EventRow) { e.HLC-- })},
		{"time changed", "leaf", "log", changeEvent("log", 1, func(e *store.EventRow) { e.LogMillis-- })},
		{"salt changed", "leaf", "log", changeEvent("log", 1, func(e *store.EventRow) { e.Salt[0]++ })},
		{"leaf index beyond", "leaf", "there is none", changeEvent("log", 1, func(e *store.EventRow) { e.Leaf = 1000 })},
		{"count changed", "counters", "log", changeEvent("log", 8, func(e *store.EventRow) { e.Count-- })},
		{"bytes changed", "counters", "log", changeEvent("log", 8, func(e *store.EventRow) { e.Bytes++ })},
		{"data place", "data", "log", changeEvent("log", 1, func(e *store.EventRow) { e.DataLength = 1 << 20 })},
		{"superseded stored", "flags", "state", changeEvent("state", 9, func(e *store.EventRow) { e.Flags |= store.EventSuperseded })},
		{"key changed", "winner", "other", changeEvent("state", 9, func(e *store.EventRow) { e.Key = []byte("other") })},
		{"tombstone changed", "winner", "removed", changeEvent("state", 6, func(e *store.EventRow) { e.Flags &^= store.EventTombstone })},
		{"expiry changed", "timer", "state", changeEvent("state", 5, func(e *store.EventRow) { e.ExpiryMillis++ })},
		{"event lost", "event_missing", "live", func(t *testing.T, r *rig, b *store.Batch) {
			number, _ := eventRow(t, r, "state", 5)
			b.DeleteEvent(number, 5)
		}},
		{"event beyond the head", "position", "log", func(t *testing.T, r *rig, b *store.Batch) {
			number, row := eventRow(t, r, "log", 8)
			b.SetEvent(number, 800, &row)
		}},
		{"event of no topic", "orphan", "topic number 77", func(t *testing.T, r *rig, b *store.Batch) {
			_, row := eventRow(t, r, "log", 8)
			b.SetEvent(77, 8, &row)
		}},
	}
}

// winnerDamages are those to the rows of keys.
func winnerDamages() []damage {
	return []damage{
		{"winner lost", "winner", "live", func(_ *testing.T, r *rig, b *store.Batch) {
			info, _ := r.topic("state")
			b.DeleteWinner(info.Number, "live")
		}},
		{"winner is another", "winner", "live", changeWinner("live", func(w *store.WinnerRow) { w.Position = 4 })},
		{"winner's size", "winner", "live", changeWinner("live", func(w *store.WinnerRow) { w.Size++ })},
		{"winner hidden", "winner", "live", changeWinner("live", func(w *store.WinnerRow) { w.Flags = store.WinnerHidden })},
		{"winner's flags", "flags", "live", changeWinner("live", func(w *store.WinnerRow) { w.Flags = 64 })},
		{"winner's HLC", "position", "live", changeWinner("live", func(w *store.WinnerRow) { w.HLC += 1 << 40 })},
		{"winner shown again", "event_missing", "expired", changeWinner("expired", func(w *store.WinnerRow) { w.Flags = 0 })},
		{"winner in a log", "winner", "log", func(_ *testing.T, r *rig, b *store.Batch) {
			info, _ := r.topic("log")
			b.SetWinner(info.Number, "k", &store.WinnerRow{Position: 1, HLC: 1})
		}},
	}
}

// historyDamages are those to superseded events.
func historyDamages() []damage {
	change := func(how func(position *uint64, row *store.EventRow)) write {
		return func(t *testing.T, r *rig, b *store.Batch) {
			info, _ := r.topic("past")
			position := uint64(10)
			if _, err := r.store.HistoryEvent(info.Number, position, func(e store.EventRow) error {
				e.Key, e.Members = slices.Clone(e.Key), slices.Clone(e.Members)
				how(&position, &e)
				b.SetHistory(info.Number, position, &e)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return []damage{
		{"superseded event lost", "figures", "superseded events", func(_ *testing.T, r *rig, b *store.Batch) {
			info, _ := r.topic("past")
			b.DeleteHistory(info.Number, 10)
		}},
		{"superseded event added", "figures", "superseded events", change(func(position *uint64, _ *store.EventRow) { *position = 9 })},
		{"superseded event changed", "leaf", "past", change(func(_ *uint64, e *store.EventRow) { e.Members[len(e.Members)-2] = '7' })},
		{"superseded event beyond", "position", "past", change(func(position *uint64, _ *store.EventRow) { *position = 99 })},
		{"superseded and a winner", "history", "and as a winner", change(func(position *uint64, _ *store.EventRow) { *position = 11 })},
		{"superseded without a winner", "history", "no winner", change(func(_ *uint64, e *store.EventRow) { e.Key = []byte("other") })},
		{"superseded and winning", "history", "does not win over it", change(func(_ *uint64, e *store.EventRow) { e.HLC += 1 << 20 })},
		{"superseded counts", "counters", "past", change(func(_ *uint64, e *store.EventRow) { e.Bytes += 1 << 20 })},
		{"superseded where nothing is", "history", "not compacted", func(t *testing.T, r *rig, b *store.Batch) {
			number, row := eventRow(t, r, "log", 8)
			b.SetHistory(number, 8, &row)
		}},
		{"superseded of no topic", "orphan", "history", func(t *testing.T, r *rig, b *store.Batch) {
			_, row := eventRow(t, r, "log", 8)
			b.SetHistory(77, 8, &row)
		}},
		{"superseded and compacted", "history", "compaction has gone up to", changeFigures("past", func(f *store.Figures) { f.CompactedTo = 10 })},
		{"superseded and expiring", "timer", "no timer is armed", change(func(_ *uint64, e *store.EventRow) { e.ExpiryMillis = epoch + 9_000_000 })},
		{"compacted too far", "figures", "compaction went further", changeFigures("past", func(f *store.Figures) { f.CompactedTo = 99 })},
		{"given up too far", "figures", "more was given up", changeFigures("past", func(f *store.Figures) { f.GivenUpTo = 99 })},
	}
}

// topicDamages are those to topics, their figures and the marks of deleted ones.
func topicDamages() []damage {
	return []damage{
		{"garbage mark lost", "orphan", "topic number 2", func(_ *testing.T, _ *rig, b *store.Batch) {
			b.DeleteTopicRows(2)
			b.SetFigures(2, &store.Figures{})
		}},
		{"garbage is alive", "garbage", "log", func(_ *testing.T, r *rig, b *store.Batch) {
			info, _ := r.topic("log")
			b.SetGarbage(info.Number)
		}},
		{"keys", "figures", "live keys", changeFigures("state", func(f *store.Figures) { f.Keys++ })},
		{"tombstones", "figures", "tombstones", changeFigures("state", func(f *store.Figures) { f.Tombstones++ })},
		{"events", "figures", "retained events", changeFigures("state", func(f *store.Figures) { f.Events++ })},
		{"bytes", "figures", "bytes", changeFigures("state", func(f *store.Figures) { f.Retained-- })},
		{"events of a log", "figures", "retained events", changeFigures("log", func(f *store.Figures) { f.Events = 1 })},
		{"last beyond", "figures", "beyond", changeFigures("log", func(f *store.Figures) { f.Last = 99 })},
		{"topic number", "topic_number", "log", func(_ *testing.T, r *rig, b *store.Batch) {
			info, _ := r.topic("log")
			info.Number = 99
			b.SetName(&info)
		}},
		{"two topics of a number", "topic_number", "twin", func(_ *testing.T, r *rig, b *store.Batch) {
			info, _ := r.topic("log")
			info.Name = "twin"
			b.SetName(&info)
		}},
		{"topic name", "topic_name", "a b", func(_ *testing.T, _ *rig, b *store.Batch) {
			b.SetName(&store.Topic{Name: "a b", Number: 1, Policy: event.DefaultPolicy()})
		}},
	}
}

// otherDamages are those to timers, deduplication records, minutes, leaves and the space.
func otherDamages() []damage {
	return []damage{
		{"timers lost", "timer", "removed", func(_ *testing.T, _ *rig, b *store.Batch) {
			b.DeleteTimers(store.Timer{DueMillis: epoch * 2})
		}},
		{"timer of no kind", "timer", "unknown kind 9", func(_ *testing.T, _ *rig, b *store.Batch) {
			b.SetTimer(store.Timer{DueMillis: epoch, Topic: 1, Position: 1, Kind: 9})
		}},
		{"timer of no topic", "timer", "never given out", func(_ *testing.T, _ *rig, b *store.Batch) {
			b.SetTimer(store.Timer{DueMillis: epoch, Topic: 99, Position: 1, Kind: store.TimerExpire})
		}},
		{"timer of no event", "timer", "beyond the last", func(_ *testing.T, _ *rig, b *store.Batch) {
			b.SetTimer(store.Timer{DueMillis: epoch, Topic: 1, Position: 99, Kind: store.TimerExpire})
		}},
		{"timer of no key", "timer", "which", func(_ *testing.T, _ *rig, b *store.Batch) {
			b.SetTimer(store.Timer{DueMillis: epoch, Topic: 1, Position: 1, Kind: store.TimerPurge})
		}},
		{"repetition not recognised", "seen", "log", func(_ *testing.T, r *rig, b *store.Batch) {
			b.DeleteGeneration(r.projector.Space().Generation)
		}},
		{"record beyond", "seen", "log", func(_ *testing.T, r *rig, b *store.Batch) {
			info, _ := r.topic("log")
			b.SetSeen(r.projector.Space().Generation, info.Number, eventlog.IdentityHash{}, &store.SeenRow{Position: 1000})
		}},
		{"record of an old generation", "generation", "generation 7", func(_ *testing.T, _ *rig, b *store.Batch) {
			b.SetSeen(7, 1, eventlog.IdentityHash{}, &store.SeenRow{Position: 1})
		}},
		{"answer beyond", "answered", "beyond", func(_ *testing.T, _ *rig, b *store.Batch) {
			b.SetAnswered(1, [16]byte{9}, &store.AnsweredRow{Verdicts: []store.Verdict{{Outcome: 1, Position: 1000}}})
		}},
		{"minute beyond", "minute", "Minute 1", func(_ *testing.T, _ *rig, b *store.Batch) { b.SetMinute(1, 1000) }},
		{"leaf changed", "chain", "changed", func(_ *testing.T, _ *rig, b *store.Batch) { b.SetLeaves(0, make([]byte, 32)) }},
		{"leaf twice", "leaf_gap", "expected", func(_ *testing.T, _ *rig, b *store.Batch) { b.SetLeaves(1, make([]byte, 64)) }},
		{"leaves beyond", "leaf_count", "counted", func(_ *testing.T, _ *rig, b *store.Batch) { b.SetLeaves(18, make([]byte, 32)) }},
		{"leaves of no length", "undecodable", "multiple", func(_ *testing.T, _ *rig, b *store.Batch) { b.SetLeaves(18, make([]byte, 31)) }},
		{"entry changed", "entry", "gives the leaf", changeEntry(func(e *audit.Entry) { e.LogMillis++ })},
		{"detail changed", "entry", "digest", changeEntry(func(e *audit.Entry) { e.Detail[0]++ })},
		{"entries removed", "entry", "removed", func(_ *testing.T, _ *rig, b *store.Batch) { b.SetEntries(0, nil) }},
		{"entries cut", "undecodable", "entry", func(_ *testing.T, _ *rig, b *store.Batch) { b.SetEntries(0, []byte{1, 2}) }},
		{"chain head", "chain", "changed", changeSpace(func(s *store.Space) { s.Chain[0]++ })},
		{"leaf count", "leaf_count", "counted 19", changeSpace(func(s *store.Space) { s.Leaves++ })},
		{"position", "position", "beyond", changeSpace(func(s *store.Space) { s.Position = 5 })},
	}
}

// changeEntry changes the first entry of the audit trail, that of the settings.
func changeEntry(change func(*audit.Entry)) func(*testing.T, *rig, *store.Batch) {
	return func(t *testing.T, r *rig, b *store.Batch) {
		err := r.store.LeafRows(0, true, func(row store.LeafRow) (bool, error) {
			e, rest, err := audit.DecodeEntry(bytes.Clone(row.Entries))
			change(&e)
			b.SetEntries(0, append(audit.AppendEntry(nil, &e), rest...))
			return false, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestVerifyFindsWhatDoesNotAgree: every way in which rows can contradict each
// other is found, with its place.
func TestVerifyFindsWhatDoesNotAgree(t *testing.T) {
	for _, d := range slices.Concat(eventDamages(), historyDamages(), winnerDamages(), topicDamages(), otherDamages()) {
		t.Run(d.name, func(t *testing.T) {
			r := soundRig(t)
			defer r.close()
			b := r.store.NewBatch()
			d.write(t, r, b)
			if err := r.store.Commit(b, func() {}); err != nil {
				t.Fatal(err)
			}
			found := inspect(t, r)
			if !slices.ContainsFunc(found, func(f projector.Finding) bool {
				return f.What == d.what && (f.Topic == d.place || f.Key == d.place || strings.Contains(f.Explanation, d.place)) && f.Explanation != ""
			}) {
				t.Errorf("no finding of %s about %s, but %+v", d.what, d.place, found)
			}
		})
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	r := soundRig(t)
	defer r.close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := projector.Verify(ctx, r.store, projector.Watch{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
