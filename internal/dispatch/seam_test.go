// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// seam is a machine that reads while everything happens that can happen to a
// reader: its tail holds 16 events, so that readers fall out of it to the store
// and come back; topics are made and deleted, retention and timers remove,
// supersession replaces, the process restarts.
type seam struct {
	*rig
	readers []*follower
	retired map[uint64]bool            // positions that retention or a deletion took
	rows    map[string]store.WinnerRow // by topic and key, at the latest poll
	kept    map[uint64]bool            // positions that are kept as history, at the latest poll
	lag     int64                      // of topic x.lag
	given   map[uint64]bool            // positions that were past the lag when it was raised
}

// follower is a client: it has a cursor, what it was delivered, and what it
// makes of it.
type follower struct {
	list   string
	view   string
	keys   string // of these keys only, by a filter; "": of all
	since  int64
	reader *dispatch.Reader
	cursor event.Cursor
	all    bool              // it has been following from the oldest or from a state
	fold   map[string]uint64 // of topic and key: the position of what it holds
	missed map[string]uint64 // of topic and key: what had expired when it came by
}

func TestSeam(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &seam{rig: newCrowdedRig(t, 16, rapid.SampledFrom([]int{0, 1}).Draw(t, "crowd")), retired: map[uint64]bool{}, given: map[uint64]bool{}}
		s.do(s.put("log", event.CleanupDelete, 20_000, 0))
		s.do(s.put("x.log", event.CleanupDelete, 1<<40, 0))
		s.do(s.put("tasks", event.CleanupCompact, 0+1, 5_000))
		s.do(s.put("x.both", event.CleanupCompactDelete, 20_000, 5_000))
		s.do(s.policyOfLag(8_000))
		defer s.close()
		t.Repeat(map[string]func(*rapid.T){
			"publish": s.publishSome,
			"again":   s.publishSome, // more often than the rest
			"pass":    s.pass,
			"clean":   s.clean,
			"compact": s.compactLag,
			"remake":  s.remake,
			"relag":   s.relag,
			"restart": s.restart,
			"open":    s.openReader,
			"poll":    s.pollReader,
			"follow":  s.pollReader,
			"resume":  s.resumeReader,
			"leave":   s.leave,
		})
		for _, f := range s.readers {
			for !s.poll(t, f, unlimited()) {
			}
			f.reader.Close()
		}
	})
}

func (s *seam) publishSome(t *rapid.T) {
	topic := rapid.SampledFrom([]string{"log", "x.log", "tasks", "tasks", "x.both", "x.lag", "x.lag"}).Draw(t, "topic")
	var batch []publishing
	for range rapid.SampledFrom([]int{1, 1, 2, 5, 25}).Draw(t, "count") {
		e := publishing{topic: topic, key: rapid.SampledFrom([]string{"k", "l", "m", "n"}).Draw(t, "key")}
		if late := rapid.SampledFrom([]int64{0, 0, 0, 1, 10_000}).Draw(t, "late"); late > 0 {
			e.hlc = event.NewHLC(s.now-late, uint16(s.n))
		}
		if ttl := rapid.SampledFrom([]int64{0, 0, 0, -1, 2_000, 9_000}).Draw(t, "ttl"); ttl != 0 {
			e.expiresMillis = s.now + ttl
		}
		e.bare = rapid.IntRange(0, 4).Draw(t, "bare") == 0
		if rapid.IntRange(0, 9).Draw(t, "folded") == 0 {
			e.data = "[1,\n\r2]"
		}
		batch = append(batch, e)
	}
	s.do(s.publish(batch...))
}

// pass lets time pass on the clock, and not always in the log.
func (s *seam) pass(t *rapid.T) {
	s.now += rapid.SampledFrom([]int64{1, 500, 2_000, 9_000, 25_000}).Draw(t, "millis")
	if rapid.Bool().Draw(t, "tick") {
		s.tick(0)
	}
}

