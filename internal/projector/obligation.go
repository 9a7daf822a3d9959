// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"maps"
	"slices"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// bus keeps in memory what apply looks at with every message or acknowledgement. All
// of it follows from rows.
type bus struct {
	beats       map[string]*beat         // by agent
	targets     map[string][]string      // target to the agents that its messages are for; nil: to be made
	undelivered map[string][]undelivered // by topic, in order of position; no list is empty
	counts      BusCounts
}

// BusCounts are what there is to say of the bus as a whole.
type BusCounts struct {
	Open     int    // deadlines
	Owed     int    // messages that the bus has to send
	Silent   int    // agents whose silence was escalated
	Missed   uint64 // deadlines, since the start
	Silenced uint64 // agents, since the start
	Withheld uint64 // messages from agents that do not read them, since the start
	Unfound  uint64 // entries that are not found by all tickets that they are about, since the start
}

const (
	severityWarning = "warning"
	severityPage    = "critical" // somebody is to be woken
)

// loadBus reads what is open.
func (p *Projector) loadBus() error {
	p.bus = bus{beats: map[string]*beat{}, undelivered: map[string][]undelivered{}}
	err := p.store.MessagesOfKind(store.MessageDeadline, "", func(key string, value []byte) (bool, error) {
		var row store.DeadlineRow
		if err := store.DecodeMessage(store.MessageDeadline, value, &row); err != nil {
			return false, err
		}
		p.bus.counts.Open++
		p.noteUndelivered(key, &row)
		return true, nil
	})
	if err != nil {
		return err
	}
	err = p.store.MessagesOfKind(store.MessageObligation, "", func(string, []byte) (bool, error) {
		p.bus.counts.Owed++
		return true, nil
	})
	if err != nil {
		return err
	}
	return p.store.MessagesOfKind(store.MessageBeat, "", func(agent string, value []byte) (bool, error) {
		b := &beat{}
		if err := store.DecodeMessage(store.MessageBeat, value, &b.BeatRow); err != nil {
			return false, err
		}
		b.reads, _ = ticket.ParseRange(b.Accepts) // one that cannot be parsed was not admitted
		p.bus.beats[agent] = b
		if b.Silent != "" {
			p.bus.counts.Silent++
		}
		return true, nil
	})
}

// owe stores that the bus has to send a message, and returns the id that it will
// have. Of names what it follows from: the same is never owed twice.
func (p *Projector) owe(o *store.ObligationRow, of ...string) (id string) {
	o.Millis = p.space.LogMillis
	id = ticket.DeriveID(time.UnixMilli(o.Millis), append([]string{o.Reason}, of...)...)
	p.setMessageRow(store.MessageObligation, id, o)
	p.bus.counts.Owed++
	return id
}

// page turns an obligation into one that wakes somebody. It asks again only after a
// day, for nobody is above who is asked then.
func (p *Projector) page(o *store.ObligationRow) {
	o.To, o.Severity = ticket.RolePlatformOps, severityPage
	o.AckBy = p.space.LogMillis + ticket.TTL().Milliseconds()
}

// owed checks that a message of the bus is one that it has to send. Its key alone
// allows it nothing.
func (p *Projector) owed(m *eventlog.Message, id string) (*event.Error, error) {
	var o store.ObligationRow
	ok, err := p.messageRow(store.MessageObligation, id, &o)
	if err != nil {
		return nil, err
	}
	if !ok || m.Type != ticket.TypeEscalation || m.Ticket != o.Ticket || m.Trace != o.Trace || m.Cause != o.Cause || m.To != o.To || m.SentMillis != o.Millis {
		return event.Errorf(event.CodeNotPermitted, "The message %s is none that the bus has to send.", id).With("from"), nil
	}
	return nil, nil
}

// discharge notes that the bus has sent what it had to.
func (p *Projector) discharge(id string) {
	p.dropMessageRow(store.MessageObligation, id)
	p.bus.counts.Owed--
}

// rekey has the bus sign with another key from here on: with its first one it becomes
// an agent. The broker proposes this itself, for it is what the bus is.
func (p *Projector) rekey(key string) *event.Error {
	if _, err := ticket.DecodeKey(key); err != nil {
		return event.AsError(err)
	}
	owner, used := p.owners[key]
	if used || key == p.registry.Administrator {
		return event.Errorf(event.CodeAgentConflict, "The key is or was that of %q, and a key has one owner.", owner).With("key")
	}
	next := &store.Agent{Name: ticket.RoleBus, Roles: []string{ticket.RoleBus}, Revision: p.registry.Revision, UpdatedMillis: p.space.LogMillis}
	if before := p.registry.agents[ticket.RoleBus]; before != nil {
		next.Keys = slices.Clone(before.Keys)
		if k := next.InUse(); k != nil {
			k.Until, k.Revoked = p.space.Position, true
		}
	}
	if len(next.Keys) >= agentKeysMax || len(p.owners) >= keysMax {
		return event.Errorf(event.CodeAgentLimit, "The bus has had %d keys, and all agents %d.", len(next.Keys), len(p.owners)).With("key")
	}
	next.Keys = append(next.Keys, store.AgentKey{Key: key, From: p.space.Position})
	p.setAgent(next)
	return nil
}

// unknownType notes that an agent has sent a message of a type that is none: once for
// each ticket, agent and type, however often it does.
func (p *Projector) unknownType(proposal *eventlog.Proposal) error {
	m := proposal.Message
	agent := p.registry.agents[m.From]
	if agent == nil || agent.InUse() == nil || agent.InUse().Key != m.Key {
		return nil
	}
	o := store.ObligationRow{
		Reason: "type_unknown", Severity: severityWarning, Ticket: m.Ticket, Trace: m.Trace, To: ticket.RoleOrchestrator,
		Refs: []string{m.Cause}, Context: "type:" + m.Type,
		Asks: []string{"The agent " + m.From + " has sent a message of the type " + m.Type + ", which this broker does not know; it was refused. Find out which of the two is behind."},
	}
	var t store.TicketRow
	known, err := p.messageRow(store.MessageTicket, m.Ticket, &t)
	if err != nil {
		return err
	}
	if known && m.Ticket != ticket.None {
		o.Trace, o.Cause = t.Trace, t.Open
	} else {
		o.Ticket, o.Cause, o.To = ticket.None, ticket.None, ticket.RolePlatformOps
	}
	key := joined(o.Ticket, m.From, m.Type)
	var before string
	if ok, err := p.messageRow(store.MessageUnknown, key, &before); err != nil || ok {
		return err
	}
	p.setMessageRow(store.MessageUnknown, key, p.owe(&o, key))
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// dropMessageRow removes a row about messages.
func (p *Projector) dropMessageRow(kind store.MessageKind, key string) {
	p.batch.DeleteMessage(kind, key)
	p.overlay.messages.put(string(kind)+key, nil)
}
