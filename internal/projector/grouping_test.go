// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
)

// drawn draws a log: proposals of every kind, on few topics, keys and ids, so
// that each meets what others left, with time passing in between.
type drawn struct {
	t      *rapid.T
	now    int64
	topics []string
	n      int
}

func drawLog(t *rapid.T) []*eventlog.Proposal {
	d := &drawn{t: t, now: epoch, topics: []string{"a", "b", "c"}}
	settings := defaultSettings()
	settings.DedupMillis = 20_000
	settings.TopicsMax = rapid.IntRange(2, 4).Draw(t, "topicsMax")
	settings.TimersPerTick = rapid.IntRange(1, 5).Draw(t, "timersPerTick")
	log := []*eventlog.Proposal{configure(settings), tick(d.now)}
	for range rapid.IntRange(1, 60).Draw(t, "proposals") {
		log = append(log, d.proposal())
	}
	for i, p := range log {
		p.Sequence = uint64(i) + 1
	}
	return log
}

func (d *drawn) proposal() *eventlog.Proposal {
	switch rapid.IntRange(0, 19).Draw(d.t, "kind") {
	case 0, 1, 2:
		d.now += rapid.SampledFrom([]int64{0, 1, 1000, 5000, 30_000, 70_000}).Draw(d.t, "later")
		return tick(d.now)
	case 3, 4:
		return putTopic(d.topic(), d.policy())
	case 5:
		return deleteTopic(d.topic())
	case 6:
		if rapid.Bool().Draw(d.t, "compact") {
			return compact(d.topic(), uint64(rapid.IntRange(0, 40).Draw(d.t, "to")))
		}
		return retire(d.topic(), uint64(rapid.IntRange(0, 40).Draw(d.t, "to")))
	case 7:
		return &eventlog.Proposal{Kind: eventlog.KindRefusal, Topic: d.topic(), RefusedCode: "topic_invalid", RefusedCount: 1}
	case 8:
		if rapid.Bool().Draw(d.t, "probe") {
			return &eventlog.Proposal{Kind: eventlog.KindProbe}
		}
		settings := defaultSettings()
		settings.DedupMillis = int64(rapid.SampledFrom([]int{5_000, 60_000}).Draw(d.t, "window"))
		settings.TimersPerTick = rapid.IntRange(1, 5).Draw(d.t, "timersPerTick")
		return configure(settings)
	}
	return d.events()
}

func (d *drawn) topic() string { return rapid.SampledFrom(d.topics).Draw(d.t, "topic") }

func (d *drawn) policy() event.Policy {
	p := event.DefaultPolicy()
	p.CleanupPolicy = rapid.SampledFrom([]string{event.CleanupDelete, event.CleanupCompact, event.CleanupCompactDelete}).Draw(d.t, "cleanup")
	retention := event.Duration(10 * time.Second)
	p.Retention = &retention
	p.RetentionBytes = rapid.SampledFrom([]int64{0, 0, 100, 500}).Draw(d.t, "retentionBytes")
	p.MinCompactionLag = event.Duration(rapid.SampledFrom([]time.Duration{0, 0, 3 * time.Second, time.Minute}).Draw(d.t, "lag"))
	p.DeleteRetention = event.Duration(rapid.SampledFrom([]time.Duration{0, 3 * time.Second, time.Minute}).Draw(d.t, "deleteRetention"))
	p.Schema = d.schema()
	p.KeyFrom = rapid.SampledFrom([]string{"", "k", "l[0].k"}).Draw(d.t, "keyFrom")
	return p
}

// schema is that of most topics, none, as it is what most requests were checked for.
func (d *drawn) schema() string {
	return rapid.SampledFrom([]string{"", "", "", "", `{"type":"object"}`}).Draw(d.t, "schema")
}

