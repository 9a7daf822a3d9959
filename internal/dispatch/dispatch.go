// SPDX-License-Identifier: Apache-2.0

// Package dispatch serves readers. A reader is a cursor and a set of topics;
// nobody has a queue in memory. Live readers share one bounded tail of recent
// events, laggards read from the store, and one code path (Reader.Poll) sees
// to order, so that there is no seam between the two.
//
// Everything here may be lost with the process: it is rebuilt from the store.
// It imports filter, projector and store, and event, and knows nothing of transports.
package dispatch

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/event"
	"signalbox/internal/metrics"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// Dispatch is the durable state as readers may see it. All methods are safe
// for concurrent use.
type Dispatch struct {
	store       *store.Store
	incarnation string
	now         func() int64 // log clock, Unix ms
	dedupMillis int64
	metrics     *metrics.Metrics
	hub         *hub
	boot        string   // the name of this run, in marks
	ephemeral   sync.Map // the views of ephemeral topics, by name; changed with mu held

	mu     sync.RWMutex
	head   uint64           // guarded by mu
	space  store.Space      // guarded by mu
	topics map[string]*view // guarded by mu
	names  names            // of topics; guarded by mu
	tail   tail             // guarded by mu
	hold   hold             // guarded by mu
	totals totals           // guarded by mu

	groups    map[string]*group      // by their patterns; guarded by mu
	interests map[string]*interest   // by their patterns; guarded by mu
	wild      map[string][]*interest // by the beginnings of their patterns with wildcards; guarded by mu
	exact     map[string][]*interest // by topic name; guarded by mu

	tickets event.Pattern // all topics of ticket messages

	sorters    [sorterCount]sorter
	crowd      int           // crowdMax
	evaluating time.Duration // evaluatingTime
	readers    readers
}

// view is a topic as readers see it. A deleted topic's view is replaced, so a
// view's identity is that of the topic's contents.
type view struct {
	name string
	info atomic.Pointer[store.Topic]
	gone atomic.Bool // the topic was deleted, and this view replaced
}

// Options say what a Dispatch serves.
type Options struct {
	Store       *store.Store
	Incarnation string
	Now         func() int64 // log clock, Unix ms
	DedupMillis int64        // how far back an event id can be looked up
	Space       store.Space
	Topics      []store.Topic
	TailEvents  int              // a power of two; 0: 8192
	Metrics     *metrics.Metrics // nil: they are not read
	Crowd       int              // how many filters that the index cannot tell apart are not a crowd yet; 0: 256

	Boot           string        // 8 characters that no other run of the broker has had
	Held           HeldLimits    // of ephemeral topics
	MaxDriftMillis int64         // of a producer's HLC on an ephemeral topic
	Own            []store.Topic // ephemeral topics of the broker's own, which are not in the store
}

// New returns a Dispatch that shows what is durable.
func New(o Options) *Dispatch {
	if o.TailEvents == 0 {
		o.TailEvents = tailEvents
	}
	if o.Crowd == 0 {
		o.Crowd = crowdMax
	}
	if o.Metrics == nil {
		o.Metrics = metrics.New()
	}
	d := &Dispatch{
		store: o.Store, metrics: o.Metrics, incarnation: o.Incarnation, now: o.Now, dedupMillis: o.DedupMillis,
		hub: newHub(o.Held, o.MaxDriftMillis, &o.Metrics.Ephemeral), boot: o.Boot,
		head: o.Space.Position, space: o.Space,
		topics: make(map[string]*view, len(o.Topics)),
		groups: map[string]*group{}, interests: map[string]*interest{}, exact: map[string][]*interest{}, wild: map[string][]*interest{},
	}
	for n := range d.sorters {
		d.sorters[n].open(d, n)
	}
	d.crowd, d.evaluating, d.tickets = o.Crowd, evaluatingTime, projector.TicketTopics()
	for i := range o.Topics {
		d.update(&o.Topics[i])
	}
	for i := range o.Own {
		d.update(&o.Own[i])
	}
	d.names = sorted(d.topics)
	d.tail.reset(d.head, o.TailEvents)
	o.Metrics.Source(d.sample)
	return d
}

