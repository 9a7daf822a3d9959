// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/identity"
)

// load publishes whatever a broker takes, from several goroutines, until the
// ledger's crash. Ids say history, round, publisher and number, so that each is
// published for the first time once.
type load struct {
	to     target
	ledger *ledger
	clock  *crashClock
	seed   uint64
	round  int
	retry  []*attempt // of the round before, whose outcome is unknown
	group  sync.WaitGroup
	hook   func(what string) // called after a topic's first write, a deletion, a policy change
}

const (
	loadPublishers = 6
	loadKeys       = 12 // few, so that winners are replaced all the time
)

// loadTopics are the topics with their policies; the clock is fast, so seconds
// pass within a round.
func loadTopics() map[string]event.Policy {
	policy := func(cleanup string, retention, deleteRetention time.Duration) event.Policy {
		p := event.DefaultPolicy()
		p.CleanupPolicy, p.DeleteRetention = cleanup, event.Duration(deleteRetention)
		p.Retention = nil
		if retention > 0 {
			r := event.Duration(retention)
			p.Retention = &r
		}
		return p
	}
	return map[string]event.Policy{
		"log.kept":      policy(event.CleanupDelete, 0, time.Hour),
		"log.short":     policy(event.CleanupDelete, 4*time.Second, time.Hour),
		"log.sized":     sized(policy(event.CleanupDelete, 0, time.Hour)),
		"state.sized":   sized(policy(event.CleanupCompactDelete, 0, 2*time.Second)),
		"state.lagged":  lagged(policy(event.CleanupCompact, 0, time.Second), 2*time.Second),
		"state.kept":    policy(event.CleanupCompact, 0, time.Hour),
		"state.fleet":   policy(event.CleanupCompact, 0, 2*time.Second),
		"state.passing": policy(event.CleanupCompactDelete, 3*time.Second, 2*time.Second),
	}
}

// sized keeps a few events.
func sized(p event.Policy) event.Policy {
	p.RetentionBytes = 4 << 10
	return p
}

// lagged keeps what is superseded for a while.
func lagged(p event.Policy, lag time.Duration) event.Policy {
	p.MinCompactionLag = event.Duration(lag)
	return p
}

// create makes the topics; a broker that has them answers the same.
func (l *load) create(ctx context.Context) error {
	for name, policy := range loadTopics() {
		if _, _, err := l.to.PutTopic(ctx, identity.Anonymous(), name, policy); err != nil {
			return fmt.Errorf("creating %s: %w", name, err)
		}
	}
	return nil
}

// publish begins to publish; group ends after the crash.
func (l *load) publish(ctx context.Context) {
	for i := range loadPublishers {
		rng := rand.New(rand.NewPCG(l.seed, uint64(l.round)<<8|uint64(i)))
		p := &publisher{load: l, number: i, rng: rng}
		for n := i; n < len(l.retry); n += loadPublishers {
			p.unknown = append(p.unknown, l.retry[n])
		}
		l.group.Go(func() { p.run(ctx) })
	}
}

type publisher struct {
	*load
	number  int
	rng     *rand.Rand
	count   int
	unknown []*attempt // to be retried first
	sent    []*attempt // answered, to be repeated at times
}

func (p *publisher) run(ctx context.Context) {
	for _, a := range p.unknown {
		p.repeat(ctx, a)
	}
	for !p.ledger.over() && ctx.Err() == nil {
		switch n := p.rng.IntN(100); {
		case n < 30:
			p.log(ctx)
		case n < 65:
			p.state(ctx)
		case n < 80:
			p.batch(ctx)
		case n < 92:
			if len(p.sent) > 0 {
				p.repeat(ctx, p.sent[p.rng.IntN(len(p.sent))])
			}
		default:
			p.scratch(ctx)
		}
	}
}