func (d *drawn) events() *eventlog.Proposal {
	p := &eventlog.Proposal{Kind: eventlog.KindEvents, Topic: d.topic(), AdmittedMillis: d.now}
	p.Batch = rapid.IntRange(0, 2).Draw(d.t, "batch") == 0
	count := 1
	if p.Batch {
		count = rapid.IntRange(1, 4).Draw(d.t, "count")
	}
	for range count {
		p.Entries = append(p.Entries, d.entry())
	}
	if p.Schema.Hash = event.SchemaHash(d.schema()); p.Schema.Hash != [16]byte{} && rapid.IntRange(0, 5).Draw(d.t, "broken") == 0 {
		p.Schema.Faults = []eventlog.SchemaFault{{Entry: rapid.IntRange(0, count-1).Draw(d.t, "fault"), Pointer: "/k", Keyword: "const", Text: "is wrong"}}
	}
	if rapid.IntRange(0, 3).Draw(d.t, "idempotent") == 0 {
		p.Idempotency = eventlog.Idempotency{Set: true, Scope: [16]byte{byte(rapid.IntRange(0, 2).Draw(d.t, "scope"))}}
		for i := range p.Entries {
			p.Idempotency.Request[i] = p.Entries[i].Content[0]
		}
	}
	switch rapid.IntRange(0, 9).Draw(d.t, "condition") {
	case 0:
		p.Condition.IfNoneMatch = true
	case 1:
		p.Condition.IfMatchAny = true
	case 2:
		p.Condition.IfMatch = []uint64{uint64(rapid.IntRange(1, 20).Draw(d.t, "match"))}
	}
	return p
}

// entry is an event. Some have the id of an earlier one, and of these some its
// content; some are refused, for their hlc or for want of a key.
func (d *drawn) entry() eventlog.Entry {
	d.n++
	draft := event.Draft{
		ID:     fmt.Sprint(rapid.IntRange(max(1, d.n-6), d.n).Draw(d.t, "id")),
		Source: rapid.SampledFrom([]string{"/a", "/b"}).Draw(d.t, "source"), Type: "t",
		Extensions: map[string]any{},
	}
	if key := rapid.SampledFrom([]string{"x", "y", "z", ""}).Draw(d.t, "key"); key != "" {
		draft.Extensions["partitionkey"] = key
	}
	switch at := rapid.SampledFrom([]int64{0, -1, -2, -1000, 400, 24 * 3600 * 1000}).Draw(d.t, "hlc"); at {
	case 0:
	case 24 * 3600 * 1000:
		if rapid.IntRange(0, 3).Draw(d.t, "rogue") > 0 {
			break
		}
		fallthrough
	default:
		draft.Extensions["hlc"] = event.NewHLC(d.now+at, uint16(rapid.IntRange(0, 2).Draw(d.t, "counter"))).String()
	}
	if at := rapid.SampledFrom([]int64{0, 0, 0, -1, 1, 3000, 90_000}).Draw(d.t, "expires"); at != 0 {
		draft.Extensions["expirytime"] = time.UnixMilli(d.now + at).UTC().Format(time.RFC3339Nano)
	}
	if data := rapid.SampledFrom([]string{"", "1", `{"k":"x"}`, `{"k":"w"}`, `{"l":[{"k":"x"}]}`, "null"}).Draw(d.t, "data"); data != "" {
		draft.Data = []byte(data)
	}
	ev, err := draft.Event()
	if err != nil {
		d.t.Fatal(err)
	}
	return entry(ev)
}

// drawHistory draws a log of one compacted topic with few keys, whose lag grows
// and shrinks: what is superseded, compacted, expires and is purged meets what was
// kept under another lag.
func drawHistory(t *rapid.T) []*eventlog.Proposal {
	d := &drawn{t: t, now: epoch, topics: []string{"a"}}
	policy := func() *eventlog.Proposal {
		p := compacted()
		p.MinCompactionLag = event.Duration(rapid.SampledFrom([]time.Duration{0, 3 * time.Second, time.Minute}).Draw(t, "lag"))
		p.DeleteRetention = event.Duration(3 * time.Second)
		if rapid.IntRange(0, 4).Draw(t, "sized") == 0 {
			p.CleanupPolicy, p.RetentionBytes = event.CleanupCompactDelete, 500
		}
		return putTopic("a", p)
	}
	log := []*eventlog.Proposal{configure(defaultSettings()), tick(d.now), policy()}
	for range rapid.IntRange(20, 100).Draw(t, "proposals") {
		next := d.superseding
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0, 1:
			d.now += rapid.SampledFrom([]int64{0, 1000, 3000, 5000, 60_000}).Draw(t, "later")
			next = func() *eventlog.Proposal { return tick(d.now) }
		case 2:
			next = policy
		case 3, 4:
			next = func() *eventlog.Proposal { return compact("a", 1000) }
		case 5:
			next = func() *eventlog.Proposal { return retire("a", uint64(rapid.IntRange(0, 40).Draw(t, "to"))) }
		}
		log = append(log, next())
	}
	for i, p := range log {
		p.Sequence = uint64(i) + 1
	}
	return log
}

