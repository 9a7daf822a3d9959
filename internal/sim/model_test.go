// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"signalbox/event"
	"signalbox/internal/eventlog"
)

// model is what must be true of a broker that has applied the proposals which
// it was told, in that order. It looks for everything from the beginning each
// time, and knows nothing of rows, timers or indexes.
type model struct {
	sequence int // proposals
	settings eventlog.Settings
	millis   int64 // log time
	position uint64
	hlc      event.HLC
	topics   map[string]*topic
	answered map[answeredKey]*answered
	// posts are events that the model does not judge, and is told of: the broker's
	// own, about subscriptions, and messages about tickets.
	posts []post
}

// post is where such an event has come into the log.
type post struct {
	position uint64
	hlc      event.HLC
}

// topic has everything that was ever said in one life of a topic.
type topic struct {
	name      string
	life      int // how often it was deleted
	deleted   bool
	policy    event.Policy
	count     int // events that were ever accepted in this life
	last      uint64
	floor     event.HLC
	highest   event.HLC
	retired   uint64   // everything up to here was removed by retention
	givenUp   uint64   // history up to here was past a shorter lag, and only waits to be removed
	removedTo uint64   // a cursor before it has missed a removal
	removals  []uint64 // where something was removed that a reader could miss
	events    []*item
	keys      map[string]*item // of each key the one with the highest (HLC, source, id)
	seen      map[[2]string]seen
}

// item is an accepted event.
type item struct {
	topic        string
	position     uint64
	key          string
	subject      string // what a subscription goes by
	source, id   string
	typ          string
	hlc          event.HLC
	millis       int64 // log time at which it was accepted
	expiryMillis int64
	size         int
	tombstone    bool
	late         bool  // superseded when it arrived
	kept         bool  // superseded, and still in the history
	gone         bool  // by its expirytime, in a topic that is not compacted
	hidden       bool  // its expirytime has come; it guards its key
	purgeMillis  int64 // when its key is forgotten; 0: never
}

// seen is what is remembered of an event.
type seen struct {
	content  [16]byte
	position uint64
	hlc      event.HLC
	millis   int64
}

// answeredKey is an idempotency key, in one life of a topic.
type answeredKey struct {
	scope [16]byte
	topic string
	life  int
}

type answered struct {
	request  [16]byte
	verdicts []verdict
	millis   int64
}

// verdict is what must become of one event.
type verdict struct {
	outcome  event.Outcome
	position uint64
	hlc      event.HLC
}

// expected is what must be the answer to a proposal.
type expected struct {
	proposal *eventlog.Proposal
	code     event.Code // "": it takes effect
	verdicts []verdict
	replayed bool
}

func newModel() *model {
	return &model{topics: map[string]*topic{}, answered: map[answeredKey]*answered{}}
}

func (m *model) clone() *model {
	n := *m
	n.topics = make(map[string]*topic, len(m.topics))
	for name, t := range m.topics {
		n.topics[name] = t.clone()
	}
	n.answered = maps.Clone(m.answered)
	return &n
}

func (t *topic) clone() *topic {
	c := *t
	c.removals, c.seen = slices.Clone(t.removals), maps.Clone(t.seen)
	c.events, c.keys = make([]*item, len(t.events)), make(map[string]*item, len(t.keys))
	same := make(map[*item]*item, len(t.events))
	for i, e := range t.events {
		copied := *e
		c.events[i], same[e] = &copied, &copied
	}
	for key, e := range t.keys {
		c.keys[key] = same[e]
	}
	return &c
}

// apply is told a proposal, and says what must be the answer.
func (m *model) apply(p *eventlog.Proposal) expected {
	m.sequence++
	x := expected{proposal: p}
	switch p.Kind {
	case eventlog.KindTick:
		m.tick(p.AdmittedMillis)
	case eventlog.KindEvents:
		if p.Message == nil {
			m.publish(p, &x)
		}
	case eventlog.KindControl:
		m.control(&p.Control, &x)
	}
	m.pass()
	return x
}

// pass goes past the posts that come next.
func (m *model) pass() {
	for len(m.posts) > 0 && m.posts[0].position == m.position+1 {
		m.position, m.hlc = m.posts[0].position, max(m.hlc, m.posts[0].hlc)
		m.posts = m.posts[1:]
	}
}

