// SPDX-License-Identifier: Apache-2.0

package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/api"
	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/orchestrator"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// webPolicy has two domains, one after the other.
const webPolicy = `
rules:
  - name: web
    source_ref: desk:*
    on_partial: rollback
    on_denied: close
    slices:
      - {id: fw, domain: network, objective: "Keep the attacker away from {*}", targets: ["fw/1"]}
      - {id: app, domain: compute, objective: "Restart {*}", targets: ["web/{*}"], depends_on: [fw]}
`

// stage is a broker with a reference orchestrator and two domain agents.
type stage struct {
	t   *testing.T
	url string
	c   *client.Client

	mu   sync.Mutex
	runs []string // guarded by mu; domain, mode and step of each that was carried out
	fail string   // the one that fails; not changed once the agents run

	failures int // how often it does; guarded by mu; -1: always

	also string        // another one, which fails always
	hold chan struct{} // closed when the agents may go on; nil: always

	ends map[string]func() // of the agents, by name
}

func newStage(t *testing.T, fail string, how ...func(*stage)) *stage {
	t.Helper()
	url, stop, err := tickettest.Serve(t.TempDir(), tickettest.Staff())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, url: url, c: c, fail: fail, failures: -1, ends: map[string]func(){}}
	for _, h := range how {
		h(s)
	}
	t.Cleanup(stop)
	s.agent("net", "acl.block", "acl.unblock", `{"address":"192.0.2.1"}`, 1)
	s.agent("comp", "service.restart", "service.restart", `{}`, 2)
	return s
}

// agent runs a domain agent that proposes one verb, as many times as it is told.
func (s *stage) agent(name, verb, back, params string, steps int) {
	s.t.Helper()
	store, err := client.OpenLedgerFile(filepath.Join(s.t.TempDir(), name))
	if err != nil {
		s.t.Fatal(err)
	}
	do := ticketclient.Steps(func(_ context.Context, x *ticketclient.Execution, step ticketclient.Step, _ string) (string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		run := fmt.Sprintf("%s/%s/%d", name, x.Mode, step.N)
		s.runs = append(s.runs, run)
		if s.hold != nil {
			s.mu.Unlock()
			<-s.hold
			s.mu.Lock()
		}
		if run == s.also {
			return "", errors.New("it never works")
		}
		if run == s.fail && s.failures != 0 {
			s.failures--
			return "", errors.New("it did not work")
		}
		return "log:" + run, nil
	})
	life, end := context.WithCancel(s.t.Context())
	s.ends[name] = end
	a, err := ticketclient.OpenAgent(s.t.Context(), s.c, ticketclient.AgentOptions{
		Name: name, Key: tickettest.Key(name), Store: store, Execute: do, Rollback: do, Verify: do,
		Plan: func(_ context.Context, r *ticketclient.PlanRequest) (*ticketclient.Proposal, error) {
			p := &ticketclient.Proposal{Risk: ticketclient.Risk{BlastRadius: "one host", Reversibility: "full", DataClass: "none"}}
			for range steps {
				p.Steps = append(p.Steps, ticketclient.Step{Verb: verb, Target: r.Targets[0], Params: []byte(params), Precheck: "it is as expected", Postcheck: "it is done"})
				p.Rollback = append(p.Rollback, ticketclient.Step{Verb: back, Target: r.Targets[0], Params: []byte(params)})
			}
			return p, nil
		},
		OnError: func(err error) { s.t.Log(name, err) },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.run(func(ctx context.Context) {
		defer context.AfterFunc(ctx, end)()
		_ = a.Run(life)
		_ = store.Close()
	})
}

// run runs something until the test ends.
func (s *stage) run(what func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); what(ctx) }()
	s.t.Cleanup(func() { cancel(); <-ended })
}

