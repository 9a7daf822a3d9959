// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

const (
	// subscriptionLife ends the subscription of an agent that never comes back.
	subscriptionLife = event.Duration(30 * 24 * time.Hour)
	// planAttempts is how often an agent is asked for a plan that it fails to make: for
	// some two minutes. A subscription that an earlier version has made keeps its own.
	planAttempts = 8
	// againMin and againMax are between the attempts of what has failed.
	againMin = time.Second
	againMax = time.Minute
)

// AgentOptions says who a domain agent is and what it does.
type AgentOptions struct {
	// Name and Key are those under which the agent is registered; the registry has
	// its domains.
	Name string
	Key  ed25519.PrivateKey
	// Store keeps what the agent took on and what it answered. [client.OpenLedgerFile]
	// is the usual one. It belongs to one agent, and to one process at a time.
	Store client.LedgerStore

	// Plan says how the agent would do what is asked for. It must change nothing.
	// Hash, number, slice and revision are filled in. After an error it is called again,
	// as often as the agent's subscription hands the request out: eight times within some
	// two minutes where the agent has made it. Then the agent escalates what it said.
	Plan func(context.Context, *PlanRequest) (*Proposal, error)
	// Execute, Rollback and Verify carry out the three modes of an execute, each for
	// one at most once that ends without an error; one that is nil is answered with
	// the outcome refused. See [Steps] for one that goes step by step, and
	// [Execution.Uncertain] for what follows a crash. After an error it is called
	// again, until the execute's complete_by has passed; then the agent escalates.
	Execute, Rollback, Verify func(context.Context, *Execution) (*Report, error)

	// Concurrency is how many executes run at one time; 0 means 1.
	Concurrency int
	// Capabilities are verbs, for the heartbeat. Accepts is the range of versions of
	// the protocol that the agent understands; "" is that of this package.
	Capabilities []string
	Accepts      string
	// HeartbeatEvery is 10 s if it is 0.
	HeartbeatEvery time.Duration
	// OnError is told of what failed and is tried again, and of what the broker
	// refused. It is for logs; nil is fine.
	OnError func(error)
}

// RefuseError is returned by a function of an agent that will not do what it is
// asked for, now or later: a request for a plan is escalated, and an execute has
// the outcome refused.
type RefuseError struct {
	Code   string // such as target_unknown
	Reason string
}

func (e *RefuseError) Error() string { return e.Code + ": " + e.Reason }

// Agent is a domain agent.
type Agent struct {
	o       AgentOptions
	c       *client.Client
	sender  *Sender
	book    *book
	keys    *keyring
	beats   *beats
	domains []string
	// attempts is how often the subscription hands a request out.
	attempts int
	slots    chan struct{} // one token for each execute that runs
	running  sync.WaitGroup
}

// OpenAgent opens a domain agent and loads what its store holds. It does not
// connect; Run does.
func OpenAgent(ctx context.Context, c *client.Client, o AgentOptions) (*Agent, error) {
	if o.Store == nil || o.Plan == nil {
		return nil, errors.New("ticketclient: a domain agent needs a store and a function that plans")
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	if _, err := ticket.ParseRange(cmp.Or(o.Accepts, accepts)); err != nil {
		return nil, err
	}
	b, err := openBook(ctx, o.Store)
	if err != nil {
		return nil, err
	}
	sender := NewSender(c, o.Name, o.Key)
	a := &Agent{o: o, c: sender.c, sender: sender, book: b, keys: newKeyring(c), slots: make(chan struct{}, max(1, o.Concurrency))}
	a.beats = newBeats(a.sender, o.HeartbeatEvery, o.Accepts, o.Capabilities, cap(a.slots), o.OnError)
	return a, nil
}

// Run works until ctx ends, or the broker refuses the agent for good. What it was
// at is taken up again by the next Run.
func (a *Agent) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer a.running.Wait()
	defer stop()
	id, err := a.subscribe(ctx)
	if err != nil {
		return err
	}
	a.running.Go(func() { a.beats.run(ctx, a.domains) })
	if err := a.resume(ctx); err != nil {
		return err
	}
	// Twice as many are taken as can run: requests for plans do not wait for work.
	work := client.WorkOptions{Concurrency: 2 * cap(a.slots), OnError: a.o.OnError}
	err = a.c.Work(ctx, id, work, func(handling context.Context, h client.Handed) error { return a.take(handling, ctx, h) })
	if refusedAs(err, event.CodeSubscriptionUnknown) {
		return errors.Join(err, a.book.subscribed(context.WithoutCancel(ctx), "")) // the next Run makes another
	}
	return err
}