// tick moves log time, and takes out what is due.
func (m *model) tick(millis int64) {
	m.millis = max(m.millis, millis)
	for _, t := range m.topics {
		for _, e := range t.events {
			if e.expiryMillis != 0 && e.expiryMillis <= m.millis {
				m.expire(t, e)
			}
		}
		for key, e := range t.keys {
			if e.purgeMillis != 0 && e.purgeMillis <= m.millis {
				m.purge(t, key, e)
			}
		}
	}
}

func (m *model) expire(t *topic, e *item) {
	switch {
	case e.position <= t.retired || e.gone || e.hidden:
	case !t.policy.Compacts():
		e.gone = true
	case t.keys[e.key] != e:
		e.kept = false
	case e.tombstone:
		e.hidden = true
		t.remove(e.position)
	default:
		e.hidden = true
		e.purgeMillis = m.millis + t.policy.DeleteRetention.Std().Milliseconds()
	}
}

// purge forgets a key.
func (m *model) purge(t *topic, key string, e *item) {
	if !e.hidden {
		t.remove(e.position)
		e.kept = m.young(t, e)
	}
	t.forget(key, e)
}

func (t *topic) forget(key string, e *item) {
	delete(t.keys, key)
	t.floor = max(t.floor, e.hlc)
}

// remove notes that readers before a position have missed something.
func (t *topic) remove(position uint64) {
	t.removedTo = max(t.removedTo, position)
	t.removals = append(t.removals, position)
}

// young reports whether an event stays in the history if it is superseded now.
func (m *model) young(t *topic, e *item) bool {
	lag := t.policy.MinCompactionLag.Std().Milliseconds()
	return lag > 0 && !e.hidden && !m.past(t, e) && (e.expiryMillis == 0 || e.expiryMillis > m.millis)
}

// past reports whether an event that is superseded is no history any more.
func (m *model) past(t *topic, e *item) bool {
	return e.position <= t.givenUp || e.millis <= m.millis-t.policy.MinCompactionLag.Std().Milliseconds()
}

// above compares (HLC, source, id).
func (e *item) above(other *item) bool {
	return cmp.Or(cmp.Compare(e.hlc, other.hlc), cmp.Compare(e.source, other.source), cmp.Compare(e.id, other.id)) > 0
}

// live reports whether an event is its key's value at a log time.
func (e *item) live(millis int64) bool {
	return !e.tombstone && !e.hidden && (e.expiryMillis == 0 || e.expiryMillis > millis)
}

func (m *model) publish(p *eventlog.Proposal, x *expected) {
	t := m.topics[p.Topic]
	if p.Idempotency.Set {
		key := answeredKey{scope: p.Idempotency.Scope, topic: p.Topic}
		if t != nil {
			key.life = t.life
		}
		if a := m.answered[key]; a != nil && m.millis-a.millis < m.settings.DedupMillis {
			if a.request != p.Idempotency.Request {
				x.code = event.CodeIdempotencyKeyReused
				return
			}
			x.verdicts, x.replayed = a.verdicts, true
			return
		}
	}
	var before *model // all of a batch takes effect, or nothing
	if len(p.Entries) > 1 {
		before = m.clone()
	}
	for i := range p.Entries {
		v, code := m.one(p, &p.Entries[i])
		if code != "" {
			if before != nil {
				*m = *before
			}
			x.code, x.verdicts = code, nil
			if p.Batch && !code.Class().Retryable {
				x.code = event.CodeBatchAborted
			}
			return
		}
		x.verdicts = append(x.verdicts, v)
	}
	if p.Idempotency.Set {
		key := answeredKey{scope: p.Idempotency.Scope, topic: p.Topic}
		key.life = m.topics[p.Topic].life
		m.answered[key] = &answered{request: p.Idempotency.Request, verdicts: x.verdicts, millis: m.millis}
	}
}

