// SPDX-License-Identifier: Apache-2.0

package dispatch_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
)

// patience is how long a reader that must be woken may sleep.
const patience = 2 * time.Minute

// next waits as a transport does: it takes Changed, polls, and sleeps only if
// the poll found nothing. It reports whether an event came in time.
func next(t *testing.T, reader *dispatch.Reader) (ids []string, ok bool) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		changed := reader.Changed()
		w, err := reader.Poll(dispatch.Limit{Events: 100, Bytes: 1 << 20})
		if err != nil {
			t.Error(err)
			return nil, false
		}
		for i := range w.Deliveries {
			ids = append(ids, decode(t, &w.Deliveries[i]).ID)
		}
		if len(ids) > 0 {
			return ids, true
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, false
		}
	}
}

// TestNoLostWakeUp publishes one event at a time, and the next only when every
// reader has the last: a single wake-up that gets lost stops everything. In the
// meantime others join and leave the same groups, and topics come and go.
func TestNoLostWakeUp(t *testing.T) {
	r := newRig(t, 8192)
	defer r.close()
	const rounds = 150
	topics := []string{"a", "b", "b.c"}
	lists := []string{"a", "b", "b.c", "a,b.c", "*", "b.*", ">", "a,>", "c,*,b.c"}
	matching := func(list, topic string) bool {
		for _, p := range patterns(t, list) {
			if p.Match(topic) {
				return true
			}
		}
		return false
	}
	got := make([]chan string, len(lists))
	var readers, churn sync.WaitGroup
	done := make(chan struct{})
	for i, list := range lists {
		got[i] = make(chan string, 1)
		reader := r.mustOpen(list, dispatch.Start{}, "")
		readers.Go(func() {
			defer reader.Close()
			for {
				ids, ok := next(t, reader)
				if !ok || len(ids) != 1 && ids[0] != "last" {
					t.Errorf("a reader of %s got %v", list, ids)
					return
				}
				got[i] <- ids[0]
				if ids[0] == "last" {
					return
				}
			}
		})
		churn.Go(func() { comeAndGo(t, r.dispatch, list, done) })
	}
	for _, list := range []string{"*,a", "b.c,b", "b.c", "c.>"} { // groups that come and go with their only reader
		churn.Go(func() { comeAndGo(t, r.dispatch, list, done) })
	}
	for round := range rounds {
		topic, id := topics[round%len(topics)], fmt.Sprint("round ", round)
		group := []*eventlog.Proposal{r.publish(publishing{topic: topic, id: id})}
		if round%7 == 3 { // a topic that is gone and comes back in the same commit, or before it
			group = append([]*eventlog.Proposal{r.drop(topic)}, group...)
		} else if round%11 == 5 {
			r.do(r.drop(topic))
		}
		r.do(group...)
		for i, list := range lists {
			if !matching(list, topic) {
				continue
			}
			select {
			case received := <-got[i]:
				if received != id {
					t.Fatalf("a reader of %s got %q instead of %q", list, received, id)
				}
			case <-time.After(patience):
				t.Fatalf("a reader of %s sleeps through %q on %s", list, id, topic)
			}
		}
	}
	close(done)
	churn.Wait()
	for _, topic := range topics {
		r.do(r.publish(publishing{topic: topic, id: "last"}))
	}
	readers.Wait()
}

// comeAndGo joins and leaves the group of a pattern list, and polls in it.
func comeAndGo(t *testing.T, d *dispatch.Dispatch, list string, done <-chan struct{}) {
	parsed, err := event.ParsePatterns(list)
	if err != nil {
		t.Error(err)
		return
	}
	for {
		select {
		case <-done:
			return
		default:
		}
		reader, err := d.Open(dispatch.Spec{Patterns: parsed, Start: dispatch.Start{Now: true}})
		if err != nil {
			t.Error(err)
			return
		}
		reader.Changed()
		_, err = reader.Poll(dispatch.Limit{Events: 10, Bytes: 1000})
		if err != nil && event.AsError(err).Code != event.CodeCursorExpired { // a topic went meanwhile
			t.Error(err)
		}
		reader.Close()
	}
}

