// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
)

// TestCrashKill kills a broker's process at random instants, also while it
// starts, and starts it again on the same directory. It shows that what the
// process has told anybody does not depend on its memory.
func TestCrashKill(t *testing.T) {
	seed := drawCrashSeed(t)
	kills, events, unanswered, taken := max(3, *crashRounds/4), 0, 0, 0
	for done := 0; done < kills && !t.Failed(); done += crashHistory {
		t.Chdir(t.TempDir())
		h := newCrashHistory(t, seed+uint64(done), vfs.Default)
		for round := 0; round < min(crashHistory, kills-done) && !t.Failed(); round++ {
			h.kill(round)
		}
		h.close()
		events, unanswered, taken = events+h.ledger.acked, unanswered+h.unanswered, taken+h.taken
	}
	t.Logf("%d kills, %d acknowledged events, %d requests left unanswered of which %d had taken effect, seed %d", kills, events, unanswered, taken, seed)
}

const (
	crashTapFile   = "proposals"
	crashChildVar  = "SIGNALBOX_CRASH_CHILD" // clock start and deduplication window
	crashChildTest = "TestCrashChild"
)

// kill starts a process, publishes to it until it dies, and checks what it left.
func (h *history) kill(number int) {
	h.writeTap()
	child, err := startCrashChild(h)
	if err != nil {
		h.t.Fatal(err)
	}
	l := &load{to: child, ledger: h.ledger, clock: h.clock, seed: h.seed, round: number, retry: h.unknown, hook: func(string) {}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.AfterFunc(time.Duration(h.rng.IntN(600))*time.Millisecond, func() { _ = child.cmd.Process.Kill() })
	if err := l.create(ctx); err == nil {
		l.publish(ctx)
	} else if !errors.Is(err, errGone) {
		h.t.Error(err)
	}
	<-child.gone // everything that the process has said was read
	h.ledger.crash(func() {})
	l.group.Wait()
	h.readTap()
	h.recover(number, "kill")
}

// writeTap makes the record hold what has recovered, and readTap reads what the
// process added.
func (h *history) writeTap() {
	var b []byte
	for _, p := range h.ledger.proposals {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	if err := os.WriteFile(crashTapFile, b, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) readTap() {
	b, err := os.ReadFile(crashTapFile)
	if err != nil {
		h.t.Fatal(err)
	}
	var all [][]byte
	for len(b) > 0 {
		size, n := binary.Uvarint(b)
		if n <= 0 || uint64(len(b)-n) < size {
			break // the process was killed while it wrote
		}
		all = append(all, b[n:n+int(size)])
		b = b[n+int(size):]
	}
	h.ledger.tapped = all[len(h.ledger.proposals):]
}

// crashRequest and crashAnswer go through the pipes, one JSON object a line.
type crashRequest struct {
	N       int
	Op      string
	Topic   string
	Policy  *event.Policy
	Events  []json.RawMessage
	Publish broker.PublishRequest // without its events

	Subscription string              // its id, of the operations below
	Document     *event.Subscription `json:",omitempty"`
	Fetch        broker.FetchRequest
	Verdict      broker.Verdict
}

type crashAnswer struct {
	N       int
	Result  broker.PublishResult
	Code    event.Code
	Message string
	Seen    uint64 // a reader got this position
	JSON    string

	Subscription string
	Handed       []broker.HandedOut
	Settled      []bool
}

// crashChild is the process as the publishers see it.
type crashChild struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it is dead and all it wrote was read

	mu      sync.Mutex
	in      io.WriteCloser
	n       int
	waiting map[int]chan crashAnswer // nil once it is gone
}

func startCrashChild(h *history) (*crashChild, error) {
	c := &crashChild{gone: make(chan struct{}), waiting: map[int]chan crashAnswer{}}
	c.cmd = exec.Command(os.Args[0], "-test.run=^"+crashChildTest+"$", "-test.timeout=5m")
	if exe, err := os.Executable(); err == nil {
		c.cmd.Path = exe // the working directory was changed
	}
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", crashChildVar, h.clock.start.UnixNano(), h.dedup))
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.read(h, out)
	return c, nil
}

func (c *crashChild) read(h *history, out io.Reader) {
	defer close(c.gone)
	lines := bufio.NewReaderSize(out, 1<<20)
	var other []byte
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // what has no end was cut off by the kill
		}
		var a crashAnswer
		if line[0] != '{' || json.Unmarshal(line, &a) != nil {
			other = append(other, line...)
			continue
		}
		if a.Seen != 0 {
			h.ledger.saw(a.Seen, a.JSON)
			continue
		}
		c.mu.Lock()
		c.waiting[a.N] <- a
		delete(c.waiting, a.N)
		c.mu.Unlock()
	}
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		h.t.Errorf("the process was not killed but ended by itself: %v\n%s", err, other)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiting {
		close(w)
	}
	c.waiting = nil
}

// do sends a request and waits for the answer.
func (c *crashChild) do(req crashRequest) (broker.PublishResult, error) {
	a, err := c.ask(req)
	return a.Result, err
}

func (c *crashChild) ask(req crashRequest) (crashAnswer, error) {
	answer := make(chan crashAnswer, 1)
	c.mu.Lock()
	c.n++
	req.N = c.n
	if c.waiting == nil {
		c.mu.Unlock()
		return crashAnswer{}, errGone
	}
	c.waiting[req.N] = answer
	line := append(must(json.Marshal(req)), '\n')
	_, _ = c.in.Write(line) // a process that is gone is noticed by the reader
	c.mu.Unlock()
	a, ok := <-answer
	switch {
	case !ok:
		return a, errGone
	case a.Code != "":
		return a, event.Errorf(a.Code, "%s", a.Message)
	}
	return a, nil
}

