// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/filter"
)

func mustFilter(t fataler, text string) *filter.Filter {
	t.Helper()
	f, err := filter.ParseText(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (r *rig) mustOpenFiltered(list string, start dispatch.Start, text string) *dispatch.Reader {
	r.t.Helper()
	reader, err := r.dispatch.Open(dispatch.Spec{Patterns: patterns(r.t, list), Start: start, Filter: mustFilter(r.t, text)})
	if err != nil {
		r.t.Fatal(err)
	}
	return reader
}

// TestFilteredReadersGetWhatPasses, from the tail and from the store, whatever
// the size of their windows, and end at the same cursor as others do.
func TestFilteredReadersGetWhatPasses(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		const events = 900 // more than one window of candidates
		for i := 1; i <= events; i++ {
			r.do(r.publish(publishing{topic: []string{"a", "b"}[i%2], id: strconv.Itoa(i), data: fmt.Sprintf(`{"n":%d}`, i)}))
		}
		settle()
		for text, passes := range map[string]func(i int) bool{
			`data.n % 10 = 0`:                   func(i int) bool { return i%10 == 0 },
			`data.n > 890`:                      func(i int) bool { return i > 890 },
			`topic = 'a' AND data.n <= 20`:      func(i int) bool { return i%2 == 0 && i <= 20 },
			`INT(position) IN (7, 8)`:           func(i int) bool { return i == 7 || i == 8 },
			`type = 'other'`:                    func(int) bool { return false },
			`type = 't' AND EXISTS hlc`:         func(int) bool { return true },
			`source = '/s' AND missing = 'x'`:   func(int) bool { return false },
			`NOT EXISTS superseded AND n = 'x'`: func(int) bool { return false },
		} {
			var want []string
			for i := 1; i <= events; i++ {
				if passes(i) {
					want = append(want, strconv.Itoa(i))
				}
			}
			for _, limit := range []dispatch.Limit{unlimited(), {Events: 1, Bytes: 1 << 20}, {Events: 7, Bytes: 200}} {
				reader := r.mustOpenFiltered("a,b", dispatch.Start{}, text)
				if got := drain(t, reader, limit); got != strings.Join(want, " ") {
					t.Errorf("%s with %+v: %s, want %v", text, limit, got, want)
				}
				if reader.Cursor().Position != events {
					t.Errorf("%s: the cursor is %s", text, reader.Cursor())
				}
				reader.Close()
			}
		}
	})
}

// TestWindowsEndWhereFiltersTakeTheirTime: a window whose time is up ends where it
// is, with the tail as with the store, and the next one goes on there.
func TestWindowsEndWhereFiltersTakeTheirTime(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		for i := 1; i <= 50; i++ {
			r.do(r.publish(publishing{topic: "a", id: strconv.Itoa(i), data: fmt.Sprintf(`{"n":%d}`, i)}))
		}
		settle()
		r.dispatch.HurryWindows()
		reader := r.mustOpenFiltered("a", dispatch.Start{}, `data.n > 48`)
		defer reader.Close()
		begin := reader.Cursor().Position
		for range 3 {
			w, err := reader.Poll(unlimited())
			if err != nil || w.CaughtUp || len(w.Deliveries) > 0 || w.Cursor.Position <= begin {
				t.Fatalf("after %d a window is %+v, %v", begin, w, err)
			}
			begin = w.Cursor.Position
		}
		if got := drain(t, reader, unlimited()); got != "49 50" {
			t.Errorf("what passes is %q", got)
		}
	})
}