// one decides about one event: duplicate, policy, precondition, HLC.
func (m *model) one(p *eventlog.Proposal, e *eventlog.Entry) (verdict, event.Code) {
	t := m.topics[p.Topic]
	if t == nil {
		t = newTopic(p.Topic)
	}
	if s, ok := t.seen[[2]string{e.Source, e.ID}]; ok && m.millis-s.millis < m.settings.DedupMillis {
		if s.content != e.Content {
			return verdict{}, event.CodeIDReused
		}
		return verdict{event.OutcomeDuplicate, s.position, s.hlc}, ""
	}
	policy := t.policy
	if t.deleted {
		policy = event.DefaultPolicy()
	}
	if code := refusedByPolicy(policy, e); code != "" {
		return verdict{}, code
	}
	n := &item{
		topic: p.Topic, subject: keyOf(policy, e), source: e.Source, id: e.ID, typ: typeOf(e), hlc: e.HLC, millis: m.millis, expiryMillis: e.ExpiryMillis,
		size: len(e.Members), tombstone: policy.Compacts() && e.Flags&eventlog.FlagBare != 0,
	}
	var winner *item
	if policy.Compacts() {
		n.key = keyOf(policy, e)
		winner = t.keys[n.key]
	}
	if code := m.condition(&p.Condition, policy, winner); code != "" {
		return verdict{}, code
	}
	if n.hlc == 0 {
		n.hlc = m.hlc.Next(p.AdmittedMillis)
	} else if ahead := n.hlc.Millis() - p.AdmittedMillis; ahead > m.settings.MaxDriftMillis && n.hlc.Millis() > m.hlc.Millis() {
		return verdict{}, event.CodeHLCDrift
	}
	switch {
	case !policy.Compacts():
	case winner == nil && n.hlc <= t.floor:
		return verdict{}, event.CodeHLCStale
	case winner != nil && !n.above(winner):
		if !p.Condition.Empty() {
			return verdict{}, event.CodeHLCBehind
		}
		n.late = true
	}
	return m.accept(t, policy, n, winner, e.Content), ""
}

func newTopic(name string) *topic {
	return &topic{name: name, deleted: true, policy: event.DefaultPolicy(), keys: map[string]*item{}, seen: map[[2]string]seen{}}
}

func typeOf(e *eventlog.Entry) string {
	typ, _ := event.LookupJSON(append([]byte("{"), e.Members...), "type")
	return typ
}

func keyOf(policy event.Policy, e *eventlog.Entry) string {
	if e.HasKey || policy.KeyFrom == "" || e.Flags&eventlog.FlagJSON == 0 {
		return e.Key
	}
	key, _ := event.LookupJSON(e.Members[e.DataOffset:e.DataOffset+e.DataLength], policy.KeyFrom)
	return key
}

func refusedByPolicy(policy event.Policy, e *eventlog.Entry) event.Code {
	switch {
	case policy.RequireHLC && e.HLC == 0:
		return event.CodeHLCRequired
	case policy.Compacts() && keyOf(policy, e) == "":
		return event.CodeKeyRequired
	case policy.Schema == "", policy.Compacts() && e.Flags&eventlog.FlagBare != 0:
		return ""
	case e.Flags&eventlog.FlagJSON == 0:
		return event.CodeDataNotJSON
	case !formed(policy.Schema, e.Members[e.DataOffset:e.DataOffset+e.DataLength]):
		return event.CodeSchemaViolation
	}
	return ""
}

// formed reports whether data has what schemaMost wants.
func formed(schema string, data []byte) bool {
	most := 0
	if _, err := fmt.Sscanf(schema, schemaMost, &most); err != nil {
		panic(err)
	}
	var object struct{ N *int }
	return json.Unmarshal(data, &object) == nil && object.N != nil && *object.N <= most
}

func (m *model) condition(c *eventlog.Condition, policy event.Policy, winner *item) event.Code {
	switch live := winner != nil && winner.live(m.millis); {
	case c.Empty():
		return ""
	case !policy.Compacts():
		return event.CodeNotCompacted
	case c.IfNoneMatch && !live, c.IfMatchAny && live, live && slices.Contains(c.IfMatch, winner.position):
		return ""
	}
	return event.CodeConflict
}

func (m *model) accept(t *topic, policy event.Policy, n, winner *item, content [16]byte) verdict {
	m.topics[t.name] = t
	t.deleted, t.policy = false, policy
	m.position++
	n.position, t.last = m.position, m.position
	t.count++
	m.hlc, t.highest = max(m.hlc, n.hlc), max(t.highest, n.hlc)
	t.seen[[2]string{n.source, n.id}] = seen{content, n.position, n.hlc, m.millis}
	t.events = append(t.events, n)
	switch {
	case !policy.Compacts():
	case n.late:
		n.kept = policy.MinCompactionLag > 0
	default:
		if winner != nil {
			winner.kept = m.young(t, winner)
		}
		t.keys[n.key] = n
		if n.tombstone {
			n.purgeMillis = m.millis + policy.DeleteRetention.Std().Milliseconds()
		}
	}
	if n.late {
		return verdict{event.OutcomeSuperseded, n.position, n.hlc}
	}
	return verdict{event.OutcomeAccepted, n.position, n.hlc}
}

