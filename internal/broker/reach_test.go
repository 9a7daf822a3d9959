// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/identity"
	"signalbox/ticket"
)

// ticketKey is a key of tests: the seed is its name, repeated.
func ticketKey(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(name+".", ed25519.SeedSize)[:ed25519.SeedSize]))
}

// newTicketBox is a broker whose administrator changes the registry by change.
func newTicketBox(t *testing.T) (x *box, change func(op, agent, role string, domains ...string)) {
	t.Helper()
	x = newBox(t, broker.Options{
		Found: func() (string, ed25519.PublicKey, error) {
			return "main", ticketKey("admin").Public().(ed25519.PublicKey), nil
		},
		CheckSink: func(string) error { return nil },
	})
	return x, func(op, agent, role string, domains ...string) {
		t.Helper()
		c := ticket.Change{Space: "main", Revision: x.Registry().Revision + 1, At: startTime(), Op: op, Agent: agent, Domains: domains}
		if role != "" {
			c.Roles = []string{role}
		}
		if op == ticket.ChangeAdd {
			c.Key = ticket.EncodeKey(ticketKey(agent).Public().(ed25519.PublicKey))
		}
		signed, err := c.Sign(ticketKey("admin"))
		if err == nil {
			_, _, err = x.ChangeAgents(context.Background(), anonymous(), signed.Bytes())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (x *box) say(from, kind, to, cause, payload string) string {
	x.t.Helper()
	d := ticket.Draft{Header: ticket.Header{Type: kind, TicketID: "INC-1", TraceID: "trace-1", From: from, To: to, CausationID: cause, Time: x.clock.Wall()}, Payload: []byte(payload)}
	m, err := d.Sign(ticketKey(from))
	if err == nil {
		_, err = x.PostMessage(context.Background(), anonymous(), m.Bytes())
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return m.Header().ID
}

const (
	openPayload        = `{"op":"open","source_ref":"desk:1","title":"slow","body_ref":"desk:1/body","requester":"u1","priority":2}`
	planRequestPayload = `{"slice_id":"s1","revision":1,"objective":"keep it out","targets":["fw/1"],"constraints":[],"deadline":"2099-01-01T00:00:00Z"}`
)

// TestWebhooksPushWhatTheirOwnersMayRead: nobody's gets no messages, an agent's its
// own, and that of one that was revoked nothing at all until it is registered again.
func TestWebhooksPushWhatTheirOwnersMayRead(t *testing.T) {
	x, change := newTicketBox(t)
	defer x.close()
	change(ticket.ChangeAdd, "desk", ticket.RoleIntake)
	change(ticket.ChangeAdd, "orch", ticket.RoleOrchestrator)
	change(ticket.ChangeAdd, "net", ticket.RoleDomainAgent, "network")
	ctx := context.Background()
	hook := func(p identity.Principal, topics ...string) (string, error) {
		d := event.Subscription{Protocol: event.ProtocolHTTP, Sink: "https://example.com/hook", Config: event.DefaultSubscriptionConfig()}
		d.Config.Kind, d.Config.Topics, d.Config.Start = event.KindWebhook, topics, "earliest"
		info, err := x.CreateSubscription(ctx, p, d)
		return info.Document.ID, err
	}
	if _, err := hook(anonymous(), "bus.>"); event.AsError(err) == nil || event.AsError(err).Code != event.CodeUnauthenticated {
		t.Errorf("nobody has a webhook for messages: %v", err)
	}
	if _, err := hook(identity.Named("net"), "bus.main.plan.dns"); event.AsError(err) == nil || event.AsError(err).Code != event.CodeNotPermitted {
		t.Errorf("net has a webhook for another domain: %v", err)
	}
	nobodys, err := hook(anonymous(), ">")
	if err != nil {
		t.Fatal(err)
	}
	nets, err := hook(identity.Named("net"), ">")
	if err != nil {
		t.Fatal(err)
	}
	opened := x.say("desk", ticket.TypeOpen, "orchestrator", ticket.None, openPayload)
	first := x.say("orch", ticket.TypePlanRequest, "network", opened, planRequestPayload)
	x.say("orch", ticket.TypePlanRequest, "dns", opened, strings.Replace(planRequestPayload, "s1", "s2", 1))
	x.mustSend("a", x.draft("for-all", "", nil, '1'))
	push := func(id string) string {
		t.Helper()
		handed, _, err := x.HandOutWebhook(ctx, id, 100)
		if err != nil {
			t.Fatal(err)
		}
		return handedIDs(handed)
	}
	x.sameIDs("nobody's webhook", push(nobodys), "for-all")
	x.sameIDs("net's webhook", push(nets), first+" for-all")
	change(ticket.ChangeRevoke, "net", "")
	second := x.say("orch", ticket.TypePlanRequest, "network", opened, strings.Replace(planRequestPayload, "s1", "s3", 1))
	x.pass(time.Hour)
	x.sameIDs("net's webhook, when net is revoked", push(nets), "")
	x.sameIDs("nobody's webhook, later", push(nobodys), "for-all")
	c := ticket.Change{Space: "main", Revision: x.Registry().Revision + 1, At: startTime(), Op: ticket.ChangeAdd, Agent: "net", Roles: []string{ticket.RoleDomainAgent}, Domains: []string{"network"},
		Key: ticket.EncodeKey(ticketKey("net2").Public().(ed25519.PublicKey))}
	signed, err := c.Sign(ticketKey("admin"))
	if err == nil {
		_, _, err = x.ChangeAgents(ctx, anonymous(), signed.Bytes())
	}
	if err != nil {
		t.Fatal(err)
	}
	handed, _, err := x.HandOutWebhook(ctx, nets, 100)
	if err != nil {
		t.Fatal(err)
	}
	x.sameIDs("net's webhook, when net is back", handedIDs(handed), first+" for-all") // the second waits for its key
	if err := x.SettleWebhook(ctx, nets, "https://example.com/hook", []broker.WebhookVerdict{{Token: handed[0].Token, Delivered: true}}); err != nil {
		t.Fatal(err)
	}
	x.sameIDs("net's webhook, after the first", push(nets), second)
}
