// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/event"
	"signalbox/internal/admission"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/metrics"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// bus says what the log obliges the broker to say: a deadline was missed, an agent is
// silent. What there is to say is a row that a commit has stored; the message follows
// from it byte for byte, and is proposed until apply has taken it, which takes the row
// away. So it is sent once, whenever the process dies.
type bus struct {
	b      *Broker
	key    ed25519.PrivateKey // nil: the space was not founded
	owed   chan struct{}      // holds a token when there may be something to say
	counts atomic.Pointer[projector.BusCounts]
}

const (
	busKeyFile = "bus.key"
	// owedPage is how many messages are on their way at a time.
	owedPage = 64
	// What cannot be said is tried again after a while, that is doubled up to the most.
	owedRetry    = time.Second
	owedRetryMax = time.Minute
)

// openBus reads the key of the bus, or draws it first, unless the broker has no space
// or is only opened for upkeep.
func openBus(b *Broker) (*bus, error) {
	s := &bus{b: b, owed: make(chan struct{}, 1)}
	s.advance(b.projector.Bus())
	if b.options.KeepSettings || b.options.Found == nil && b.projector.Registry().Space == "" {
		return s, nil
	}
	text, err := b.keyFile(busKeyFile, func() ([]byte, error) {
		_, key, err := ed25519.GenerateKey(nil)
		return ticket.EncodePrivateKey(key), err
	})
	if err != nil {
		return nil, fmt.Errorf("broker: the key of the bus: %w", err)
	}
	if s.key, err = ticket.DecodePrivateKey([]byte(text)); err != nil {
		return nil, unusableBusKey(err)
	}
	return s, nil
}

func (s *bus) public() string {
	if s.key == nil {
		return ""
	}
	return ticket.EncodeKey(ed25519.PublicKey(s.key[ed25519.PrivateKeySize-ed25519.PublicKeySize:])) // RFC 8032: the seed and the public key
}

// register has the log know the key, before the apply loop runs. One that is lost, or
// was not put back with a backup, is replaced by another: what it has signed stays
// verifiable.
func (s *bus) register() error {
	registry := s.b.projector.Registry()
	if s.key == nil || registry.Space == "" {
		return nil
	}
	if agent, _ := registry.Agent(ticket.RoleBus); agent != nil && agent.InUse() != nil && agent.InUse().Key == s.public() {
		return nil
	}
	now := s.b.clock.Millis()
	err := s.b.begin([]*eventlog.Proposal{{Kind: eventlog.KindTick, AdmittedMillis: now}, {Kind: eventlog.KindControl, AdmittedMillis: now, Control: eventlog.Control{Op: eventlog.OpBus, Key: s.public()}}})
	if err != nil && event.AsError(err).Code == event.CodeAgentConflict {
		err = unusableBusKey(err)
	}
	return err
}

func unusableBusKey(err error) error {
	return event.Errorf(event.CodeStoreDamaged, "The key with which the broker signs its own messages, %s in the data directory, cannot be used: %w. Remove the file, and the next start draws another one.", busKeyFile, err)
}

// advance notes what a commit has left to say.
func (s *bus) advance(counts projector.BusCounts) {
	before := s.counts.Swap(&counts)
	if before != nil && before.Unfound < counts.Unfound {
		s.b.logger.Warn("entries of the audit trail are not found by all tickets that they are about; look for them by time or by agent", "entries", counts.Unfound-before.Unfound)
	}
	if counts.Owed > 0 {
		token(s.owed)
	}
}

// loop says what there is to say, from the start on: the process may have died before
// it was said.
func (s *bus) loop() {
	if s.key == nil {
		return
	}
	wait := owedRetry
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-s.b.stop:
			return
		case <-s.owed:
		case <-again.C:
		}
		err := s.sayAll()
		switch {
		case err == nil:
			wait = owedRetry
			continue
		case event.AsError(err).Code == event.CodeShuttingDown:
			return // the next start goes on
		}
		s.b.metrics.Bus.Failures.Inc()
		s.b.logger.Error("the broker has something to say about a ticket or an agent and cannot", "err", err, "again_in", wait,
			"todo", "if the disk is full, make room; otherwise run signalbox verify on a copy of the data directory")
		again.Reset(wait)
		wait = min(2*wait, owedRetryMax)
	}
}

type obligation struct {
	id string
	store.ObligationRow
}