// winners has the guards and the state of all topics.
func (s *seam) winners() map[string]store.WinnerRow {
	rows := map[string]store.WinnerRow{}
	view := s.store.View(func() {})
	defer view.Close()
	for _, t := range s.projector.Topics() {
		err := view.Winners(t.Number, func(key string, row store.WinnerRow) error {
			rows[t.Name+" "+key] = row
			return nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return rows
}

// policyOfLag puts topic x.lag, which keeps history and is kept by age.
func (s *seam) policyOfLag(lag int64) *eventlog.Proposal {
	s.lag = lag
	return lagging(s.put("x.lag", event.CleanupCompactDelete, 60_000, 5_000), lag)
}

// relag changes for how long history is kept, to nothing and back, too. What is past
// the lag by then stays so.
func (s *seam) relag(t *rapid.T) {
	lag := rapid.SampledFrom([]int64{0, 3_000, 8_000, 30_000}).Draw(t, "lag")
	for p, kept := range s.histories() {
		if !kept {
			s.given[p] = true
		}
	}
	s.do(s.policyOfLag(lag))
}

// histories has the superseded events that readers of history must get: those
// that are in the store. What is younger than the lag and was superseded under it
// must be among them, unless its time has come.
func (s *seam) histories() map[uint64]bool {
	kept := map[uint64]bool{}
	for _, t := range s.projector.Topics() {
		err := s.store.Histories(t.Number, t.HistoryFrom(), t.Last, func(position uint64, row store.EventRow) (bool, error) {
			lag := t.Policy.MinCompactionLag.Std().Milliseconds()
			kept[position] = row.LogMillis > s.projector.Space().LogMillis-lag && !s.given[position] // others wait to be removed
			return true, nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return kept
}

// clean is what the cleaner does: it proposes what is old, and reclaims what
// was declared gone.
func (s *seam) clean(t *rapid.T) {
	name := rapid.SampledFrom([]string{"log", "x.both"}).Draw(t, "topic")
	before, _ := s.topic(name)
	// The cleaner finds the last event that is old enough; apply has the word.
	to := rapid.Uint64Range(0, s.projector.Space().Position).Draw(t, "to")
	for p := s.projector.Space().Position; p > to && rapid.IntRange(0, 9).Draw(t, "exact") > 0; p-- {
		if s.events[p].Topic == name && s.events[p].LogMillis <= s.projector.Space().LogMillis-20_000 {
			to = p
		}
	}
	s.do(s.retire(name, to))
	after, _ := s.topic(name)
	for p := before.RetiredTo + 1; p <= after.RetiredTo; p++ {
		s.retired[p] = true
	}
	batch := s.store.NewBatch()
	defer batch.Close()
	if rapid.Bool().Draw(t, "reclaim") {
		batch.DeleteEvents(after.Number, 0, after.RetiredTo)
	}
	numbers, err := s.store.Garbage()
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range numbers {
		batch.DeleteTopicRows(number)
	}
	if err := s.store.Reclaim(batch); err != nil {
		t.Fatal(err)
	}
}

// compactLag is what the cleaner does for the topic that keeps history.
func (s *seam) compactLag(t *rapid.T) {
	s.tick(0)
	before, known, to := s.histories(), s.projector.Space().LogMillis, s.projector.Space().Position
	if rapid.Bool().Draw(t, "part") {
		to = rapid.Uint64Range(0, to).Draw(t, "compactTo")
	}
	s.do(s.compact("x.lag", to))
	if rapid.IntRange(0, 3).Draw(t, "retireLag") == 0 {
		topic, _ := s.topic("x.lag")
		s.do(s.retire("x.lag", rapid.Uint64Range(0, s.projector.Space().Position).Draw(t, "retireTo")))
		after, _ := s.topic("x.lag")
		for p := topic.RetiredTo + 1; p <= after.RetiredTo; p++ {
			s.retired[p] = true
		}
	}
	after := s.histories()
	for p, kept := range before {
		if e := s.events[p]; kept && !after[p] && !s.retired[p] {
			t.Fatalf("%+v is younger than the lag of %d, and was compacted at %d", e, s.lag, known)
		}
	}
	topic, _ := s.topic("x.lag")
	batch := s.store.NewBatch()
	defer batch.Close()
	if rapid.Bool().Draw(t, "reclaimHistory") {
		batch.DeleteHistories(topic.Number, 0, topic.RetiredTo)
		batch.DeleteEvents(topic.Number, 0, topic.RetiredTo)
	}
	if err := s.store.Reclaim(batch); err != nil {
		t.Fatal(err)
	}
}

// remake deletes a topic, and makes it again at once or not: then its next
// event does, with the defaults.
func (s *seam) remake(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		return // it ends all that the topic's readers are in the middle of
	}
	name := rapid.SampledFrom([]string{"x.log", "tasks", "x.both", "x.lag"}).Draw(t, "topic")
	for p, e := range s.events {
		if e.Topic == name {
			s.retired[p] = true
		}
	}
	group := append(s.publishOne(t, name), s.drop(name))
	switch again := rapid.Bool().Draw(t, "again"); {
	case again && name == "x.lag":
		group = append(group, s.policyOfLag(8_000))
	case again:
		group = append(group, s.put(name, map[string]string{"x.log": event.CleanupDelete, "tasks": event.CleanupCompact, "x.both": event.CleanupCompactDelete}[name], 20_000, 5_000))
		group = append(group, s.publishOne(t, name)...)
	}
	head := s.projector.Space().Position
	s.do(group...)
	if topic, _ := s.topic(name); topic.RemovedTo > head {
		s.retired[topic.RemovedTo] = true // published and deleted in one commit
	}
}

func (s *seam) publishOne(t *rapid.T, topic string) (group []*eventlog.Proposal) {
	if rapid.Bool().Draw(t, "one") {
		group = append(group, s.publish(publishing{topic: topic, key: "k"}))
	}
	return group
}

func (s *seam) restart(t *rapid.T) {
	for _, f := range s.readers {
		f.reader.Close()
	}
	s.close()
	s.open()
	for _, f := range s.readers {
		s.resume(t, f)
	}
}

func (s *seam) openReader(t *rapid.T) {
	if len(s.readers) >= 6 {
		return
	}
	f := &follower{
		list: rapid.SampledFrom([]string{"log", "tasks", "x.both", "x.lag", "nothing", "log,tasks", "x.*", ">"}).Draw(t, "patterns"),
		view: rapid.SampledFrom([]string{"", "", dispatch.ViewHistory}).Draw(t, "view"),
		fold: map[string]uint64{}, missed: map[string]uint64{},
	}
	f.keys = rapid.SampledFrom([]string{"", "", "k", "lm", "x"}).Draw(t, "keys")
	var start dispatch.Start
	switch rapid.IntRange(0, 3).Draw(t, "start") {
	case 0:
		start.Now = true
	case 1:
		f.since = s.now - rapid.SampledFrom([]int64{0, 5_000, 100_000}).Draw(t, "ago")
		start.Time = time.UnixMilli(f.since)
	default:
		f.all = true
	}
	var err error
	if f.reader, err = s.openFollower(t, f, start); err != nil {
		t.Fatal(err)
	}
	f.cursor = f.reader.Cursor()
	s.readers = append(s.readers, f)
}

func (s *seam) openFollower(t *rapid.T, f *follower, start dispatch.Start) (*dispatch.Reader, error) {
	spec := dispatch.Spec{Patterns: patterns(t, f.list), Start: start, View: f.view}
	if f.keys != "" {
		spec.Filter = mustFilter(t, "partitionkey IN ('"+strings.Join(strings.Split(f.keys, ""), "', '")+"')")
	}
	return s.dispatch.Open(spec)
}

// passes says whether the follower's filter lets a key pass.
func (f *follower) passes(key string) bool { return f.keys == "" || strings.Contains(f.keys, key) }

func (s *seam) pick(t *rapid.T) *follower {
	if len(s.readers) == 0 {
		t.Skip("no reader yet")
	}
	return rapid.SampledFrom(s.readers).Draw(t, "reader")
}

func (s *seam) pollReader(t *rapid.T) {
	limit := dispatch.Limit{
		Events: rapid.SampledFrom([]int{1, 2, 7, 1000}).Draw(t, "events"),
		Bytes:  rapid.SampledFrom([]int{1, 300, 1 << 20}).Draw(t, "bytes"),
	}
	s.poll(t, s.pick(t), limit)
}

func (s *seam) resumeReader(t *rapid.T) {
	f := s.pick(t)
	f.reader.Close()
	s.resume(t, f)
}

func (s *seam) leave(t *rapid.T) {
	f := s.pick(t)
	f.reader.Close()
	s.readers = slices.DeleteFunc(s.readers, func(other *follower) bool { return other == f })
}

// resume is what a client does that has lost its connection: it comes back with
// its cursor, and after a reset reads the state and follows from there.
func (s *seam) resume(t *rapid.T, f *follower) {
	f.since = 0
	cursor := f.cursor
	if rapid.IntRange(0, 3).Draw(t, "bare") == 0 {
		cursor.Incarnation = ""
	}
	var err error
	f.reader, err = s.openFollower(t, f, dispatch.Start{Cursor: &cursor})
	if err != nil {
		s.reset(t, f, err)
		return
	}
	if cursor.Position == 0 { // which is the oldest, of which a client has nothing
		f.all, f.fold = true, map[string]uint64{}
	}
}

// reset checks that the cursor has expired for a reason, and begins again.
func (s *seam) reset(t *rapid.T, f *follower, cause error) {
	e := event.AsError(cause)
	if e.Code != event.CodeCursorExpired {
		t.Fatalf("the cursor %s got %v", f.cursor, cause)
	}
	if !slices.ContainsFunc(s.matching(t, f), func(topic store.Topic) bool { return topic.RemovedTo > max(f.cursor.Position, f.cursor.Began) }) {
		t.Fatalf("nothing after %s was removed: %v", f.cursor, cause)
	}
	if named, ok := e.Facts["topics"].([]string); !ok || len(named) == 0 {
		t.Fatalf("the answer names the topics %v", e.Facts["topics"])
	}
	f.fold, f.all, f.since = map[string]uint64{}, true, 0
	state, err := s.dispatch.OpenState(patterns(t, ">"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	for {
		d, ok, err := state.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		e := s.events[decode(t, &d).Position]
		if s.matches(t, f, e.Topic) && f.passes(e.Key) {
			f.fold[e.Topic+" "+e.Key] = e.Position
		}
	}
	f.cursor = state.Cursor()
	cursor := state.Cursor()
	if f.reader, err = s.openFollower(t, f, dispatch.Start{Cursor: &cursor}); err != nil {
		t.Fatal(err)
	}
}

func (s *seam) matches(t *rapid.T, f *follower, topic string) bool {
	return slices.ContainsFunc(patterns(t, f.list), func(p event.Pattern) bool { return p.Match(topic) })
}

func (s *seam) matching(t *rapid.T, f *follower) (found []store.Topic) {
	for _, topic := range s.projector.Topics() {
		if s.matches(t, f, topic.Name) {
			found = append(found, topic)
		}
	}
	return found
}

// poll checks a window against everything that is known: it holds exactly what
// is there to be delivered between its ends, in order, and nothing that has
// expired, was superseded or removed.
func (s *seam) poll(t *rapid.T, f *follower, limit dispatch.Limit) (caughtUp bool) {
	before := f.cursor.Position
	s.rows, s.kept = s.winners(), s.histories()
	w, err := f.reader.Poll(limit)
	if err != nil {
		f.reader.Close()
		s.reset(t, f, err)
		return false
	}
	after := w.Cursor.Position
	if after < before || after > s.projector.Space().Position || w.CaughtUp && after != s.projector.Space().Position {
		t.Fatalf("a window from %d to %d, caught up: %t, while the head is %d", before, after, w.CaughtUp, s.projector.Space().Position)
	}
	if !w.CaughtUp && after == before {
		t.Fatalf("a window at %d makes no progress", before)
	}
	if len(w.Deliveries) > limit.Events {
		t.Fatalf("%d events in a window of %d", len(w.Deliveries), limit.Events)
	}
	got := map[uint64]bool{}
	last := before
	for i := range w.Deliveries {
		d := decode(t, &w.Deliveries[i])
		if d.Position <= last || d.Position > after {
			t.Fatalf("position %d comes after %d, in the window (%d, %d]", d.Position, last, before, after)
		}
		last = d.Position
		got[last] = true
		s.deliver(t, f, last, d)
	}
	for p := before + 1; p <= after; p++ {
		e := s.events[p]
		if s.deliverable(t, f, &e) && !got[p] {
			t.Fatalf("position %d is missing in the window (%d, %d]: %+v", p, before, after, e)
		}
		if e.Key != "" && !got[p] && e.Flags&store.EventSuperseded == 0 && s.expired(&e) {
			f.missed[e.Topic+" "+e.Key] = p
		}
	}
	f.cursor = w.Cursor
	if w.CaughtUp && f.all {
		s.checkFold(t, f)
	}
	return w.CaughtUp
}

// deliverable says whether a reader that passes the position now must get it.
func (s *seam) deliverable(t *rapid.T, f *follower, e *projector.Applied) bool {
	topic, ok := s.topic(e.Topic)
	if !ok || topic.Number != e.Number || e.Position <= topic.RetiredTo || !s.matches(t, f, e.Topic) || e.LogMillis < f.since || !f.passes(keyOf(e)) {
		return false
	}
	if s.expired(e) {
		return false
	}
	if !topic.Policy.Compacts() {
		return true
	}
	return s.rows[e.Topic+" "+e.Key].Position == e.Position || f.view == dispatch.ViewHistory && s.kept[e.Position]
}

// keyOf is the event's key, which an event of a topic that is not compacted has
// among its members only.
func keyOf(e *projector.Applied) string {
	key, _ := event.LookupJSON(append([]byte("{"), e.Members...), "partitionkey")
	return key
}

func (s *seam) expired(e *projector.Applied) bool {
	return e.ExpiryMillis != 0 && e.ExpiryMillis <= max(s.now, s.projector.Space().LogMillis)
}

// deliver checks one delivery and adds it to what the client holds.
func (s *seam) deliver(t *rapid.T, f *follower, position uint64, d delivered) {
	e := s.events[position]
	ok := s.deliverable(t, f, &e)
	if !ok && f.view == dispatch.ViewHistory {
		ok = s.inHistory(t, f, &e)
	}
	if !ok {
		t.Fatalf("view %q of %s was delivered %+v, which is not there any more", f.view, f.list, e)
	}
	if d.Topic != e.Topic {
		t.Fatalf("position %d of %s says that it is of %q", position, e.Topic, d.Topic)
	}
	if superseded := e.Flags&store.EventSuperseded != 0; d.Superseded != superseded {
		t.Fatalf("superseded is %t on %+v", d.Superseded, e)
	}
	key := e.Topic + " " + e.Key
	if d.Superseded || e.Key == "" {
		return
	}
	if e.Flags&store.EventTombstone != 0 {
		delete(f.fold, key)
	} else {
		f.fold[key] = position
	}
}

// inHistory says whether a reader of history may get a value that was superseded:
// as long as it is kept, or its key is known and the tail still has it, and it has
// not gone otherwise.
func (s *seam) inHistory(t *rapid.T, f *follower, e *projector.Applied) bool {
	topic, ok := s.topic(e.Topic)
	if !ok || topic.Number != e.Number || e.Position <= topic.RetiredTo || !s.matches(t, f, e.Topic) || e.LogMillis < f.since ||
		s.expired(e) || !topic.Policy.Compacts() || !f.passes(keyOf(e)) {
		return false
	}
	if e.Position+uint64(s.tailEvents) <= s.projector.Space().Position {
		return s.kept[e.Position] // what is not in the tail comes from the store
	}
	_, known := s.rows[e.Topic+" "+e.Key]
	return known || s.kept[e.Position]
}

// checkFold compares what a client holds at the sync marker with the state. It
// may hold more than the state has: what it saw expires by its own clock, what
// retention or a deletion took it was not told of, and neither of what replaced
// a value that it holds but had expired when it came by.
func (s *seam) checkFold(t *rapid.T, f *follower) {
	held := maps.Clone(f.fold)
	for name, row := range s.rows {
		topic, key, _ := strings.Cut(name, " ")
		if !s.matches(t, f, topic) || !f.passes(key) || !row.Live(max(s.now, s.projector.Space().LogMillis)) {
			continue
		}
		if held[name] != row.Position {
			t.Fatalf("at %s a reader of %s holds %d for %s, and the state is %d", f.cursor, f.list, held[name], name, row.Position)
		}
		delete(held, name)
	}
	for name, position := range held {
		e := s.events[position]
		switch {
		case s.expired(&e):
		case s.retired[position]:
		case f.missed[name] > position:
		default:
			t.Fatalf("at %s a reader of %s holds %d for %s, which is not in the state", f.cursor, f.list, position, name)
		}
	}
}
