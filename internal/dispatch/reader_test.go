// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
)

// everyway runs a test with a reader that is served from the tail, and again
// with one that is served from the store, after a restart.
func everyway(t *testing.T, test func(t *testing.T, r *rig, settle func())) {
	t.Run("tail", func(t *testing.T) {
		r := newRig(t, 1024)
		defer r.close()
		test(t, r, func() {})
	})
	t.Run("store", func(t *testing.T) {
		r := newRig(t, 1024)
		defer func() { r.close() }()
		test(t, r, func() {
			r.close()
			r.open()
		})
	})
}

func (r *rig) failure(list string, start dispatch.Start, view string) *event.Error {
	r.t.Helper()
	reader, err := r.dispatch.Open(dispatch.Spec{Patterns: patterns(r.t, list), Start: start, View: view})
	if err == nil {
		reader.Close()
		return nil
	}
	return event.AsError(err)
}

func at(position uint64) dispatch.Start {
	return dispatch.Start{Cursor: &event.Cursor{Position: position}}
}

// read opens a reader, reads to the head and closes it.
func (r *rig) read(list string, start dispatch.Start, view string) string {
	r.t.Helper()
	reader := r.mustOpen(list, start, view)
	defer reader.Close()
	return drain(r.t, reader, unlimited())
}

// TestNothingRemovedIsShown: what apply has declared gone is gone for readers,
// whether the rows are reclaimed or not, and though the tail still has them.
func TestNothingRemovedIsShown(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		r.do(r.put("log", event.CleanupDelete, 10_000, 0), r.put("tasks", event.CleanupCompact, 1, 10_000),
			r.publish(publishing{topic: "log", id: "retired"}),
			r.publish(publishing{topic: "tasks", id: "value", key: "k"}),
			r.publish(publishing{topic: "tasks", id: "late", key: "k", hlc: event.NewHLC(epoch-5, 0)}),
			r.publish(publishing{topic: "tasks", id: "tombstone", key: "k", bare: true}),
			r.publish(publishing{topic: "dropped", id: "dropped"}),
			r.publish(publishing{topic: "log", id: "expired", expiresMillis: epoch + 1}))
		r.tick(10_000)
		r.do(r.retire("log", 1), r.publish(publishing{topic: "log", id: "kept"}), r.drop("dropped"),
			r.publish(publishing{topic: "fleeting", id: "dropped"}), r.drop("fleeting"),
			r.publish(publishing{topic: "fleeting", id: "second life"}))
		settle()
		for _, view := range []string{dispatch.ViewDefault, dispatch.ViewHistory} {
			if got := r.read(">", dispatch.Start{}, view); got != "kept second life" {
				t.Errorf("from the oldest, the view %q has %q", view, got)
			}
		}
		for list, want := range map[string]string{"log": "cursor_expired", "tasks": "cursor_expired", "dropped": "cursor_expired", "fleeting": "cursor_expired", "other": ""} {
			if e := r.failure(list, dispatch.Start{Cursor: &event.Cursor{Position: 0}}, ""); e != nil {
				t.Errorf("the cursor @0 on %s got %v", list, e)
			}
			reader, err := r.dispatch.Open(dispatch.Spec{Patterns: patterns(t, list), Start: at(1)})
			if list == "log" { // its one removal is not after that cursor
				want = "kept"
			}
			if err != nil {
				if got := string(event.AsError(err).Code); got != want {
					t.Errorf("the cursor @1 on %s got %v", list, err)
				}
				continue
			}
			if got := drain(t, reader, unlimited()); got != want {
				t.Errorf("the cursor @1 on %s got %q", list, got)
			}
			reader.Close()
		}
	})
}

