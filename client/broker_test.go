// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
	"signalbox/internal/porttest"
)

// binary is the broker, built once for all tests of the package. The package sees nothing of the broker but its wire, and
// so do its tests: they run the real thing in a process of its own, which can also be killed.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "signalbox-client-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "signalbox")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "signalbox/cmd/signalbox").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("build the broker: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built {
		path, _ := binary()
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// patience is how long a test waits for what must come. It decides nothing but when a test that fails gives up, so a
// machine that is busy may take its time.
const patience = 2 * time.Minute

// built says that there is a binary to clean up.
var built bool

// realBroker is a broker process that can be killed and started again at the same address.
type realBroker struct {
	url, listen, data string
	cmd               *exec.Cmd
}

// newBroker starts a broker in a directory.
func newBroker(data string) (*realBroker, error) {
	listen, _, err := porttest.Hold() // to the end of the process: a broker that was killed comes back there
	if err != nil {
		return nil, err
	}
	b := &realBroker{url: "http://" + listen, listen: listen, data: data}
	return b, b.start()
}

// start returns once the broker listens.
func (b *realBroker) start() error {
	built = true
	path, err := binary()
	if err != nil {
		return err
	}
	b.cmd = exec.Command(path, "serve", "--data", b.data, "--listen", b.listen, "--log-level", "error")
	b.cmd.Stderr = os.Stderr
	banner, err := b.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.cmd.Start(); err != nil {
		return err
	}
	if line, err := bufio.NewReader(banner).ReadString('\n'); err != nil || !regexp.MustCompile(regexp.QuoteMeta(b.url)).MatchString(line) {
		b.kill()
		return fmt.Errorf("the broker said %q: %w", line, err)
	}
	return nil
}

// kill ends the broker as kill -9 does.
func (b *realBroker) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait() // It was killed, and says so.
}

func (b *realBroker) restart(t *testing.T) {
	t.Helper()
	b.kill()
	if err := b.start(); err != nil {
		t.Error(err)
	}
}

