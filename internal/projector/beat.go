// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"fmt"
	"time"

	"signalbox/internal/eventlog"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// beat is the latest heartbeat of an agent; or, of one that was never heard, the first
// execute that was sent to it, from which on one is expected.
type beat struct {
	store.BeatRow
	reads ticket.Range // what Accepts says
}

// heardOf reports whether there was a heartbeat.
func (b *beat) heardOf() bool { return b.Accepts != "" }

// expect watches the agents that an execute is for and of whom nobody expects to be heard:
// whoever carries something out says that it is there.
func (p *Projector) expect(proposal *eventlog.Proposal, position uint64) {
	m := proposal.Message
	if m.Type != ticket.TypeExecute {
		return
	}
	now := max(proposal.AdmittedMillis, p.space.LogMillis)
	for i, agent := range p.receivers(m.To) {
		if b := p.bus.beats[agent]; b != nil && (b.Timer != 0 || b.Silent != "") {
			continue // it is watched, or its silence was told
		}
		b := &beat{BeatRow: store.BeatRow{ID: proposal.Entries[0].ID, Trace: m.Trace, Millis: now, Armed: position, Index: uint32(i)}}
		p.bus.beats[agent] = b
		p.armSilence(agent, b, b.Millis+silenceMillis())
		p.setMessageRow(store.MessageBeat, agent, b.BeatRow)
	}
}

// heard takes a heartbeat. An agent has one timer, however often it is heard.
func (p *Projector) heard(proposal *eventlog.Proposal, v store.Verdict) error {
	m := proposal.Message
	b := p.bus.beats[m.From]
	if b == nil {
		b = &beat{}
		p.bus.beats[m.From] = b
	}
	b.reads, _ = ticket.ParseRange(m.Beat.Accepts) // admission has parsed it
	b.ID, b.Trace, b.Accepts, b.Domains, b.Seq = proposal.Entries[0].ID, m.Trace, m.Beat.Accepts, m.Beat.Domains, m.Beat.Seq
	b.Millis = max(proposal.AdmittedMillis, p.space.LogMillis)
	if b.Silent != "" {
		// It has answered for itself.
		if err := p.met(joined(ticket.None, b.Silent, "ack_by"), m); err != nil {
			return err
		}
		b.Silent = ""
		p.bus.counts.Silent--
	}
	if b.Timer == 0 {
		b.Armed, b.Index = v.Position, 0
		p.armSilence(m.From, b, b.Millis+silenceMillis())
	}
	p.setMessageRow(store.MessageBeat, m.From, b.BeatRow)
	return nil
}

// unexpect forgets when an agent was heard: its registration has ended, or begins anew.
// Whoever takes its name is another one, of whom nothing is known.
func (p *Projector) unexpect(agent string) {
	b := p.bus.beats[agent]
	if b == nil {
		return
	}
	if b.Timer != 0 {
		p.batch.DeleteTimer(b.timer(agent))
	}
	if b.Silent != "" {
		p.bus.counts.Silent--
	}
	delete(p.bus.beats, agent)
	p.dropMessageRow(store.MessageBeat, agent)
}

func (b *beat) timer(agent string) store.Timer {
	return store.Timer{DueMillis: b.Timer, Topic: b.Index, Position: b.Armed, Kind: store.TimerSilence, Key: agent}
}

func silenceMillis() int64 { return ticket.Heartbeats().Silence().Milliseconds() }

func (p *Projector) armSilence(agent string, b *beat, due int64) {
	b.Timer = due
	p.batch.SetTimer(b.timer(agent))
}

