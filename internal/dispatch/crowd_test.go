// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
)

// crowd opens readers of so many filters that no index tells apart. Reader n gets
// numbers above n.
func crowd(r *rig, topics string, n int) (readers []*dispatch.Reader, leave func()) {
	r.t.Helper()
	for i := range n {
		readers = append(readers, r.mustOpenFiltered(topics, dispatch.Start{Now: true}, fmt.Sprintf(`data.n > %d`, i)))
	}
	return readers, func() {
		for _, reader := range readers {
			reader.Close()
		}
	}
}

func after(position uint64) dispatch.Start {
	return dispatch.Start{Cursor: &event.Cursor{Position: position, Incarnation: incarnation}}
}

// TestACrowdHoldsUpItselfOnly: readers whose filters can be found by an index, or are
// few, get their events while nobody has come to match those of a crowd.
func TestACrowdHoldsUpItselfOnly(t *testing.T) {
	r := newRig(t, 1024)
	defer r.close()
	crowded, leave := crowd(r, "a", 300)
	defer leave()
	if all, many := r.dispatch.Sieves(); all != 300 || many != 300-256 {
		t.Fatalf("of %d filters %d are of the crowd", all, many)
	}
	found := r.mustOpenFiltered("a", dispatch.Start{Now: true}, `source = '/s' AND type = 't' AND data.n > 0`)
	defer found.Close()
	elsewhere := r.mustOpenFiltered("b", dispatch.Start{Now: true}, `data.n > 0`)
	defer elsewhere.Close()
	waits := []<-chan struct{}{found.Changed(), elsewhere.Changed(), crowded[0].Changed()}
	release := r.dispatch.HoldCrowd()
	r.do(r.publish(publishing{topic: "a", id: "1", data: `{"n":999}`}))
	r.do(r.publish(publishing{topic: "b", id: "2", data: `{"n":999}`}))
	for i, reader := range []*dispatch.Reader{found, elsewhere, crowded[0]} {
		if !closed(waits[i], patience) {
			t.Fatalf("reader %d waits for the crowd", i)
		}
		if got, want := drain(t, reader, unlimited()), []string{"1", "2", "1"}[i]; got != want {
			t.Errorf("reader %d got %q", i, got)
		}
	}
	opened := make(chan *dispatch.Reader)
	go func() { opened <- r.mustOpenFiltered("a", dispatch.Start{Now: true}, `data.n > 7777`) }()
	select {
	case reader := <-opened: // of the crowd, too
		reader.Close()
	case <-time.After(patience):
		t.Error("nobody comes while the crowd is matched")
	}
	release()
	for i, reader := range crowded[1:] {
		if got := drain(t, reader, unlimited()); got != "1" {
			t.Errorf("reader %d of the crowd got %q", i, got)
		}
	}
}

// TestAnEventIsMatchedInParts: where one event takes longer than a step the next goes
// on with it, and readers that come and go in between, or ask, get what they should.
func TestAnEventIsMatchedInParts(t *testing.T) {
	r := newCrowdedRig(t, 1024, 1)
	defer r.close()
	one := r.mustOpenFiltered("a", dispatch.Start{Now: true}, `data.n < 0`) // or there is no crowd yet
	defer one.Close()
	readers, leave := crowd(r, "a", 200)
	defer leave()
	r.dispatch.HoldSorter()
	waits := make([]<-chan struct{}, len(readers))
	for i, reader := range readers {
		waits[i] = reader.Changed()
	}
	before := r.dispatch.Head().Position
	for n := range 5 {
		r.numbered("a", 100+n)
	}
	var late []*dispatch.Reader
	want, steps := []string{}, 0
	for to := before; to < before+5; steps++ {
		to = r.dispatch.SortFor(true, 0)
		switch steps {
		case 3: // their events begin in the middle of one that is being matched
			late = append(late, r.mustOpenFiltered("a", after(before+2), `data.n > 7777 OR data.n < 103`))
			late = append(late, r.mustOpenFiltered("a,b", after(before+1), `data.n > 7777 OR data.n < 103`))
		case 5:
			readers[150].Close()
			readers[150] = r.mustOpenFiltered("a", after(before), `data.n > 150`)
		}
	}
	if steps < 5*200/8 {
		t.Errorf("%d steps for five events", steps)
	}
	for i, ch := range waits {
		if passes := i < 104; i != 150 && closed(ch, 0) != passes {
			t.Errorf("reader %d is woken: %t", i, !passes)
		}
	}
	for n := range 5 {
		want = append(want, strconv.Itoa(100+n))
	}
	for i, reader := range readers {
		first := min(5, max(0, i-99))
		if got := drain(t, reader, unlimited()); got != strings.Join(want[first:], " ") {
			t.Errorf("reader %d got %q", i, got)
		}
	}
	for i, reader := range late {
		if got, want := drain(t, reader, unlimited()), []string{"102", "101 102"}[i]; got != want {
			t.Errorf("the reader that came late got %q, not %q", got, want)
		}
		reader.Close()
	}
}

