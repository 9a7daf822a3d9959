// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/filter"
	"signalbox/internal/identity"
	"signalbox/internal/outside"
	"signalbox/ticket"
)

// seeded is a key of tests.
func seeded(n byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = n
	return ed25519.NewKeyFromSeed(seed)
}

func publicOf(n byte) ed25519.PublicKey { return seeded(n).Public().(ed25519.PublicKey) }

// registered makes the rig's space one that has the agent "net", which says that it is
// alive, and the auditor "aud", which may read that.
func registered(r *rig) {
	r.t.Helper()
	for i, change := range []ticket.Change{
		{Agent: "net", Roles: []string{ticket.RoleDomainAgent}, Domains: []string{"network"}, Key: ticket.EncodeKey(publicOf(2))},
		{Agent: "aud", Roles: []string{ticket.RoleAuditor}, Key: ticket.EncodeKey(publicOf(3))},
	} {
		change.Space, change.Revision, change.At, change.Op = "main", int64(i)+1, time.Now().UTC(), ticket.ChangeAdd
		signed, err := change.Sign(seeded(1))
		if err != nil {
			r.t.Fatal(err)
		}
		if _, _, err := r.b.ChangeAgents(context.Background(), anonymous(), signed.Bytes()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// founding has an option set that a space with agents needs.
func founding(o *broker.Options) {
	o.Found = func() (string, ed25519.PublicKey, error) { return "main", publicOf(1), nil }
	o.AuditSync, o.AuditInterval = true, -1
}

// heartbeat is a message that needs no ticket.
func heartbeat(t testing.TB) []byte {
	t.Helper()
	d := ticket.Draft{Header: ticket.Header{Type: ticket.TypeHeartbeat, TicketID: ticket.None, TraceID: "trace-1", From: "net", To: "platform-ops"},
		Payload: []byte(`{"agent":"net","accepts":">=1.0.0 <2.0.0","domains":["network"],"capabilities":[],"inflight":[],"capacity":1,"seq":1}`)}
	m, err := d.Sign(seeded(2))
	if err != nil {
		t.Fatal(err)
	}
	return m.Bytes()
}

const beats = "bus.main.heartbeat.platform-ops"

// objectPlace is a store of objects outside: it answers as mood says.
type objectPlace struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string][]byte                // guarded by mu
	mood    func() (stores bool, status int) // nil: it stores, and says so; guarded by mu
	posted  int                              // checkpoints; guarded by mu
}

func newObjectPlace(t *testing.T) *objectPlace {
	p := &objectPlace{objects: map[string][]byte{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *objectPlace) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	stores, status := true, http.StatusOK
	if p.mood != nil {
		stores, status = p.mood()
	}
	switch was, there := p.objects[r.URL.Path]; {
	case r.Method == http.MethodGet && there && status == http.StatusOK:
		_, _ = w.Write(was)
		return
	case r.Method == http.MethodPost:
		p.posted++
	case r.Method == http.MethodPut && there && status == http.StatusOK:
		status = http.StatusPreconditionFailed
	case r.Method == http.MethodPut && stores && !there:
		p.objects[r.URL.Path] = body
	}
	w.WriteHeader(status)
}

func (p *objectPlace) feel(mood func() (bool, int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mood = mood
}

// entries is what was put of the trail, in order.
func (p *objectPlace) entries() (text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.objects)) {
		if strings.Contains(name, "/entries/") {
			text = append(text, p.objects[name]...)
		}
	}
	return text
}

// mustBeTheTrail checks that a place has all of the broker's entries, each once, and
// nothing else.
func mustBeTheTrail(t *testing.T, b *broker.Broker, entries []byte) {
	t.Helper()
	c := checkpointOf(t, b)
	report, err := audit.Verify(context.Background(), bytes.NewReader(entries), audit.VerifyOptions{Keys: keysOf(t, b), Checkpoints: []audit.Checkpoint{c}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		t.Errorf("what is outside has a finding: %+v", f)
	}
	if report.Proved != b.AuditSize() {
		t.Errorf("%d entries are proved by what is outside, of %d", report.Proved, b.AuditSize())
	}
}

// placeOutside is one kind of place, and how it is made to fail.
type placeOutside struct {
	set     func(*broker.Options)
	down    func()
	up      func()
	entries func() []byte
}

func placesOutside(t *testing.T) map[string]placeOutside {
	file := filepath.Join(t.TempDir(), "not yet", "checkpoints")
	objects := func(set func(*broker.Options, string)) placeOutside {
		p := newObjectPlace(t)
		return placeOutside{
			set: func(o *broker.Options) { set(o, p.URL+"/bucket/a") }, entries: p.entries,
			down: func() { p.feel(func() (bool, int) { return false, http.StatusServiceUnavailable }) }, up: func() { p.feel(nil) },
		}
	}
	return map[string]placeOutside{
		"file": {
			set:  func(o *broker.Options) { o.AuditFile = file },
			down: func() { _ = os.Rename(filepath.Dir(file), filepath.Dir(file)+" any more") },
			up: func() {
				if os.Rename(filepath.Dir(file)+" any more", filepath.Dir(file)) != nil {
					_ = os.Mkdir(filepath.Dir(file), 0o700)
				}
			},
			entries: func() []byte { text, _ := os.ReadFile(file + ".entries"); return text },
		},
		"url": objects(func(o *broker.Options, at string) { o.AuditURL = at }),
		"store": objects(func(o *broker.Options, at string) {
			o.AuditStore, o.AuditStoreCredentials = at, &outside.Credentials{AccessKey: "k", SecretKey: "s", Region: "r"}
		}),
	}
}

// polled is what a reader is given now.
func polled(t *testing.T, reader *dispatch.Reader) (positions []uint64) {
	t.Helper()
	for {
		w, err := reader.Poll(dispatch.Limit{Events: 3, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range w.Deliveries {
			positions = append(positions, d.Position)
		}
		if w.CaughtUp {
			return positions
		}
	}
}

// openReaders opens readers of messages and of others, with a filter and without.
func openReaders(t *testing.T, r *rig) map[string]*dispatch.Reader {
	t.Helper()
	readers := map[string]*dispatch.Reader{}
	for spec, f := range map[string]string{"log": "", "bus.>": "", ">": "", beats: "type LIKE 'signalbox.%'", "*.main.>": "source = 'net' OR TRUE"} {
		request := broker.ReadRequest{As: identity.Named("aud"), Patterns: mustPatterns(t, spec)}
		var err error
		if f != "" {
			if request.Filter, err = filter.ParseText(f); err != nil {
				t.Fatal(err)
			}
		}
		if readers[spec], err = r.b.Read(request); err != nil {
			t.Fatal(err)
		}
	}
	return readers
}

// restartsBehind: a start with the place down holds what it does not have, and shows what
// it has.
func restartsBehind(t *testing.T, r *rig, name string, place placeOutside) {
	t.Helper()
	current := func() bool { e := r.b.External(); return e.Entries == e.Size }
	waitFor(t, "the place has everything", current)
	if name != "file" { // of which nothing can be known while its folder is missing
		place.down()
		go func() { _, _ = r.b.PostMessage(context.Background(), identity.Anonymous(), heartbeat(t)) }() // 6
		waitFor(t, "the message is held", func() bool { return r.b.External().Messages == 1 })
		r.reopen()
		readers := openReaders(t, r)
		if got := polled(t, readers["bus.>"]); !slices.Equal(got, []uint64{3, 4}) {
			t.Errorf("after a start %v are shown", got)
		}
		if got := polled(t, readers[">"]); !slices.Equal(got, []uint64{1, 2, 3, 4, 5}) {
			t.Errorf("after a start %v are shown of all topics", got)
		}
		place.up()
		waitFor(t, "the last message is shown", func() bool { return slices.Equal(polled(t, readers["bus.>"]), []uint64{6}) })
		for _, reader := range readers {
			reader.Close()
		}
	}
	waitFor(t, "the place has everything", current)
	mustBeTheTrail(t, r.b, place.entries())
}

// TestMessagesWaitForThePlaceOutside: while it is down a message is in the log and shown to
// nobody, with a filter or without, and its sender has no receipt; other topics go on. When
// it is back everybody gets everything, in order.
func TestMessagesWaitForThePlaceOutside(t *testing.T) {
	for name, place := range placesOutside(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // an end waits for a place that is down
			place.up()
			r := newRig(t, vfs.NewMem(), func(o *broker.Options) { founding(o); place.set(o) })
			defer func() { r.close() }()
			registered(r)
			readers := openReaders(t, r)
			place.down()
			r.fill("log", "a", 2) // 1, 2
			receipts := make(chan error, 2)
			for range 2 { // 3, 4
				go func() {
					_, err := r.b.PostMessage(context.Background(), identity.Anonymous(), heartbeat(t))
					receipts <- err
				}()
			}
			waitFor(t, "both messages are held", func() bool { e := r.b.External(); return e.Messages == 2 && e.Waiting })
			r.fill("log", "b", 1) // 5
			for spec, want := range map[string][]uint64{"log": {1, 2, 5}, ">": {1, 2}, "bus.>": nil, beats: nil, "*.main.>": nil} {
				if got := polled(t, readers[spec]); !slices.Equal(got, want) {
					t.Errorf("while the place is down %s is given %v, want %v", spec, got, want)
				}
			}
			err := r.b.AuditLines(context.Background(), 0, r.b.AuditSize(), func(string) bool { return true }, func(l *audit.Line) (bool, error) {
				if l.Topic == beats && l.Body != nil {
					t.Error("the trail shows a message that is held")
				}
				return true, nil
			})
			if err != nil || len(receipts) != 0 {
				t.Errorf("%d receipts were given, %v", len(receipts), err)
			}
			others, err := r.b.Read(broker.ReadRequest{Patterns: mustPatterns(t, ">")}) // by nobody that may read messages
			if err != nil {
				t.Fatal(err)
			}
			defer others.Close()
			if got := polled(t, others); !slices.Equal(got, []uint64{1, 2, 5}) {
				t.Errorf("while the place is down who may not read messages is given %v", got)
			}
			changed := readers["bus.>"].Changed()
			sifted := readers[beats].Changed()
			place.up()
			for range 2 {
				if err := <-receipts; err != nil {
					t.Error(err)
				}
			}
			<-changed
			<-sifted
			for spec, want := range map[string][]uint64{"log": nil, ">": {3, 4, 5}, "bus.>": {3, 4}, beats: {3, 4}, "*.main.>": {3, 4}} {
				if got := polled(t, readers[spec]); !slices.Equal(got, want) {
					t.Errorf("when the place is back %s is given %v, want %v", spec, got, want)
				}
			}
			for _, reader := range readers {
				reader.Close()
			}
			restartsBehind(t, r, name, place)
		})
	}
}

// TestSendersAreToldThatTheyWait: further messages are refused when too many wait, and
// whoever has waited for too long is told, with a code that says to send it again; that
// has no second effect.
func TestSendersAreToldThatTheyWait(t *testing.T) {
	p := newObjectPlace(t)
	r := newRig(t, vfs.NewMem(), func(o *broker.Options) { founding(o); o.AuditURL = p.URL })
	defer func() { r.close() }()
	registered(r)
	r.b.HoldAtMost(2)
	p.feel(func() (bool, int) { return false, http.StatusInternalServerError })
	first := heartbeat(t)
	receipts := make(chan error, 2)
	for _, raw := range [][]byte{first, heartbeat(t)} {
		go func() {
			_, err := r.b.PostMessage(context.Background(), identity.Anonymous(), raw)
			receipts <- err
		}()
	}
	waitFor(t, "both messages are held", func() bool { return r.b.External().Messages == 2 })
	if _, err := r.b.PostMessage(context.Background(), identity.Anonymous(), heartbeat(t)); errorCode(err) != event.CodeAuditWaiting {
		t.Errorf("a third message gives %v", err)
	}
	r.b.Drain()
	for range 2 {
		if err := <-receipts; errorCode(err) != event.CodeAuditWaiting || !event.AsError(err).Code.Class().Retryable {
			t.Errorf("who waits is told %v", err)
		}
	}
	p.feel(nil)
	r.reopen()
	receipt, err := r.b.PostMessage(context.Background(), identity.Anonymous(), first)
	if err != nil || receipt.Outcome != event.OutcomeDuplicate {
		t.Errorf("sent again it is %v, %v", receipt.Outcome, err)
	}
	mustBeTheTrail(t, r.b, p.entries())
}

// TestPlaceGoesOnAfterCrashes: through crashes, and answers that do not say what became of a
// piece, the place gets every entry once and in order; and nobody is shown a message before
// it is there.
func TestPlaceGoesOnAfterCrashes(t *testing.T) {
	t.Parallel()
	p := newObjectPlace(t)
	random := rand.New(rand.NewPCG(7, 7))
	fs := vfs.NewCrashableMem()
	change := func(o *broker.Options) { founding(o); o.AuditStore = p.URL + "/b" }
	r := newRig(t, fs, change)
	registered(r)
	shown := uint64(0)
	for life := range 4 {
		p.feel(func() (bool, int) {
			status := []int{http.StatusOK, http.StatusInternalServerError, http.StatusServiceUnavailable}[random.IntN(3)]
			return status == http.StatusOK || random.IntN(2) == 0, status
		})
		reader, err := r.b.Read(broker.ReadRequest{As: identity.Named("aud"), Patterns: mustPatterns(t, "bus.>"), Start: dispatch.Start{Cursor: &event.Cursor{Position: shown}}})
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				defer cancel()
				for range 3 {
					_, _ = r.b.PostMessage(ctx, identity.Anonymous(), heartbeat(t))
				}
			})
			r.fill("log", fmt.Sprint(life, i), 20)
			for _, position := range polled(t, reader) {
				if want := fmt.Sprintf(`"position":"%d"`, position); position <= shown || !bytes.Contains(p.entries(), []byte(want)) {
					t.Errorf("position %d is shown behind %d, and its entry is not outside", position, shown)
				}
				shown = position
			}
		}
		group.Wait()
		reader.Close()
		p.feel(func() (bool, int) { return false, http.StatusServiceUnavailable }) // nothing is brought that is lost now
		crashed := fs.CrashClone(vfs.CrashCloneCfg{})
		p.feel(func() (bool, int) { return false, http.StatusOK }) // nothing of this life comes late
		r.close()
		p.feel(func() (bool, int) { return false, http.StatusServiceUnavailable }) // but that is not what the next one is told
		fs = crashed
		r = newRig(t, fs, change)
	}
	p.feel(nil)
	waitFor(t, "the place has everything", func() bool { e := r.b.External(); return e.Entries == e.Size && !e.Waiting })
	mustBeTheTrail(t, r.b, p.entries())
	r.close()
	r.mustVerify()
}