// TestWokenForNothingElse: a commit wakes the readers of its topics only.
func TestWokenForNothingElse(t *testing.T) {
	r := newRig(t, 16)
	defer r.close()
	readers := map[string]*dispatch.Reader{}
	for _, list := range []string{"a", "b", "a,b", "x.*", ">"} {
		readers[list] = r.mustOpen(list, dispatch.Start{}, "")
		defer readers[list].Close()
	}
	for _, c := range []struct {
		step  []*eventlog.Proposal
		woken []string
	}{
		{[]*eventlog.Proposal{r.publish(publishing{topic: "a"})}, []string{"a", "a,b", ">"}},
		{[]*eventlog.Proposal{r.publish(publishing{topic: "b"})}, []string{"b", "a,b", ">"}},
		{[]*eventlog.Proposal{r.publish(publishing{topic: "x.y"}), r.publish(publishing{topic: "b"})}, []string{"b", "a,b", ">", "x.*"}},
		{[]*eventlog.Proposal{r.put("x.z", event.CleanupCompact, 1, 1)}, nil},
		{[]*eventlog.Proposal{r.publish(publishing{topic: "x.z", key: "k"}, publishing{topic: "x.z", key: "k"})}, []string{"x.*", ">"}},
		{[]*eventlog.Proposal{{Kind: eventlog.KindTick, AdmittedMillis: epoch + 1}}, nil},
	} {
		changed := map[string]<-chan struct{}{}
		for list, reader := range readers {
			changed[list] = reader.Changed()
		}
		r.do(c.step...)
		want := map[string]bool{}
		for _, list := range c.woken {
			want[list] = true
		}
		for list, ch := range changed {
			woken := false
			select {
			case <-ch:
				woken = true
			default:
			}
			if woken != want[list] {
				t.Errorf("readers of %s were woken: %t, want %t", list, woken, want[list])
			}
		}
	}
}

// TestReadersWhileWriting has readers of all kinds run through the tail and the
// store under the race detector, while the writer publishes as fast as it can.
// Each must see each event of its topics once, in order.
func TestReadersWhileWriting(t *testing.T) {
	r := newRig(t, 64)
	defer r.close()
	const batches = 300
	r.do(r.publish(publishing{topic: "a", id: "0"}), r.publish(publishing{topic: "b.c", id: "0"}))
	var readers sync.WaitGroup
	for i, list := range []string{"a", "b.c", "a", ">", "a,b.c"} {
		reader := r.mustOpen(list, dispatch.Start{}, "")
		readers.Go(func() {
			defer func() { reader.Close() }()
			reader = followAll(t, r.dispatch, reader, list, 1+7*i)
		})
	}
	for batch := range batches {
		topic := []string{"a", "b.c"}[batch%2]
		var events []publishing
		for i := range 1 + batch%9 {
			events = append(events, publishing{topic: topic, id: fmt.Sprint(batch, ".", i)})
		}
		r.do(r.publish(events...))
	}
	r.do(r.publish(publishing{topic: "a", id: "last"}), r.publish(publishing{topic: "b.c", id: "last"}))
	readers.Wait()
}

// followAll follows to the last event, resuming with a new reader every so often.
func followAll(t *testing.T, d *dispatch.Dispatch, reader *dispatch.Reader, list string, limit int) *dispatch.Reader {
	parsed, err := event.ParsePatterns(list)
	if err != nil {
		t.Error(err)
		return reader
	}
	lasts := 1
	if len(parsed) > 1 || list == ">" {
		lasts = 2
	}
	var position uint64
	for polls := 1; lasts > 0; polls++ {
		changed := reader.Changed()
		w, err := reader.Poll(dispatch.Limit{Events: limit, Bytes: 1 << 20})
		if err != nil {
			t.Error(err)
			return reader
		}
		for i := range w.Deliveries {
			e := decode(t, &w.Deliveries[i])
			if e.Position <= position {
				t.Errorf("a reader of %s got position %d after %d", list, e.Position, position)
			}
			if list == ">" && e.Position != position+1 {
				t.Errorf("a reader of everything got position %d after %d", e.Position, position)
			}
			position = e.Position
			if e.ID == "last" {
				lasts--
			}
		}
		if polls%13 == 0 {
			cursor := w.Cursor
			again, err := d.Open(dispatch.Spec{Patterns: parsed, Start: dispatch.Start{Cursor: &cursor}})
			if err != nil {
				t.Error(err)
				return reader
			}
			reader.Close()
			reader = again
			continue
		}
		if w.CaughtUp && len(w.Deliveries) == 0 && lasts > 0 {
			select {
			case <-changed:
			case <-time.After(patience):
				t.Errorf("a reader of %s sleeps at %s", list, w.Cursor)
				return reader
			}
		}
	}
	return reader
}