// TestCursors has every cursor that a client may come with: a silent jump to the
// oldest or the newest event would lose or repeat what it does not know of.
func TestCursors(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		r.do(r.put("log", event.CleanupDelete, 10_000, 0), r.put("tasks", event.CleanupCompact, 1, 10_000))
		for i := range 4 {
			r.do(r.publish(publishing{topic: "log", id: fmt.Sprint("log", i)}), r.publish(publishing{topic: "tasks", id: fmt.Sprint("task", i), key: "k"}))
		}
		r.tick(10_000)
		r.do(r.publish(publishing{topic: "log", id: "new"}), r.retire("log", 5))
		settle()
		head := r.dispatch.Head()
		for _, c := range []struct {
			list  string
			start dispatch.Start
			want  string
		}{
			{"log", dispatch.Start{}, "log3 new"},
			{"log", at(0), "log3 new"}, // zero is the oldest, and never expires
			{"log", dispatch.Start{Cursor: &event.Cursor{Incarnation: "00000000"}}, "log3 new"},
			{"log", at(5), "log3 new"},
			{"log", at(6), "log3 new"}, // a position of another topic
			{"log", at(7), "new"},
			{"log", dispatch.Start{Cursor: &head}, ""}, // the head: wait
			{"log", dispatch.Start{Now: true}, ""},
			{"tasks", at(2), "task3"}, // a hole that compaction left is nothing that was missed
			{"tasks", at(5), "task3"},
			{"tasks", at(8), ""},
			{"log,tasks", at(5), "log3 task3 new"},
			{"unheard.of", at(3), ""},
		} {
			if got := r.read(c.list, c.start, ""); got != c.want {
				t.Errorf("%s from %v: %q, want %q", c.list, c.start.Cursor, got, c.want)
			}
		}
		foreign := event.Cursor{Position: 3, Incarnation: "00000000"}
		for _, c := range []struct {
			list  string
			start dispatch.Start
			code  event.Code
		}{
			{"log", at(4), event.CodeCursorExpired},
			{"log", at(1), event.CodeCursorExpired},
			{"log,tasks", at(1), event.CodeCursorExpired},
			{"log", at(head.Position + 1), event.CodeCursorForeign},
			{"log", at(1 << 63), event.CodeCursorForeign},
			{"tasks", dispatch.Start{Cursor: &foreign}, event.CodeCursorForeign},
			{"log,tasks", dispatch.Start{EventID: "log3"}, event.CodeCursorInvalid},
			{"*", dispatch.Start{EventID: "log3"}, event.CodeCursorInvalid},
		} {
			if e := r.failure(c.list, c.start, ""); e == nil || e.Code != c.code {
				t.Errorf("%s from %v %q: %v, want %s", c.list, c.start.Cursor, c.start.EventID, e, c.code)
			}
		}
	})
}

// TestExpiredCursorSaysHowToGoOn: the answer has the oldest cursor, the head,
// the topics that lost something, and where the state is to be had.
func TestExpiredCursorSaysHowToGoOn(t *testing.T) {
	r := newRig(t, 16)
	defer r.close()
	r.do(r.put("tasks", event.CleanupCompact, 1, 1_000), r.publish(publishing{topic: "other"}),
		r.publish(publishing{topic: "tasks", key: "k", id: "value"}), r.publish(publishing{topic: "tasks", key: "k", bare: true}))
	reader := r.mustOpen("tasks", dispatch.Start{}, "")
	defer reader.Close()
	if w, err := reader.Poll(dispatch.Limit{Events: 1, Bytes: 1}); err != nil || len(w.Deliveries) != 1 {
		t.Fatal(w, err)
	}
	follower := r.mustOpen("tasks,other", at(2), "") // it has the value
	defer follower.Close()
	r.do(r.publish(publishing{topic: "tasks", key: "l"}))
	r.tick(1_000)
	// A reader that has seen the tombstone goes on, one that has not is told,
	// in the middle of its stream.
	if got := drain(t, reader, unlimited()); got != "e4" {
		t.Errorf("a reader at the tombstone got %q", got)
	}
	_, err := follower.Poll(unlimited())
	e := event.AsError(err)
	if e == nil || e.Code != event.CodeCursorExpired {
		t.Fatalf("a reader that missed the tombstone got %v", err)
	}
	want := map[string]any{"head": "@4." + incarnation, "topics": []string{"tasks"}, "state": "/v1/state?topics=tasks", "removed_to": "@3." + incarnation}
	for name, value := range want {
		if fmt.Sprint(e.Facts[name]) != fmt.Sprint(value) {
			t.Errorf("the fact %s is %v, want %v", name, e.Facts[name], value)
		}
	}
	oldest, err := event.ParseCursor(fmt.Sprint(e.Facts["oldest"]))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.read("tasks,other", dispatch.Start{Cursor: &oldest}, ""); !strings.HasSuffix(got, "e4") {
		t.Errorf("from the oldest cursor %s: %q", oldest, got)
	}
}

