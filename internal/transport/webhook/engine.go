// SPDX-License-Identifier: Apache-2.0

// Package webhook sends the events of subscriptions to the endpoints of their
// subscribers (CloudEvents HTTP binding, CloudEvents webhook 1.0.2, Standard
// Webhooks 1.0.0). It is a transport as the others, but that here the broker
// calls.
//
// It guarantees that an attempt is counted durably before a byte leaves, that an
// event which was acknowledged durably is not sent again, that no connection is
// made to an address that egress refuses, and that endpoints which are slow or
// dead hold up nobody else: what is under way is bounded for each endpoint, for
// each host and altogether, and endpoints that have not shown that they work share
// a part of that only. Which event goes when, circuits and retries are decided by
// the broker; a run of the engine holds only what may be lost.
package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/egress"
	"signalbox/internal/metrics"
)

// Options are what an Engine is made of. Broker and Guard are required.
type Options struct {
	Broker *broker.Broker
	Guard  *egress.Guard
	Logger *slog.Logger // slog.Default
	// Origin is what the broker calls itself in handshakes: a DNS name.
	Origin string
	// PublicURL is where endpoints reach the broker, for the callback of handshakes;
	// "": they are not offered one.
	PublicURL string
	// Attempts bounds what is under way altogether. 2048: each takes a connection
	// and some 20 KiB beside its event.
	Attempts int
	// Bytes bounds what the events take that are under way altogether; one hand-out may
	// exceed it. 256 MiB.
	Bytes int
	// HostAttempts bounds what is under way to one host and port. 64. As many again, up
	// to three times, are ready to leave where a host is fast.
	HostAttempts int
	// Timeout bounds one attempt, the answer's body included. 20 s.
	Timeout time.Duration
	// Schedule is how long an event waits after its first, second, … attempt. That
	// of Standard Webhooks.
	Schedule []time.Duration
	// Transport changes how requests are sent; tests trust their own certificates
	// by it.
	Transport func(*http.Transport)
}

// schedule is the one that Standard Webhooks gives as an example.
var schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

const (
	// takers bounds the hand-outs that are planned at one time.
	takers = 16
	// settleTime bounds how long the answer to a delivery waits to be stored. If it
	// is not, the event comes again after its deadline.
	settleTime = 30 * time.Second
	// settleMin is from how many verdicts on the rest waits for another proposal.
	settleMin = 256
	// windowFirst is how much an endpoint gets at once that has not shown that it
	// works.
	windowFirst = 4
	// retryTake is after what time a webhook is looked at again that could not be
	// read.
	retryTake = time.Second
	// retrySlot is after what time a webhook asks again for a slot.
	retrySlot = 5 * time.Second
	// quickPart is what part of the timeout a quick answer takes at most: what is handed
	// out ahead waits for a few of them, and must have its whole time after that.
	quickPart = 20
	// stopGrace is what attempts get to end when the engine is told to.
	stopGrace = 5 * time.Second
)

// Engine sends. It is started once.
type Engine struct {
	opt        Options
	b          *broker.Broker
	log        *slog.Logger
	metrics    *metrics.Webhooks
	transports [2]*http.Transport // without and with TLS
	slots      slots
	taking     chan struct{} // a token for each hand-out that is being planned
	running    sync.WaitGroup

	mu        sync.Mutex
	endpoints map[uint32]*endpoint // that are in use just now; guarded by mu
}

// endpoint is one webhook while something of it is under way.
type endpoint struct {
	number   uint32
	out      int       // attempts whose outcome is not stored; guarded by Engine.mu
	outcomes []settled // that nobody stores yet; guarded by Engine.mu
	settling bool      // somebody stores outcomes; guarded by Engine.mu
	busy     bool      // its next events are being looked for; guarded by Engine.mu
	again    bool      // and then look once more; guarded by Engine.mu
	sink     string    // to which events may leave; "": to none just now; guarded by Engine.mu
	halting  int       // outcomes that halt it and are not stored yet; guarded by Engine.mu
	halted   bool      // since the look for its next events began; guarded by Engine.mu
	nextSend time.Time // by the rate that it allows; owned by whoever set busy
}

