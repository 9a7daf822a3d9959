// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// epoch is the moment that tests count time from, Unix ms.
const epoch = 1_767_225_600_000

const incarnation = "k3f9x0ab"

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// rig is a store, the projector that writes it and the dispatch that serves it,
// without the broker's goroutines: every step is a step of the test.
type rig struct {
	t          fataler
	fs         *vfs.MemFS
	store      *store.Store
	projector  *projector.Projector
	dispatch   *dispatch.Dispatch
	tailEvents int
	crowd      int // 0: what it is without a test
	held       dispatch.HeldLimits
	now        int64 // what the log clock says
	sequence   uint64
	n          int
	events     map[uint64]projector.Applied // all that ever got a position
}

func newRig(t fataler, tailEvents int) *rig { return newCrowdedRig(t, tailEvents, 0) }

func newCrowdedRig(t fataler, tailEvents, crowd int) *rig {
	t.Helper()
	r := &rig{t: t, fs: vfs.NewMem(), tailEvents: tailEvents, crowd: crowd, now: epoch, events: map[uint64]projector.Applied{}}
	r.open()
	settings := eventlog.Settings{FeatureLevel: projector.FeatureLevel, MaxDriftMillis: 500, DedupMillis: 60_000, TopicsMax: 1000, TimersPerTick: 1000, IncarnationName: incarnation}
	r.do(&eventlog.Proposal{Kind: eventlog.KindControl, Control: eventlog.Control{Op: eventlog.OpConfigure, Settings: &settings}})
	r.tick(0)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	if r.store, err = store.Open(store.Options{Dir: "data", FS: r.fs, CacheBytes: 1 << 20}); err != nil {
		r.t.Fatal(err)
	}
	if r.projector, err = projector.Open(r.store); err != nil {
		r.t.Fatal(err)
	}
	r.dispatch = dispatch.New(dispatch.Options{
		Store: r.store, Incarnation: incarnation, Now: func() int64 { return r.now }, DedupMillis: 60_000,
		Space: r.projector.Space(), Topics: r.projector.Topics(), TailEvents: r.tailEvents,
		Boot: "bootboot", MaxDriftMillis: 500, Held: r.held, Crowd: r.crowd,
	})
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// do makes proposals durable as one group, and shows them to readers.
func (r *rig) do(group ...*eventlog.Proposal) (results []projector.Result) {
	r.t.Helper()
	for _, p := range group {
		r.sequence++
		p.Sequence = r.sequence
	}
	for len(group) > 0 {
		out, err := r.projector.Apply(group)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range out.Applied {
			r.events[e.Position] = e
		}
		if err := r.store.Commit(out.Batch, func() { r.dispatch.Advance(&out) }); err != nil {
			r.t.Fatal(err)
		}
		out.Batch.Close()
		results = append(results, out.Results...)
		group = group[out.Taken:]
	}
	return results
}

// tick lets time pass, on the clock and in the log.
func (r *rig) tick(millis int64) {
	r.now += millis
	r.do(&eventlog.Proposal{Kind: eventlog.KindTick, AdmittedMillis: r.now})
}

func (r *rig) put(topic, cleanup string, retentionMillis, deleteRetentionMillis int64) *eventlog.Proposal {
	policy := event.DefaultPolicy()
	policy.CleanupPolicy = cleanup
	retention := event.Duration(retentionMillis * 1e6)
	policy.Retention, policy.DeleteRetention = &retention, event.Duration(deleteRetentionMillis*1e6)
	return &eventlog.Proposal{Kind: eventlog.KindControl, Topic: topic, Control: eventlog.Control{Op: eventlog.OpPutTopic, Topic: topic, Policy: &policy}}
}

// lagging is put with a min_compaction_lag.
func lagging(p *eventlog.Proposal, millis int64) *eventlog.Proposal {
	p.Control.Policy.MinCompactionLag = event.Duration(millis * 1e6)
	return p
}

func (r *rig) compact(topic string, to uint64) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindControl, Topic: topic, Control: eventlog.Control{Op: eventlog.OpCompact, Topic: topic, RetireTo: to}}
}

func (r *rig) drop(topic string) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindControl, Topic: topic, Control: eventlog.Control{Op: eventlog.OpDeleteTopic, Topic: topic}}
}

func (r *rig) retire(topic string, to uint64) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindControl, Topic: topic, Control: eventlog.Control{Op: eventlog.OpRetire, Topic: topic, RetireTo: to}}
}

// publishing is what a test says of an event; the rest is the same for all.
type publishing struct {
	topic, key, id, source string
	hlc                    event.HLC
	expiresMillis          int64
	bare                   bool
	data                   string
}