// TestResetNamesWhatCanBeAsked: of more topics than a request may name, the
// reset names some, and the URL of the state is one that the broker takes.
func TestResetNamesWhatCanBeAsked(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	r.do(r.put("log", "delete", 1000, 1000))
	const topics = event.MaxPatterns + 1
	for i := range topics {
		name := fmt.Sprintf("a.%03d", i)
		r.do(r.put(name, "compact", 1000, 1000), r.publish(publishing{topic: name, key: "k"}, publishing{topic: name, key: "k", bare: true}))
	}
	r.tick(1_000)
	_, err := r.dispatch.Open(dispatch.Spec{Patterns: patterns(t, "a.>,a.000,log"), Start: at(1)})
	e := event.AsError(err)
	if e == nil || e.Code != event.CodeCursorExpired {
		t.Fatal(err)
	}
	if named := e.Facts["topics"].([]string); len(named) != event.MaxPatterns || named[0] != "a.000" {
		t.Errorf("%d topics are named: %v", len(named), named)
	}
	if got := e.Facts["state"]; got != "/v1/state?topics=a.%3E,a.000" {
		t.Errorf("the URL of the state is %v", got)
	}
}

// TestStartAtTime begins with the first event of a moment of log time, also
// where the tail has earlier ones of the same minute.
func TestStartAtTime(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		var ids []string
		for i := range 10 {
			ids = append(ids, fmt.Sprint("n", i))
			r.do(r.publish(publishing{topic: "log", id: ids[i]}))
			r.tick(20_000)
		}
		settle()
		for _, c := range []struct {
			millis int64
			want   []string
		}{
			{epoch - 1, ids}, {epoch, ids}, {epoch + 1, ids[1:]}, {epoch + 20_000, ids[1:]}, {epoch + 60_001, ids[4:]},
			{epoch + 179_999, ids[9:]}, {epoch + 180_001, nil}, {epoch + 1e9, nil}, {1, ids},
		} {
			if got := r.read("log", dispatch.Start{Time: time.UnixMilli(c.millis)}, ""); got != strings.Join(c.want, " ") {
				t.Errorf("from %d ms on: %q, want %q", c.millis-epoch, got, c.want)
			}
		}
		// What comes before the moment is not delivered live, either.
		reader := r.mustOpen("log", dispatch.Start{Time: time.UnixMilli(r.now + 30_000)}, "")
		defer reader.Close()
		r.do(r.publish(publishing{topic: "log", id: "early"}))
		r.tick(30_000)
		r.do(r.publish(publishing{topic: "log", id: "timely"}))
		if got := drain(t, reader, unlimited()); got != "timely" {
			t.Errorf("a reader of what is to come got %q", got)
		}
	})
}

