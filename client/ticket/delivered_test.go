// SPDX-License-Identifier: Apache-2.0

package ticketclient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// through puts something between an agent and its broker, which answers requests that it
// returns true for.
func (s *space) through(t *testing.T, answers func(w http.ResponseWriter, r *http.Request) bool) *space {
	t.Helper()
	broker, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(broker)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(between.Close)
	c, err := client.New(between.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &space{t: t, c: c, url: s.url}
}

func refuse(w http.ResponseWriter, code event.Code) {
	class := code.Class()
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(class.HTTP)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "/errors#" + string(code), "title": class.Title, "status": class.HTTP, "detail": "No.", "code": code, "retryable": class.Retryable})
}

// comes waits for something to have happened.
func comes(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(tickettest.Patience):
		t.Fatal("it does not come to that")
	}
}

// acts is an agent whose function notes the tickets that it acts on.
type acts struct {
	mu      sync.Mutex
	tickets []string // guarded by mu
	errs    []string // guarded by mu
}

func (a *acts) noted(o *ticketclient.AgentOptions) {
	o.Execute = func(_ context.Context, x *ticketclient.Execution) (*ticketclient.Report, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.tickets = append(a.tickets, x.Ticket)
		if x.Uncertain {
			a.tickets = append(a.tickets, "again")
		}
		return &ticketclient.Report{Outcome: ticketclient.OutcomeSuccess, Verification: ticketclient.Verification{Passed: true}}, nil
	}
	o.OnError = func(err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.errs = append(a.errs, err.Error())
	}
}

func (a *acts) all() (tickets, errs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.tickets), slices.Clone(a.errs)
}

// TestRefusedForGoodEndsTheWork: an execute of which the broker will never say that it is
// delivered keeps nothing waiting, is not carried out by a later life either, and is told
// of. What can pass by itself is waited for.
func TestRefusedForGoodEndsTheWork(t *testing.T) {
	s, dir := newSpace(t), t.TempDir()
	refusals := map[string]event.Code{
		"INC-unknown": event.CodeTicketUnknown, "INC-forbidden": event.CodeNotPermitted, "INC-gone": event.CodeAgentUnknown, "INC-waits": event.CodeDiskFull,
	}
	var mu sync.Mutex
	asked := map[string]int{} // guarded by mu
	between := s.through(t, func(w http.ResponseWriter, r *http.Request) bool {
		of, ok := strings.CutPrefix(r.URL.Path, "/v1/tickets/")
		code := refusals[of]
		if !ok || code == "" {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		asked[of]++
		if code.Class().Retryable && asked[of] > 2 {
			return false
		}
		refuse(w, code)
		return true
	})
	var noted acts
	agent := between.work(dir, noted.noted)
	for of, code := range refusals {
		if !code.Class().Retryable {
			s.approve(of)
		}
	}
	s.approve("INC-waits") // there is one slot, which the others have given back
	s.saidOf("INC-waits", "net", ticket.TypeResult)
	agent.stop()
	tickets, errs := noted.all()
	if !slices.Equal(tickets, []string{"INC-waits"}) {
		t.Errorf("it has acted on %q", tickets)
	}
	for of, code := range refusals {
		told := slices.ContainsFunc(errs, func(e string) bool {
			return strings.Contains(e, of+" is not carried out") && strings.Contains(e, string(code))
		})
		if told == code.Class().Retryable {
			t.Errorf("of %s it was told: %t: %q", of, told, errs)
		}
	}
	again := s.work(dir, noted.noted) // with a broker that refuses nothing
	s.approve("INC-later")
	s.saidOf("INC-later", "net", ticket.TypeResult)
	again.stop()
	if tickets, _ = noted.all(); !slices.Equal(tickets, []string{"INC-waits", "INC-later"}) {
		t.Errorf("it has acted on %q", tickets)
	}
}

// TestNoAnswerKeepsNoRoom: an agent with one slot goes on with others while the broker fails
// to say whether an execute is delivered, or to take a result. What it fails at comes to its
// end once it has an answer, also in a later life.
func TestNoAnswerKeepsNoRoom(t *testing.T) {
	s, dir := newSpace(t), t.TempDir()
	var fails atomic.Bool
	fails.Store(true)
	asked, refused := make(chan struct{}, 1000), make(chan struct{}, 1000)
	between := s.through(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !fails.Load() {
			return false
		}
		if r.URL.Path == "/v1/tickets/INC-mute" {
			asked <- struct{}{}
			refuse(w, event.CodeInternal)
			return true
		}
		if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" {
			return false
		}
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if m, parsed := ticket.Parse(body); err != nil || parsed != nil || m.Header().Type != ticket.TypeResult || m.Header().TicketID != "INC-deaf" {
			return false
		}
		refused <- struct{}{}
		refuse(w, event.CodeInternal)
		return true
	})
	var noted acts
	agent := between.work(dir, noted.noted)
	s.approve("INC-mute")
	comes(t, asked)
	s.approve("INC-deaf")
	comes(t, refused)
	s.approve("INC-1")
	s.saidOf("INC-1", "net", ticket.TypeResult)
	agent.stop()
	if tickets, errs := noted.all(); !slices.Equal(tickets, []string{"INC-deaf", "INC-1"}) {
		t.Fatalf("it has acted on %q: %q", tickets, errs)
	}
	agent = between.work(dir, noted.noted) // which fails as before
	s.approve("INC-2")
	s.saidOf("INC-2", "net", ticket.TypeResult)
	fails.Store(false)
	s.saidOf("INC-mute", "net", ticket.TypeResult)
	s.saidOf("INC-deaf", "net", ticket.TypeResult)
	agent.stop()
	if tickets, errs := noted.all(); !slices.Equal(tickets, []string{"INC-deaf", "INC-1", "INC-2", "INC-mute"}) {
		t.Errorf("it has acted on %q: %q", tickets, errs)
	}
}