// do makes a request and notes it.
func (p *publisher) do(ctx context.Context, a *attempt) *attempt {
	a.publisher = p.number
	p.ledger.begin(a)
	result, err := p.to.Publish(ctx, identity.Anonymous(), a.request)
	p.ledger.end(a, result, err)
	if a.resolved && a.refused == "" && len(p.sent) < 200 {
		p.sent = append(p.sent, a)
	}
	return a
}

// repeat sends a request again, as a client does that has lost the answer.
func (p *publisher) repeat(ctx context.Context, a *attempt) {
	again := &attempt{request: a.request, volatile: a.volatile}
	again.request.NoAck = false
	p.do(ctx, again)
}

// event makes an event with a fresh id.
func (p *publisher) event(key string, extensions map[string]any) *event.Event {
	p.count++
	d := event.Draft{
		ID:     fmt.Sprintf("%d-%d-%d-%d", p.seed, p.round, p.number, p.count),
		Source: fmt.Sprintf("/p%d", p.number), Type: "crash.event", Subject: key, Extensions: extensions,
		DataContentType: "application/json",
		Data:            fmt.Appendf(nil, `{"n":%d,"pad":"%s"}`, p.count, strings.Repeat("x", p.rng.IntN(300))),
	}
	if p.rng.IntN(20) == 0 {
		d.Data = fmt.Appendf(nil, "{\r\n\"n\": %d}", p.count) // stored and hashed as received
	}
	return must(d.Event())
}

// log publishes one event to a topic that keeps by age.
func (p *publisher) log(ctx context.Context) {
	topic := "log.kept"
	switch p.rng.IntN(4) {
	case 0:
		topic = "log.short"
	case 1:
		topic = "log.sized"
	}
	a := &attempt{request: broker.PublishRequest{Topic: topic, NoAck: p.rng.IntN(8) == 0}}
	var extensions map[string]any
	if p.rng.IntN(4) == 0 {
		extensions = map[string]any{"expiry": 1 + p.rng.IntN(5)}
	}
	if !a.request.NoAck && p.rng.IntN(5) == 0 {
		a.request.IdempotencyKey = fmt.Sprintf("key-%d-%d-%d", p.round, p.number, p.count)
	}
	a.request.Events = []*event.Event{p.event("", extensions)}
	p.do(ctx, a)
}

// stateEvent makes an event for a compacted topic: stamped by the broker, by
// the producer, or late; a value, a passing one, or a tombstone.
func (p *publisher) stateEvent() *event.Event {
	extensions := map[string]any{}
	now := p.clock.Wall().UnixMilli()
	switch p.rng.IntN(6) {
	case 0:
		extensions["hlc"] = event.NewHLC(now, uint16(p.rng.IntN(3))).String()
	case 1:
		extensions["hlc"] = event.NewHLC(now-int64(p.rng.IntN(3000)), 0).String()
	}
	if p.rng.IntN(5) == 0 {
		extensions["expiry"] = 1 + p.rng.IntN(4)
	}
	key := fmt.Sprintf("key-%d", p.rng.IntN(loadKeys))
	if p.rng.IntN(6) > 0 {
		return p.event(key, extensions)
	}
	p.count++
	return must(event.Draft{
		ID: fmt.Sprintf("%d-%d-%d-%d", p.seed, p.round, p.number, p.count), Source: fmt.Sprintf("/p%d", p.number),
		Type: "crash.removed", Subject: key, Extensions: extensions,
	}.Event())
}

func (p *publisher) stateTopic() string {
	return [...]string{"state.kept", "state.fleet", "state.fleet", "state.passing", "state.sized", "state.lagged"}[p.rng.IntN(6)]
}

func (p *publisher) state(ctx context.Context) {
	a := &attempt{request: broker.PublishRequest{Topic: p.stateTopic(), Events: []*event.Event{p.stateEvent()}}}
	switch p.rng.IntN(10) {
	case 0:
		a.request.IfNoneMatch = true
	case 1:
		a.request.IfMatch = &broker.Match{Any: true}
	case 2:
		a.request.IfMatch = &broker.Match{Positions: []uint64{p.rng.Uint64N(1 + p.highest())}}
	}
	p.do(ctx, a)
}