// subscribe finds the agent's subscription, or makes it. What was sent before there
// was one and has not expired is delivered.
func (a *Agent) subscribe(ctx context.Context) (string, error) {
	me, err := a.c.Agent(ctx, a.o.Name)
	if err != nil {
		return "", err
	}
	registry, err := a.c.Space(ctx)
	if err != nil {
		return "", err
	}
	a.domains = me.Domains
	if id := a.book.subscription; id != "" {
		found, err := a.c.Subscription(ctx, id)
		if !refusedAs(err, event.CodeSubscriptionUnknown) {
			a.attempts = found.Config.MaxAttempts
			return id, err
		}
	}
	var topics []string
	for _, domain := range me.Domains {
		for _, family := range []string{"plan", "execute"} {
			topics = append(topics, ticket.TopicRoot+"."+registry.Space+"."+family+"."+domain)
		}
	}
	if len(topics) == 0 {
		return "", fmt.Errorf("ticketclient: the agent %q has no domain", a.o.Name)
	}
	document := client.NewSubscription(event.KindPull, topics...)
	document.Types = []string{ticket.EventType + ticket.TypePlanRequest, ticket.EventType + ticket.TypeExecute}
	document.Config.Start, document.Config.ExpiresAfter, document.Config.MaxAttempts = "earliest", subscriptionLife, planAttempts
	made, err := a.c.CreateSubscription(ctx, document)
	if err != nil {
		return "", err
	}
	a.attempts = planAttempts
	return made.ID, a.book.subscribed(ctx, made.ID)
}

// take takes one message. It is acknowledged when take returns nil: a request for a
// plan once its answer is stored and sent, an execute once it is stored. For
// acknowledged is what the protocol calls delivered, and the work may take longer
// than the time in which it has to be. Nothing is done before the broker has it as
// delivered, see [Agent.delivered].
func (a *Agent) take(ctx, life context.Context, h client.Handed) error {
	m, err := DecodeMessage(h.Event.Data())
	if err != nil {
		return &client.RejectError{Reason: err.Error()}
	}
	if err := a.keys.check(ctx, m, ticket.RoleOrchestrator); err != nil {
		return err
	}
	switch m.Type {
	case ticket.TypePlanRequest:
		return a.plan(ctx, m, h.Attempt)
	case ticket.TypeExecute:
		return a.begin(ctx, life, m, h.Token)
	}
	return nil // the subscription asks for no other
}

// plan answers a request for a plan. Where the function that plans fails until the
// request would be a dead letter, that is the answer.
func (a *Agent) plan(ctx context.Context, m *Message, attempt int) error {
	if job := a.book.job(m.ID); job != nil {
		return a.send(ctx, job)
	}
	request := m.Payload.(*PlanRequest)
	due, err := m.Due(0)
	if err != nil {
		return err
	}
	working, stop := context.WithDeadline(ctx, due)
	defer stop()
	proposal, err := a.o.Plan(working, request)
	var draft ticket.Draft
	if err == nil {
		draft, err = propose(m, request, proposal)
	}
	refused := (*RefuseError)(nil)
	switch {
	case err == nil:
	case errors.As(err, &refused):
		draft = escalate(&m.Header, refused.Code, refused.Reason)
	default:
		err = fmt.Errorf("the plan for %s of %s: %w", request.SliceID, m.TicketID, err)
		if attempt < a.attempts || working.Err() != nil {
			return err
		}
		a.o.OnError(err)
		draft = escalate(&m.Header, "plan_failed", shortened(err.Error()))
	}
	return a.answer(ctx, m.ID, draft)
}