// publish proposes events of one topic, as a batch if there are several.
func (r *rig) publish(events ...publishing) *eventlog.Proposal {
	p := &eventlog.Proposal{Kind: eventlog.KindEvents, Topic: events[0].topic, AdmittedMillis: r.now, Batch: len(events) > 1}
	for _, e := range events {
		r.n++
		if e.id == "" {
			e.id = fmt.Sprint("e", r.n)
		}
		if e.source == "" {
			e.source = "/s"
		}
		entry := eventlog.Entry{
			ID: e.id, Source: e.source, Key: e.key, HasKey: e.key != "", HLC: e.hlc, ExpiryMillis: e.expiresMillis, WireBytes: 100,
			Identity: eventlog.IdentityHash{ID: event.HashID(e.id), Source: event.HashSource(e.source)},
		}
		binary.BigEndian.PutUint64(entry.Content[:], uint64(r.n))
		members := fmt.Sprintf(`"specversion":"1.0","id":%q,"source":%q,"type":"t"`, e.id, e.source)
		if e.key != "" {
			members += fmt.Sprintf(`,"partitionkey":%q`, e.key)
		}
		if e.bare {
			entry.Flags |= eventlog.FlagBare
		} else {
			entry.Flags |= eventlog.FlagJSON
			members += `,"data":` + e.data
			if e.data == "" {
				members += `1`
			}
		}
		entry.Members = []byte(members + "}")
		if event.NeedsLineFold(entry.Members) {
			entry.Flags |= eventlog.FlagFold
		}
		entry.Body = sha256.Sum256(entry.Members)
		p.Entries = append(p.Entries, entry)
	}
	return p
}

func (r *rig) topic(name string) (store.Topic, bool) {
	for _, t := range r.projector.Topics() {
		if t.Name == name {
			return t, true
		}
	}
	return store.Topic{}, false
}

func patterns(t fataler, list string) []event.Pattern {
	t.Helper()
	parsed, err := event.ParsePatterns(list)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func (r *rig) mustOpen(list string, start dispatch.Start, view string) *dispatch.Reader {
	r.t.Helper()
	reader, err := r.dispatch.Open(dispatch.Spec{Patterns: patterns(r.t, list), Start: start, View: view})
	if err != nil {
		r.t.Fatal(err)
	}
	return reader
}

// unlimited is a window that takes whatever there is.
func unlimited() dispatch.Limit { return dispatch.Limit{Events: 1 << 20, Bytes: 1 << 30} }

// drain polls to the head and returns the ids that were delivered.
func drain(t fataler, reader *dispatch.Reader, limit dispatch.Limit) (ids string) {
	t.Helper()
	var all []string
	for {
		w, err := reader.Poll(limit)
		if err != nil {
			return strings.Join(append(all, string(event.AsError(err).Code)), " ")
		}
		for i := range w.Deliveries {
			all = append(all, decode(t, &w.Deliveries[i]).ID)
		}
		if w.CaughtUp {
			return strings.Join(all, " ")
		}
	}
}

// delivered is what a delivery says.
type delivered struct {
	ID         string          `json:"id"`
	Source     string          `json:"source"`
	Topic      string          `json:"topic"`
	HLC        string          `json:"hlc"`
	Position   uint64          `json:"position,string,omitempty"`
	Superseded bool            `json:"superseded"`
	Data       json.RawMessage `json:"data"`
	Key        string          `json:"partitionkey"`
}

// decode takes a delivery apart, and checks that its frame and its JSON agree.
func decode(t fataler, d *dispatch.Delivery) (out delivered) {
	t.Helper()
	lines := strings.Split(string(d.Frame), "\n")
	if d.Position == 0 { // of an ephemeral topic
		lines = append([]string{"id: @0." + incarnation}, lines...)
	}
	id, err := event.ParseCursor(strings.TrimPrefix(lines[0], "id: "))
	if err != nil || id.Position != d.Position || id.Incarnation != incarnation {
		t.Fatalf("position %d has the frame %q: %v", d.Position, d.Frame, err)
	}
	if len(lines) != 4 || !strings.HasPrefix(lines[1], "data: {") || lines[2]+lines[3] != "" {
		t.Fatalf("position %d has the frame %q", d.Position, d.Frame)
	}
	if err := json.Unmarshal(d.JSON(), &out); err != nil {
		t.Fatalf("%s: %v", d.JSON(), err)
	}
	var line delivered
	if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[1], "data: ")), &line); err != nil || line.ID != out.ID {
		t.Fatalf("frame %q and JSON %q are not the same event", d.Frame, d.JSON())
	}
	if out.Position != d.Position {
		t.Fatalf("the event at position %d says that it is at %d", d.Position, out.Position)
	}
	return out
}
