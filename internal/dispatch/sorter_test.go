// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
)

// numbered publishes an event whose data is a number, for filters to tell apart.
func (r *rig) numbered(topic string, n int) {
	r.t.Helper()
	r.do(r.publish(publishing{topic: topic, id: strconv.Itoa(n), data: fmt.Sprintf(`{"n":%d}`, n)}))
}

func closed(ch <-chan struct{}, within time.Duration) bool {
	select {
	case <-ch: // of two that are ready a select takes either
		return true
	default:
	}
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case <-ch:
		return true
	case <-timeout.C:
		return false
	}
}

// TestReadersAreWokenForWhatPassesTheirFilter, and sleep through the rest.
func TestReadersAreWokenForWhatPassesTheirFilter(t *testing.T) {
	r := newRig(t, 1024)
	defer r.close()
	var readers []*dispatch.Reader
	var changed []<-chan struct{}
	for n := range 50 {
		reader := r.mustOpenFiltered([]string{"a", "*", "a,b"}[n%3], dispatch.Start{Now: true}, fmt.Sprintf(`type = 't' AND data.n = %d`, n))
		defer reader.Close()
		readers, changed = append(readers, reader), append(changed, reader.Changed())
	}
	for n := range 50 {
		r.numbered("a", n)
		if !closed(changed[n], patience) {
			t.Fatalf("reader %d sleeps through its event", n)
		}
		for other := n + 1; other < len(changed); other++ {
			if closed(changed[other], 0) {
				t.Fatalf("reader %d was woken by event %d", other, n)
			}
		}
		if got := drain(t, readers[n], unlimited()); got != strconv.Itoa(n) {
			t.Errorf("reader %d got %q", n, got)
		}
		changed[n] = nil
	}
}

