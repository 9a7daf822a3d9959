// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"fmt"
	"strings"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// topic is a topic in memory. Its row is written with the commit that changes it.
type topic struct {
	store.Topic
	schema  [16]byte // event.SchemaHash of its policy's schema
	touched bool
}

// empty reports whether nothing is kept of it, so that what its rows mean may change.
func (t *topic) empty() bool { return t.Events == 0 && t.Keys == 0 && t.Tombstones == 0 }

func (p *Projector) addTopic(t *topic) {
	t.schema = event.SchemaHash(t.Policy.Schema)
	p.schemaBytes += len(t.Policy.Schema)
	p.topics[t.Name] = t
	p.numbers[t.Number] = t
}

// touch has the topic's figures written with the current group.
func (p *Projector) touch(t *topic) {
	if !t.touched {
		t.touched = true
		p.touched = append(p.touched, t)
	}
}

// ensure returns the topic of a name, bringing it into being with the defaults.
// The caller has checked admissible.
func (p *Projector) ensure(name string, policy event.Policy) *topic {
	t := p.topics[name]
	if t != nil && !t.Deleted {
		return t
	}
	if t == nil {
		p.space.TopicLast++
		// A clone, as the name may be a part of the whole request that came with it.
		t = &topic{Topic: store.Topic{Name: strings.Clone(name), Number: p.space.TopicLast}}
		p.addTopic(t)
	}
	t.Deleted = false
	p.setPolicy(t, policy)
	p.batch.SetName(&t.Topic)
	p.touch(t)
	return t
}

// admissible reports why a topic of this name cannot come into being.
func (p *Projector) admissible(name string) *event.Error {
	if p.topics[name] == nil && len(p.topics) >= p.settings.TopicsMax {
		return event.Errorf(event.CodeTopicLimit, "There are %d topics, deleted ones among them, which is the limit. Use a topic that exists, or the name of a deleted one.", len(p.topics)).With("topic")
	}
	return nil
}

func (p *Projector) control(proposal *eventlog.Proposal) (Result, error) {
	c := &proposal.Control
	refused, err := p.change(c)
	if err != nil {
		return Result{}, err
	}
	if refused != nil {
		p.refusalEntry(proposal, c.Topic, string(refused.Code))
		return Result{Err: refused}, nil
	}
	p.chain(audit.Detailed(audit.KindControl, c.Topic, mustDetail(controlDetail{proposal.Principal, publicControl(c)})))
	return Result{}, nil
}

// publicControl is a change without the keys in it: whoever may read the audit
// trail may not sign.
func publicControl(c *eventlog.Control) eventlog.Control {
	out := *c
	if c.Settings != nil {
		settings := *c.Settings
		settings.WebhookKeys = ""
		out.Settings = &settings
	}
	return out
}

func (p *Projector) change(c *eventlog.Control) (*event.Error, error) {
	switch c.Op {
	case eventlog.OpConfigure:
		return nil, p.configure(*c.Settings)
	case eventlog.OpPutTopic:
		return p.putTopic(c.Topic, *c.Policy)
	case eventlog.OpDeleteTopic:
		return p.deleteTopic(c.Topic), nil
	case eventlog.OpRetire:
		return nil, p.retire(c.Topic, c.RetireTo)
	case eventlog.OpCompact:
		return nil, p.compact(c.Topic, c.RetireTo)
	case eventlog.OpFound:
		return p.found(c.Founding), nil
	case eventlog.OpAgent:
		return p.changeAgents([]byte(c.Change)), nil
	case eventlog.OpVerbs:
		return p.activate(c.Verbs), nil
	case eventlog.OpBus:
		return p.rekey(c.Key), nil
	}
	return nil, fmt.Errorf("a control entry of unknown operation %q", c.Op)
}

func (p *Projector) configure(s eventlog.Settings) error {
	before := p.settings.FeatureLevel
	p.settings = s
	p.batch.SetSettings(s)
	return p.raised(before)
}

func (p *Projector) putTopic(name string, policy event.Policy) (*event.Error, error) {
	if err := p.admissible(name); err != nil {
		return err, nil
	}
	if err := p.schemasFit(name, policy.Schema); err != nil {
		return err, nil
	}
	t := p.ensure(name, policy)
	if field := fixed(t, &policy); field != "" && !t.empty() {
		return event.Errorf(event.CodePolicyImmutable, "Topic %q is not empty, so `cleanup_policy` cannot change between compacting and not compacting, and `key_from` and `durability` cannot change. Delete the topic first, or use another one.", name).With(field), nil
	}
	if err := p.giveUp(t, &policy); err != nil {
		return nil, err
	}
	p.setPolicy(t, policy)
	p.batch.SetName(&t.Topic)
	p.touch(t)
	return nil, nil
}