// missBeats looks whether an agent is silent. Its silence is escalated once, until it
// is heard again.
func (p *Projector) missBeats(timer store.Timer) error {
	agent := timer.Key
	b := p.bus.beats[agent]
	if b == nil || b.Timer != timer.DueMillis || b.Armed != timer.Position || b.Index != timer.Topic {
		return nil
	}
	b.Timer = 0
	now, due := p.space.LogMillis, b.Millis+silenceMillis()
	every := time.Duration(ticket.Heartbeats().Every).Milliseconds()
	switch registered := p.registry.agents[agent]; {
	case registered == nil || registered.InUse() == nil: // nobody expects it
	case due > now:
		p.armSilence(agent, b, due)
	case now-timer.DueMillis > every:
		// The broker was away itself, and could have heard nobody.
		b.Millis = now
		p.armSilence(agent, b, now+silenceMillis())
	default:
		ask := fmt.Sprintf("The agent %s has missed %d heartbeats. Find out whether it runs.", agent, ticket.Heartbeats().Missed)
		if !b.heardOf() {
			ask = fmt.Sprintf("The agent %s was sent an execute and has never sent a heartbeat. Find out whether it runs.", agent)
		}
		b.Silent = p.owe(&store.ObligationRow{
			Reason: "heartbeats_missed", Severity: severityWarning, Ticket: ticket.None, Trace: b.Trace, Cause: b.ID, To: ticket.RolePlatformOps,
			Refs: []string{b.ID}, Context: "agent:" + agent, Asks: []string{ask},
		}, agent, b.ID)
		p.bus.counts.Silent++
		p.bus.counts.Silenced++
	}
	p.setMessageRow(store.MessageBeat, agent, b.BeatRow)
	return nil
}

// receivers returns the agents that messages to a target are for, by name.
func (p *Projector) receivers(target string) []string {
	if p.bus.targets == nil {
		p.bus.targets = map[string][]string{}
		for _, a := range p.registry.All() {
			if a.InUse() == nil {
				continue
			}
			for _, role := range a.Roles {
				p.bus.targets[role] = append(p.bus.targets[role], a.Name)
			}
			for _, domain := range a.Domains {
				p.bus.targets[domain] = append(p.bus.targets[domain], a.Name)
			}
		}
	}
	return p.bus.targets[target]
}

// withhold notes for which of its receivers a message is of a version that they do not
// read. It is logged like any other, their subscriptions pass over it, and the bus says
// so to whoever is above them.
func (p *Projector) withhold(m *eventlog.Message, id string, position uint64) error {
	if m.Version == "" || m.Beat != nil {
		return nil
	}
	for _, agent := range p.receivers(m.To) {
		b := p.bus.beats[agent]
		if b == nil || !b.heardOf() || b.reads.Reads(m.Version) {
			continue
		}
		p.setMessageRow(store.MessageWithheld, WithheldKey(agent, position), id)
		p.bus.counts.Withheld++
		o := store.ObligationRow{
			Reason: "version_unread", Severity: severityWarning, Ticket: m.Ticket, Trace: m.Trace, Cause: id, Refs: []string{id}, Context: "agent:" + agent,
			Asks: []string{fmt.Sprintf("The message is of version %s, and the agent %s reads %s; it was not delivered to it.", m.Version, agent, b.Accepts)},
		}
		to, above := ticket.Above(m.To)
		switch {
		case above:
			o.To = to
		case m.From == ticket.RoleBus:
			continue // whoever is asked last does not read what the bus says, and more of it would not help
		default:
			p.page(&o)
		}
		p.owe(&o, agent, id)
	}
	return nil
}

// WithheldKey is the key of the row of kind store.MessageWithheld that keeps the message
// at a position from an agent.
func WithheldKey(agent string, position uint64) string {
	return joined(agent, fmt.Sprintf("%020d", position))
}

// withheld reports whether a subscription's owner is not to have an event.
func (p *Projector) withheld(s *subscription, topic string, position uint64) (bool, error) {
	if s.config.Owner == "" || !TicketTopic(topic) {
		return false, nil
	}
	var id string
	return p.messageRow(store.MessageWithheld, WithheldKey(s.config.Owner, position), &id)
}