// TestAnotherLogIsNotBroughtThere: a place that has entries which this log has not, or has
// others, is not gone on with, and a file keeps the broker from starting.
func TestAnotherLogIsNotBroughtThere(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	file := filepath.Join(base, "checkpoints")
	start := func(dir string) (*broker.Broker, error) {
		return broker.Open(broker.Options{Dir: filepath.Join(base, dir), AuditFile: file, AuditSync: true})
	}
	b, err := start("first")
	if err != nil {
		t.Fatal(err)
	}
	fillOnDisk(t, b, "a", 20)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil { // the entries tell by themselves
		t.Fatal(err)
	}
	for _, dir := range []string{"empty", "longer"} {
		other, err := broker.Open(broker.Options{Dir: filepath.Join(base, dir)})
		if err != nil {
			t.Fatal(err)
		}
		if dir == "longer" {
			fillOnDisk(t, other, "o", 30)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if b, err := start(dir); errorCode(err) != event.CodeStoreDamaged {
			t.Errorf("%s is served: %v", dir, err)
			_ = b.Close()
		}
	}
	if b, err = start("first"); err != nil {
		t.Fatal(err)
	}
	fillOnDisk(t, b, "b", 5)
	waitFor(t, "the file has everything", func() bool { e := b.External(); return e.Entries == e.Size })
	text, err := os.ReadFile(file + ".entries")
	if err != nil {
		t.Fatal(err)
	}
	mustBeTheTrail(t, b, text)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// Objects cannot be listed; that they are another log's is found when one is to be put.
	p := newObjectPlace(t)
	p.objects["/entries/00000000000000000000.ndjson"] = text[:len(text)/2]
	r := newRig(t, vfs.NewMem(), func(o *broker.Options) { o.AuditSync, o.AuditURL = true, p.URL })
	defer r.close()
	r.fill("log", "c", 3)
	waitFor(t, "the contradiction is counted", func() bool {
		text, err := r.b.Metrics().AppendText(nil)
		return err == nil && !strings.Contains(string(text), `signalbox_audit_external_failures_total{place="url"} 0`)
	})
	if e := r.b.External(); e.Entries != 0 {
		t.Errorf("%d entries are taken for being outside", e.Entries)
	}
	if _, err := broker.Open(broker.Options{Dir: filepath.Join(base, "nowhere"), AuditSync: true}); errorCode(err) != event.CodeParameterInvalid {
		t.Errorf("without a place: %v", err)
	}
}

// TestCheckpointsGoToTheObjectStore: each once, under a name by which they stand in order.
func TestCheckpointsGoToTheObjectStore(t *testing.T) {
	p := newObjectPlace(t)
	r := newRig(t, vfs.NewMem(), func(o *broker.Options) {
		o.AuditStore, o.AuditStoreCredentials = p.URL+"/bucket", &outside.Credentials{AccessKey: "k", SecretKey: "s", Region: "r"}
	})
	defer func() { r.close() }()
	for n := range 3 {
		r.fill("log", fmt.Sprint(n), 3)
		c := checkpointOf(t, r.b)
		name := fmt.Sprintf("/bucket/checkpoints/%020d-%d.txt", c.Size, c.Time.UnixMilli())
		waitFor(t, name, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return bytes.Equal(p.objects[name], c.Note)
		})
		if n == 1 {
			r.reopen() // which brings the last one again
		}
	}
	if n := len(p.entries()); n != 0 {
		t.Errorf("%d bytes of entries are outside, too", n)
	}
	if err := errors.Join(r.b.Close(), r.open()); err != nil {
		t.Fatal(err)
	}
}