// The child is a consumer of subscriptions, too.

func (c *crashChild) CreateSubscription(_ context.Context, _ identity.Principal, d event.Subscription) (info broker.SubscriptionInfo, err error) {
	a, err := c.ask(crashRequest{Op: "subscribe", Document: &d})
	info.Document.ID = a.Subscription
	return info, err
}

func (c *crashChild) Fetch(_ context.Context, _ identity.Principal, id string, req broker.FetchRequest) ([]broker.HandedOut, error) {
	a, err := c.ask(crashRequest{Op: "fetch", Subscription: id, Fetch: req})
	return a.Handed, err
}

func (c *crashChild) Ack(_ context.Context, _ identity.Principal, id string, v broker.Verdict) ([]bool, error) {
	a, err := c.ask(crashRequest{Op: "ack", Subscription: id, Verdict: v})
	return a.Settled, err
}

func (c *crashChild) Nack(_ context.Context, _ identity.Principal, id string, v broker.Verdict) ([]bool, error) {
	a, err := c.ask(crashRequest{Op: "nack", Subscription: id, Verdict: v})
	return a.Settled, err
}

func (c *crashChild) Publish(_ context.Context, _ identity.Principal, req broker.PublishRequest) (broker.PublishResult, error) {
	r := crashRequest{Op: "publish", Publish: req}
	for _, ev := range req.Events {
		r.Events = append(r.Events, ev.AppendJSON(nil))
	}
	r.Publish.Events = nil
	return c.do(r)
}

func (c *crashChild) PutTopic(_ context.Context, _ identity.Principal, name string, policy event.Policy) (broker.TopicInfo, bool, error) {
	_, err := c.do(crashRequest{Op: "put", Topic: name, Policy: &policy})
	return broker.TopicInfo{}, false, err
}

func (c *crashChild) DeleteTopic(_ context.Context, _ identity.Principal, name string) error {
	_, err := c.do(crashRequest{Op: "delete", Topic: name})
	return err
}

// TestCrashChild is the process that TestCrashKill kills; alone it does nothing.
func TestCrashChild(t *testing.T) {
	var start, dedup int64
	if _, err := fmt.Sscan(os.Getenv(crashChildVar), &start, &dedup); err != nil {
		t.Skip("it is the child of TestCrashKill")
	}
	tap, err := os.OpenFile(crashTapFile, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	clock := &crashClock{start: time.Unix(0, start), speed: 100}
	b, err := broker.Open(broker.Options{
		Dir: rigDir, Clock: clock, DedupWindow: time.Duration(dedup), CleanEvery: 15 * time.Millisecond,
		Fatal: func(message string) {
			fmt.Fprintln(os.Stderr, "fatal: "+message)
			os.Exit(3)
		},
		Tap: func(p *eventlog.Proposal) {
			body := p.AppendBinary(nil)
			if _, err := tap.Write(append(binary.AppendUvarint(nil, uint64(len(body))), body...)); err != nil {
				panic(err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	say := func(a crashAnswer) {
		line := append(must(json.Marshal(a)), '\n')
		mu.Lock()
		defer mu.Unlock()
		if _, err := os.Stdout.Write(line); err != nil {
			os.Exit(4) // the parent is gone
		}
	}
	for _, patterns := range []string{">", "state.*"} {
		go crashChildFollow(b, patterns, say)
	}
	requests := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return
		}
		go func() { say(crashChildDo(b, line)) }()
	}
}

func crashChildFollow(b *broker.Broker, patterns string, say func(crashAnswer)) {
	for {
		reader := must(b.Read(broker.ReadRequest{Patterns: must(event.ParsePatterns(patterns)), Start: dispatch.Start{Now: true}}))
		for {
			changed := reader.Changed()
			window, err := reader.Poll(dispatch.Limit{Events: 100, Bytes: 1 << 20})
			if err != nil {
				break
			}
			for i := range window.Deliveries {
				say(crashAnswer{Seen: window.Deliveries[i].Position, JSON: string(window.Deliveries[i].JSON())})
			}
			if window.CaughtUp {
				<-changed
			}
		}
		reader.Close()
	}
}

func crashChildDo(b *broker.Broker, line []byte) (a crashAnswer) {
	var req crashRequest
	if err := json.Unmarshal(line, &req); err != nil {
		panic(err)
	}
	a.N = req.N
	ctx, who := context.Background(), identity.Anonymous()
	var err error
	switch req.Op {
	case "put":
		_, _, err = b.PutTopic(ctx, who, req.Topic, *req.Policy)
	case "delete":
		err = b.DeleteTopic(ctx, who, req.Topic)
	case "publish":
		for _, raw := range req.Events {
			ev, err := event.DecodeJSON(raw)
			if err != nil {
				panic(strconv.Quote(string(raw)) + err.Error())
			}
			req.Publish.Events = append(req.Publish.Events, ev)
		}
		a.Result, err = b.Publish(ctx, who, req.Publish)
	case "subscribe":
		var info broker.SubscriptionInfo
		info, err = b.CreateSubscription(ctx, who, *req.Document)
		a.Subscription = info.Document.ID
	case "fetch":
		a.Handed, err = b.Fetch(ctx, who, req.Subscription, req.Fetch)
	case "ack":
		a.Settled, err = b.Ack(ctx, who, req.Subscription, req.Verdict)
	case "nack":
		a.Settled, err = b.Nack(ctx, who, req.Subscription, req.Verdict)
	}
	if err != nil {
		e := event.AsError(err)
		a.Code, a.Message = e.Code, e.Message
	}
	return a
}
