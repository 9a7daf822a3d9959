// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// epoch is the moment that tests count time from, Unix ms: 2026-01-01.
const epoch = 1_767_225_600_000

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// errorer is a fataler that can go on.
type errorer interface {
	fataler
	Errorf(format string, args ...any)
}

// rig is a projector on a store in memory, driven proposal by proposal.
type rig struct {
	t         fataler
	fs        *vfs.MemFS
	store     *store.Store
	projector *projector.Projector
	sequence  uint64
}

const rigDir = "data"

func newRig(t fataler, settings eventlog.Settings) *rig {
	t.Helper()
	r := &rig{t: t, fs: newFS()}
	r.open()
	r.do(configure(settings))
	return r
}

func defaultSettings() eventlog.Settings {
	return eventlog.Settings{
		FeatureLevel: projector.FeatureLevel, MaxDriftMillis: 500, DedupMillis: (24 * time.Hour).Milliseconds(),
		TopicsMax: 100, TimersPerTick: 1000, IncarnationName: "k3f9x0ab",
		SubscriptionsMax: 10,
	}
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	r.store, err = store.Open(store.Options{Dir: rigDir, FS: r.fs, CacheBytes: 1 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	if r.projector, err = projector.Open(r.store); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// reopen is a restart: what is not in the store is forgotten.
func (r *rig) reopen() {
	r.t.Helper()
	r.close()
	r.open()
}

// stamp gives proposals their sequence, as the log does.
func (r *rig) stamp(group []*eventlog.Proposal) {
	for _, p := range group {
		r.sequence++
		p.Sequence = r.sequence
	}
}

// do stamps and applies one proposal.
func (r *rig) do(p *eventlog.Proposal) projector.Result {
	r.t.Helper()
	group := []*eventlog.Proposal{p}
	r.stamp(group)
	return r.apply(group)[0]
}

// apply applies stamped proposals as one group, in as many commits as apply
// itself splits it into.
func (r *rig) apply(group []*eventlog.Proposal) (results []projector.Result) {
	r.t.Helper()
	for len(group) > 0 {
		out, err := r.projector.Apply(group)
		if err != nil {
			r.t.Fatal(err)
		}
		if err := r.store.Commit(out.Batch, func() {}); err != nil {
			r.t.Fatal(err)
		}
		out.Batch.Close()
		results = append(results, out.Results...)
		group = group[out.Taken:]
	}
	return results
}

func (r *rig) topic(name string) (found store.Topic, ok bool) {
	for _, t := range r.projector.Topics() {
		if t.Name == name {
			return t, true
		}
	}
	return store.Topic{}, false
}

// winners returns every row that guards a key of the topic.
func (r *rig) winners(name string) map[string]store.WinnerRow {
	r.t.Helper()
	t, _ := r.topic(name)
	view := r.store.View(func() {})
	defer view.Close()
	found := map[string]store.WinnerRow{}
	err := view.Winners(t.Number, func(key string, row store.WinnerRow) error {
		found[key] = row
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

// live returns the state of a topic as key to position.
func (r *rig) live(name string) map[string]store.WinnerRow {
	found := r.winners(name)
	maps.DeleteFunc(found, func(_ string, row store.WinnerRow) bool {
		return !row.Live(r.projector.Space().LogMillis)
	})
	return found
}

func (r *rig) digest(name string) (d event.Digest) {
	for key, row := range r.live(name) {
		d.Toggle(key, row.HLC, row.Source, row.ID)
	}
	return d
}

// row is a row of the store as its bytes.
type row struct{ key, value string }

// rows closes the store and returns everything in it. The audit leaves, and
// the entries of the trail, come back as one row each: how they are cut into rows is the only thing that depends
// on how proposals were grouped into commits.
func (r *rig) rows() []row {
	r.t.Helper()
	r.close()
	defer r.open()
	db, err := pebble.Open(rigDir, &pebble.Options{FS: r.fs, ReadOnly: true, Logger: quiet{}})
	if err != nil {
		r.t.Fatal(err)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	var rows []row
	var leaves, entries bytes.Buffer
	for ok := it.First(); ok; ok = it.Next() {
		if key := it.Key(); key[0] == 'L' {
			if binary.BigEndian.Uint64(key[1:])*32 != uint64(leaves.Len()) {
				r.t.Fatalf("the row of leaf %d follows %d bytes of leaves", binary.BigEndian.Uint64(key[1:]), leaves.Len())
			}
			leaves.Write(it.Value())
			continue
		} else if key[0] == 'l' {
			entries.Write(it.Value())
			continue
		}
		rows = append(rows, row{string(it.Key()), string(it.Value())})
	}
	if err := it.Close(); err != nil {
		r.t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		r.t.Fatal(err)
	}
	return append(rows, row{"l", entries.String()}, row{"L", leaves.String()})
}

type quiet struct{}

func (quiet) Infof(string, ...any)         {}
func (quiet) Errorf(string, ...any)        {}
func (quiet) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

// diff returns the first difference of two stores, "" if there is none.
func diff(a, b []row) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("row %q = %x\n  but %q = %x", a[i].key, a[i].value, b[i].key, b[i].value)
		}
	}
	if len(a) != len(b) {
		longer := slices.MaxFunc([][]row{a, b}, func(a, b []row) int { return len(a) - len(b) })
		return fmt.Sprintf("%d and %d rows; the first one more is %q", len(a), len(b), longer[min(len(a), len(b))].key)
	}
	return ""
}

func configure(s eventlog.Settings) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindControl, AdmittedMillis: epoch, Control: eventlog.Control{Op: eventlog.OpConfigure, Settings: &s}}
}

func tick(millis int64) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindTick, AdmittedMillis: millis}
}

