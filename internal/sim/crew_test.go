// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/api"
	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/ticket"
)

// crew are the agents that work on tickets, and all that was said of them. What
// they say next they choose by what the broker says of a ticket, as agents do; most
// of it is what the protocol wants, and some is not.
type crew struct {
	verbs   *ticket.Catalogue
	sent    [][]byte // messages, taken or refused, to be sent again
	said    []*spoken
	byID    map[string]*spoken
	plans   map[string]ticket.Slice // what was ever proposed, by slice_hash
	tickets map[string]*broker.TicketInfo
	lives   [3]int // of the tickets, each of which is followed by another
}

// spoken is a message of the log.
type spoken struct {
	ticket.Header
	position uint64
	raw      []byte
	payload  payload
}

type payload map[string]any

func (p payload) text(name string) string { s, _ := p[name].(string); return s }

func newCrew() crew {
	verbs, err := ticket.ParseCatalogue(api.Verbs)
	if err != nil {
		panic(err)
	}
	return crew{verbs: verbs, byID: map[string]*spoken{}, plans: map[string]ticket.Slice{}, tickets: map[string]*broker.TicketInfo{}}
}

// member is an agent of the crew.
type member struct {
	name    string
	roles   []string
	domains []string
}

func members() []member {
	return []member{
		{"desk", []string{ticket.RoleIntake}, nil},
		{"orch", []string{ticket.RoleOrchestrator}, nil},
		{"net", []string{ticket.RoleDomainAgent}, []string{"network"}},
		{"sto", []string{ticket.RoleDomainAgent}, []string{"storage"}},
		{"alice", []string{ticket.RoleGate}, nil},
		{"bob", []string{ticket.RoleGate}, nil},
		{"watch", []string{ticket.RoleAuditor}, nil},
	}
}

const space = "main"

func signingKey(name string) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(name+".", ed25519.SeedSize)[:ed25519.SeedSize]))
}

func verifyingKey(name string) ed25519.PublicKey {
	return signingKey(name).Public().(ed25519.PublicKey)
}

// found is how a space gets its administrator.
func found() (string, ed25519.PublicKey, error) { return space, verifyingKey("administrator"), nil }

// register has the broker know the crew.
func (w *world) register() {
	for _, m := range members() {
		signed, err := ticket.Change{
			Space: space, Revision: w.broker.Registry().Revision + 1, At: time.UnixMilli(w.broker.LogMillis()).UTC(), Op: ticket.ChangeAdd,
			Agent: m.name, Roles: m.roles, Domains: m.domains, Key: ticket.EncodeKey(verifyingKey(m.name)),
		}.Sign(signingKey("administrator"))
		if err != nil {
			w.fail("a change of the registry: %v", err)
		}
		ctx, cancel := w.waiting()
		_, _, err = w.broker.ChangeAgents(ctx, anonymous(), signed.Bytes())
		cancel()
		w.settle()
		if err != nil {
			w.fail("registering %s: %v", m.name, err)
		}
	}
}

// stepMessage has somebody say something about a ticket.
func stepMessage(w *world) {
	n := w.rng.IntN(len(w.crew.lives))
	id := fmt.Sprintf("T%d-%d", n, w.crew.lives[n])
	info, err := w.broker.Ticket(id)
	switch {
	case code(err) == event.CodeTicketUnknown:
		w.speak(draft("desk", "orchestrator", ticket.TypeOpen, ticket.None, opening("open")), id, nil)
		return
	case err != nil:
		w.fail("ticket %s: %v", id, err)
	case info.Terminal:
		w.crew.lives[n]++
	}
	d := w.likely(&info)
	if d.Type == "" || w.rng.IntN(6) == 0 {
		d = w.unlikely(&info)
	}
	if d.Type != "" {
		w.speak(d, id, &info)
	}
}

// stepAgain has a message sent again, as it was or another one under its id.
func stepAgain(w *world) {
	if len(w.crew.sent) == 0 {
		return
	}
	raw := w.crew.sent[w.rng.IntN(len(w.crew.sent))]
	if w.rng.IntN(4) == 0 {
		m, err := ticket.Parse(raw)
		if err != nil {
			w.fail("a message that was sent does not parse: %v", err)
		}
		h := m.Header()
		h.Nonce = fmt.Sprintf("again-%016d", w.number)
		if m, err = (ticket.Draft{Header: h, Payload: m.Payload()}).Sign(signingKey(h.From)); err != nil {
			w.fail("signing: %v", err)
		}
		raw = m.Bytes()
	}
	w.post(raw)
}