// TestReadersOfOneFilterShareItsSieve, in two spellings and beside others, and
// come to their own results while the log grows past what a sieve remembers.
func TestReadersOfOneFilterShareItsSieve(t *testing.T) {
	r := newRig(t, 4096)
	defer r.close()
	texts := []string{`data.n % 3 = 0`, `(DATA.n%3)=0`, `data.n % 3 = 1`, `data.n % 3 = 0`}
	var readers []*dispatch.Reader
	for _, text := range texts {
		readers = append(readers, r.mustOpenFiltered("a", dispatch.Start{Now: true}, text))
	}
	late := r.mustOpenFiltered("a", dispatch.Start{Now: true}, texts[0]) // which polls only at the end
	defer late.Close()
	if n, _ := r.dispatch.Sieves(); n != 2 {
		t.Errorf("there are %d sieves", n)
	}
	got := make([]int, len(texts))
	for i := range 4000 {
		r.numbered("a", i)
		for n, reader := range readers {
			w, err := reader.Poll(unlimited())
			if err != nil || !w.CaughtUp {
				t.Fatalf("%v, %v", err, w.CaughtUp)
			}
			got[n] += len(w.Deliveries)
			rest := []int{0, 0, 1, 0}[n]
			if (len(w.Deliveries) == 1) != (i%3 == rest) {
				t.Fatalf("%s got %d of event %d", texts[n], len(w.Deliveries), i)
			}
		}
		if i == 1200 { // the last reader of a filter but one leaves
			readers[2].Close()
			readers[1].Close()
			readers[2] = r.mustOpenFiltered("a", dispatch.Start{Now: true}, texts[2])
			readers[1] = r.mustOpenFiltered("a", dispatch.Start{Now: true}, texts[1])
		}
	}
	for _, reader := range readers {
		reader.Close()
	}
	if got[0] != 1334 || got[1] != 1334 || got[2] != 1333 || got[3] != 1334 {
		t.Errorf("%v events", got)
	}
	events := 0
	for caughtUp := false; !caughtUp; {
		w, err := late.Poll(dispatch.Limit{Events: 100, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		events, caughtUp = events+len(w.Deliveries), w.CaughtUp
	}
	if events != 1334 {
		t.Errorf("the reader that came late got %d events", events)
	}
}

// TestSortingTakesTurns: while filters cost much a step ends with the next event, so
// that readers get their turn, and goes on there.
func TestSortingTakesTurns(t *testing.T) {
	r := newRig(t, 1024)
	defer r.close()
	reader := r.mustOpenFiltered("a", dispatch.Start{Now: true}, `data.n % 2 = 0`)
	defer reader.Close()
	r.dispatch.HoldSorter()
	for n := range 10 {
		r.numbered("a", n)
	}
	for n := uint64(1); n <= 5; n++ {
		if to := r.dispatch.SortFor(false, 0); to != n {
			t.Fatalf("%d steps have come to @%d", n, to)
		}
	}
	if to := r.dispatch.SortFor(false, time.Hour); to != 10 {
		t.Errorf("without a limit of time it comes to @%d", to)
	}
	if got := drain(t, reader, unlimited()); got != "0 2 4 6 8" {
		t.Errorf("the reader got %q", got)
	}
}

// TestReadersAreMovedOnThoughNothingPasses: a reader is woken after so many events
// that its cursor does not stay behind for ever.
func TestReadersAreMovedOnThoughNothingPasses(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	var changed []<-chan struct{}
	for n := range 3 {
		reader := r.mustOpenFiltered("a", dispatch.Start{Now: true}, fmt.Sprintf(`subject = 'none.%d'`, n))
		defer reader.Close()
		changed = append(changed, reader.Changed())
	}
	batch := make([]publishing, 500)
	for i := range batch {
		batch[i] = publishing{topic: "a"}
	}
	for range 12_000 / len(batch) {
		r.do(r.publish(batch...))
	}
	for n, ch := range changed {
		if !closed(ch, patience) {
			t.Errorf("reader %d was not woken", n)
		}
	}
}

// TestFiltersAreCounted: whatever way its events come to a reader, what its filter
// did not let pass is counted once.
func TestFiltersAreCounted(t *testing.T) {
	const events = 300
	for name, tailEvents := range map[string]int{"tail": 1024, "store": 16} {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " live=", live), func(t *testing.T) {
				r := newRig(t, tailEvents)
				defer r.close()
				r.numbered("a", 0)
				total := dispatch.Counts{}
				reader, err := r.dispatch.Open(dispatch.Spec{
					Patterns: patterns(t, "a"), Filter: mustFilter(t, `data.n % 3 = 0 AND INT(id) > 100`),
					Counted: func(c dispatch.Counts) {
						total.Matched, total.Dropped, total.Failed = total.Matched+c.Matched, total.Dropped+c.Dropped, total.Failed+c.Failed
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer reader.Close()
				if live {
					drain(t, reader, unlimited())
				}
				for n := 1; n < events; n++ {
					id := strconv.Itoa(n)
					if n%30 == 0 {
						id = "x" + id // of which INT makes an error
					}
					r.do(r.publish(publishing{topic: "a", id: id, data: fmt.Sprintf(`{"n":%d}`, n)}), r.publish(publishing{topic: "b"}))
					if live && n%7 == 0 {
						drain(t, reader, dispatch.Limit{Events: 2, Bytes: 1 << 20})
					}
				}
				drain(t, reader, dispatch.Limit{Events: 5, Bytes: 1 << 20})
				if want := (dispatch.Counts{Matched: 60, Dropped: events - 60, Failed: 9}); total != want {
					t.Errorf("counted %+v, want %+v", total, want)
				}
			})
		}
	}
}

// TestFilteredReadersWhileWriting has readers with filters follow as transports
// do, woken by what passes only, while the writer publishes as fast as it can and
// others come and go. Each must see each of its events once, in order.
func TestFilteredReadersWhileWriting(t *testing.T) {
	r := newCrowdedRig(t, 256, 2) // some readers are of the crowd, others are not
	defer r.close()
	const events, kinds = 2000, 5
	var readers, churn sync.WaitGroup
	done := make(chan struct{})
	for kind := range kinds {
		for range 2 {
			reader := r.mustOpenFiltered("a", dispatch.Start{Now: true}, fmt.Sprintf(`data.n %% %d = %d`, kinds, kind))
			readers.Go(func() {
				defer reader.Close()
				for want := kind; want < events; {
					ids, ok := next(t, reader)
					if !ok {
						t.Errorf("the reader of kind %d sleeps before %d", kind, want)
						return
					}
					for _, id := range ids {
						if id != strconv.Itoa(want) {
							t.Errorf("the reader of kind %d got %s instead of %d", kind, id, want)
							return
						}
						want += kinds
					}
				}
			})
		}
		text := fmt.Sprintf(`data.n %% %d = %d`, kinds, (kind+1)%(kinds+1))
		f := mustFilter(t, text)
		churn.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				reader, err := r.dispatch.Open(dispatch.Spec{Patterns: patterns(t, "a"), Start: dispatch.Start{Now: true}, Filter: f})
				if err != nil {
					t.Error(err)
					return
				}
				reader.Changed()
				if _, err := reader.Poll(unlimited()); err != nil {
					t.Error(err)
				}
				reader.Close()
			}
		})
	}
	for n := range events {
		r.numbered("a", n)
	}
	readers.Wait()
	close(done)
	churn.Wait()
}

