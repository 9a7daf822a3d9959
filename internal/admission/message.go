// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"signalbox/api"
	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/validjson"
	"signalbox/ticket"
)

// Messages checks what a ticket message says, as far as that depends on nothing
// but the message and the catalogue of verbs. It is safe for concurrent use, and
// its checks share nothing: they run on as many cores as there are callers.
type Messages struct {
	payloads map[string]*jsonschema.Schema // by type
	forms    map[string]*form              // of the same schemas
	keys     keyring
}

// NewMessages compiles the schemas of the payloads. It panics if they cannot be,
// which a test would have shown.
func NewMessages() *Messages {
	m := &Messages{payloads: map[string]*jsonschema.Schema{}, forms: map[string]*form{}, keys: keyring{keys: map[string]*readyKey{}}}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(api.TicketSchema))
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat() // of times: no date but one that there is
	c.UseLoader(noLoader{})
	forms, fault := newFormCompiler(api.TicketSchema)
	err = errors.Join(err, c.AddResource(schemaBase, document), fault)
	if err != nil {
		panic(fmt.Sprintf("admission: api/ticket/schema.json: %v", err))
	}
	for _, t := range ticket.Types() {
		payload, fault := c.Compile(schemaBase + "#/$defs/" + t.Name)
		form, unknown := forms.def(t.Name)
		m.payloads[t.Name], m.forms[t.Name], err = payload, form, errors.Join(err, fault, unknown)
	}
	if err != nil {
		panic(fmt.Sprintf("admission: api/ticket/schema.json: %v", err))
	}
	return m
}

// Check refuses a payload that breaks the schema of its type or contradicts
// itself, that seems to carry a secret, or whose steps the catalogue does not
// have or denies.
func (c *Messages) Check(m *ticket.Message, verbs *ticket.Catalogue) error {
	_, err := c.check(m, verbs)
	return err
}

// check is Check, and returns when the deadlines of the message are.
func (c *Messages) check(m *ticket.Message, verbs *ticket.Catalogue) (dues, error) {
	h := m.Header()
	if fault := c.fault(h.Type, m.Payload()); fault != nil {
		return nil, event.Errorf(event.CodePayloadInvalid, "The payload of a message of type %s is wrong: what is at %q %s.", h.Type, fault.Pointer, fault.Text).
			With("payload"+fault.Pointer).Fact("pointer", fault.Pointer).Fact("keyword", fault.Keyword)
	}
	due, err := duesOf(m)
	if err == nil {
		err = m.CheckSecrets()
	}
	if err == nil {
		err = checkSteps(m, &h, verbs)
	}
	return due, err
}

// fault returns how a payload breaks the schema of its type, nil if it keeps to it.
func (c *Messages) fault(kind string, payload []byte) *eventlog.SchemaFault {
	if r := validjson.NewReader(payload); len(payload) <= payloadSureBytes && c.forms[kind].judge(&r) == keeps {
		return nil
	}
	value, fault := parse(payload)
	if broken := (*jsonschema.ValidationError)(nil); fault == nil && errors.As(c.payloads[kind].Validate(value), &broken) {
		return explain(broken)
	}
	return fault
}

// checkSteps checks who speaks for whom, the steps, and the hashes that a message
// gives of what it says itself.
func checkSteps(m *ticket.Message, h *ticket.Header, verbs *ticket.Catalogue) error {
	switch h.Type {
	case ticket.TypeHeartbeat:
		return sameAgent(m, h, "agent")
	case ticket.TypeApprovalGrant, ticket.TypeApprovalDeny:
		return sameAgent(m, h, "approver")
	case ticket.TypeProposal:
		slice, err := checked(m.Payload(), h.To, verbs)
		if err != nil {
			return err
		}
		claimed, _ := event.LookupJSON(m.Payload(), "slice_hash") // the schema demands it
		return sameHash(slice, claimed)
	case ticket.TypeExecute:
		_, err := checked(m.Payload(), h.To, verbs)
		return err
	case ticket.TypePlan:
		return checkPlan(m.Payload(), h, verbs)
	}
	return nil
}

func sameAgent(m *ticket.Message, h *ticket.Header, member string) error {
	if name, _ := event.LookupJSON(m.Payload(), member); name != h.From {
		return event.Errorf(event.CodePayloadInvalid, "The %s is %.80q and the sender is %q; nobody speaks for another.", member, name, h.From).With("payload/" + member)
	}
	return nil
}

func checked(payload []byte, domain string, verbs *ticket.Catalogue) (ticket.Slice, error) {
	slice, err := ticket.SliceOf(payload)
	if err != nil {
		return slice, err
	}
	return slice, verbs.Check(domain, slice)
}

func sameHash(slice ticket.Slice, claimed string) error {
	hash, err := slice.Hash()
	if err == nil && hash != claimed {
		err = event.Errorf(event.CodePayloadInvalid, "The slice_hash is not that of the steps and the rollback, which is %s.", hash).With("payload/slice_hash").Fact("slice_hash", hash)
	}
	return err
}

// planPayload is what a plan's hashes are over.
type planPayload struct {
	ticket.Plan
	Claimed string `json:"plan_hash"`
	Slice   struct {
		ID string `json:"slice_id"`
		ticket.Slice
	} `json:"slice"`
}

// checkPlan checks that a plan names its frozen slice among its slices, with its
// hash, and has the hash of it all.
func checkPlan(payload []byte, h *ticket.Header, verbs *ticket.Catalogue) error {
	var p planPayload
	if err := json.Unmarshal(payload, &p); err != nil {
		return event.Errorf(event.CodePayloadInvalid, "The plan cannot be read.").With("payload")
	}
	if err := verbs.Check(h.To, p.Slice.Slice); err != nil {
		return err
	}
	found := false
	for _, s := range p.Slices {
		if s.ID != p.Slice.ID {
			continue
		}
		if err := sameHash(p.Slice.Slice, s.Hash); err != nil {
			return err
		}
		found = true
	}
	if !found {
		return event.Errorf(event.CodePayloadInvalid, "The frozen slice %.80q is not among the slices of the plan.", p.Slice.ID).With("payload/slice/slice_id")
	}
	if p.PolicyVersion != verbs.Version {
		return event.Errorf(event.CodePayloadInvalid, "The policy_version is %.80q, and the catalogue in force is %s.", p.PolicyVersion, verbs.Version).With("payload/policy_version")
	}
	if least, why := verbs.Tier([]ticket.Proposed{{Domain: h.To, Slice: p.Slice.Slice}}); p.Tier < least {
		return event.Errorf(event.CodePayloadInvalid, "The tier is %d, and that of the frozen slice alone is %d. %s", p.Tier, least, why).With("payload/tier").Fact("tier", least)
	}
	p.TicketID = h.TicketID
	hash, err := p.Plan.Hash()
	if err == nil && hash != p.Claimed {
		err = event.Errorf(event.CodePayloadInvalid, "The plan_hash is not that of the plan, which is %s.", hash).With("payload/plan_hash").Fact("plan_hash", hash)
	}
	return err
}