// highest is the last position that this publisher was told.
func (p *publisher) highest() uint64 {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	return p.ledger.lastByPubl[p.number]
}

// batch publishes several events; some batches repeat one, or have one that
// cannot be taken and takes the others down with it.
func (p *publisher) batch(ctx context.Context) {
	a := &attempt{request: broker.PublishRequest{Topic: "log.kept", Batch: true}}
	make := func() *event.Event { return p.event("", nil) }
	if p.rng.IntN(2) == 0 {
		a.request.Topic, make = p.stateTopic(), p.stateEvent
	}
	for range 1 + p.rng.IntN(20) {
		a.request.Events = append(a.request.Events, make())
	}
	switch first := a.request.Events[0]; p.rng.IntN(8) {
	case 0:
		a.request.Events = append(a.request.Events, first)
	case 1: // the same id with other content
		a.request.Events = append(a.request.Events, must(event.Draft{
			ID: first.ID(), Source: first.Source(), Type: "crash.other", Subject: "key-0",
		}.Event()))
	case 2:
		a.request.IdempotencyKey = fmt.Sprintf("batch-%d-%d-%d", p.round, p.number, p.count)
	}
	p.do(ctx, a)
}

// scratch writes to topics that come and go.
func (p *publisher) scratch(ctx context.Context) {
	if p.rng.IntN(4) == 0 { // what is kept as history changes under way; a refusal is as good as an answer that is lost
		lag := time.Duration(p.rng.IntN(4)) * time.Second
		_, _, _ = p.to.PutTopic(ctx, identity.Anonymous(), "state.lagged", lagged(loadTopics()["state.lagged"], lag))
	}
	name := fmt.Sprintf("scratch.%d", p.rng.IntN(4))
	if p.rng.IntN(3) == 0 {
		err := p.to.DeleteTopic(ctx, identity.Anonymous(), name)
		if err == nil && !p.ledger.over() {
			p.hook("deletion")
		}
		return
	}
	if p.rng.IntN(4) == 0 {
		name = fmt.Sprintf("new.%d.%d.%d", p.round, p.number, p.count)
	}
	a := p.do(ctx, &attempt{volatile: true, request: broker.PublishRequest{Topic: name, Events: []*event.Event{p.event("", nil)}}})
	if a.resolved && strings.HasPrefix(name, "new.") {
		p.hook("topic")
	}
}

// follow reads topics as a live reader does, and notes what it gets.
func (l *load) follow(ctx context.Context, b *broker.Broker, patterns, view string) {
	parsed := must(event.ParsePatterns(patterns))
	var reader *dispatch.Reader
	for ctx.Err() == nil && !l.ledger.over() {
		if reader == nil {
			var err error
			if reader, err = b.Read(broker.ReadRequest{Patterns: parsed, View: view}); err != nil {
				panic(err)
			}
		}
		changed := reader.Changed()
		window, err := reader.Poll(dispatch.Limit{Events: 100, Bytes: 1 << 20})
		if err != nil { // it fell behind a removal
			reader.Close()
			reader = nil
			continue
		}
		for i := range window.Deliveries {
			l.ledger.saw(window.Deliveries[i].Position, string(window.Deliveries[i].JSON()))
		}
		if window.CaughtUp {
			select {
			case <-changed:
			case <-time.After(time.Millisecond):
			}
		}
	}
	if reader != nil {
		reader.Close()
	}
}

// look reads the state of single keys, which comes from the store.
func (l *load) look(ctx context.Context, b *broker.Broker) {
	for n := 0; ctx.Err() == nil && !l.ledger.over(); n++ {
		d, err := b.StateKey("state.fleet", fmt.Sprintf("key-%d", n%loadKeys))
		if err == nil {
			l.ledger.saw(d.Position, string(d.JSON()))
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