// TestNothingIsAskedAfterCompleteBy: where the broker never says whether an execute is
// delivered, that ends when the time for it is over.
func TestNothingIsAskedAfterCompleteBy(t *testing.T) {
	s := newSpace(t)
	between := s.through(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v1/tickets/INC-1" {
			refuse(w, event.CodeInternal)
			return true
		}
		return false
	})
	told := make(chan string, 1000)
	var noted acts
	between.work(t.TempDir(), func(o *ticketclient.AgentOptions) {
		noted.noted(o)
		o.OnError = func(err error) { told <- err.Error() }
	})
	s.approveWith("INC-1", func(x *ticketclient.Execute) { x.CompleteBy = time.Now().Add(5 * time.Second).UTC() })
	deadline := time.After(tickettest.Patience)
	for {
		select {
		case text := <-told:
			if !strings.Contains(text, "INC-1 is not carried out: complete_by has passed") {
				continue
			}
		case <-deadline:
			t.Error("it asks without end")
		}
		break
	}
	if tickets, _ := noted.all(); len(tickets) > 0 {
		t.Errorf("it has acted on %q", tickets)
	}
}

// TestWhatIsNoRefusalOfTheBrokerIsTriedAgain: an answer that says nothing about an execute,
// or about a result, throws neither away, whoever has given it.
func TestWhatIsNoRefusalOfTheBrokerIsTriedAgain(t *testing.T) {
	page := func(status int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { http.Error(w, "<html>", status) }
	}
	said := func(code event.Code) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { refuse(w, code) }
	}
	for name, answer := range map[string]func(http.ResponseWriter){
		"page 500": page(http.StatusInternalServerError), "page 404": page(http.StatusNotFound), "page 403": page(http.StatusForbidden),
		"internal": said(event.CodeInternal), "clock": said(event.CodeTokenInvalid), "unknown": said("of_a_later_version"), "cursor": said(event.CodeCursorUnknown),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpace(t)
			var executed atomic.Bool
			var looks, results atomic.Int32
			between := s.through(t, func(w http.ResponseWriter, r *http.Request) bool {
				n := int32(0)
				switch {
				case strings.HasPrefix(r.URL.Path, "/v1/tickets/"):
					n = looks.Add(1)
				case executed.Load() && r.Method == http.MethodPost && r.URL.Path == "/v1/messages":
					n = results.Add(1)
				}
				if n != 1 {
					return false
				}
				answer(w)
				return true
			})
			var noted acts
			agent := between.work(t.TempDir(), func(o *ticketclient.AgentOptions) {
				noted.noted(o)
				o.HeartbeatEvery = time.Hour // the message is the result
				do := o.Execute
				o.Execute = func(ctx context.Context, x *ticketclient.Execution) (*ticketclient.Report, error) {
					executed.Store(true)
					return do(ctx, x)
				}
			})
			s.approve("INC-1")
			s.saidOf("INC-1", "net", ticket.TypeResult)
			agent.stop()
			tickets, errs := noted.all()
			if !slices.Equal(tickets, []string{"INC-1"}) || !strings.Contains(strings.Join(errs, "\n"), "INC-1 is delivered is asked again") {
				t.Errorf("it has acted on %q, and was told %q", tickets, errs)
			}
		})
	}
}

