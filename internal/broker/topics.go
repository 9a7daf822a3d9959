// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"sync"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/store"
)

// TopicInfo is a topic's policy and figures.
type TopicInfo struct {
	Name       string
	Policy     event.Policy
	Published  uint64       // events that were ever applied
	Events     uint64       // retained events
	Bytes      uint64       // of retained events
	Keys       uint64       // live keys, of a compacted topic
	Tombstones uint64       // removed or expired keys that are still guarded
	Oldest     event.Cursor // from which everything that is retained is read
	Head       event.Cursor // of its last event
	Floor      event.HLC    // an unknown key needs a higher HLC
}

func (b *Broker) info(t *store.Topic) TopicInfo {
	head := b.dispatch.Head()
	at := func(position uint64) event.Cursor {
		return event.Cursor{Position: position, Incarnation: head.Incarnation}
	}
	return TopicInfo{
		Name: t.Name, Policy: t.Policy, Published: t.Count, Events: t.Events, Bytes: t.Retained, Keys: t.Keys, Tombstones: t.Tombstones,
		Oldest: at(dispatch.Oldest(t)), Head: at(t.Last), Floor: t.Floor,
	}
}

// Topic returns a topic, or code topic_unknown.
func (b *Broker) Topic(name string) (TopicInfo, error) {
	t, err := b.dispatch.Topic(name)
	if err != nil {
		return TopicInfo{}, err
	}
	return b.info(&t), nil
}

// Topics returns all topics, by name.
func (b *Broker) Topics() []TopicInfo {
	topics := b.dispatch.Topics()
	infos := make([]TopicInfo, len(topics))
	for i := range topics {
		infos[i] = b.info(&topics[i])
	}
	return infos
}

// PutTopic creates a topic or replaces its policy.
func (b *Broker) PutTopic(ctx context.Context, p identity.Principal, name string, policy event.Policy) (info TopicInfo, created bool, err error) {
	before, unknown := b.dispatch.Topic(name)
	if before.Policy.Ephemeral() && before.Events > 0 && (!policy.Ephemeral() || policy.KeyFrom != before.Policy.KeyFrom) { // of which the log knows nothing
		return TopicInfo{}, false, event.Errorf(event.CodePolicyImmutable, "Topic %q holds values, so `durability` and `key_from` cannot change. Let them expire, delete the topic, or use another one.", name)
	}
	err = b.control(ctx, p, name, eventlog.Control{Op: eventlog.OpPutTopic, Topic: name, Policy: &policy})
	if err != nil {
		return TopicInfo{}, false, err
	}
	info, err = b.Topic(name)
	return info, unknown != nil, err
}

// DeleteTopic removes a topic with its events. A topic that is created again
// under the name keeps the floor: old events cannot come back.
func (b *Broker) DeleteTopic(ctx context.Context, p identity.Principal, name string) error {
	return b.control(ctx, p, name, eventlog.Control{Op: eventlog.OpDeleteTopic, Topic: name})
}

func (b *Broker) control(ctx context.Context, p identity.Principal, name string, c eventlog.Control) error {
	if err := b.checkControl(name, &c); err != nil {
		b.Refused(p, name, event.AsError(err))
		return err
	}
	result, err := b.propose(ctx, &eventlog.Proposal{
		Kind: eventlog.KindControl, AdmittedMillis: b.clock.Millis(), Principal: p.Subject(), Topic: name, Control: c,
	})
	if err != nil {
		return err
	}
	if result.Err != nil {
		return result.Err
	}
	return nil
}

func (b *Broker) checkControl(name string, c *eventlog.Control) error {
	if err := b.open(); err != nil {
		return err
	}
	if err := event.CheckTopic(name); err != nil {
		return err
	}
	if event.ReservedTopic(name) {
		return event.Errorf(event.CodeTopicReserved, "Topics whose name begins with `$` are the broker's own; %q cannot be changed.", name).With("topic")
	}
	if err := checkTicketTopic(name, c); err != nil || c.Policy == nil {
		return err
	}
	if err := c.Policy.Validate(); err != nil || c.Policy.Schema == "" {
		return err
	}
	return b.schemas.Compile(c.Policy.Schema)
}

// probe remembers the last proof that the write path works.
type probe struct {
	mu   sync.Mutex
	last time.Duration // guarded by mu
}

const (
	probeEvery   = time.Second
	probeTimeout = 5 * time.Second
)

// Ready proves that the broker can publish: something was made durable within
// the last second.
func (b *Broker) Ready(ctx context.Context) error {
	if err := b.open(); err != nil {
		return err
	}
	if err := b.disk.check(); err != nil {
		return err
	}
	b.ready.mu.Lock()
	defer b.ready.mu.Unlock()
	now := b.options.Clock.Mono()
	if b.ready.last != 0 && now-b.ready.last < probeEvery {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if _, err := b.propose(ctx, &eventlog.Proposal{Kind: eventlog.KindProbe, AdmittedMillis: b.clock.Millis()}); err != nil {
		return err
	}
	b.ready.last = now
	return nil
}