// TestFiltersSeeWinnersOnly: a value that was replaced passes nothing, and a
// tombstone passes a filter that looked into data.
func TestFiltersSeeWinnersOnly(t *testing.T) {
	everyway(t, func(t *testing.T, r *rig, settle func()) {
		r.do(r.put("tasks", event.CleanupCompact, 1<<40, 1<<40),
			r.publish(publishing{topic: "tasks", id: "old", key: "k", data: `{"state":"open"}`}),
			r.publish(publishing{topic: "tasks", id: "new", key: "k", data: `{"state":"done"}`}),
			r.publish(publishing{topic: "tasks", id: "other", key: "l", data: `{"state":"open"}`}),
			r.publish(publishing{topic: "tasks", id: "gone", key: "m", bare: true}))
		settle()
		for text, want := range map[string]string{
			`data.state = 'open'`:                        "other gone",
			`data.state = 'done'`:                        "new gone",
			`id = 'old' OR id = 'other'`:                 "other",
			`id = 'other' AND data.state = 'open'`:       "other",
			`id IN ('gone', 'x') AND data.state = 'any'`: "gone",
		} {
			reader := r.mustOpenFiltered("tasks", dispatch.Start{}, text)
			if got := drain(t, reader, unlimited()); got != want {
				t.Errorf("%s: %q, want %q", text, got, want)
			}
			reader.Close()
		}
		state, err := r.dispatch.OpenState(patterns(t, "tasks"), mustFilter(t, `data.state = 'open'`))
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		var ids []string
		for {
			d, more, err := state.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
			if d.Frame != nil {
				ids = append(ids, decode(t, &d).ID)
			}
		}
		if got := strings.Join(ids, " "); got != "other" {
			t.Errorf("the filtered state has %q", got)
		}
	})
}