// Advance shows what a commit has made durable. It is called in order, while
// no view can be taken (see store.Commit).
func (d *Dispatch) Advance(out *projector.Output) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range out.Topics {
		d.update(&out.Topics[i])
	}
	if len(out.Forgotten) > 0 {
		d.tail.forget(out.Forgotten)
	}
	for i := range out.Applied {
		d.tail.push(d.viewOf(&out.Applied[i]), &out.Applied[i])
	}
	if d.hold.on {
		d.keepBack(out.Applied)
	}
	d.space, d.head = out.Space, out.Space.Position
	d.wake(out.Applied)
	if len(out.Applied) > 0 {
		d.sortSoon()
	}
}

// viewOf returns the view of an event's topic. One that the same commit deleted
// has left none, and must not be taken for its successor. It is called with mu
// held.
func (d *Dispatch) viewOf(e *projector.Applied) *view {
	v := d.topics[e.Topic]
	if v.info.Load().Number == e.Number {
		return v
	}
	gone := &view{name: e.Topic}
	gone.info.Store(&store.Topic{Name: e.Topic, Number: e.Number, Deleted: true})
	gone.gone.Store(true)
	return gone
}

// asOfNow returns what has become of a topic, nil if it is gone. It is called with mu
// held.
func (d *Dispatch) asOfNow(t *store.Topic) *store.Topic {
	if v := d.topics[t.Name]; v != nil {
		if now := v.info.Load(); now.Number == t.Number {
			return now
		}
	}
	return nil
}

// update is called with mu held.
func (d *Dispatch) update(t *store.Topic) {
	v := d.topics[t.Name]
	if v != nil {
		d.totals.remove(v.info.Load())
	}
	d.totals.add(t)
	if v == nil || v.info.Load().Number != t.Number {
		if v != nil {
			v.gone.Store(true)
			d.settle(v)
		}
		v = &view{name: t.Name}
		v.info.Store(t)
		d.topics[t.Name] = v
		d.names.put(v)
		d.adopt(v)
	}
	v.info.Store(t)
	d.settle(v)
}

// LogMillis is the time by which events are expired for streams: the later of
// log time and the log clock.
func (d *Dispatch) LogMillis() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return max(d.space.LogMillis, d.now())
}

// Head is the cursor of the last durable event.
func (d *Dispatch) Head() event.Cursor {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.cursor(d.head)
}

func (d *Dispatch) cursor(position uint64) event.Cursor {
	return event.Cursor{Position: position, Incarnation: d.incarnation}
}

// Topic returns a topic's policy and figures.
func (d *Dispatch) Topic(name string) (store.Topic, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	v := d.topics[name]
	if v == nil || v.info.Load().Deleted {
		return store.Topic{}, event.Errorf(event.CodeTopicUnknown, "There is no topic %q. Publish to it, or create it with PUT.", name).With("topic")
	}
	t := *v.info.Load()
	if t.Policy.Ephemeral() {
		d.hub.figures(v, &t)
	}
	return t, nil
}

// Schema is the JSON Schema of a topic, "" if it has none.
func (d *Dispatch) Schema(topic string) string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if v := d.topics[topic]; v != nil {
		return v.info.Load().Policy.Schema
	}
	return ""
}

// Oldest is the position of the cursor from which a reader gets everything
// that a topic retains. A compacted topic retains winners of any age, however
// far its removals have come.
func Oldest(t *store.Topic) uint64 {
	if t.Policy.Compacts() {
		return 0
	}
	return t.RemovedTo
}

