// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"signalbox/event"
)

// The operations on the registry of agents.
const (
	ChangeAdd    = "add"    // an agent, or one again whose keys were revoked
	ChangeSet    = "set"    // its roles and domains
	ChangeRotate = "rotate" // another key takes the place of those it has
	ChangeRevoke = "revoke" // all its keys, for good
)

// Change is one change of the registry of agents. Revision is that of the registry
// which it makes, one more than before: so a change is applied once, and to what
// its signer saw.
type Change struct {
	Space    string    `json:"space"`
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
	Op       string    `json:"op"`
	Agent    string    `json:"agent"`
	Roles    []string  `json:"roles,omitempty"`   // of add and set
	Domains  []string  `json:"domains,omitempty"` // of add and set
	Key      string    `json:"key,omitempty"`     // of add and rotate, see EncodeKey
	Reason   string    `json:"reason,omitempty"`
}

// SignedChange is a change with the administrator's signature. It cannot be changed.
type SignedChange struct {
	change    Change
	key       ed25519.PublicKey
	raw       []byte
	signed    []byte
	signature [ed25519.SignatureSize]byte
}

// Change returns what is to be changed.
func (c *SignedChange) Change() Change { return c.change }

// Key returns the public key of an agent that the change brings; nil for none.
func (c *SignedChange) Key() ed25519.PublicKey { return c.key }

// Bytes returns the change as it was received. They must not be changed.
func (c *SignedChange) Bytes() []byte { return c.raw }

// Verify reports whether the change was signed with a key, with code
// signature_invalid if it was not.
func (c *SignedChange) Verify(administrator ed25519.PublicKey) error {
	if len(administrator) != ed25519.PublicKeySize || !ed25519.Verify(administrator, c.signed, c.signature[:]) {
		return event.Errorf(event.CodeSignatureInvalid, "The change is not signed with the administrator key of the space.").With("sig")
	}
	return nil
}

// Sign makes the signed form: the change and sig in one object. It fails as
// ParseChange does.
func (c Change) Sign(key ed25519.PrivateKey) (*SignedChange, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, agentInvalid("", "The change has no JSON form: %.200v.", err)
	}
	if err := checkChangeValue(text); err != nil {
		return nil, err
	}
	out := canonical(text)
	signature := ed25519.Sign(key, out)
	out = append(out[:len(out)-1], `,"sig":"`+signaturePrefix...)
	return ParseChange(append(encoding.AppendEncode(out, signature), `"}`...))
}

// ParseChange decodes a signed change and checks what can be checked without the
// registry. It does not verify the signature.
func ParseChange(raw []byte) (*SignedChange, error) {
	if len(raw) > MaxMessageBytes {
		return nil, agentInvalid("", "The change has more than %d bytes.", MaxMessageBytes)
	}
	if err := checkChangeValue(raw); err != nil {
		return nil, err
	}
	var read struct {
		Change
		Sig string `json:"sig"`
	}
	c := &SignedChange{raw: bytes.Clone(raw)}
	if err := json.Unmarshal(raw, &read, json.RejectUnknownMembers(true)); err != nil {
		return nil, agentInvalid("", "The change cannot be read: %.200v.", err)
	}
	c.change = read.Change
	if !decodeSignature(&c.signature, read.Sig) {
		return nil, agentInvalid("sig", "The sig is not ed25519: and the signature in base64url without padding.")
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	var members map[string]jsonValue
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, agentInvalid("", "The change cannot be read.")
	}
	delete(members, "sig")
	rest, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return nil, agentInvalid("", "The change cannot be read.")
	}
	c.signed = canonical(rest)
	return c, nil
}

// checkChangeValue holds the JSON of a change to the rules of messages.
func checkChangeValue(text []byte) error {
	err := checkValue(text, "")
	if err == nil {
		return nil
	}
	refused := event.AsError(err)
	return agentInvalid(refused.Field, "%s", strings.Replace(refused.Message, "The message", "The change", 1))
}

func (c *SignedChange) check() error {
	d := &c.change
	brings := d.Op == ChangeAdd || d.Op == ChangeRotate
	names := d.Op == ChangeAdd || d.Op == ChangeSet
	switch {
	case !brings && !names && d.Op != ChangeRevoke:
		return agentInvalid("op", "The op %.40q is none of add, set, rotate and revoke.", d.Op)
	case d.Revision < 1 || d.Revision > maxExact:
		return agentInvalid("revision", "The revision is no number from 1 on.")
	case d.At.IsZero():
		return agentInvalid("at", "The change has no at, the time at which it was signed.")
	case !nameForm(d.Agent) || d.Agent == RoleBus:
		return agentInvalid("agent", "%.40q is no name of an agent: use up to 63 characters of a-z, 0-9, _ and -, and not %s.", d.Agent, RoleBus)
	case len(d.Reason) > 1024:
		return agentInvalid("reason", "The reason has more than 1024 bytes.")
	case !names && (d.Roles != nil || d.Domains != nil):
		return agentInvalid("roles", "Only add and set have roles and domains.")
	case !brings && d.Key != "":
		return agentInvalid("key", "Only add and rotate have a key.")
	}
	if brings {
		key, err := DecodeKey(d.Key)
		if err != nil {
			return err
		}
		c.key = key
	}
	if !names {
		return nil
	}
	return checkRoles(d.Roles, d.Domains)
}

// The roles that code refers to by name.
const (
	RoleIntake       = "intake"
	RoleOrchestrator = "orchestrator"
	RoleDomainAgent  = "domain-agent"
	RoleGate         = "gate"
	RolePlatformOps  = "platform-ops"
	RoleAuditor      = "auditor"
	RoleBus          = "bus" // the broker itself
)

// namesMax bounds the roles and the domains of one agent.
const namesMax = 50

// checkRoles keeps those apart who propose, who decide and who approve: no agent
// is two of them, whatever keys its owner has.
func checkRoles(roles, domains []string) error {
	if len(roles) == 0 || len(domains) > namesMax {
		return agentInvalid("roles", "An agent has a role, and at most %d domains.", namesMax)
	}
	apart := 0
	for i, role := range roles {
		if !isRole(role) || role == RoleBus || slices.Contains(roles[:i], role) {
			return agentInvalid("roles", "%.40q is no role, or is given twice: there are intake, orchestrator, domain-agent, gate, platform-ops and auditor.", role)
		}
		if role == RoleOrchestrator || role == RoleDomainAgent || role == RoleGate {
			apart++
		}
	}
	if apart > 1 {
		return agentInvalid("roles", "An agent is one of orchestrator, domain-agent and gate: who proposes does not decide, and who decides does not approve.")
	}
	if slices.Contains(roles, RoleDomainAgent) != (len(domains) > 0) {
		return agentInvalid("domains", "A domain-agent has a domain, and nobody else has one.")
	}
	for i, domain := range domains {
		if !nameForm(domain) || isRole(domain) || slices.Contains(domains[:i], domain) {
			return agentInvalid("domains", "%.40q is no name of a domain, or is given twice: use up to 63 characters of a-z, 0-9, _ and -, and not the name of a role.", domain)
		}
	}
	return nil
}

func agentInvalid(field, format string, args ...any) *event.Error {
	return event.Errorf(event.CodeAgentInvalid, format, args...).With(field)
}
