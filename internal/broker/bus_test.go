// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// staff is a broker with a space and agents, whose keys are made from their names.
type staff struct {
	*box
	cause string // id of the last message
}

func nameKey(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(name+".", ed25519.SeedSize)[:ed25519.SeedSize]))
}

func namePublic(name string) ed25519.PublicKey { return nameKey(name).Public().(ed25519.PublicKey) }

func newStaff(t fataler, change func(*box)) *staff {
	t.Helper()
	x := &box{t: t, fs: vfs.NewMem(), clock: newStepClock(), options: broker.Options{Dir: "data", CleanEvery: time.Hour, AuditInterval: -1}}
	change(x)
	x.options.FS, x.options.Clock = x.fs, x.clock
	x.options.Found = func() (string, ed25519.PublicKey, error) { return "main", namePublic("admin"), nil }
	x.open()
	s := &staff{box: x}
	for i, c := range []ticket.Change{
		{Agent: "desk", Roles: []string{ticket.RoleIntake}}, {Agent: "orch", Roles: []string{ticket.RoleOrchestrator}},
		{Agent: "net", Roles: []string{ticket.RoleDomainAgent}, Domains: []string{"network"}}, {Agent: "alice", Roles: []string{ticket.RoleGate}}, {Agent: "audit", Roles: []string{ticket.RoleAuditor}},
	} {
		c.Space, c.Revision, c.At, c.Op, c.Key = "main", int64(i)+1, startTime(), ticket.ChangeAdd, ticket.EncodeKey(namePublic(c.Agent))
		signed, err := c.Sign(nameKey("admin"))
		if err == nil {
			_, _, err = x.ChangeAgents(context.Background(), anonymous(), signed.Bytes())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// say has an agent say something about the ticket, in answer to the last message.
func (s *staff) say(from, kind, to, payload string, how ...func(*ticket.Draft)) error {
	s.t.Helper()
	d := ticket.Draft{Header: ticket.Header{Type: kind, TicketID: "INC-1", TraceID: "trace-1", From: from, To: to, CausationID: s.cause, Time: s.clock.Wall()}, Payload: []byte(payload)}
	if kind == ticket.TypeHeartbeat {
		d.TicketID, d.CausationID = ticket.None, ticket.None
	}
	for _, h := range how {
		h(&d)
	}
	m, err := d.Sign(nameKey(from))
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err = s.PostMessage(context.Background(), anonymous(), m.Bytes()); err == nil && kind != ticket.TypeHeartbeat {
		s.cause = m.Header().ID
	}
	return err
}

func (s *staff) mustSay(from, kind, to, payload string, how ...func(*ticket.Draft)) {
	s.t.Helper()
	if err := s.say(from, kind, to, payload, how...); err != nil {
		s.t.Fatal(err)
	}
}

const (
	busOpen     = `{"op":"open","source_ref":"d","title":"t","body_ref":"b","requester":"u","priority":2}`
	busPlan     = `{"slice_id":"s1","revision":1,"objective":"o","targets":["fw/1"],"constraints":[]}`
	busBeat     = `{"agent":"net","accepts":">=1.0.0 <2.0.0","domains":["network"],"capabilities":[],"inflight":[],"capacity":1,"seq":1}`
	busSteps    = `[{"n":1,"action":"acl.block","target":"fw/1","params":{"address":"192.0.2.1"},"reversible":true,"precheck":"p","postcheck":"p"}]`
	busRollback = `[{"action":"acl.unblock","target":"fw/1","params":{"address":"192.0.2.1"}}]`
)

// execute brings the ticket from its opening to its execute.
func (s *staff) execute() {
	s.t.Helper()
	slice, err := ticket.SliceOf([]byte(`{"steps":` + busSteps + `,"rollback":` + busRollback + `}`))
	if err != nil {
		s.t.Fatal(err)
	}
	hash, err := slice.Hash()
	if err != nil {
		s.t.Fatal(err)
	}
	plan, err := ticket.Plan{TicketID: "INC-1", PlanID: "p1", Revision: 1, Tier: 1, PolicyVersion: "1.0.0", Slices: []ticket.PlanSlice{{ID: "s1", Hash: hash}}}.Hash()
	if err != nil {
		s.t.Fatal(err)
	}
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen)
	s.mustSay("orch", ticket.TypePlanRequest, "network", busPlan)
	s.mustSay("net", ticket.TypeProposal, "network", fmt.Sprintf(`{"slice_id":"s1","revision":1,"steps":%s,"rollback":%s,"risk":{"blast_radius":"b","reversibility":"r","data_class":"d"},"suggested_tier":1,"cross_domain_needs":[],"slice_hash":%q}`, busSteps, busRollback, hash))
	s.mustSay("orch", ticket.TypePlan, "network", fmt.Sprintf(`{"plan_id":"p1","revision":1,"plan_hash":%q,"policy_version":"1.0.0","slices":[{"slice_id":"s1","slice_hash":%q}],"tier":1,"tier_reason":"r","slice":{"slice_id":"s1","steps":%s,"rollback":%s},"depends_on":[],"window":{"start":"2026-01-01T00:00:00Z","end":"2026-01-02T00:00:00Z"}}`, plan, hash, busSteps, busRollback))
	s.mustSay("orch", ticket.TypeState, "intake", fmt.Sprintf(`{"from":"PLANNED","to":"APPROVED","reason_code":"next","cause":[%q],"slices":[],"tier":null}`, s.cause))
	s.mustSay("orch", ticket.TypeExecute, "network", fmt.Sprintf(`{"plan_id":"p1","plan_hash":%q,"slice_id":"s1","mode":"apply","steps":[{"n":1,"action":"acl.block","target":"fw/1","params":{"address":"192.0.2.1"}}],"approval_ids":[],"lease_id":"l1","lease_scope":{"plan":"p1","target":"fw/1"}}`, plan))
}

// said returns what the bus has said to a target, as reasons, once it owes nothing.
func (s *staff) said(to string) (reasons []string) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for s.metric("signalbox_bus_owed") != "0" {
		if time.Now().After(deadline) {
			s.t.Fatal("the bus does not say what it owes")
		}
		time.Sleep(time.Millisecond)
	}
	public := s.busKey()
	// From the store, for a reader is not given what has expired.
	err := s.Store().Events(s.topicNumber("bus.main.escalation."+to), 0, s.Head().Position, func(_ uint64, row store.EventRow) (bool, error) {
		m, err := ticket.Parse(row.Members[row.DataOffset : row.DataOffset+row.DataLength])
		if err == nil && m.Header().From == ticket.RoleBus {
			err = m.Verify(public)
			reason, _ := event.LookupJSON(m.Payload(), "reason_code")
			severity, _ := event.LookupJSON(m.Payload(), "severity")
			reasons = append(reasons, reason+" "+severity)
		}
		return true, err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return reasons
}

// topicNumber is the number of a topic in the store; 0 if there is none.
func (s *staff) topicNumber(name string) (number uint32) {
	s.t.Helper()
	err := s.Store().LoadTopics(func(t store.Topic) error {
		if t.Name == name {
			number = t.Number
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return number
}

func (s *staff) busKey() ed25519.PublicKey {
	s.t.Helper()
	_, agent, err := s.Agent(ticket.RoleBus)
	if err != nil {
		s.t.Fatal(err)
	}
	key, err := ticket.DecodeKey(agent.Keys[len(agent.Keys)-1].Key)
	if err != nil {
		s.t.Fatal(err)
	}
	return key
}

func (s *staff) wantSaid(to, want string) {
	s.t.Helper()
	if got := fmt.Sprint(s.said(to)); got != want {
		s.t.Errorf("to %s: %s, want %s", to, got, want)
	}
}

// TestBusSpeaksOnce follows an approval that nobody decides through the broker, from
// the deadline to the page, with restarts in between.
func TestBusSpeaksOnce(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen)
	s.mustSay("orch", ticket.TypePlanRequest, "network", busPlan)
	s.pass(29 * time.Minute)
	s.wantSaid("orchestrator", "[]")
	s.pass(time.Minute)
	s.wantSaid("orchestrator", "[deadline_missed warning]")
	s.wantMetrics("signalbox_ticket_deadlines", "1", "signalbox_ticket_deadlines_missed_total", "1", `signalbox_bus_messages_total{reason="deadline_missed"}`, "1", "signalbox_bus_failures_total", "0")
	s.restart()
	s.pass(10 * time.Minute)
	s.wantSaid("platform-ops", "[ack_by_missed warning]")
	s.restart()
	s.pass(10 * time.Minute)
	s.wantSaid("platform-ops", "[ack_by_missed warning ack_by_missed critical]")
	s.wantSaid("orchestrator", "[deadline_missed warning]")
}

// TestDeliveredIsAcknowledged by the agent of the domain: handing an execute out is not
// enough, and neither is the acknowledgement of somebody else.
func TestDeliveredIsAcknowledged(t *testing.T) {
	for _, c := range []struct {
		by    string
		acked bool
		want  string
	}{ // and net, which was sent an execute, sends no heartbeats
		{"net", true, "[heartbeats_missed warning]"}, {"net", false, "[heartbeats_missed warning deliver_by_missed critical]"},
		{"audit", true, "[heartbeats_missed warning deliver_by_missed critical]"},
	} {
		s := newStaff(t, func(*box) {})
		who := identity.Named(c.by)
		id := s.subscribe(c.by, "bus.main.execute.network")
		s.execute()
		s.pass(30 * time.Second)
		s.wantSaid("platform-ops", "[heartbeats_missed warning]")
		out, err := s.Fetch(context.Background(), who, id, broker.FetchRequest{Max: 1})
		if err != nil || len(out) != 1 {
			t.Fatal(out, err)
		}
		if c.acked {
			if _, err := s.Ack(context.Background(), who, id, broker.Verdict{Tokens: []string{out[0].Token}}); err != nil {
				t.Fatal(err)
			}
		}
		s.restart()
		s.pass(30 * time.Second)
		s.wantSaid("platform-ops", c.want)
		s.pass(29 * time.Minute)
		s.wantSaid("orchestrator", "[complete_by_missed warning]")
		s.close()
	}
}

// TestUndeliveredExecuteIsADeadLetter: with its bytes and attempts, once, and what is
// redriven is what was signed. The page says where it is.
func TestUndeliveredExecuteIsADeadLetter(t *testing.T) {
	for _, fetched := range []bool{true, false} {
		s := newStaff(t, func(*box) {})
		who, ctx := identity.Named("net"), context.Background()
		id := s.subscribe("net", "bus.main.execute.network")
		s.execute()
		attempts := 0
		if fetched {
			attempts = 1
			if out, err := s.Fetch(ctx, who, id, broker.FetchRequest{Max: 1}); err != nil || len(out) != 1 {
				t.Fatal(out, err)
			}
		}
		executed := s.cause
		s.pass(time.Minute)
		s.wantSaid("platform-ops", "[deliver_by_missed critical]")
		letters, _, err := s.Letters(who, id, broker.LetterFilter{}, 0, 10)
		if err != nil || len(letters) != 1 || letters[0].Cause != "undelivered" || letters[0].Attempts != attempts || letters[0].Topic != "bus.main.execute.network" {
			t.Fatalf("%+v, %v", letters, err)
		}
		if page := s.stored("bus.main.escalation.platform-ops"); !strings.Contains(page, fmt.Sprintf(`"$dlq.%s@%d"`, id, letters[0].Position.Position)) {
			t.Errorf("the page does not say where the dead letter is: %s", page)
		}
		if out, err := s.Fetch(ctx, who, id, broker.FetchRequest{Max: 1}); err != nil || len(out) != 0 {
			t.Fatal("what is a dead letter was handed out", err)
		}
		s.restart()
		if move, err := s.Redrive(ctx, who, id, broker.LetterFilter{}, 0, 10); err != nil || move.Moved != 1 {
			t.Fatal(move, err)
		}
		out, err := s.Fetch(ctx, who, id, broker.FetchRequest{Max: 1})
		if err != nil || len(out) != 1 || !strings.Contains(string(out[0].Event), `"data":`+s.stored("bus.main.execute.network")) || !strings.Contains(string(out[0].Event), executed) {
			t.Fatalf("redriven: %d, %v", len(out), err)
		}
		if _, err := s.Ack(ctx, who, id, broker.Verdict{Tokens: []string{out[0].Token}}); err != nil {
			t.Fatal(err)
		}
		if letters, _, err := s.Letters(who, id, broker.LetterFilter{}, 0, 10); err != nil || len(letters) != 0 {
			t.Errorf("%d dead letters are left, %v", len(letters), err)
		}
		s.close()
	}
}

// stored is the envelope of the only message on a topic.
func (s *staff) stored(topic string) (raw string) {
	s.t.Helper()
	err := s.Store().Events(s.topicNumber(topic), 0, s.Head().Position, func(_ uint64, row store.EventRow) (bool, error) {
		raw = string(row.Members[row.DataOffset : row.DataOffset+row.DataLength])
		return true, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return raw
}

// TestTicketShowsItsDeadlines: those that are open, with what they are of.
func TestTicketShowsItsDeadlines(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	s.execute()
	info, err := s.Ticket("INC-1")
	if err != nil || len(info.Deadlines) != 2 {
		t.Fatalf("%+v, %v", info.Deadlines, err)
	}
	for i, want := range []broker.TicketDeadline{
		{Message: s.cause, Type: ticket.TypeExecute, To: "network", Member: "complete_by", Due: startTime().Add(30 * time.Minute)},
		{Message: s.cause, Type: ticket.TypeExecute, To: "network", Member: "deliver_by", Due: startTime().Add(time.Minute)},
	} {
		if info.Deadlines[i] != want {
			t.Errorf("%+v, want %+v", info.Deadlines[i], want)
		}
	}
}

// TestAcknowledgedCursorDelivers: a stream acknowledges by its cursor.
func TestAcknowledgedCursorDelivers(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	d := pullOf("bus.main.plan.network", "bus.main.execute.network")
	d.Config.Kind = event.KindStream
	sub, err := s.CreateSubscription(context.Background(), identity.Named("net"), d)
	if err != nil {
		t.Fatal(err)
	}
	s.execute()
	if _, err := s.Acknowledge(context.Background(), identity.Named("net"), sub.Document.ID, s.Head()); err != nil {
		t.Fatal(err)
	}
	s.pass(time.Minute)
	s.wantSaid("platform-ops", "[]")
}

// TestUnreadVersionIsNotHandedOut: the subscription of an agent passes over what its
// heartbeat does not read, and goes on.
func TestUnreadVersionIsNotHandedOut(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	id := s.subscribe("net", "bus.main.plan.network")
	s.mustSay("net", ticket.TypeHeartbeat, "platform-ops", strings.Replace(busBeat, ">=1.0.0", ">=1.1.0", 1))
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen)
	s.mustSay("orch", ticket.TypePlanRequest, "network", busPlan)
	s.mustSay("orch", ticket.TypePlanRequest, "network", strings.Replace(busPlan, "s1", "s2", 1), func(d *ticket.Draft) { d.SchemaVersion = "1.1.0" })
	out, err := s.Fetch(context.Background(), identity.Named("net"), id, broker.FetchRequest{Max: 10})
	if err != nil || len(out) != 1 || !strings.Contains(string(out[0].Event), s.cause) {
		t.Errorf("handed out: %d, %v", len(out), err)
	}
	s.wantSaid("orchestrator", "[version_unread warning]")
	s.wantMetrics("signalbox_messages_withheld_total", "1")
}

// subscribe makes a subscription of an agent.
func (s *staff) subscribe(agent string, topics ...string) string {
	s.t.Helper()
	sub, err := s.CreateSubscription(context.Background(), identity.Named(agent), pullOf(topics...))
	if err != nil {
		s.t.Fatal(err)
	}
	return sub.Document.ID
}

// TestSilentAgentIsEscalated: three heartbeats late.
func TestSilentAgentIsEscalated(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	for range 3 {
		s.mustSay("net", ticket.TypeHeartbeat, "platform-ops", busBeat)
		s.pass(25 * time.Second)
	}
	s.wantSaid("platform-ops", "[]")
	s.pass(5 * time.Second)
	s.wantSaid("platform-ops", "[heartbeats_missed warning]")
	s.wantMetrics("signalbox_agents_silent", "1")
	s.mustSay("net", ticket.TypeHeartbeat, "platform-ops", busBeat)
	s.wantMetrics("signalbox_agents_silent", "0", "signalbox_ticket_deadlines", "0")
}

// TestUnknownTypeIsEscalated where it is signed, and is refused in either case.
func TestUnknownTypeIsEscalated(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen)
	d := ticket.Draft{Header: ticket.Header{Type: ticket.TypeState, TicketID: "INC-1", TraceID: "trace-1", From: "orch", To: "intake", CausationID: s.cause, Time: s.clock.Wall()}, Payload: []byte(`{}`)}
	m, err := d.Sign(nameKey("orch"))
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.Replace(string(m.Bytes()), `"ticket.state"`, `"ticket.merge"`, 1)
	if _, err := s.PostMessage(context.Background(), anonymous(), []byte(forged)); errorCode(err) != event.CodeMessageTypeUnknown {
		t.Error(err)
	}
	s.wantSaid("orchestrator", "[]")
	unsigned := strings.Replace(string(m.Signed()), `"ticket.state"`, `"ticket.merge"`, 1)
	signature := base64.RawURLEncoding.EncodeToString(ed25519.Sign(nameKey("orch"), []byte(unsigned)))
	for range 2 {
		_, err := s.PostMessage(context.Background(), anonymous(), []byte(unsigned[:len(unsigned)-1]+`,"sig":"ed25519:`+signature+`"}`))
		if errorCode(err) != event.CodeMessageTypeUnknown {
			t.Error(err)
		}
	}
	s.wantSaid("orchestrator", "[type_unknown warning]")
}

// TestBusKeyIsReplaced when its file is lost, as after a restore; one that was
// replaced is not taken again.
func TestBusKeyIsReplaced(t *testing.T) {
	s := newStaff(t, func(*box) {})
	defer s.close()
	first := s.busKey()
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen)
	s.close()
	if err := s.fs.Rename("data/bus.key", "data/old.key"); err != nil {
		t.Fatal(err)
	}
	s.open()
	if s.busKey().Equal(first) {
		t.Error("the key is the one that was lost")
	}
	s.pass(10 * time.Minute)
	s.wantSaid("platform-ops", "[ack_by_missed warning]")
	s.close()
	if err := s.fs.Rename("data/old.key", "data/bus.key"); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.Open(s.options); errorCode(err) != event.CodeStoreDamaged {
		t.Errorf("the old key was taken: %v", err)
	}
	if err := s.fs.Remove("data/bus.key"); err != nil {
		t.Fatal(err)
	}
	s.open()
}

// TestKilledBetweenAnyTwoSteps kills the broker before each proposal of a run in which
// deadlines are missed, and after its end. Whatever the next start finds, each missed
// deadline has been said once in the end.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	var mu sync.Mutex
	var disks []*vfs.MemFS
	var walls []stepClock
	s := newStaff(t, func(x *box) {
		x.fs = vfs.NewCrashableMem()
		x.options.Tap = func(*eventlog.Proposal) {
			mu.Lock()
			defer mu.Unlock()
			disks = append(disks, x.fs.CrashClone(vfs.CrashCloneCfg{}))
			walls = append(walls, stepClock{wall: x.clock.Wall(), mono: x.clock.Mono()})
		}
	})
	s.execute()
	begun := len(disks) - 1 // the execute
	s.pass(30 * time.Second)
	s.said("platform-ops")
	s.pass(30 * time.Minute)
	s.said("platform-ops")
	s.close()
	mu.Lock()
	defer mu.Unlock()
	for i := begun; i < len(disks); i++ {
		x := &box{t: t, fs: disks[i], clock: &walls[i], options: s.options}
		x.options.FS, x.options.Clock, x.options.Tap = x.fs, x.clock, nil
		x.open()
		again := &staff{box: x, cause: s.cause}
		again.pass(time.Minute)
		again.said("platform-ops")
		again.pass(29*time.Minute + 59*time.Second)
		got := fmt.Sprint(again.said("platform-ops"), again.said("orchestrator"))
		// Whether the execute is there depends on when the broker was killed.
		want := min(1, i-begun)
		if strings.Count(got, "deliver_by_missed critical") != want || strings.Count(got, "complete_by_missed warning") != want {
			t.Errorf("killed before proposal %d of %d: %s", i-begun, len(disks)-begun, got)
		}
		x.close()
	}
}

func pullOf(topics ...string) event.Subscription {
	d := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
	d.Config.Kind, d.Config.Topics = event.KindPull, topics
	return d
}