// New makes an engine.
func New(o Options) (*Engine, error) {
	if o.Broker == nil || o.Guard == nil {
		return nil, errors.New("webhook: Options.Broker and Options.Guard are required")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Attempts <= 0 {
		o.Attempts = 2048
	}
	if o.Bytes <= 0 {
		o.Bytes = 256 << 20
	}
	if o.HostAttempts <= 0 {
		o.HostAttempts = 64
	}
	if o.Timeout <= 0 {
		o.Timeout = 20 * time.Second
	}
	if o.Schedule == nil {
		o.Schedule = schedule
	}
	if o.Origin == "" {
		o.Origin = "localhost"
	}
	e := &Engine{
		opt: o, b: o.Broker, log: o.Logger, metrics: &o.Broker.Metrics().Webhooks, taking: make(chan struct{}, takers),
		slots: newSlots(load{o.Attempts, o.Bytes}, o.HostAttempts, &o.Broker.Metrics().Webhooks), endpoints: map[uint32]*endpoint{},
	}
	e.transports = e.newTransports()
	return e, nil
}

// Start runs the engine until ctx ends or the function that it returns is called,
// which waits until nothing is under way.
func (e *Engine) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// run sends until ctx ends, and then waits a little for what is under way.
func (e *Engine) run(ctx context.Context) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, cancel) })()
	defer func() {
		e.running.Wait()
		cancel()
		for _, t := range e.transports {
			t.CloseIdleConnections()
		}
	}()
	for {
		number, err := e.b.NextWebhook(ctx)
		if err != nil {
			return
		}
		ep, mine := e.begin(number)
		if !mine {
			continue // whoever looks after it looks once more
		}
		select {
		case e.taking <- struct{}{}:
		case <-ctx.Done():
			return
		}
		e.running.Go(func() {
			defer func() { <-e.taking }()
			e.take(life, ep)
		})
	}
}

// begin takes a webhook on, unless somebody has it already.
func (e *Engine) begin(number uint32) (ep *endpoint, mine bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ep = e.endpoints[number]
	if ep == nil {
		ep = &endpoint{number: number}
		e.endpoints[number] = ep
	}
	if ep.busy {
		ep.again = true
		return ep, false
	}
	ep.busy = true
	return ep, true
}

// end lets go of a webhook. Nothing is kept of one that has nothing under way.
func (e *Engine) end(ep *endpoint) {
	e.mu.Lock()
	again := ep.again
	ep.busy, ep.again = false, false
	if ep.out == 0 && !again && time.Now().After(ep.nextSend) {
		delete(e.endpoints, ep.number)
	}
	e.mu.Unlock()
	if again {
		e.b.WebhookAgain(ep.number, 0)
	}
}

// take hands out what an endpoint may get just now, and sends it.
func (e *Engine) take(ctx context.Context, ep *endpoint) {
	defer e.end(ep)
	if !e.look(ep) {
		return // it comes again when what halts it is stored
	}
	w, ok, err := e.b.Webhook(ep.number)
	if err == nil && (!ok || w.Wait != 0 || w.Document.Sink != e.sinkOf(ep)) {
		e.setSink(ep, "")
	}
	switch {
	case err != nil:
		e.log.Error("a webhook cannot be read, and is again in a moment", "err", err)
		e.b.WebhookAgain(ep.number, retryTake)
		return
	case !ok:
		ep.nextSend = time.Time{} // it does not come again
		return
	case w.Wait < 0, w.Probed:
		return
	case w.Wait > 0:
		e.b.WebhookAgain(ep.number, w.Wait)
		return
	}
	target, err := url.Parse(w.Document.Sink)
	if err != nil { // it was checked when it was stored
		e.disable(ctx, &w.Document, "its sink is not a URL")
		return
	}
	if rest := time.Until(ep.nextSend); rest > 0 {
		e.b.WebhookAgain(ep.number, rest)
		return
	}
	room, consents := e.room(ep, &w), !w.Document.Config.Handshake || w.Consented
	if !consents {
		room = max(0, 1-e.under(ep))
	}
	if room <= 0 {
		return // it comes again when one of its attempts ends
	}
	lot, ok := e.slots.take(ep.number, egress.HostPort(target), w.Proven, room)
	if !ok {
		// It is woken when there is a slot for it; the time is for the case that
		// whoever was woken in its place had no use for one.
		e.b.WebhookAgain(ep.number, retrySlot)
		return
	}
	if !consents {
		e.starts(ep, 1)
		e.running.Go(func() {
			e.handshake(ctx, &w, target)
			e.slots.give(lot, load{attempts: 1}, 0, e.wake)
			e.done(ep, 1, 0)
		})
		return
	}
	e.handOut(ctx, ep, lot, &w, target)
}

// sinkOf is to where events of an endpoint that wait for their turn may leave, and
// setSink changes that.
func (e *Engine) sinkOf(ep *endpoint) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return ep.sink
}

func (e *Engine) setSink(ep *endpoint, sink string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if sink == "" || !ep.halted {
		ep.sink = sink
	}
}

// halt keeps what waits from leaving, and more from being handed out, until the outcome
// that says so is stored: from then on the broker says it.
func (e *Engine) halt(ep *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ep.sink = ""
	ep.halting++
	ep.halted = true
}

// look begins a look for the next events of an endpoint, unless it is halted. What halts it
// from now on counts for what the look hands out, too, even if it is stored before that.
func (e *Engine) look(ep *endpoint) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	ep.halted = ep.halting > 0
	return !ep.halted
}