func putTopic(name string, policy event.Policy) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindControl, Topic: name, Control: eventlog.Control{Op: eventlog.OpPutTopic, Topic: name, Policy: &policy}}
}

func deleteTopic(name string) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindControl, Topic: name, Control: eventlog.Control{Op: eventlog.OpDeleteTopic, Topic: name}}
}

func retire(name string, to uint64) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindControl, Topic: name, Control: eventlog.Control{Op: eventlog.OpRetire, Topic: name, RetireTo: to}}
}

func compact(name string, to uint64) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindControl, Topic: name, Control: eventlog.Control{Op: eventlog.OpCompact, Topic: name, RetireTo: to}}
}

func compacted() event.Policy {
	p := event.DefaultPolicy()
	p.CleanupPolicy = event.CleanupCompact
	return p
}

// entry prepares an event as admission does, but with a salt that the event
// determines, so that the same proposals can be made twice.
func entry(ev *event.Event) eventlog.Entry {
	e := eventlog.Entry{
		ID: ev.ID(), Source: ev.Source(), HLC: ev.HLC(), WireBytes: uint32(ev.WireBytes()),
		Identity: eventlog.IdentityHash{ID: event.HashID(ev.ID()), Source: event.HashSource(ev.Source())},
	}
	e.Key, e.HasKey = ev.Key()
	content := ev.ContentHash()
	copy(e.Content[:], content[:])
	copy(e.Salt[:], content[16:])
	if at, ok := ev.ExpiryTime(); ok {
		e.ExpiryMillis = at.UnixMilli()
	}
	members, offset, length := ev.AppendMembers(nil)
	e.Members, e.DataOffset, e.DataLength = members, uint32(offset), uint32(length)
	if _, claim := ev.Attribute("dataref"); !claim && ev.DataKind() == event.NoData {
		e.Flags |= eventlog.FlagBare
	}
	if ev.DataKind() == event.JSONData {
		e.Flags |= eventlog.FlagJSON
	}
	e.Body = sha256.Sum256(append(e.Salt[:], members...))
	return e
}

func newFS() *vfs.MemFS { return vfs.NewMem() }
