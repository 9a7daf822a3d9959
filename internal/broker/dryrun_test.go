// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/filter"
)

func (x *box) try(text, topics string, last int) broker.DryRunReport {
	x.t.Helper()
	f, err := filter.ParseText(text)
	if err != nil {
		x.t.Fatal(err)
	}
	r, err := x.DryRun(context.Background(), broker.DryRun{Filter: f, Patterns: mustPatterns(x.t, topics), Last: last})
	if err != nil {
		x.t.Fatal(err)
	}
	return r
}

// TestFilterThatNeverMatchesIsUnderstood: the report names the clause that most
// events failed at first.
func TestFilterThatNeverMatchesIsUnderstood(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	for i := range 1000 {
		e := x.draft(fmt.Sprint(i), "", nil)
		if i%500 == 0 {
			e = x.draft(fmt.Sprint(i), "", map[string]any{"prio": "high"})
		}
		x.mustSend("a", e)
	}
	r := x.try(`type = 'task.state' AND prio = 'low' AND source = '/agents/beta'`, ">", 1000)
	want := []string{`prio = 'low' 998 [MissingAttributeError]`, `prio = 'low' 2 []`}
	if r.Events != 1000 || r.Matched != 0 || r.Errors != 998 || r.ErrorKinds["MissingAttributeError"] != 998 || len(r.Failures) != len(want) {
		t.Fatalf("%+v", r)
	}
	for i, f := range r.Failures {
		if got := fmt.Sprint(f.Clause, " ", f.Events, " ", f.Errors); got != want[i] {
			t.Errorf("failure %d: %s, want %s", i, got, want[i])
		}
	}
	r = x.try(`type = 'x'`, ">", 100)
	if r.Events != 100 || len(r.Failures) != 1 || r.Failures[0].Clause != `type = 'x'` || r.Failures[0].Events != 100 {
		t.Errorf("%+v", r)
	}
}

// TestDryRunSeesTheLatestOfSeveralTopics: the latest events are found across
// topics however they lie, and what is removed, expired or the broker's own is
// none of them.
func TestDryRunSeesTheLatestOfSeveralTopics(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	for i := range 40 {
		x.mustSend(fmt.Sprint("t.", i%7), x.draft(fmt.Sprint(i), "", nil))
	}
	for last := 1; last <= 50; last++ {
		r := x.try("TRUE", "t.*", last)
		if want := min(last, 40); r.Events != want || r.Matched != want || len(r.Matches) != min(want, 10) {
			t.Fatalf("last %d: %+v", last, r)
		}
		for i, m := range r.Matches {
			if m.Cursor.Position != uint64(40-i) || m.ID != fmt.Sprint(39-i) || m.Topic != fmt.Sprint("t.", (39-i)%7) {
				t.Errorf("last %d: match %d is %+v", last, i, m)
			}
		}
	}
	x.put("s", func(p *event.Policy) { p.CleanupPolicy = "compact" })
	x.mustSend("s", x.draft("old", "k", nil))
	x.mustSend("s", x.draft("new", "k", nil))
	x.mustSend("s", x.draft("brief", "b", map[string]any{"expirytime": startTime().Add(time.Minute).Format(time.RFC3339)}))
	if r := x.try("TRUE", "s", 10); r.Matched != 2 {
		t.Errorf("%+v", r)
	}
	x.pass(2 * time.Minute)
	if r := x.try("TRUE", "s", 10); r.Matched != 1 || r.Matches[0].ID != "new" {
		t.Errorf("%+v", r)
	}
	if err := x.DeleteTopic(context.Background(), anonymous(), "t.1"); err != nil {
		t.Fatal(err)
	}
	if r := x.try("TRUE", ">", 100); r.Events != 35 {
		t.Errorf("%+v", r)
	}
}

// TestExplainedEventIsFoundInHistory: a value that was replaced can be asked
// about as long as it is kept, and is not among the latest events.
func TestExplainedEventIsFoundInHistory(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	x.put("s", func(p *event.Policy) {
		p.CleanupPolicy, p.MinCompactionLag = "compact", event.Duration(time.Hour)
	})
	x.mustSend("s", x.draft("old", "k", nil))
	x.mustSend("s", x.draft("new", "k", nil))
	f, err := filter.ParseText("id = 'old'")
	if err != nil {
		t.Fatal(err)
	}
	for position, id := range map[uint64]string{1: "old", 2: "new", 3: ""} {
		r, err := x.DryRun(context.Background(), broker.DryRun{
			Filter: f, Patterns: mustPatterns(t, "s"), Last: 10, Cursor: &event.Cursor{Position: position},
		})
		if id == "" {
			wantCode(t, "a position without an event", err, event.CodeParameterInvalid)
			continue
		}
		if err != nil || r.Explained.ID != id || r.Explained.Passes != (id == "old") || r.Events != 1 || r.Matched != 0 {
			t.Errorf("at %d: %+v, %v", position, r, err)
		}
	}
}

// TestDryRunsAreBounded: in the events that they look at, in time and in number.
func TestDryRunsAreBounded(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer x.close()
	for i := range 20 {
		x.mustSend("a", x.draft(fmt.Sprint(i), "", nil))
	}
	f, err := filter.ParseText("TRUE")
	if err != nil {
		t.Fatal(err)
	}
	run := broker.DryRun{Filter: f, Patterns: mustPatterns(t, ">"), Last: 20}
	for _, last := range []int{-1, 0, broker.DryRunLastMax + 1} {
		over := run
		over.Last = last
		_, err := x.DryRun(context.Background(), over)
		wantCode(t, fmt.Sprint("last ", last), err, event.CodeParameterInvalid)
	}
	late, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.DryRun(late, run); err == nil {
		t.Error("a dry run goes on though its caller has gone")
	}
	r, err := x.DryRunWithin(context.Background(), run, 0)
	if err != nil || r.Complete || r.Events != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	done := x.OccupyDryRuns()
	_, err = x.DryRun(context.Background(), run)
	wantCode(t, "one too many", err, event.CodeOverloaded)
	done()
	if r, err := x.DryRun(context.Background(), run); err != nil || r.Events != 20 || !r.Complete {
		t.Errorf("%+v, %v", r, err)
	}
}