func policy(t *testing.T, text string) *orchestrator.Policy {
	t.Helper()
	p, err := orchestrator.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// verbs is the catalogue that the broker has.
func verbs(t *testing.T) *ticket.Catalogue {
	t.Helper()
	c, err := ticket.ParseCatalogue(api.Verbs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// orchestrate runs the reference orchestrator, which is thrown away after as many
// moves as given, with all it knows, and begun anew.
func (s *stage) orchestrate(p *orchestrator.Policy, lives int) {
	s.run(func(ctx context.Context) {
		for ctx.Err() == nil {
			life, end := context.WithCancel(ctx)
			moves := 0
			o, err := ticketclient.NewOrchestrator(s.c, ticketclient.OrchestratorOptions{
				Name: "orch", Key: tickettest.Key("orch"),
				Decide: func(t *ticketclient.Ticket, now time.Time) ([]ticketclient.Move, time.Time) {
					return p.Decide("orch", t, now)
				},
				OnMove: func(t *ticketclient.Ticket, m ticketclient.Move, err error) {
					if err != nil && life.Err() == nil {
						s.t.Errorf("%s %s: %v", m.Type, m.Key, err)
					}
					if moves++; moves == lives {
						end()
					}
				},
				OnError: func(err error) { s.t.Log("orch", err) },
			})
			if err != nil {
				s.t.Error(err)
				end()
				return
			}
			_ = o.Run(life)
			end()
		}
	})
}

// orchestrateUntil runs the reference orchestrator until what it returns is called.
func (s *stage) orchestrateUntil(p *orchestrator.Policy) (end func()) {
	s.t.Helper()
	o, err := ticketclient.NewOrchestrator(s.c, ticketclient.OrchestratorOptions{
		Name: "orch", Key: tickettest.Key("orch"),
		Decide: func(t *ticketclient.Ticket, now time.Time) ([]ticketclient.Move, time.Time) {
			return p.Decide("orch", t, now)
		},
		OnError: func(err error) { s.t.Log("orch", err) },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return tickettest.Run(context.Background(), func(ctx context.Context) { _ = o.Run(ctx) })
}

// wait waits until something of a type was said about a ticket.
func (s *stage) wait(id, kind string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), tickettest.Patience)
	defer cancel()
	for item, err := range s.as("orch").Follow(ctx, []string{"bus.main.>"}, client.FollowOptions{}) {
		if err != nil {
			s.t.Fatalf("nobody has said %s about %s: %v", kind, id, err)
		}
		if item.Kind == client.ItemEvent && item.Event.Subject() == id && item.Event.Type() == ticket.EventType+kind {
			return
		}
	}
}

func (s *stage) open(id string) { s.t.Helper(); s.openFrom(id, "desk:"+id) }

func (s *stage) openFrom(id, source string) {
	s.t.Helper()
	_, err := ticketclient.NewSender(s.c, "desk", tickettest.Key("desk")).Send(s.t.Context(), ticket.Draft{
		Header: ticket.Header{Type: ticket.TypeOpen, TicketID: id, TraceID: "trace-" + id, To: "orchestrator"},
		Payload: &ticketclient.Open{
			Op: "open", SourceRef: source, Title: "The web is slow", BodyRef: "desk:" + id + "/body", Requester: "u1", Priority: 2,
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// as is a client that reads as an agent.
func (s *stage) as(name string) *client.Client {
	return s.c.With(client.WithToken(ticketclient.Tokens(s.c, name, tickettest.Key(name))))
}

// gate decides about every request for approval.
func (s *stage) gate(name string, decide func(*ticketclient.Message, *ticketclient.ApprovalRequest) (kind string, payload any)) {
	sender := ticketclient.NewSender(s.c, name, tickettest.Key(name))
	s.run(func(ctx context.Context) {
		for item, err := range s.as(name).Follow(ctx, []string{"bus.main.approval.gate"}, client.FollowOptions{}) {
			if err != nil {
				return
			}
			if item.Kind != client.ItemEvent {
				continue
			}
			m, err := ticketclient.DecodeMessage(item.Event.Data())
			if err != nil {
				s.t.Error(err)
				return
			}
			kind, payload := decide(m, m.Payload.(*ticketclient.ApprovalRequest))
			if kind == "" {
				continue // it is silent
			}
			if _, err := sender.Send(ctx, ticketclient.Answer(&m.Header, kind, "orchestrator", name+"/"+m.ID, payload)); err != nil && ctx.Err() == nil {
				s.t.Error(err)
			}
		}
	})
}

func grant(name, choice string) func(*ticketclient.Message, *ticketclient.ApprovalRequest) (string, any) {
	return func(m *ticketclient.Message, r *ticketclient.ApprovalRequest) (string, any) {
		g := &ticketclient.ApprovalGrant{RequestID: m.ID, PlanID: r.PlanID, PlanHash: r.PlanHash, Approver: name, DecidedAt: time.Now().UTC(), SingleUse: true}
		if r.Kind == "escalation" {
			g.Choice = choice
		}
		return ticket.TypeApprovalGrant, g
	}
}

// path waits until a ticket is at its end, and returns the states that it was moved
// to and all that was said.
func (s *stage) path(id string) (states []string, all []*ticketclient.Message) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), tickettest.Patience)
	defer cancel()
	for item, err := range s.as("orch").Follow(ctx, []string{"bus.main.>"}, client.FollowOptions{}) {
		if err != nil {
			s.t.Fatalf("the ticket went through %v and did not end: %v", states, err)
		}
		if item.Kind != client.ItemEvent {
			continue
		}
		m, err := ticketclient.DecodeMessage(item.Event.Data())
		if err != nil {
			s.t.Fatal(err)
		}
		if m.TicketID != id {
			continue
		}
		all = append(all, m)
		if state, ok := m.Payload.(*ticketclient.State); ok {
			states = append(states, state.To)
			if state.To == "CLOSED" || state.To == "CANCELLED" {
				return states, all
			}
		}
	}
	return states, all
}

func (s *stage) ran() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runs)
}

// TestOrchestratorRunsATicketToItsEnd, with its first two lives ended after every
// move: nothing is said or done twice.
func TestOrchestratorRunsATicketToItsEnd(t *testing.T) {
	s := newStage(t, "")
	s.gate("alice", grant("alice", ""))
	s.orchestrate(policy(t, webPolicy), 1)
	s.open("INC-1")
	states, all := s.path("INC-1")
	if want := []string{"APPROVED", "VERIFYING", "RESOLVED", "CLOSED"}; !slices.Equal(states, want) {
		t.Errorf("the ticket went through %v", states)
	}
	if want := []string{"net/apply/1", "comp/apply/1", "comp/apply/2", "net/verify/1", "comp/verify/1", "comp/verify/2"}; !sameButForOrder(s.ran(), want) {
		t.Errorf("what was done: %v", s.ran())
	}
	keys := map[string]bool{}
	for _, m := range all {
		if k := m.From + " " + m.Type + " " + m.IdempotencyKey; keys[k] {
			t.Errorf("%s was said twice", k)
		} else {
			keys[k] = true
		}
	}
}

// TestDecideFollowsFromTheLog: after every beginning of what was said, what the
// orchestrator said next follows again, under the same name.
func TestDecideFollowsFromTheLog(t *testing.T) {
	s := newStage(t, "comp/apply/2")
	s.gate("alice", grant("alice", ""))
	p := policy(t, webPolicy)
	s.orchestrate(p, 0)
	s.open("INC-1")
	_, all := s.path("INC-1")
	for i, m := range all {
		if m.From != "orch" {
			continue
		}
		before := &ticketclient.Ticket{ID: "INC-1", Trace: "trace-INC-1", Messages: all[:i], Verbs: verbs(t)}
		moves, _ := p.Decide("orch", before, m.Time)
		if !slices.ContainsFunc(moves, func(move ticketclient.Move) bool {
			return move.Type == m.Type && before.Key(move.Key) == m.IdempotencyKey
		}) {
			t.Errorf("after %d messages, %s %s does not follow, but %v", i, m.Type, m.IdempotencyKey, moves)
		}
	}
	if moves, wake := p.Decide("orch", &ticketclient.Ticket{ID: "INC-1", Messages: all}, time.Now()); len(moves) > 0 || !wake.IsZero() {
		t.Errorf("a ticket that is closed has the moves %v", moves)
	}
}

// TestTicketsDoNotHoldEachOtherUp: what is said of one ticket while another is decided
// about is not forgotten.
func TestTicketsDoNotHoldEachOtherUp(t *testing.T) {
	s := newStage(t, "")
	s.gate("alice", grant("alice", ""))
	s.orchestrate(policy(t, webPolicy), 0)
	for i := range 8 {
		s.open(fmt.Sprintf("INC-%d", i))
	}
	for i := range 8 {
		if states, _ := s.path(fmt.Sprintf("INC-%d", i)); !slices.Equal(states, []string{"APPROVED", "VERIFYING", "RESOLVED", "CLOSED"}) {
			t.Errorf("INC-%d went through %v", i, states)
		}
	}
}

func sameButForOrder(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// TestOrchestratorRollsBack: what took effect in part is undone, the last first, and
// the ticket closes.
func TestOrchestratorRollsBack(t *testing.T) {
	s := newStage(t, "comp/apply/2")
	s.gate("alice", grant("alice", ""))
	s.orchestrate(policy(t, webPolicy), 0)
	s.open("INC-1")
	states, _ := s.path("INC-1")
	if want := []string{"APPROVED", "PARTIAL", "ROLLING_BACK", "ROLLED_BACK", "CLOSED"}; !slices.Equal(states, want) {
		t.Errorf("the ticket went through %v", states)
	}
	if want := []string{"net/apply/1", "comp/apply/1", "comp/apply/2", "comp/rollback/1", "comp/rollback/2", "net/rollback/1"}; !slices.Equal(s.ran(), want) {
		t.Errorf("what was done: %v", s.ran())
	}
}

// TestOrchestratorTakesNoForAnAnswer: a plan that was denied is not carried out.
func TestOrchestratorTakesNoForAnAnswer(t *testing.T) {
	s := newStage(t, "")
	s.gate("alice", func(m *ticketclient.Message, r *ticketclient.ApprovalRequest) (string, any) {
		return ticket.TypeApprovalDeny, &ticketclient.ApprovalDeny{RequestID: m.ID, PlanHash: r.PlanHash, Approver: "alice", ReasonCode: "too_risky", Reason: "Not today."}
	})
	s.orchestrate(policy(t, webPolicy), 0)
	s.open("INC-1")
	states, _ := s.path("INC-1")
	if want := []string{"DENIED", "CLOSED"}; !slices.Equal(states, want) || len(s.ran()) > 0 {
		t.Errorf("the ticket went through %v, and %v was done", states, s.ran())
	}
}

// TestMissedDeadlineGoesToTheGate: nobody answers for the storage, the bus says so, and
// a person decides.
func TestMissedDeadlineGoesToTheGate(t *testing.T) {
	s := newStage(t, "")
	s.gate("alice", grant("alice", "cancel"))
	s.orchestrate(policy(t, `{"rules":[{"name":"disk","source_ref":"desk:*","plan_within":"1s","slices":[{"id":"a","domain":"storage","objective":"x","targets":["disk/1"]}]}]}`), 0)
	s.open("INC-1")
	states, all := s.path("INC-1")
	if !slices.Equal(states, []string{"ESCALATED", "CANCELLED"}) {
		t.Errorf("the ticket went through %v", states)
	}
	if !slices.ContainsFunc(all, func(m *ticketclient.Message) bool { return m.Type == ticket.TypeEscalation && m.From == ticket.RoleBus }) {
		t.Error("the bus has not said that the deadline was missed")
	}
}

// TestUndeliveredExecuteDoesNotHoldTheOthersUp: an agent that plans and then dies does
// not take what it is sent; its slice is dead, and what the others did is undone.
func TestUndeliveredExecuteDoesNotHoldTheOthersUp(t *testing.T) {
	s := newStage(t, "")
	s.gate("alice", func(m *ticketclient.Message, r *ticketclient.ApprovalRequest) (string, any) {
		s.ends["comp"]()
		return grant("alice", "")(m, r)
	})
	s.orchestrate(policy(t, strings.Replace(webPolicy, "on_partial", "deliver_within: 1s\n    on_partial", 1)), 0)
	s.open("INC-1")
	if states, _ := s.path("INC-1"); !slices.Equal(states, []string{"APPROVED", "PARTIAL", "ROLLING_BACK", "ROLLED_BACK", "CLOSED"}) {
		t.Errorf("the ticket went through %v", states)
	}
	if want := []string{"net/apply/1", "net/rollback/1"}; !slices.Equal(s.ran(), want) {
		t.Errorf("what was done: %v", s.ran())
	}
}

// TestShippedPolicy runs a ticket by the policy that signalbox orchestrator --example
// prints.
func TestShippedPolicy(t *testing.T) {
	text, err := os.ReadFile("../../cmd/signalbox/orchestrator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t, "")
	s.gate("alice", grant("alice", ""))
	s.orchestrate(policy(t, string(text)), 0)
	s.openFrom("INC-7", "siem:attack/web-7")
	states, all := s.path("INC-7")
	if !slices.Equal(states, []string{"APPROVED", "VERIFYING", "RESOLVED", "CLOSED"}) {
		t.Errorf("the ticket went through %v", states)
	}
	for _, m := range all {
		if r, ok := m.Payload.(*ticketclient.PlanRequest); ok && r.SliceID == "restart" && (m.To != "compute" || r.Targets[0] != "web-7" || !strings.Contains(r.Objective, "web-7")) {
			t.Errorf("%s was asked for %+v", m.To, r)
		}
	}
}

// TestOrchestratorAsksWhereThePolicySaysNothing: a ticket that no rule is for goes to
// the gate, which decides.
func TestOrchestratorAsksWhereThePolicySaysNothing(t *testing.T) {
	s := newStage(t, "")
	s.gate("alice", grant("alice", "close"))
	s.orchestrate(policy(t, `{"rules":[{"name":"other","source_ref":"siem:*","slices":[{"id":"a","domain":"network","objective":"x","targets":["fw/1"]}]}]}`), 0)
	s.open("INC-1")
	if states, _ := s.path("INC-1"); !slices.Equal(states, []string{"ESCALATED", "CLOSED"}) {
		t.Errorf("the ticket went through %v", states)
	}
}