// Topics returns all topics, by name, but for those that are the broker's own.
func (d *Dispatch) Topics() []store.Topic {
	d.mu.RLock()
	out := make([]store.Topic, 0, len(d.topics))
	for _, v := range d.topics {
		if t := v.info.Load(); !t.Deleted && t.Number != 0 {
			out = append(out, *t)
			if t.Policy.Ephemeral() {
				d.hub.figures(v, &out[len(out)-1])
			}
		}
	}
	d.mu.RUnlock() // sorting many takes long, and would hold up apply
	slices.SortFunc(out, func(a, b store.Topic) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// match returns the views that match, each once. It is called with mu held.
func (d *Dispatch) match(patterns []event.Pattern) (out []*view) {
	for n, p := range patterns {
		if name, exact := p.Exact(); exact {
			if v := d.topics[name]; v != nil && !matches(patterns[:n], name) {
				out = append(out, v)
			}
			continue
		}
		for v := range d.names.beginning(p.Beginning()) {
			if p.Match(v.name) && !matches(patterns[:n], v.name) {
				out = append(out, v)
			}
		}
	}
	return out
}

func matches(patterns []event.Pattern, topic string) bool {
	for i := range patterns {
		if patterns[i].Match(topic) {
			return true
		}
	}
	return false
}

// Delivery is an event as it is delivered.
type Delivery struct {
	Position uint64 // 0: of an ephemeral topic
	Message  bool   // a ticket message
	// Frame is the event as an SSE block: an id line with the cursor, if it has a
	// position, a data line with the event as JSON, and an empty line.
	Frame []byte
	json  int    // where the JSON begins in Frame
	raw   []byte // the JSON as received, where it had to be folded into one line
}

// JSON is the event in the CloudEvents JSON format; the bytes of data are as
// they were received.
func (d *Delivery) JSON() []byte {
	if d.raw != nil {
		return d.raw
	}
	return d.Frame[d.json : len(d.Frame)-2]
}

// At is the cursor of whoever has this event, as text.
func (d *Delivery) At() []byte { return d.Frame[len("id: ") : d.json-len("\ndata: ")] }

// Line is the event as JSON on one line.
func (d *Delivery) Line() []byte { return d.Frame[d.json : len(d.Frame)-2] }

// appendFrame appends an event's frame to dst and returns where its JSON begins.
func appendFrame(dst []byte, at event.Cursor, e *projector.Applied) (frame []byte, json int) {
	start := len(dst)
	if e.Position != 0 {
		dst = append(at.AppendTo(append(dst, "id: "...)), '\n')
	}
	dst = append(dst, "data: "...)
	json = len(dst) - start
	dst = appendJSON(dst, e)
	if e.Flags&store.EventFold != 0 {
		event.FoldLines(dst[start+json:])
	}
	return append(dst, "\n\n"...), json
}

func appendJSON(dst []byte, e *projector.Applied) []byte {
	dst = append(dst, '{')
	if e.Position != 0 {
		dst = strconv.AppendUint(append(dst, `"position":"`...), e.Position, 10)
		dst = append(dst, '"', ',')
	}
	dst = append(dst, `"topic":"`...)
	dst = append(dst, e.Topic...) // names need no escapes
	dst = append(dst, `","hlc":"`...)
	dst = e.HLC.AppendTo(dst)
	dst = append(dst, '"', ',')
	if e.Flags&store.EventSuperseded != 0 {
		dst = append(dst, `"superseded":true,`...)
	}
	return append(dst, e.Members...)
}

// deliver builds a delivery in memory of its own.
func deliver(at event.Cursor, e *projector.Applied) Delivery {
	frame, json := appendFrame(make([]byte, 0, len(e.Members)+128), at, e)
	out := Delivery{Position: e.Position, Message: projector.TicketTopic(e.Topic), Frame: frame, json: json}
	if e.Flags&store.EventFold != 0 {
		out.raw = appendJSON(nil, e)
	}
	return out
}