// TestStartAfterEventID looks a CloudEvents id up, as a browser does that knows
// nothing of cursors.
func TestStartAfterEventID(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		r.do(r.put("tasks", event.CleanupCompact, 1, 100_000),
			r.publish(publishing{topic: "log", id: "1"}), r.publish(publishing{topic: "other", id: "only there"}),
			r.publish(publishing{topic: "log", id: "2"}), r.publish(publishing{topic: "tasks", id: "superseded", key: "k", hlc: event.NewHLC(epoch-9, 0)}),
			r.publish(publishing{topic: "tasks", id: "winner", key: "k"}),
			r.publish(publishing{topic: "log", id: "twice", source: "/first"}), r.publish(publishing{topic: "log", id: "3"}))
		r.tick(59_000)
		r.do(r.publish(publishing{topic: "log", id: "twice", source: "/second"}), r.publish(publishing{topic: "log", id: "4"}))
		settle()
		after := func(id string) dispatch.Start { return dispatch.Start{EventID: id} }
		for _, c := range []struct{ list, id, want string }{
			{"log", "1", "2 twice 3 twice 4"},
			{"log", "4", ""},
			{"log", "twice", "3 twice 4"}, // the first of its sources: nothing is missed
			{"tasks", "superseded", "winner"},
			{"tasks", "winner", ""},
		} {
			if got := r.read(c.list, after(c.id), ""); got != c.want {
				t.Errorf("%s after %q: %q, want %q", c.list, c.id, got, c.want)
			}
		}
		for _, c := range [][2]string{{"log", "only there"}, {"log", "never"}, {"nothing", "1"}} {
			if e := r.failure(c[0], after(c[1]), ""); e == nil || e.Code != event.CodeCursorUnknown || e.Facts["oldest"] == nil {
				t.Errorf("%s after %q: %v", c[0], c[1], e)
			}
		}
		// The window ends for the one source, and goes on for the other, which by
		// then stands in the generation before.
		r.tick(1_000)
		if got := r.read("log", after("twice"), ""); got != "4" {
			t.Errorf("after the later of two events with an id: %q", got)
		}
		if e := r.failure("log", after("1"), ""); e == nil || e.Code != event.CodeCursorUnknown {
			t.Errorf("an id is known longer than its window: %v", e)
		}
		r.do(r.drop("log"), r.publish(publishing{topic: "log", id: "new"}))
		if e := r.failure("log", after("4"), ""); e == nil || e.Code != event.CodeCursorUnknown {
			t.Errorf("an id of the topic that was: %v", e)
		}
	})
}

func TestViews(t *testing.T) {
	r := newRig(t, 1024)
	defer r.close()
	r.do(r.put("tasks", event.CleanupCompact, 1, 100_000), r.publish(publishing{topic: "log", id: "1"}),
		r.publish(publishing{topic: "tasks", id: "old", key: "k"}), r.publish(publishing{topic: "tasks", id: "new", key: "k"}),
		r.publish(publishing{topic: "tasks", id: "late", key: "k", hlc: event.NewHLC(epoch-9, 0)}))
	for _, c := range []struct{ list, view, want string }{
		{"tasks", dispatch.ViewDefault, "new"},
		{"tasks", dispatch.ViewCurrent, "new"},
		{"tasks", dispatch.ViewHistory, "old new late"}, // as long as it is retained
		{"log", dispatch.ViewDefault, "1"},
		{"log", dispatch.ViewHistory, "1"},
		{">", dispatch.ViewDefault, "1 new"},
		{">", dispatch.ViewCurrent, "1 new"},
	} {
		if got := r.read(c.list, dispatch.Start{}, c.view); got != c.want {
			t.Errorf("view %q of %s: %q, want %q", c.view, c.list, got, c.want)
		}
	}
	for _, c := range [][2]string{{"log", dispatch.ViewCurrent}, {"tasks,log", dispatch.ViewCurrent}, {"tasks", "latest"}} {
		if e := r.failure(c[0], dispatch.Start{}, c[1]); e == nil || e.Code != event.CodeViewInvalid || e.Field != "view" {
			t.Errorf("view %q of %s: %v", c[1], c[0], e)
		}
	}
}