// TestReadersCountHoweverOthersSpellTheirTopics: who reads the same topics through
// the same filter in another order may leave first.
func TestReadersCountHoweverOthersSpellTheirTopics(t *testing.T) {
	r := newRig(t, 1024)
	defer r.close()
	total := dispatch.Counts{}
	first := r.mustOpenFiltered("b,a,b", dispatch.Start{Now: true}, `data.n % 3 = 0`)
	second, err := r.dispatch.Open(dispatch.Spec{
		Patterns: patterns(t, "a,b"), Start: dispatch.Start{Now: true}, Filter: mustFilter(t, `data.n % 3 = 0`),
		Counted: func(c dispatch.Counts) {
			total.Matched, total.Dropped = total.Matched+c.Matched, total.Dropped+c.Dropped
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	drain(t, second, unlimited())
	if n, _ := r.dispatch.Sieves(); n != 1 {
		t.Errorf("there are %d sieves", n)
	}
	first.Close()
	for n := range 30 {
		r.numbered([]string{"a", "b"}[n%2], n)
	}
	drain(t, second, unlimited())
	if want := (dispatch.Counts{Matched: 10, Dropped: 20}); total != want {
		t.Errorf("counted %+v, want %+v", total, want)
	}
}

// TestEventsAreCountedOnceForPatternsThatOverlap, and for those that do not, beside
// other readers who have some of the same.
func TestEventsAreCountedOnceForPatternsThatOverlap(t *testing.T) {
	r := newRig(t, 1024)
	defer r.close()
	topics := []string{"a", "a.b", "a.b.c", "b", "b.c"}
	lists := map[string]int{ // how many of the topics each selects
		"a": 1, "a,b": 2, "a.>,a.b": 2, "a.*,*.b,a.b,b.c": 2, ">": 5, ">,a,b.*": 5, "b.>,a.>": 3, "a.>,b,b.>,*": 5, "a.b.>,*.b.c,a": 2, "c.>": 0, "*.*": 2,
	}
	got := map[string]*dispatch.Counts{}
	var readers []*dispatch.Reader
	for list := range lists {
		total := &dispatch.Counts{}
		got[list] = total
		reader, err := r.dispatch.Open(dispatch.Spec{
			Patterns: patterns(t, list), Start: dispatch.Start{Now: true}, Filter: mustFilter(t, `id = 'x'`),
			Counted: func(c dispatch.Counts) { total.Dropped += c.Dropped },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		readers = append(readers, reader)
	}
	for n := range 100 {
		r.numbered(topics[n%len(topics)], n)
		if n%30 == 10 {
			for _, reader := range readers {
				drain(t, reader, unlimited())
			}
		}
	}
	for _, reader := range readers {
		drain(t, reader, unlimited())
	}
	for list, selected := range lists {
		if want := uint64(selected * 20); got[list].Dropped != want {
			t.Errorf("%s: %d events were dropped, want %d", list, got[list].Dropped, want)
		}
	}
}

// TestAPollSortsALittle: a reader whose events are not sorted yet holds up the
// others for some of them and no more, and one that is ahead of the sorter looks
// itself.
func TestAPollSortsALittle(t *testing.T) {
	r := newRig(t, 8192)
	defer r.close()
	r.dispatch.HoldSorter()
	total := dispatch.Counts{}
	slow, err := r.dispatch.Open(dispatch.Spec{
		Patterns: patterns(t, "a"), Start: dispatch.Start{Now: true}, Filter: mustFilter(t, `data.n % 10 = 0`),
		Counted: func(c dispatch.Counts) {
			total.Matched, total.Dropped = total.Matched+c.Matched, total.Dropped+c.Dropped
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	const events = 1000
	for n := range events {
		r.numbered("a", n)
	}
	ahead := r.mustOpenFiltered("a", dispatch.Start{Now: true}, `data.n % 10 = 1`)
	defer ahead.Close()
	if w, err := ahead.Poll(unlimited()); err != nil || !w.CaughtUp || len(w.Deliveries) > 0 {
		t.Errorf("at the head: %+v, %v", w, err)
	}
	r.numbered("a", events+1)
	if got := drain(t, ahead, unlimited()); got != "1001" {
		t.Errorf("who is ahead of the sorter got %q", got)
	}
	w, err := slow.Poll(unlimited())
	if err != nil || w.CaughtUp || w.Cursor.Position > events/2 {
		t.Errorf("one poll came to %s, %v", w.Cursor, err)
	}
	drain(t, slow, unlimited())
	r.numbered("a", events+2)
	drain(t, slow, unlimited())
	if want := (dispatch.Counts{Matched: events / 10, Dropped: events - events/10 + 2}); total != want {
		t.Errorf("counted %+v, want %+v", total, want)
	}
	if got := drain(t, ahead, unlimited()); got != "" {
		t.Errorf("then it got %q", got)
	}
}

// TestClosingAReaderWakesWhoWaitsForIt: several may wait on one reader, of which
// one closes it.
func TestClosingAReaderWakesWhoWaitsForIt(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	for what, reader := range map[string]*dispatch.Reader{
		"with a filter": r.mustOpenFiltered("a", dispatch.Start{}, `id = 'x'`), "without one": r.mustOpen("b", dispatch.Start{}, ""),
	} {
		changed := reader.Changed()
		reader.Close()
		if !closed(changed, patience) {
			t.Errorf("a reader %s was closed, and who waits for it sleeps", what)
		}
	}
}

// TestWindowsKeepToTheirLimit, down to what ephemeral topics may leave of one.
func TestWindowsKeepToTheirLimit(t *testing.T) {
	for _, tailEvents := range []int{1024, 4} { // from the tail, and from the store
		r := newRig(t, tailEvents)
		readers := []*dispatch.Reader{r.mustOpen("a", dispatch.Start{}, ""), r.mustOpenFiltered("a", dispatch.Start{}, `id != 'x'`)}
		for n := range 9 {
			r.numbered("a", n)
		}
		readers = append(readers, r.mustOpen("a", dispatch.Start{}, ""), r.mustOpenFiltered("a", dispatch.Start{}, `id != 'x'`))
		for i, reader := range readers {
			for limit := range 4 {
				w, err := reader.Poll(dispatch.Limit{Events: limit, Bytes: 1 << 20})
				if err != nil || len(w.Deliveries) > limit {
					t.Errorf("reader %d got %d events, and had asked for %d: %v", i, len(w.Deliveries), limit, err)
				}
			}
			if got := drain(t, reader, unlimited()); got != "6 7 8" {
				t.Errorf("reader %d got %q after six", i, got)
			}
			reader.Close()
		}
		r.close()
	}
}