func testBroker(t *testing.T) *realBroker {
	t.Helper()
	b, err := newBroker(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	return b
}

// Publishers that retry and a reader that resumes ride out a broker that is killed again and again: every event is there
// once, in the publisher's order, with no gap.
func TestKilledBrokerLosesAndRepeatsNothing(t *testing.T) {
	const publishers, each = 4, 150
	b := testBroker(t)
	patient := client.WithRetry(client.Retry{Attempts: 1000, Min: 5 * time.Millisecond, Max: 50 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			c := connect(t, b.url, patient)
			for n := range each {
				d := event.Draft{Source: fmt.Sprintf("/p/%d", p), Type: "t.x", ID: fmt.Sprint(n), Data: []byte("1")}
				if _, err := c.Publish(ctx, "t", d); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			time.Sleep(150 * time.Millisecond)
			b.restart(t)
		}
	})
	next := make(map[string]int)
	var last uint64
	for item, err := range connect(t, b.url, patient).Follow(ctx, []string{"t"}, client.FollowOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Kind != client.ItemEvent {
			continue
		}
		ev := item.Event
		if ev.Position() <= last || ev.ID() != fmt.Sprint(next[ev.Source()]) {
			t.Fatalf("at %d after %d: %s has id %s, want %d", ev.Position(), last, ev.Source(), ev.ID(), next[ev.Source()])
		}
		last = ev.Position()
		next[ev.Source()]++
		if done := len(next) == publishers && !slices.ContainsFunc([]string{"/p/0", "/p/1", "/p/2", "/p/3"}, func(s string) bool { return next[s] < each }); done {
			break
		}
	}
	wg.Wait()
	if last != publishers*each {
		t.Errorf("the last position is %d: something was stored twice", last)
	}
}

// A lost answer is the hard case of a retry: the event is stored, and the publisher does not know.
func TestLostAnswerIsNoDuplicate(t *testing.T) {
	b := testBroker(t)
	lossy := &loseFirstAnswer{}
	c := connect(t, b.url, client.WithHTTPClient(httpClient(lossy)))
	r, err := c.Publish(t.Context(), "t", draft)
	if err != nil || r.Outcome != event.OutcomeDuplicate || r.Position != 1 || lossy.requests != 2 {
		t.Errorf("got %+v, %v after %d requests", r, err, lossy.requests)
	}
	// With a request key even the answer is the first one.
	lossy.requests = 0
	r, err = c.Publish(t.Context(), "t", draft, client.IdempotencyKey("k"))
	if err != nil || r.Outcome != event.OutcomeAccepted || r.Position != 2 || lossy.requests != 2 {
		t.Errorf("with a key: got %+v, %v after %d requests", r, err, lossy.requests)
	}
}

// An agent that was reset bootstraps from the state and goes on from its cursor; its ledger is then the broker's.
func TestBootstrapAfterReset(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	ctx := t.Context()
	policy := event.DefaultPolicy()
	policy.CleanupPolicy = event.CleanupCompact
	create := func() {
		if _, _, err := c.PutTopic(ctx, "t", policy); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(key string) event.Receipt {
		d := draft
		d.Subject = key
		r, err := c.Publish(ctx, "t", d)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	create()
	left := publish("a").Cursor
	publish("b")
	if err := c.DeleteTopic(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	create()
	publish("c")
	publish("d")

	for _, err := range c.Follow(ctx, []string{"t"}, client.FollowOptions{Cursor: left}) {
		if e := (*event.Error)(nil); !errors.As(err, &e) || e.Code != event.CodeCursorExpired || e.Facts["oldest"] == "" {
			t.Fatalf("without a policy the follower ends with %v", err)
		}
	}
	var ledger []*event.Event
	o := client.FollowOptions{Cursor: left, OnReset: func(ctx context.Context, r *client.Reset) (event.Cursor, error) {
		s, err := c.State(ctx, r.Topics...)
		if err != nil {
			return event.Cursor{}, err
		}
		for ev, err := range s.Events() {
			if err != nil {
				return event.Cursor{}, err
			}
			ledger = append(ledger, ev)
		}
		return s.Cursor(), nil
	}}
	for item, err := range c.Follow(ctx, []string{"t"}, o) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Kind == client.ItemSynced && len(ledger) == 2 {
			publish("c")
		}
		if item.Kind == client.ItemEvent {
			ledger = append(ledger, item.Event)
			break
		}
	}
	d, err := c.Digest(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	own := client.DigestOf(slices.Values(ledger), client.DigestOptions{At: d.LogTime})
	if len(ledger) != 3 || d.Keys != 2 || len(own.Diff(d)) != 0 {
		t.Errorf("%d events, %d keys, buckets %v differ", len(ledger), d.Keys, own.Diff(d))
	}
}

// Keys are data: each comes back under the name it went in by.
func TestKeysOfAllKinds(t *testing.T) {
	b := testBroker(t)
	c := connect(t, b.url)
	policy := event.DefaultPolicy()
	policy.CleanupPolicy = event.CleanupCompact
	if _, _, err := c.PutTopic(t.Context(), "t", policy); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"T-998", "a/b", "a//b", "/", "..", ".", "../x", "a b?c#d%25", "ä🐻", "a+b", "@1", ";x=1"} {
		d := draft
		d.Subject = key
		r, err := c.Publish(t.Context(), "t", d, client.IfAbsent())
		if err != nil {
			t.Errorf("publish %q: %v", key, err)
			continue
		}
		ev, err := c.Key(t.Context(), "t", key)
		if err != nil || ev.Position() != r.Position {
			t.Errorf("key %q: %v, %v", key, ev, err)
		}
		_, err = c.Publish(t.Context(), "t", d, client.IfPosition(r.Position+1000))
		if p, ok := client.ConflictPosition(err); !ok || p != r.Position {
			t.Errorf("key %q: the conflict names position %d, %t: %v", key, p, ok, err)
		}
	}
}