// TestACrowdIsCounted: what filters of a crowd drop is counted like that of others,
// whenever their readers come.
func TestACrowdIsCounted(t *testing.T) {
	r := newCrowdedRig(t, 1024, 1)
	defer r.close()
	one := r.mustOpenFiltered("a", dispatch.Start{Now: true}, `data.n < 0`)
	defer one.Close()
	r.dispatch.HoldSorter()
	totals := make([]dispatch.Counts, 40)
	var readers []*dispatch.Reader
	for n := range 400 {
		if n%10 == 0 { // in the middle of what is loaded, for a step takes little
			i := len(readers)
			reader, err := r.dispatch.Open(dispatch.Spec{
				Patterns: patterns(t, []string{"a", "a,b", "*"}[i%3]), Start: dispatch.Start{Now: true}, Filter: mustFilter(t, fmt.Sprintf(`data.n %% 2 = 0 OR data.n < -%d`, i)),
				Counted: func(c dispatch.Counts) {
					totals[i].Matched, totals[i].Dropped = totals[i].Matched+c.Matched, totals[i].Dropped+c.Dropped
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			readers = append(readers, reader)
		}
		r.numbered("a", n)
		if n%3 == 0 {
			r.dispatch.SortFor(true, 0)
		}
		if n%7 == 0 {
			if _, err := readers[n/7%len(readers)].Poll(dispatch.Limit{Events: 3, Bytes: 1 << 20}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.dispatch.Sort()
	for i, reader := range readers {
		drain(t, reader, unlimited())
		if want := uint64(200 - 5*i); totals[i].Matched != want || totals[i].Dropped != want {
			t.Errorf("reader %d: %+v, want %d of each", i, totals[i], want)
		}
	}
}

// BenchmarkBesideACrowd is how long a reader waits for its event, and a publisher for
// its own, behind an event that all filters of a crowd must be held against.
func BenchmarkBesideACrowd(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := newRig(b, 8192)
			defer r.close()
			_, leave := crowd(r, "a", n)
			defer leave()
			reader := r.mustOpenFiltered("b", dispatch.Start{Now: true}, `type = 't'`)
			defer reader.Close()
			var published, delivered []time.Duration
			for b.Loop() {
				changed := reader.Changed()
				began := time.Now()
				r.do(r.publish(publishing{topic: "a", data: `{"n":-1}`}))
				r.do(r.publish(publishing{topic: "b", data: `{"n":1}`}))
				published = append(published, time.Since(began))
				for caught := false; !caught; {
					<-changed
					changed = reader.Changed()
					w, err := reader.Poll(unlimited())
					if err != nil {
						b.Fatal(err)
					}
					caught = len(w.Deliveries) == 1
				}
				delivered = append(delivered, time.Since(began))
			}
			for name, list := range map[string][]time.Duration{"publish": published, "deliver": delivered} {
				slices.Sort(list)
				b.ReportMetric(float64(list[len(list)/2].Microseconds()), name+"-p50-µs")
				b.ReportMetric(float64(list[len(list)*99/100].Microseconds()), name+"-p99-µs")
			}
		})
	}
}
