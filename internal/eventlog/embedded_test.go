// SPDX-License-Identifier: Apache-2.0

package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"signalbox/internal/eventlog"
)

func probe(principal string) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindProbe, Principal: principal}
}

// drain takes groups until the log is closed and empty.
func drain(t *testing.T, log *eventlog.Embedded, each func(group []*eventlog.Proposal)) {
	t.Helper()
	for {
		group, err := log.Next(nil)
		if errors.Is(err, eventlog.ErrClosed) {
			if len(group) != 0 {
				t.Errorf("a closed log handed out %d proposals and said so", len(group))
			}
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		log.Stamp(group)
		each(group)
	}
}

// TestEmbeddedOrder: each caller's proposals come out in the order it appended
// them, each once, with sequences that go on from the last one without a gap.
func TestEmbeddedOrder(t *testing.T) {
	const callers, each, last = 8, 500, 41
	log := eventlog.NewEmbedded(last)
	var appending sync.WaitGroup
	for caller := range callers {
		appending.Go(func() {
			for i := range each {
				if err := log.Append(context.Background(), probe(fmt.Sprint(caller, ".", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() {
		appending.Wait()
		log.Close()
	}()
	next := map[int]int{}
	sequence := uint64(last)
	drain(t, log, func(group []*eventlog.Proposal) {
		for _, p := range group {
			var caller, i int
			if _, err := fmt.Sscanf(p.Principal, "%d.%d", &caller, &i); err != nil {
				t.Fatal(err)
			}
			if i != next[caller] {
				t.Fatalf("caller %d: proposal %d came where %d was due", caller, i, next[caller])
			}
			next[caller]++
			if sequence++; p.Sequence != sequence {
				t.Fatalf("sequence %d follows %d", p.Sequence, sequence-1)
			}
		}
	})
	for caller := range callers {
		if next[caller] != each {
			t.Errorf("caller %d: %d of %d proposals came out", caller, next[caller], each)
		}
	}
}

// TestEmbeddedGroup: what waits while a group is being made durable is the
// next group, whole, up to the limits of a commit.
func TestEmbeddedGroup(t *testing.T) {
	take := func(proposals int, members int) int {
		log := eventlog.NewEmbedded(0)
		for range proposals {
			p := probe("")
			p.Entries = []eventlog.Entry{{Members: make([]byte, members)}}
			if err := log.Append(context.Background(), p); err != nil {
				t.Fatal(err)
			}
		}
		group, err := log.Next(nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(group)
	}
	for _, c := range []struct {
		name                      string
		proposals, members, group int
	}{
		{"a few", 5, 0, 5},
		{"too many for one commit", 1500, 0, 1024},
		{"too much for one commit", 20, 1 << 20, 8},
		{"one that is too large by itself", 2, 16 << 20, 1},
	} {
		if got := take(c.proposals, c.members); got != c.group {
			t.Errorf("%s: of %d proposals the group takes %d, not %d", c.name, c.proposals, got, c.group)
		}
	}
}

// TestEmbeddedFull: a caller waits for room as long as its context lets it, and
// no longer. Nothing of what it gave up appears.
func TestEmbeddedFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.NewEmbedded(0)
		large := func(name string) *eventlog.Proposal {
			p := probe(name)
			p.Entries = []eventlog.Entry{{Members: make([]byte, 40<<20)}}
			return p
		}
		if err := log.Append(context.Background(), large("first")); err != nil {
			t.Fatal(err)
		}
		impatient, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		if err := log.Append(impatient, large("impatient")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a full queue took more: %v", err)
		}
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("gave up after %s", waited)
		}
		patient := make(chan error, 1)
		go func() { patient <- log.Append(context.Background(), large("patient")) }()
		synctest.Wait()
		var names []string
		for range 2 {
			group, err := log.Next(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range group {
				names = append(names, p.Principal)
			}
		}
		if err := <-patient; err != nil {
			t.Errorf("the queue had room again: %v", err)
		}
		if fmt.Sprint(names) != "[first patient]" {
			t.Errorf("the log has %v", names)
		}
	})
}

// TestEmbeddedClose: a closed log takes nothing more, hands out what it has,
// and lets nobody wait, neither its consumer nor callers without room.
func TestEmbeddedClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.NewEmbedded(0)
		const queued, waiting = 8192, 3
		for range queued {
			if err := log.Append(context.Background(), probe("")); err != nil {
				t.Fatal(err)
			}
		}
		refused := make(chan error, waiting)
		for range waiting {
			go func() { refused <- log.Append(context.Background(), probe("")) }()
		}
		synctest.Wait()
		log.Close()
		if err := log.Append(context.Background(), probe("")); !errors.Is(err, eventlog.ErrClosed) {
			t.Errorf("a closed log answers %v", err)
		}
		out := 0
		drain(t, log, func(group []*eventlog.Proposal) { out += len(group) })
		if out != queued {
			t.Errorf("%d of %d proposals were handed out", out, queued)
		}
		for range waiting {
			if err := <-refused; !errors.Is(err, eventlog.ErrClosed) {
				t.Errorf("a caller that waited for room got %v", err)
			}
		}
	})
}

// TestEmbeddedWakes: a consumer that waits is woken by the next proposal.
func TestEmbeddedWakes(t *testing.T) {
	log := eventlog.NewEmbedded(0)
	for i := range 1000 {
		go func() {
			if err := log.Append(context.Background(), probe(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		}()
		group, err := log.Next(nil)
		if err != nil || len(group) != 1 || group[0].Principal != fmt.Sprint(i) {
			t.Fatalf("round %d: %v, %v", i, group, err)
		}
	}
}