func (e *Engine) under(ep *endpoint) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return ep.out
}

// room is how many events an endpoint may get beside those that it has.
func (e *Engine) room(ep *endpoint, w *broker.Webhook) int {
	window := windowFirst
	if w.Proven {
		// As much again as its host may have, because what became of an attempt takes a
		// moment to be stored, in which its connection can be of use.
		window = 2 * (1 + aheadMost) * e.opt.HostAttempts
	}
	if w.Probing || w.Rate > 0 {
		window = 1
	}
	return max(0, window-e.under(ep))
}

func (e *Engine) handOut(ctx context.Context, ep *endpoint, lot lot, w *broker.Webhook, target *url.URL) {
	limit := lot.n
	if w.Document.Config.ContentMode == event.ContentBatch && !w.Probing {
		limit = batchMax
	}
	handed, next, err := e.b.HandOutWebhook(ctx, w.Document.ID, limit)
	if err != nil {
		e.slots.give(lot, load{attempts: lot.n}, 0, e.wake)
		if ctx.Err() == nil && !outdated(err) {
			e.log.Warn("the events of a webhook cannot be handed out, and are again in a moment", "subscription", w.Document.ID, "err", err)
			e.b.WebhookAgain(ep.number, retryTake)
		}
		return
	}
	messages := e.messages(w, handed, lot.n)
	bytes := 0
	for _, m := range messages {
		bytes += len(m.body)
	}
	e.slots.hold(lot, bytes)
	e.slots.give(lot, load{attempts: lot.n - len(messages)}, 0, e.wake)
	if w.Rate > 0 && len(messages) > 0 {
		ep.nextSend = time.Now().Add(time.Minute / time.Duration(w.Rate))
	}
	e.setSink(ep, w.Document.Sink)
	if len(messages) > 0 {
		e.sendAll(ctx, ep, e.consign(ctx, lot, w, target, messages))
	}
	if next >= 0 {
		e.b.WebhookAgain(ep.number, next)
	}
}

// starts counts attempts, each of which ends with a call of done or settle.
func (e *Engine) starts(ep *endpoint, attempts int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ep.out += attempts
}

// sendAll makes attempts, as many at a time as may be under way to a host. Whoever has
// made one makes the next one that nobody has begun.
func (e *Engine) sendAll(ctx context.Context, ep *endpoint, c *consignment) {
	e.starts(ep, len(c.messages))
	var begun atomic.Int64
	for range min(len(c.messages), e.opt.HostAttempts) {
		e.running.Go(func() {
			for i := begun.Add(1); i <= int64(len(c.messages)); i = begun.Add(1) {
				e.deliver(ctx, ep, c, &c.messages[i-1])
			}
		})
	}
}

// done ends attempts, of which so many have halted the endpoint.
func (e *Engine) done(ep *endpoint, attempts, halting int) {
	e.mu.Lock()
	ep.out -= attempts
	ep.halting -= halting
	idle := ep.out == 0 && !ep.busy && time.Now().After(ep.nextSend)
	if idle && e.endpoints[ep.number] == ep {
		delete(e.endpoints, ep.number)
	}
	e.mu.Unlock()
	e.b.WebhookAgain(ep.number, 0)
}

func (e *Engine) wake(number uint32) { e.b.WebhookAgain(number, 0) }

// deliver makes one attempt, and has what became of it stored. It gives its slot of
// the lot back as soon as there is an answer.
func (e *Engine) deliver(ctx context.Context, ep *endpoint, c *consignment, m *message) {
	o, d, bytes := e.send(ctx, ep, c, m), &c.w.Document, len(m.body)
	m.body = nil // others of the consignment are under way for longer
	quick := 0
	if o.class == metrics.WebhookDelivered && o.took <= e.timeout(d)/quickPart {
		quick = 1
	}
	e.slots.give(c.lot, load{1, bytes}, quick, e.wake)
	if ctx.Err() != nil && o.class != metrics.WebhookDelivered {
		e.done(ep, 1, 0) // the broker stops: it is sent again after its deadline
		return
	}
	e.wake(ep.number)
	if !o.unsent {
		e.metrics.Attempted(o.class, o.took)
	}
	if o.disable != "" {
		e.disable(ctx, d, o.disable)
	}
	verdicts := make([]broker.WebhookVerdict, len(m.events))
	for i, h := range m.events {
		verdicts[i] = broker.WebhookVerdict{Token: h.Token, Delivered: o.class == metrics.WebhookDelivered, Unsent: o.unsent, With: i > 0}
		if !verdicts[i].Delivered && !o.unsent {
			v := &verdicts[i]
			v.Reason, v.Unanswered, v.Hold = o.reason, o.unanswered, o.hold
			v.Delay = max(e.delay(h.Attempt), o.hold)
		}
	}
	e.settle(ctx, ep, d.ID, settled{d.Sink, verdicts, o.halts()})
}