func draft(from, to, kind, cause string, p payload) ticket.Draft {
	return ticket.Draft{Header: ticket.Header{From: from, To: to, Type: kind, CausationID: cause}, Payload: p}
}

// speak signs a draft and posts it.
func (w *world) speak(d ticket.Draft, id string, info *broker.TicketInfo) {
	now := w.broker.LogMillis()
	if w.rng.IntN(30) == 0 {
		now += int64(pick(w.rng, -200_000, -10_000, 100_000, 200_000))
	}
	d.Time, d.TicketID, d.TraceID = time.UnixMilli(now).UTC(), id, "trace-"+id
	if info != nil {
		d.TraceID = info.Trace
	}
	m, err := d.Sign(signingKey(d.From))
	if err != nil {
		w.fail("signing %s: %v", d.Type, err)
	}
	w.post(m.Bytes())
}

// post sends an envelope and judges the answer by what the log has then.
func (w *world) post(raw []byte) {
	m, err := ticket.Parse(raw)
	if err != nil {
		w.fail("a message of the crew does not parse: %v", err)
	}
	h := m.Header()
	before := w.crew.byID[h.ID]
	ctx, cancel := w.waiting()
	defer cancel()
	receipt, err := w.broker.PostMessage(ctx, anonymous(), raw)
	w.settle()
	if w.lost() {
		w.note("%s %s of %s: the power failed", h.Type, h.ID, h.TicketID)
		return
	}
	if len(w.crew.sent) < sentMax {
		w.crew.sent = append(w.crew.sent, raw)
	} else {
		w.crew.sent[w.rng.IntN(sentMax)] = raw
	}
	w.note("%s of %s by %s: %s %q", h.Type, h.TicketID, h.From, receipt.Outcome, code(err))
	after := w.crew.byID[h.ID]
	switch {
	case err != nil && after != before:
		w.fail("%s %s was refused (%v), and is in the log", h.Type, h.ID, err)
	case err != nil && code(err).Class().Retryable && code(err) != event.CodePolicyChanged:
		w.fail("%s %s: %v", h.Type, h.ID, err)
	case err != nil && before != nil && string(before.raw) == string(raw):
		w.fail("%s %s was sent again as it was: %v", h.Type, h.ID, err)
	case err != nil:
		w.counts["messages refused"]++
	case before != nil && (receipt.Outcome != event.OutcomeDuplicate || receipt.Position != before.position || string(before.raw) != string(raw)):
		w.fail("%s %s was here before, at @%d: %+v", h.Type, h.ID, before.position, receipt)
	case before == nil && receipt.Outcome == event.OutcomeAccepted && (after == nil || after.position != receipt.Position || string(after.raw) != string(raw)):
		w.fail("%s %s is accepted at @%d, and is not there in the log", h.Type, h.ID, receipt.Position)
	case before == nil && receipt.Outcome == event.OutcomeAccepted:
		w.counts["messages"]++
	}
}

func opening(op string) payload {
	return payload{"op": op, "source_ref": "desk:1", "title": "t", "body_ref": "desk:1/body", "requester": "u1", "priority": 2}
}

// done is what a step does, and undoes.
func done(domain string, n int) (steps, rollback []any) {
	step := func(n int, verb, target string, params payload) payload {
		return payload{"n": n, "action": verb, "target": target, "params": params, "reversible": true, "precheck": "p", "postcheck": "p"}
	}
	if domain == "storage" {
		if n == 0 {
			return []any{step(1, "volume.extend", "vol/1", payload{"bytes": 10})}, []any{}
		}
		return []any{step(1, "snapshot.create", "vol/1", payload{})}, []any{step(1, "volume.inspect", "vol/1", payload{})}
	}
	if n == 0 {
		return []any{step(1, "host.isolate", "host/1", payload{})}, []any{step(1, "host.release", "host/1", payload{})}
	}
	return []any{step(1, "acl.block", "fw/1", payload{"address": "10.0.0.1"})}, []any{step(1, "acl.unblock", "fw/1", payload{"address": "10.0.0.1"})}
}

func domainAgent(domain string) string {
	return map[string]string{"network": "net", "storage": "sto"}[domain]
}

// jsonOf is a payload as the protocol's functions want it.
func jsonOf(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// last returns the latest message of a type about a ticket that fits; nil if
// there is none.
func (c *crew) last(id, kind string, fits func(*spoken) bool) *spoken {
	for _, s := range slices.Backward(c.said) {
		if s.TicketID == id && s.Type == kind && (fits == nil || fits(s)) {
			return s
		}
	}
	return nil
}