// TestManyTopics merges more topics, and more events of them, than one step of
// the store reads at once: in the order of positions, each once.
func TestManyTopics(t *testing.T) {
	r := newRig(t, 16)
	defer r.close()
	const topics, events = 7, 1200
	byTopic := map[string][]string{}
	var all []string
	for i := 0; i < events; {
		topic := fmt.Sprint("x.", (i*i/7)%topics)
		var batch []publishing
		for range 1 + i%60 {
			id := fmt.Sprint(i)
			batch = append(batch, publishing{topic: topic, id: id})
			byTopic[topic] = append(byTopic[topic], id)
			all = append(all, id)
			i++
		}
		r.do(r.publish(batch...))
	}
	for _, limit := range []dispatch.Limit{{Events: 5, Bytes: 1 << 20}, {Events: 100, Bytes: 1 << 20}, {Events: 1000, Bytes: 1 << 20}, {Events: 1 << 20, Bytes: 9000}, unlimited()} {
		reader := r.mustOpen("x.*", dispatch.Start{}, "")
		if got := drain(t, reader, limit); got != strings.Join(all, " ") {
			t.Errorf("with the limit %v the events are not all there, in order", limit)
		}
		reader.Close()
	}
	two := slices.Concat(byTopic["x.1"], byTopic["x.2"])
	got := strings.Fields(r.read("x.2,x.1", dispatch.Start{}, ""))
	slices.Sort(two)
	slices.Sort(got)
	if !slices.Equal(got, two) {
		t.Errorf("two of the topics have %d events, %d were read", len(two), len(got))
	}
}

// TestWindowIsBounded: a window that finds nothing to deliver ends all the same,
// and says how far it came.
func TestWindowIsBounded(t *testing.T) {
	r := newRig(t, 16)
	defer r.close()
	const rows = 11_000
	var batch []publishing
	for range 1000 {
		batch = append(batch, publishing{topic: "log", expiresMillis: epoch + 1})
	}
	for range rows / len(batch) {
		r.do(r.publish(batch...))
	}
	r.do(r.publish(publishing{topic: "log", id: "live"}))
	r.now += 1_000 // expired for the clock; no tick has removed the rows
	reader := r.mustOpen("log", dispatch.Start{}, "")
	defer reader.Close()
	w, err := reader.Poll(unlimited())
	if err != nil || w.CaughtUp || len(w.Deliveries) > 0 || w.Cursor.Position == 0 || w.Cursor.Position >= rows {
		t.Fatalf("the first window is %+v, %v", w, err)
	}
	if got := drain(t, reader, unlimited()); got != "live" {
		t.Errorf("what is live is %q", got)
	}
}

// TestLargeEvents go through a tail whose memory is bounded: readers fall back
// to the store and miss nothing.
func TestLargeEvents(t *testing.T) {
	r := newRig(t, 1024)
	defer r.close()
	data := `"` + strings.Repeat("x", 1<<20) + `"`
	reader := r.mustOpen("log", dispatch.Start{}, "")
	defer reader.Close()
	const events = 20
	for range events {
		r.do(r.publish(publishing{topic: "log", data: data}))
	}
	for position := uint64(0); position < events; {
		w, err := reader.Poll(dispatch.Limit{Events: 100, Bytes: 3 << 19})
		if err != nil || len(w.Deliveries) == 0 || len(w.Deliveries) > 2 {
			t.Fatalf("after position %d a window has %d events, %v", position, len(w.Deliveries), err)
		}
		for i := range w.Deliveries {
			position++
			if d := &w.Deliveries[i]; d.Position != position || !strings.HasSuffix(string(d.JSON()), `"data":`+data+"}") {
				t.Fatalf("position %d comes where %d is due, or it is not whole", d.Position, position)
			}
		}
	}
}

// TestLines: the line-based form has no line breaks, the other has the bytes as
// they were received.
func TestLines(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		data := "{\r\n\t\"a\": [1,\n2]}"
		r.do(r.publish(publishing{topic: "log", data: data}))
		settle()
		reader := r.mustOpen("log", dispatch.Start{}, "")
		defer reader.Close()
		w, err := reader.Poll(unlimited())
		if err != nil || len(w.Deliveries) != 1 {
			t.Fatal(w, err)
		}
		d := &w.Deliveries[0]
		if !strings.HasSuffix(string(d.JSON()), `"data":`+data+"}") {
			t.Errorf("the data is not as received: %s", d.JSON())
		}
		if line := string(d.Line()); strings.ContainsAny(line, "\r\n") || !strings.HasSuffix(line, `"data":{  `+"\t"+`"a": [1, 2]}}`) {
			t.Errorf("the line is %q", line)
		}
	})
}