// TestAskingAgainReadsWhatIsNew: while an execute is not delivered the agent asks for the
// ticket time and again, and each time for what was said since the last.
func TestAskingAgainReadsWhatIsNew(t *testing.T) {
	s := newSpace(t)
	var mu sync.Mutex
	var from []string // guarded by mu; where each question begins
	var executed atomic.Bool
	enough := make(chan struct{})
	between := s.through(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/v1/tickets/") {
			mu.Lock()
			defer mu.Unlock()
			if from = append(from, r.URL.Query().Get("after")); len(from) == 3 {
				close(enough)
			}
		}
		if executed.Load() && strings.HasSuffix(r.URL.Path, "/ack") {
			select {
			case <-enough:
			case <-r.Context().Done():
			}
		}
		return false
	})
	between.work(t.TempDir(), nil)
	s.approveWith("INC-1", func(*ticketclient.Execute) { executed.Store(true) })
	s.saidOf("INC-1", "net", ticket.TypeResult)
	mu.Lock()
	defer mu.Unlock()
	if len(from) < 2 || from[0] != "" || slices.Contains(from[1:], "") {
		t.Errorf("the questions begin after %q", from)
	}
}

// TestOldBookIsReadAsBegun: a version that did not say which executes it had begun began
// all that it had stored. What it left is carried out as what may be done already.
func TestOldBookIsReadAsBegun(t *testing.T) {
	s, dir := newSpace(t), t.TempDir()
	began := make(chan struct{})
	dying := s.work(dir, func(o *ticketclient.AgentOptions) {
		o.Execute = func(ctx context.Context, _ *ticketclient.Execution) (*ticketclient.Report, error) {
			close(began)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	s.approve("INC-1")
	<-began
	dying.stop()

	book, err := client.OpenLedgerFile(filepath.Join(dir, "net.book"))
	if err != nil {
		t.Fatal(err)
	}
	var old [][]byte
	err = book.Load(t.Context(), func(record []byte) error {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(record, &members); err != nil {
			return err
		}
		delete(members, "token")
		if members["started"] == nil {
			record, err := json.Marshal(members)
			old = append(old, record)
			return err
		}
		return nil
	})
	if err == nil {
		err = book.Replace(t.Context(), slices.Values(old))
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = book.Close()

	var noted acts
	s.work(dir, noted.noted).stopAfter(func() { s.saidOf("INC-1", "net", ticket.TypeResult) })
	if tickets, errs := noted.all(); !slices.Equal(tickets, []string{"INC-1", "again"}) {
		t.Errorf("it has acted on %q: %q", tickets, errs)
	}
}
