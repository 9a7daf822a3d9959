// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/dispatch"
	"signalbox/internal/metrics"
)

// TestReadersAreBehindOnTheirOwnTopicsOnly: a quiet topic's reader is not late
// because others are busy, and does not wake whoever is on duty.
func TestReadersAreBehindOnTheirOwnTopicsOnly(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	r.do(r.publish(publishing{topic: "quiet"}))
	quiet, slow, slower := r.mustOpen("quiet", dispatch.Start{}, ""), r.mustOpen("busy", dispatch.Start{}, ""), r.mustOpen("*", dispatch.Start{}, "")
	drain(t, quiet, unlimited())
	drain(t, slow, unlimited())
	for range 10 {
		r.do(r.publish(publishing{topic: "busy"}))
	}
	worst, open := r.dispatch.Laggards(5)
	if open != 3 || fmt.Sprint(worst) != "[{* 11 0} {busy 10 1}]" {
		t.Errorf("of %d readers are behind: %v", open, worst)
	}
	if worst, _ := r.dispatch.Laggards(1); len(worst) != 1 || worst[0].Lag != 11 {
		t.Errorf("the one furthest behind is %v", worst)
	}
	drain(t, slower, unlimited())
	slow.Close()
	if worst, open := r.dispatch.Laggards(5); open != 2 || len(worst) != 0 {
		t.Errorf("of %d readers are behind: %v", open, worst)
	}
}

// TestReadersAreNotBehindWhatTheyDoNotWant: what does not pass a reader's filter
// makes it no laggard, and what passes does.
func TestReadersAreNotBehindWhatTheyDoNotWant(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	reader := r.mustOpenFiltered("a", dispatch.Start{Now: true}, `data.n = 7`)
	defer reader.Close()
	drain(t, reader, unlimited())
	check := func(when, want string) {
		t.Helper()
		r.dispatch.Sort()
		if worst, _ := r.dispatch.Laggards(5); fmt.Sprint(worst) != want {
			t.Errorf("%s are behind: %v, want %s", when, worst, want)
		}
	}
	for n := range 20 {
		r.numbered("a", 100+n)
	}
	check("while nothing passes", "[]")
	r.numbered("a", 7)
	r.numbered("a", 8)
	check("after one that passes", "[{a 21 0}]")
	drain(t, reader, unlimited())
	check("once it is read", "[]")
	late := r.mustOpenFiltered("*", dispatch.Start{}, `data.n = 9`)
	defer late.Close()
	check("from the beginning", "[{* 22 0}]")
	drain(t, late, unlimited())
	check("in the end", "[]")
}

// TestTotalsFollowTheTopics: the sums that a scrape shows are kept, not added up.
func TestTotalsFollowTheTopics(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	counted := metrics.New()
	restart := func() {
		r.dispatch = dispatch.New(dispatch.Options{
			Store: r.store, Incarnation: incarnation, Now: func() int64 { return r.now }, DedupMillis: 60_000,
			Space: r.projector.Space(), Topics: r.projector.Topics(), TailEvents: 64, Metrics: counted,
		})
	}
	restart()
	check := func(when string) {
		t.Helper()
		events, bytes := uint64(0), uint64(0)
		topics := r.dispatch.Topics()
		for _, topic := range topics {
			events, bytes = events+topic.Events, bytes+topic.Retained
		}
		text, err := counted.AppendText(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			fmt.Sprintf("\nsignalbox_topics %d\n", len(topics)),
			fmt.Sprintf("\nsignalbox_retained_events %d\n", events),
			fmt.Sprintf("\nsignalbox_retained_bytes %d\n", bytes),
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: there is no %q", when, want)
			}
		}
	}
	r.do(r.put("c", "compact", 0, 1000), r.publish(publishing{topic: "a"}, publishing{topic: "a"}), r.publish(publishing{topic: "c", key: "k"}))
	check("published")
	r.do(r.publish(publishing{topic: "c", key: "k"}), r.publish(publishing{topic: "c", key: "gone", bare: true}))
	check("superseded")
	r.tick(2000)
	check("purged")
	r.do(r.drop("a"))
	check("deleted")
	r.do(r.publish(publishing{topic: "a"}))
	check("made again")
	counted = metrics.New()
	restart()
	check("started again")
}
