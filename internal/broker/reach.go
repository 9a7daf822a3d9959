// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"slices"
	"strings"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// reach is what somebody may read of what is not for everybody: the messages of
// tickets, and the dead letters of agents. This file is the one place that decides
// it, for every door. It follows from the registry of agents, and while that has
// none there is nothing to keep from anybody.
type reach struct {
	b        *Broker
	who      identity.Principal
	registry *projector.Registry // as of which
	open     bool                // there are no agents
	lost     bool                // the agent, or the key by which it is known, does not count any more
	auditor  bool
	reads    []event.Pattern
}

// messageTopics are all topics of messages, letterTopics those of dead letters.
var (
	messageTopics = parsed(ticket.TopicRoot + ".>")
	letterTopics  = parsed(projector.LetterTopic(">"))
)

// parsed panics if a pattern that code has made is none.
func parsed(text string) event.Pattern {
	p, err := event.ParsePattern(text)
	if err != nil {
		panic("broker: " + err.Error())
	}
	return p
}

// agentSubscription begins the ids of subscriptions that agents own, so that their
// topics of dead letters can be told from others'.
const agentSubscription = "a-"

func (b *Broker) reach(p identity.Principal) *reach {
	r := &reach{b: b, who: p, registry: b.registry.Load()}
	if r.open = !staffed(r.registry); r.open || p.Subject() == "" {
		return r
	}
	agent, err := r.registry.Agent(p.Subject())
	if err != nil {
		r.lost = p.Credential() != ""
		return r
	}
	if key := agent.InUse(); key == nil || p.Credential() != "" && p.Credential() != key.Key {
		r.lost = true
		return r
	}
	r.auditor = slices.Contains(agent.Roles, ticket.RoleAuditor)
	_, reads := ticket.Rights(r.registry.Space, agent.Roles, agent.Domains)
	for _, text := range reads {
		r.reads = append(r.reads, parsed(text))
	}
	return r
}

// topic reports why a topic may not be read.
func (r *reach) topic(name string) error {
	switch letters, _ := strings.CutPrefix(name, projector.LetterTopic("")); {
	case r.open:
		return nil
	case projector.TicketTopic(name):
		if slices.ContainsFunc(r.reads, func(p event.Pattern) bool { return p.Match(name) }) {
			return nil
		}
		return r.refusal(name)
	case letters != name && strings.HasPrefix(letters, agentSubscription) && !r.auditor:
		_, config, _, ok, err := r.b.store.Subscription(letters)
		if err == nil && (!ok || r.lost || config.Owner != r.who.Subject()) {
			err = r.refusal(name)
		}
		return err
	}
	return nil
}

// narrow returns the patterns of what may be read of a list of patterns. What is
// asked for by name, or lies among topics of messages altogether, is refused if
// nothing of it may be read; a wildcard that selects others too passes over it.
func (r *reach) narrow(list []event.Pattern) ([]event.Pattern, error) {
	if r.open {
		return list, nil
	}
	out := make([]event.Pattern, 0, len(list)+len(r.reads))
	for _, p := range list {
		if name, exact := p.Exact(); exact {
			if err := r.topic(name); err != nil {
				return nil, err
			}
			out = append(out, p)
			continue
		}
		if _, ok := p.Both(letterTopics); ok && !r.auditor {
			out = append(out, p.Except(projector.LetterTopic(agentSubscription)))
			continue
		}
		if _, ok := p.Both(messageTopics); !ok {
			out = append(out, p)
			continue
		}
		if r.lost {
			return nil, r.refusal(p.String())
		}
		before := len(out)
		if p.Beginning() == "" {
			out = append(out, p.Except(messageTopics.Beginning()))
		}
		for _, q := range r.reads {
			if both, ok := p.Both(q); ok {
				out = append(out, both)
			}
		}
		if len(out) == before {
			return nil, r.refusal(p.String())
		}
	}
	return out, nil
}

// plain reports whether a list of patterns selects nothing that could be kept from
// anybody.
func plain(list []event.Pattern) bool {
	return !slices.ContainsFunc(list, func(p event.Pattern) bool {
		_, messages := p.Both(messageTopics)
		_, letters := p.Both(letterTopics)
		return messages || letters
	})
}