// superseding is an event of few keys, with an id of its own.
func (d *drawn) superseding() *eventlog.Proposal {
	d.n++
	draft := event.Draft{ID: fmt.Sprint(d.n), Source: "/a", Type: "t", Subject: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(d.t, "key"), Extensions: map[string]any{}}
	switch rapid.IntRange(0, 9).Draw(d.t, "event") {
	case 0:
		draft.Extensions["hlc"] = event.NewHLC(d.now-1000, 0).String()
	case 1, 2:
		draft.Extensions["expirytime"] = time.UnixMilli(d.now + 3000).UTC().Format(time.RFC3339Nano)
	}
	if rapid.IntRange(0, 3).Draw(d.t, "tombstone") > 0 {
		draft.Data = []byte("1")
	}
	ev, err := draft.Event()
	if err != nil {
		d.t.Fatal(err)
	}
	return &eventlog.Proposal{Kind: eventlog.KindEvents, Topic: "a", AdmittedMillis: d.now, Entries: []eventlog.Entry{entry(ev)}}
}

// TestGrouping is invariant 2: the same proposals give the same state, byte for
// byte, however they are grouped into commits, wherever the process restarts,
// and if the log is followed again from anywhere. The answers are the same, too.
func TestGrouping(t *testing.T) { checkGrouping(t, drawLog) }

// TestGroupingOfHistory is TestGrouping for what a lag keeps. That what is stored is
// what the figures say does not depend on how the lag has changed.
func TestGroupingOfHistory(t *testing.T) { checkGrouping(t, drawHistory) }

func checkGrouping(t *testing.T, draw func(*rapid.T) []*eventlog.Proposal) {
	rapid.Check(t, func(t *rapid.T) {
		log := draw(t)
		single := emptyRig(t)
		defer single.close()
		var want []string
		for _, p := range log {
			want = append(want, verdict(single.apply([]*eventlog.Proposal{p})[0]))
		}
		grouped := emptyRig(t)
		defer grouped.close()
		var got []string
		for rest := log; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "group")
			for _, result := range grouped.apply(rest[:n]) {
				got = append(got, verdict(result))
			}
			rest = rest[n:]
			switch rapid.IntRange(0, 5).Draw(t, "then") {
			case 0:
				grouped.reopen()
			case 1:
				again := log[rapid.IntRange(0, len(log)-len(rest)-1).Draw(t, "from") : len(log)-len(rest)]
				for _, result := range grouped.apply(again) {
					if answer := verdict(result); answer != "applied before" {
						t.Fatalf("a repeated proposal got %q", answer)
					}
				}
			}
		}
		if !slices.Equal(want, got) {
			t.Fatalf("one by one:\n%s\n\ngrouped:\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
		if d := diff(single.rows(), grouped.rows()); d != "" {
			t.Fatal(d)
		}
		checkSound(t, grouped)
	})
}

func emptyRig(t *rapid.T) *rig {
	r := &rig{t: t, fs: newFS()}
	r.open()
	return r
}

// checkSound has the store verified: no log leaves anything that verification
// would report as damage.
func checkSound(t errorer, r *rig) {
	t.Helper()
	_, err := projector.Verify(context.Background(), r.store, projector.Watch{
		Found:    func(f projector.Finding) { t.Errorf("verification found %+v", f) },
		Progress: func(string, uint64) {},
	})
	if err != nil {
		t.Fatal(err)
	}
}