func (m *model) control(c *eventlog.Control, x *expected) {
	t := m.topics[c.Topic]
	switch c.Op {
	case eventlog.OpConfigure:
		m.settings = *c.Settings
	case eventlog.OpPutTopic:
		m.putTopic(c, x)
	case eventlog.OpDeleteTopic:
		if t == nil || t.deleted {
			x.code = event.CodeTopicUnknown
			return
		}
		m.deleteTopic(t)
	case eventlog.OpRetire:
		if t != nil && !t.deleted && t.policy.Deletes() && c.RetireTo > t.retired {
			m.retire(t, c.RetireTo)
		}
	case eventlog.OpCompact:
		if t != nil && !t.deleted {
			m.compact(t, c.RetireTo)
		}
	}
}

func (m *model) putTopic(c *eventlog.Control, x *expected) {
	t := m.topics[c.Topic]
	if t == nil {
		t = newTopic(c.Topic)
		m.topics[c.Topic] = t
	}
	fixed := !t.deleted && (c.Policy.Compacts() != t.policy.Compacts() || c.Policy.KeyFrom != t.policy.KeyFrom || c.Policy.Ephemeral() != t.policy.Ephemeral())
	if fixed && t.holds() {
		x.code = event.CodePolicyImmutable
		return
	}
	if fixed { // nothing of what there was is left
		t.events = nil
	}
	if c.Policy.MinCompactionLag > t.policy.MinCompactionLag {
		for _, e := range t.events {
			if e.kept && e.position > t.retired && m.past(t, e) {
				t.givenUp = max(t.givenUp, e.position)
			}
		}
	}
	t.deleted, t.policy = false, *c.Policy
}

// holds reports whether there is anything that a topic keeps. Where it is not
// compacted, what has expired counts until retention comes past it.
func (t *topic) holds() bool {
	return len(t.keys) > 0 || slices.ContainsFunc(t.events, func(e *item) bool {
		return e.position > t.retired && (!t.policy.Compacts() || e.kept)
	})
}

func (m *model) deleteTopic(t *topic) {
	t.life++
	t.deleted, t.policy, t.count, t.retired = true, event.DefaultPolicy(), 0, 0
	t.givenUp = 0
	if t.last > 0 {
		t.remove(t.last)
	}
	t.last = 0
	t.floor = max(t.floor, t.highest)
	t.events, t.keys, t.seen = nil, map[string]*item{}, map[[2]string]seen{}
}

// shows reports whether an event is stored, whether or not it has expired.
func (t *topic) shows(e *item) bool {
	switch {
	case e.position <= t.retired:
		return false
	case !t.policy.Compacts():
		return !e.gone
	}
	return e.kept || t.keys[e.key] == e && !e.hidden
}

// retire removes what is old or too much, from the beginning and no further than
// is asked.
func (m *model) retire(t *topic, to uint64) {
	held := 0
	for _, e := range t.events {
		if t.policy.Compacts() && t.shows(e) || !t.policy.Compacts() && e.position > t.retired {
			held += e.size
		}
	}
	reached := t.retired
	for _, e := range t.events {
		if e.position <= t.retired || e.position > to {
			continue
		}
		if !m.mayRetire(t, e, held) && t.shows(e) {
			break
		}
		if t.shows(e) {
			reached = e.position
		}
		if t.policy.Compacts() && t.shows(e) || !t.policy.Compacts() {
			held -= e.size
		}
	}
	if reached == t.retired {
		return
	}
	for key, e := range t.keys {
		if e.position > t.retired && e.position <= reached && !e.hidden {
			t.forget(key, e)
		}
	}
	t.retired = reached
	t.remove(reached)
}

func (m *model) mayRetire(t *topic, e *item, held int) bool {
	r := t.policy.Retention
	return r != nil && e.millis <= m.millis-r.Std().Milliseconds() || t.policy.RetentionBytes > 0 && held > int(t.policy.RetentionBytes)
}

// compact removes what is no history any more.
func (m *model) compact(t *topic, to uint64) {
	for _, e := range t.events {
		if e.position > to || e.position <= t.retired || !e.kept {
			continue
		}
		if !m.past(t, e) {
			return
		}
		if e.kept = false; e.position >= t.givenUp {
			t.givenUp = 0
		}
	}
}

func (v verdict) String() string { return fmt.Sprintf("%s @%d %s", v.outcome, v.position, v.hlc) }