func (r *reach) refusal(topics string) error {
	switch {
	case r.lost:
		return event.Errorf(event.CodeTokenInvalid, "The key of the agent %q is not in use any more.", r.who.Subject()).With("Authorization")
	case r.who.Subject() == "":
		return event.Errorf(event.CodeUnauthenticated, "What is on %.200q is for agents that are entitled to it, and the request does not say which agent it is from.", topics).With("topic")
	}
	return event.Errorf(event.CodeNotPermitted, "The agent %q may not read %.200q. What it may read is shown by signalbox agent explain.", r.who.Subject(), topics).With("topic")
}

// limit narrows what a reader reads, and has it end once that is no longer what it
// may read.
func (r *reach) limit(spec *dispatch.Spec) error {
	asked := spec.Patterns
	if plain(asked) {
		return nil
	}
	narrowed, err := r.narrow(asked)
	if err != nil {
		return err
	}
	spec.Patterns = narrowed
	current := r.registry
	spec.Check = func() error {
		if r.b.registry.Load() == current {
			return nil
		}
		now := r.b.reach(r.who)
		list, err := now.narrow(asked)
		if err == nil && !slices.Equal(list, narrowed) {
			err = event.Errorf(event.CodeRightsChanged, "What may be read of the topics has changed. Connect again from the same cursor.")
		}
		if err == nil {
			current = now.registry
		}
		return err
	}
	return nil
}

// withhold has a reader step over what an agent's heartbeat says that it does not read.
// What looks back at tickets and does not act on them is shown it, like what has expired.
func (r *reach) withhold(spec *dispatch.Spec) {
	if r.open || r.who.Subject() == "" || spec.Expired || plain(spec.Patterns) {
		return
	}
	spec.Withheld = func(position uint64) (bool, error) {
		return r.b.store.HasMessage(store.MessageWithheld, projector.WithheldKey(r.who.Subject(), position))
	}
}

// own reports why somebody may not use a subscription: that of an agent is its own.
func (b *Broker) own(p identity.Principal, id string) error {
	if !strings.HasPrefix(id, agentSubscription) {
		return nil
	}
	_, config, _, ok, err := b.store.Subscription(id)
	if err != nil || !ok {
		return err // that it is unknown is said by whoever wanted to use it
	}
	_, err = b.reachOf(p, config.Owner)
	return err
}

// reachOf is what a subscription reads, for whom it is used by. One of an agent that
// has lost its key reads nothing.
func (b *Broker) reachOf(p identity.Principal, owner string) (*reach, error) {
	if owner != p.Subject() && owner != "" {
		r := b.reach(p)
		if r.who.Subject() == "" {
			return nil, event.Errorf(event.CodeUnauthenticated, "The subscription belongs to the agent %q, and the request does not say which agent it is from.", owner)
		}
		return nil, event.Errorf(event.CodeNotPermitted, "The subscription belongs to the agent %q.", owner)
	}
	if owner == "" {
		p = identity.Anonymous()
	}
	r := b.reach(p)
	if r.lost {
		return nil, r.refusal("")
	}
	return r, nil
}

// mayRead reports why somebody may not have a subscription: nothing of a topic in it
// may be read.
func (b *Broker) mayRead(p identity.Principal, d *event.Subscription) error {
	_, err := b.reach(p).narrow(d.Config.Patterns())
	return err
}

// active reports whether an agent's key is in use.
func (b *Broker) active(agent string) bool {
	a, err := b.registry.Load().Agent(agent)
	return err == nil && a.InUse() != nil
}

// Bodies says of which topics somebody may see what is on them; nil: of none.
type Bodies func(topic string) bool

// Bodies returns what somebody may see of the bodies of the audit trail. All else in
// it is for everybody who can reach the broker.
func (b *Broker) Bodies(p identity.Principal) Bodies {
	r := b.reach(p)
	return func(topic string) bool {
		if b.registry.Load() != r.registry {
			r = b.reach(p)
		}
		return r.topic(topic) == nil
	}
}