// sayAll goes on until nothing is left, or until a message cannot be said.
func (s *bus) sayAll() error {
	for {
		var page []obligation
		err := s.b.store.MessagesOfKind(store.MessageObligation, "", func(id string, value []byte) (bool, error) {
			o := obligation{id: id}
			err := store.DecodeMessage(store.MessageObligation, value, &o.ObligationRow)
			page = append(page, o)
			return len(page) < owedPage, err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		errs := make([]error, len(page))
		var said sync.WaitGroup
		for i := range page {
			said.Go(func() { errs[i] = s.say(&page[i]) })
		}
		said.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
}

// escalation is the payload of an escalation.
type escalation struct {
	Reason   string     `json:"reason_code"`
	Severity string     `json:"severity"`
	Refs     []string   `json:"refs"`
	Context  string     `json:"context_ref"`
	Asks     []string   `json:"asks"`
	AckBy    *time.Time `json:"ack_by,omitempty"`
}

// message is what discharges an obligation. It is the same whenever it is made.
func (s *bus) message(o *obligation) (*ticket.Message, error) {
	payload := escalation{Reason: o.Reason, Severity: o.Severity, Refs: o.Refs, Context: o.Context, Asks: o.Asks}
	if o.AckBy != 0 {
		at := time.UnixMilli(o.AckBy).UTC()
		payload.AckBy = &at
	}
	return ticket.Draft{Header: ticket.Header{
		ID: o.id, Type: ticket.TypeEscalation, TicketID: o.Ticket, TraceID: o.Trace, CausationID: o.Cause, From: ticket.RoleBus, To: o.To,
		Nonce: strings.TrimPrefix(o.id, "msg_"), Time: time.UnixMilli(o.Millis),
	}, Payload: payload}.Sign(s.key)
}

func (s *bus) say(o *obligation) error {
	if o.Letter != "" {
		if err := s.bury(o); err != nil {
			return err
		}
	}
	m, err := s.message(o)
	if err != nil {
		return err
	}
	proposal, err := s.b.admitMessage(identity.Named(ticket.RoleBus), m.Bytes())
	if err != nil {
		return err
	}
	result, err := s.b.propose(context.Background(), proposal)
	if err != nil {
		return err
	}
	if result.Err != nil {
		return result.Err
	}
	s.b.metrics.Bus.Said(o.Reason)
	s.b.logger.Warn("the broker has escalated", "reason", o.Reason, "severity", o.Severity, "ticket", o.Ticket, "about", o.Cause,
		"context", o.Context, "to", o.To, "message", o.id, "position", result.Verdicts[0].Position)
	return nil
}

// sample tells the metrics that are looked up.
func (s *bus) sample(sample metrics.Sample) {
	c := s.counts.Load()
	sample.Set("signalbox_ticket_deadlines", float64(c.Open))
	sample.Set("signalbox_ticket_deadlines_missed_total", float64(c.Missed))
	sample.Set("signalbox_bus_owed", float64(c.Owed))
	sample.Set("signalbox_agents_silent", float64(c.Silent))
	sample.Set("signalbox_messages_withheld_total", float64(c.Withheld))
	sample.Set("signalbox_audit_unfound_entries_total", float64(c.Unfound))
}

// unknownType has the bus say that an agent has sent a message of a type that is none,
// and returns what the sender is told. What nobody signed is refused and no more.
func (b *Broker) unknownType(raw []byte, refused error) error {
	if event.AsError(refused).Code != event.CodeMessageTypeUnknown {
		return refused
	}
	m, err := ticket.ParseAny(raw)
	if err != nil {
		return refused
	}
	agent, _ := b.registry.Load().Agent(m.Header().From)
	if agent == nil || agent.InUse() == nil {
		return refused
	}
	note, err := admission.Unknown(m, agent.InUse().Key)
	if err != nil || !b.refusals.within(agent.Name, event.CodeMessageTypeUnknown) {
		return refused
	}
	_, err = b.propose(context.Background(), &eventlog.Proposal{
		Kind: eventlog.KindRefusal, AdmittedMillis: b.clock.Millis(), Principal: agent.Name, RefusedCode: string(event.CodeMessageTypeUnknown), RefusedCount: 1, Message: note,
	})
	if err != nil {
		return refused
	}
	return event.AsError(refused).Fact(factEscalated, true)
}

// factEscalated marks a refusal that is in the log already.
const factEscalated = "escalated"
