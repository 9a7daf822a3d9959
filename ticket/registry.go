// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"signalbox/api"
	"signalbox/event"
	"signalbox/internal/validjson"
)

// The types that code refers to by name. All of them are in the registry.
const (
	TypeOpen            = "ticket.open"
	TypePlanRequest     = "plan.request"
	TypeProposal        = "proposal"
	TypePlan            = "plan"
	TypeApprovalRequest = "approval.request"
	TypeApprovalGrant   = "approval.grant"
	TypeApprovalDeny    = "approval.deny"
	TypeExecute         = "execute"
	TypeResult          = "result"
	TypeEscalation      = "escalation"
	TypeHeartbeat       = "heartbeat"
	TypeState           = "ticket.state"
)

// Domain stands, among targets and in what a role reads, for a domain: one of its
// own for an agent that has domains, any for one that has none.
const Domain = "<domain>"

// Type says of the messages of one type who may send them, to whom, and what is
// due when.
type Type struct {
	Name      string     `json:"type"`
	Family    string     `json:"family"` // the topic's token before the target
	Routes    []Route    `json:"routes"`
	Deadlines []Deadline `json:"deadlines"` // the first ends the delivery
}

// Route is who may send a message to whom.
type Route struct {
	From []string `json:"from"` // roles
	To   []string `json:"to"`   // targets, or Domain
}

// Deadline is a moment that a payload names, and what follows when it is missed.
type Deadline struct {
	Member  string   `json:"member"` // of the payload
	Default Duration `json:"default"`
	Missed  string   `json:"missed,omitempty"` // escalation, dead-letter, or nothing
	Met     []string `json:"met,omitempty"`    // the types of messages that meet it, see MetBy
}

// What follows when a deadline is missed.
const (
	MissedEscalation = "escalation"
	MissedDeadLetter = "dead-letter" // and a page
)

// MetBy reports whether a message of some type meets the deadline of the one that
// it answers.
func (d *Deadline) MetBy(kind string) bool {
	return slices.Contains(d.Met, "*") || slices.Contains(d.Met, kind)
}

// Duration is written as in policies of topics, such as 30m or 24h.
type Duration time.Duration

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := event.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Role is what an agent may be, and what it may read, as topic patterns behind
// those of the space.
type Role struct {
	Name  string   `json:"role"`
	Reads []string `json:"reads"`
}

// registry is what api.TicketRegistry says.
type registry struct {
	SchemaVersion string      `json:"schema_version"`
	Majors        []int       `json:"majors"`
	TTL           Duration    `json:"ttl"`
	Heartbeat     Heartbeat   `json:"heartbeat"`
	Levels        []level     `json:"levels"`
	Roles         []Role      `json:"roles"`
	Types         []Type      `json:"types"`
	States        []State     `json:"states"`
	SliceStates   []State     `json:"slice_states"`
	Moves         []Move      `json:"moves"`
	Takes         []Take      `json:"takes"`
	Secrets       secretRules `json:"secrets"`
}

// Heartbeat says how often every agent sends one, and how many may be missed until
// its silence is escalated.
type Heartbeat struct {
	Every  Duration `json:"every"`
	Missed int      `json:"missed"`
}

// Silence is for how long an agent may be silent.
func (h Heartbeat) Silence() time.Duration { return time.Duration(h.Missed) * time.Duration(h.Every) }

// level says who is asked when a target does not answer.
type level struct {
	Target string `json:"target"` // or Domain
	Above  string `json:"above"`
}

// load reads the registry once. It panics if the embedded document cannot be
// read, which a test would have shown.
var load = sync.OnceValue(func() *registry {
	r := &registry{}
	if err := json.Unmarshal(api.TicketRegistry, r, json.RejectUnknownMembers(true)); err != nil {
		panic(fmt.Sprintf("ticket: api/ticket/registry.json: %v", err))
	}
	for i := range r.Secrets.Values {
		f := &r.Secrets.Values[i]
		f.pattern = regexp.MustCompile(f.Pattern)
		for _, part := range f.Has {
			f.has = append(f.has, []byte(part))
		}
	}
	return r
})

