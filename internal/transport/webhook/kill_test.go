// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"signalbox/internal/broker"
	"signalbox/internal/egress"
	"signalbox/internal/transport/webhook"
)

const (
	killChildVar = "SIGNALBOX_WEBHOOK_CHILD" // directory, sink and the first id to publish
	killRounds   = 4
)

// said is a line of the child's: what it has found to be durable.
type said struct{ published, acked, handed int }

// killLedger is what the outside knows. All events have numbers for ids, and are
// delivered in their order, so that what is acknowledged is a number, too.
type killLedger struct {
	mu      sync.Mutex
	told    said
	arrived map[int]int // how often each event came
	total   int
	faults  []string
}

// push answers a request, every fourth one with a failure.
func (l *killLedger) push(w http.ResponseWriter, p *push, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, err := strconv.Atoi(p.id())
	if err != nil || id < l.told.acked {
		l.faults = append(l.faults, fmt.Sprintf("event %s is sent again after the first %d were acknowledged", p.id(), l.told.acked))
	}
	l.arrived[id]++
	l.total++
	if n%4 == 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// hear takes note of a line. The first one of a process is said before it sends
// anything.
func (l *killLedger) hear(s said, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.acked < l.told.acked || s.handed < l.told.handed {
		l.faults = append(l.faults, fmt.Sprintf("%+v was durable, and now it is %+v", l.told, s))
	}
	if first && s.handed < l.total {
		l.faults = append(l.faults, fmt.Sprintf("%d requests arrived, and %d attempts are counted", l.total, s.handed))
	}
	l.told = said{max(l.told.published, s.published), s.acked, s.handed}
}

func (l *killLedger) now() said {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// TestKill kills the process of a broker at random instants, also while it starts,
// while it publishes and sends. What it has said holds: no event is lost, none is
// sent again after its acknowledgement was durable, and every attempt is counted.
func TestKill(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	l := &killLedger{arrived: map[int]int{}}
	r := &rig{t: t}
	s := r.sink(l.push)
	dir := t.TempDir()
	for round := range killRounds {
		before := l.now()
		kill, gone := l.child(t, dir, s.URL)
		if round%2 == 1 { // the others may die before they have done anything
			r.until("it goes on", func() bool { now := l.now(); return now.acked > before.acked && now.published > before.published })
		}
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond) // when it is killed, not what is waited for
		kill()
		<-gone
	}
	published := l.now().published
	kill, gone := l.child(t, dir, s.URL)
	r.until("all are acknowledged", func() bool { return l.now().acked >= published })
	kill()
	<-gone
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range published {
		if l.arrived[id] == 0 {
			t.Errorf("event %d was published and is lost", id)
		}
	}
	for _, fault := range l.faults {
		t.Error(fault)
	}
	t.Logf("%d kills, %d events, %d requests", killRounds+1, published, l.total)
}

// child starts a process. Gone is closed when it is dead and all it said is known.
func (l *killLedger) child(t *testing.T, dir, sink string) (kill func(), gone chan struct{}) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", killChildVar, dir, sink, l.now().published))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone = make(chan struct{})
	go func() {
		defer close(gone)
		first := true
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // what has no end was cut off by the kill
			}
			var s said
			if _, err := fmt.Sscanf(line, "said %d %d %d\n", &s.published, &s.acked, &s.handed); err != nil {
				t.Errorf("the process says %q", line)
				continue
			}
			l.hear(s, first)
			if first {
				_, _ = io.WriteString(in, "go on\n") // a process that is gone is noticed by its end
			}
			first = false
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
			t.Errorf("the process was not killed but ended by itself: %v", err)
		}
	}()
	return func() { _ = cmd.Process.Kill() }, gone
}

// TestKillChild is the process that TestKill kills; alone it does nothing.
func TestKillChild(t *testing.T) {
	var dir, sink string
	var next int
	if _, err := fmt.Sscan(os.Getenv(killChildVar), &dir, &sink, &next); err != nil {
		t.Skip("it is the child of TestKill")
	}
	allowed, err := egress.ParseAllowed([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	guard := egress.NewGuard(egress.Options{Allowed: allowed})
	b, err := broker.Open(broker.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler), CheckSink: guard.CheckSink})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, Broker: b}
	infos, _, err := b.Subscriptions("", 1)
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	if len(infos) > 0 {
		id = infos[0].Document.ID
	} else {
		id = r.subscribe(sink, `,"order":"strict","visibility":"1s","max_attempts":100,"quarantine_after":100`)
	}
	tell := func(published int) {
		st := r.status(id)
		if _, err := fmt.Printf("said %d %d %d\n", published, st.Acked, st.HandedOut); err != nil {
			os.Exit(4) // the parent is gone
		}
	}
	tell(next)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		os.Exit(4)
	}
	e, err := webhook.New(webhook.Options{Broker: b, Guard: guard, Logger: slog.New(slog.DiscardHandler), Schedule: []time.Duration{5 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	e.Start(context.Background())
	for {
		// One that was published, and not told of, is published once more, and is then
		// known for a duplicate.
		if st := r.status(id); next < int(st.Acked)+50 {
			r.publish("a", strconv.Itoa(next), "")
			next++
		} else {
			time.Sleep(time.Millisecond)
		}
		tell(next)
	}
}