// TestRemovalsThatConcernNobodyResetNobody: a reader whose filter let nothing of
// what was removed pass has not missed it.
func TestRemovalsThatConcernNobodyResetNobody(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	r.do(r.put("log", event.CleanupDelete, 1000, 0))
	reader := r.mustOpenFiltered("log", dispatch.Start{Now: true}, `data.n > 50`)
	defer reader.Close()
	drain(t, reader, unlimited())
	changed := reader.Changed()
	for n := range 50 {
		r.numbered("log", n)
	}
	r.tick(5000)
	r.do(r.retire("log", r.projector.Space().Position))
	r.numbered("log", 51)
	if !closed(changed, patience) {
		t.Fatal("the reader sleeps through its event")
	}
	if got := drain(t, reader, unlimited()); got != "51" {
		t.Errorf("it got %q", got)
	}
}

// BenchmarkLive is what one event costs with ever more readers of different
// filters, of which 100 are woken and take it: the index, the sieves, the polls.
func BenchmarkLive(b *testing.B) {
	for _, readers := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(strconv.Itoa(readers), func(b *testing.B) {
			r := newRig(b, 1024)
			defer r.close()
			var woken []*dispatch.Reader
			for n := range readers {
				typ := "t"
				if n >= 100 {
					typ = fmt.Sprint("t.", n/10)
				}
				reader := r.mustOpenFiltered("fleet.>", dispatch.Start{Now: true}, fmt.Sprintf(`type = '%s' AND source LIKE '/%%' AND LENGTH(id) != %d`, typ, 100_000+n))
				defer reader.Close()
				if n < 100 {
					woken = append(woken, reader)
				}
			}
			r.dispatch.HoldSorter()
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				changed := make([]<-chan struct{}, len(woken))
				for i, reader := range woken {
					changed[i] = reader.Changed()
				}
				r.do(r.publish(publishing{topic: "fleet.tasks"}))
				b.StartTimer()
				r.dispatch.Sort()
				for i, reader := range woken {
					<-changed[i]
					w, err := reader.Poll(unlimited())
					if err != nil || len(w.Deliveries) != 1 {
						b.Fatal(err, len(w.Deliveries))
					}
				}
			}
		})
	}
}

// BenchmarkInboxes is what one event costs where each reader has a list of its own,
// one pattern of which it shares with all: in the commit, and in the sorter.
func BenchmarkInboxes(b *testing.B) {
	for _, readers := range []int{1_000, 8_000} {
		for _, filtered := range []bool{true, false} {
			b.Run(fmt.Sprint(readers, " filtered=", filtered), func(b *testing.B) {
				r := newRig(b, 1024)
				defer r.close()
				var all []*dispatch.Reader
				for n := range readers {
					list := fmt.Sprint("fleet.>,inbox.", n)
					reader := r.mustOpen(list, dispatch.Start{Now: true}, "")
					if filtered {
						reader.Close()
						reader = r.mustOpenFiltered(list, dispatch.Start{Now: true}, fmt.Sprintf(`type = 't.%d'`, n))
					}
					defer reader.Close()
					all = append(all, reader)
				}
				r.dispatch.HoldSorter()
				for b.Loop() {
					b.StopTimer()
					for _, reader := range all {
						reader.Changed()
					}
					b.StartTimer()
					r.do(r.publish(publishing{topic: "fleet.tasks"}))
					r.dispatch.Sort()
				}
			})
		}
	}
}