// protocolNames has every name that the schema gives to a member.
var protocolNames = sync.OnceValue(func() map[string]bool {
	var schema any
	if err := json.Unmarshal(api.TicketSchema, &schema); err != nil {
		panic(fmt.Sprintf("ticket: api/ticket/schema.json: %v", err))
	}
	names := map[string]bool{}
	collect(schema, names)
	return names
})

func collect(v any, names map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for key, part := range v {
			if properties, ok := part.(map[string]any); ok && key == "properties" {
				for name := range properties {
					names[name] = true
				}
			}
			collect(part, names)
		}
	case []any:
		for _, part := range v {
			collect(part, names)
		}
	}
}

// SchemaVersion is the version of envelope and payloads that this code speaks.
func SchemaVersion() string { return load().SchemaVersion }

// SpeaksMajor reports whether messages of a major version are taken: that which is
// spoken here and, while both are read after a change of the major, the one before.
func SpeaksMajor(major int) bool { return slices.Contains(load().Majors, major) }

// Heartbeats says how often agents send heartbeats.
func Heartbeats() Heartbeat { return load().Heartbeat }

// Above returns the target of escalations that is asked when another target does
// not answer; false if there is none above it.
func Above(target string) (string, bool) {
	for _, l := range load().Levels {
		if l.Target == target || l.Target == Domain && !isRole(target) {
			return l.Above, true
		}
	}
	return "", false
}

// TTL is how long a message is delivered for that has no deadline of its own.
func TTL() time.Duration { return time.Duration(load().TTL) }

// Types returns all types, in the order of the registry. They must not be changed.
func Types() []Type { return load().Types }

// TypeOf returns a type by its name.
func TypeOf(name string) (*Type, bool) {
	types := load().Types
	i := slices.IndexFunc(types, func(t Type) bool { return t.Name == name })
	if i < 0 {
		return nil, false
	}
	return &types[i], true
}

// Roles returns all roles, in the order of the registry. They must not be changed.
func Roles() []Role { return load().Roles }

func (t *Type) targets() string {
	var all []string
	for _, r := range t.Routes {
		all = append(all, r.To...)
	}
	return strings.ReplaceAll(strings.Join(all, ", "), Domain, "a domain")
}

// goesTo reports whether a message of the type can go to a target at all. A
// domain cannot be told from a misspelt role, so roles are no domains.
func (t *Type) goesTo(target string) bool {
	return slices.ContainsFunc(t.Routes, func(r Route) bool {
		return slices.Contains(r.To, target) || slices.Contains(r.To, Domain) && !isRole(target)
	})
}

func isRole(name string) bool {
	return slices.ContainsFunc(load().Roles, func(r Role) bool { return r.Name == name })
}

// MaySend reports whether an agent with some roles and domains may send a message
// of the type to a target.
func (t *Type) MaySend(roles, domains []string, target string) bool {
	return slices.ContainsFunc(t.Routes, func(r Route) bool {
		for _, role := range roles {
			if !slices.Contains(r.From, role) {
				continue
			}
			if slices.Contains(r.To, target) || slices.Contains(r.To, Domain) && !isRole(target) && (len(domains) == 0 || slices.Contains(domains, target)) {
				return true
			}
		}
		return false
	})
}

// Expires returns when the delivery of a message ends: at the first deadline of
// its type, as its payload has it or else by default, or after the TTL.
func (m *Message) Expires() (time.Time, error) {
	t, _ := TypeOf(m.header.Type) // Parse took only types that there are
	if len(t.Deadlines) == 0 {
		return m.header.Time.Add(TTL()), nil
	}
	return m.Due(&t.Deadlines[0])
}

// text returns a member of the payload; false if there is none, or it is null or has
// parts.
func (m *Message) text(name string) (string, bool) {
	raw := validjson.Lookup(m.payload, name)
	if len(raw) == 0 || raw[0] == 'n' || raw[0] == '{' || raw[0] == '[' {
		return "", false
	}
	if raw[0] == '"' {
		raw = validjson.Text(raw)
	}
	return string(raw), true
}

// Due returns when a deadline of a message is.
func (m *Message) Due(d *Deadline) (time.Time, error) {
	text, ok := m.text(d.Member)
	if !ok {
		return m.header.Time.Add(time.Duration(d.Default)), nil
	}
	if timeForm(text) {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, invalid("payload", "has in %s no time of RFC 3339 in UTC that ends in Z", d.Member)
}