// propose fills in what follows from the request and the steps.
func propose(m *Message, request *PlanRequest, proposal *Proposal) (ticket.Draft, error) {
	if lacks := proposal.lacks(); lacks != "" {
		return ticket.Draft{}, fmt.Errorf("the proposal has no %s", lacks)
	}
	p := *proposal
	p.SliceID, p.Revision = request.SliceID, request.Revision
	p.Steps, p.Rollback = slices.Clone(p.Steps), slices.Clone(p.Rollback)
	for i := range p.Steps {
		s := &p.Steps[i]
		s.N, s.Params = i+1, params(s.Params)
		if s.Reversible == nil {
			reversible := len(p.Rollback) > 0
			s.Reversible = &reversible
		}
	}
	for i := range p.Rollback {
		p.Rollback[i].N, p.Rollback[i].Params = i+1, params(p.Rollback[i].Params)
	}
	var err error
	if p.SliceHash, err = p.Slice().Hash(); err != nil {
		return ticket.Draft{}, err
	}
	return Answer(&m.Header, ticket.TypeProposal, m.To, "proposal/"+m.ID, &p), nil
}

// lacks says what a proposal has to have and has not; "" is nothing.
func (p *Proposal) lacks() string {
	if p == nil || len(p.Steps) == 0 {
		return "Steps"
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Precheck == "" || s.Postcheck == "" {
			return fmt.Sprintf("Precheck or no Postcheck in step %d", i+1)
		}
	}
	for _, word := range []struct{ name, text string }{
		{"BlastRadius", p.Risk.BlastRadius}, {"Reversibility", p.Risk.Reversibility}, {"DataClass", p.Risk.DataClass},
	} {
		if word.text == "" {
			return "Risk." + word.name
		}
	}
	return ""
}

func escalate(m *ticket.Header, code, reason string) ticket.Draft {
	return Answer(m, ticket.TypeEscalation, ticket.RoleOrchestrator, "escalation/"+m.ID, &Escalation{
		ReasonCode: code, Severity: "warning", Refs: []string{m.ID}, ContextRef: m.ID, Asks: []string{reason},
	})
}

// answer stores what the agent has to say about a message, and then says it.
func (a *Agent) answer(ctx context.Context, id string, d ticket.Draft) error {
	signed, err := a.sender.Sign(d)
	if err != nil {
		return err
	}
	job, err := a.book.said(context.WithoutCancel(ctx), id, signed)
	if err != nil {
		return err
	}
	return a.send(ctx, job)
}

// send says what is stored, unless that was done. What the broker itself refuses for
// good is not said again. Where that is for what the functions of the agent have put into it,
// whoever asked is told so in its place, for to them it would be silence.
func (a *Agent) send(ctx context.Context, j *job) error {
	if j.over {
		return nil
	}
	_, err := a.sender.Resend(ctx, j.answer)
	if err != nil && !refusedForGood(err) {
		return err
	}
	if err != nil {
		a.o.OnError(fmt.Errorf("the broker refuses the answer to %s: %w", j.id, err))
	}
	h := j.answer.Header()
	if h.Type != ticket.TypeEscalation && refusedAs(err, event.CodePayloadInvalid, event.CodeVerbUnknown, event.CodeVerbDenied, event.CodeSecretRefused) {
		asked := &ticket.Header{ID: j.id, TicketID: h.TicketID, TraceID: h.TraceID}
		return a.answer(ctx, j.id, escalate(asked, "answer_refused", shortened(fmt.Sprintf("The broker refuses the %s of %s: %v", h.Type, a.o.Name, err))))
	}
	return a.book.over(context.WithoutCancel(ctx), j.id)
}