// fixed returns the field of a new policy that changes what the topic's rows mean.
func fixed(t *topic, policy *event.Policy) (field string) {
	switch {
	case policy.Ephemeral() != t.Policy.Ephemeral():
		return "durability"
	case policy.Compacts() != t.Policy.Compacts():
		return "cleanup_policy"
	case policy.KeyFrom != t.Policy.KeyFrom:
		return "key_from"
	}
	return ""
}

// deleteTopic gives the name a new number, so that the rows under the old one
// can be reclaimed at leisure and no timer or cursor can find them again.
func (p *Projector) deleteTopic(name string) *event.Error {
	t := p.topics[name]
	if t == nil || t.Deleted {
		return unknownTopic(name)
	}
	p.batch.SetGarbage(t.Number)
	delete(p.numbers, t.Number)
	p.space.TopicLast++
	t.Number, t.Deleted = p.space.TopicLast, true
	p.setPolicy(t, event.DefaultPolicy())
	t.Figures = store.Figures{
		RemovedTo:  max(t.RemovedTo, t.Last),
		Floor:      max(t.Floor, t.HighestHLC),
		HighestHLC: t.HighestHLC,
	}
	p.numbers[t.Number] = t
	p.batch.SetName(&t.Topic)
	p.touch(t)
	return nil
}

func unknownTopic(name string) *event.Error {
	return event.Errorf(event.CodeTopicUnknown, "There is no topic %q. Publish to it, or create it with PUT.", name).With("topic")
}

// retireRowsMax bounds the rows that one retire or compact entry may touch in a
// compacted topic, and with them the time that apply is held up.
const retireRowsMax = 1000

// retire removes everything up to a position that retention no longer keeps.
// The cleaner proposes it; what may go is decided here, from log time and the
// bytes that the topic has.
func (p *Projector) retire(name string, to uint64) (err error) {
	t := p.topics[name]
	if t == nil || t.Deleted || !t.Policy.Deletes() || to <= t.RetiredTo {
		return nil
	}
	var retired uint64
	if t.Policy.Compacts() {
		retired, err = p.retireKeys(t, to)
	} else {
		retired, err = p.retireEvents(t, to)
	}
	if err != nil || retired <= t.RetiredTo {
		return err
	}
	t.RetiredTo = retired
	t.RemovedTo = max(t.RemovedTo, retired)
	p.touch(t)
	if id, ok := strings.CutPrefix(name, topicLetters); ok {
		return p.retireLetters(id, retired)
	}
	return nil
}

// retirable reports whether an event may go: it is older than the topic's
// retention, or without it the topic would still hold all it may. Held counts
// it and whatever is newer.
func (p *Projector) retirable(t *topic, row *store.EventRow, held uint64) bool {
	r := t.Policy.Retention
	return r != nil && row.LogMillis <= p.space.LogMillis-r.Std().Milliseconds() ||
		t.Policy.RetentionBytes > 0 && held > uint64(t.Policy.RetentionBytes)
}

// retireEvents retires all of a topic that is not compacted up to the last event
// that is not after to, if that one may go. The running counts of its row say
// what is left.
func (p *Projector) retireEvents(t *topic, to uint64) (reached uint64, err error) {
	_, err = p.store.EventAtOrBefore(t.Number, to, func(position uint64, row store.EventRow) error {
		held := t.Bytes - row.Bytes + uint64(len(row.Members))
		if position > t.RetiredTo && p.retirable(t, &row, held) {
			reached = position
			t.Events, t.Retained = t.Count-row.Count, t.Bytes-row.Bytes
		}
		return nil
	})
	return reached, err
}

// retireKeys forgets the keys whose winner is not after to and may go, and
// returns how far it got. Their rows guarded the keys; the floor does so from
// now on.
func (p *Projector) retireKeys(t *topic, to uint64) (reached uint64, err error) {
	rows := 0
	err = p.store.AllEvents(&t.Topic, t.RetiredTo, to, func(position uint64, row store.EventRow, superseded bool) (bool, error) {
		if !p.retirable(t, &row, t.Retained) {
			return false, nil
		}
		reached = position
		rows++
		if superseded {
			p.drop(t, &row)
			return rows < retireRowsMax, nil
		}
		key := string(row.Key)
		winner, ok, err := p.winner(t, key)
		if err != nil {
			return false, err
		}
		if ok && winner.Position == position {
			p.forget(t, key, &winner)
			t.Events--
			t.Retained -= uint64(winner.Size)
		}
		return rows < retireRowsMax, nil
	})
	return reached, err
}

// forget removes the row of a key; the floor takes over.
func (p *Projector) forget(t *topic, key string, winner *store.WinnerRow) {
	p.batch.DeleteWinner(t.Number, key)
	p.gone = append(p.gone, Key{t.Number, key})
	p.overlay.winners.put(winnerKey{t.Number, key}, store.WinnerRow{})
	t.Floor = max(t.Floor, winner.HLC)
	if winner.Flags == 0 {
		t.Keys--
	} else {
		t.Tombstones--
	}
	p.touch(t)
}
