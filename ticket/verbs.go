// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"signalbox/event"
)

// Tiers of work, see the protocol. The highest of a ticket's steps is its own.
const (
	TierReadOnly     = 0
	TierReversible   = 1
	TierMaterial     = 2
	TierIrreversible = 3
)

// Catalogue is the closed list of what steps may do. A space has one in force, and
// a change of it is a control entry.
type Catalogue struct {
	Version    string `json:"version"`
	TargetsMax int    `json:"targets_max"` // more targets are tier 3
	Verbs      []Verb `json:"verbs"`
	// The breaker of a target opens when so many verifications of it have failed
	// within so long; if they are not given, 3 within 24h.
	BreakerFailures int      `json:"breaker_failures,omitempty"`
	BreakerWithin   Duration `json:"breaker_within,omitempty"`
}

// Breaker returns how many failed verifications of a target open its breaker, and
// within how long.
func (c *Catalogue) Breaker() (failures int, within time.Duration) {
	failures, within = 3, 24*time.Hour
	if c.BreakerFailures > 0 {
		failures = c.BreakerFailures
	}
	if c.BreakerWithin > 0 {
		within = time.Duration(c.BreakerWithin)
	}
	return failures, within
}

// Verb is one entry of a catalogue.
type Verb struct {
	Name         string           `json:"verb"`
	Domains      []string         `json:"domains"`
	Tier         int              `json:"tier"` // the least
	Irreversible bool             `json:"irreversible,omitempty"`
	Params       map[string]Param `json:"params"` // all there are
	Deny         []Deny           `json:"deny,omitempty"`
}

// Param is what a verb wants to know.
type Param struct {
	Type     string `json:"type,omitempty"` // of JSON Schema; "": any
	Required bool   `json:"required,omitempty"`
}

// Deny is a condition under which a step is refused, whatever its tier, its sender
// and its approvals. What is set of Target, TargetsOver and Param has to hold
// together, and of Param one of the rest is enough; if nothing is set, it always
// holds. Texts are compared without regard to case, and those that have something
// in them without regard to punctuation, too: see has.
type Deny struct {
	Why         string   `json:"why"`
	Target      string   `json:"target,omitempty"`       // the target has this in it
	TargetsOver int      `json:"targets_over,omitempty"` // the verb has more targets in the message
	Param       string   `json:"param,omitempty"`        // this parameter is given, and one of:
	Equals      []any    `json:"equals,omitempty"`       // it is one of these
	Contains    []string `json:"contains,omitempty"`     // it is a text with one of these in it
	Names       []string `json:"names,omitempty"`        // an object in it, at any depth, has a name with one of these in it
	Below       *int64   `json:"below,omitempty"`        // it is a lower number
}

// ParseCatalogue reads a catalogue, with code policy_invalid if it cannot be used. Whether
// it may be put in force is for [WholeCatalogue] to say.
func ParseCatalogue(text []byte) (*Catalogue, error) {
	if len(text) > maxCatalogueBytes {
		return nil, event.Errorf(event.CodePolicyInvalid, "The catalogue of verbs has more than %d bytes.", maxCatalogueBytes)
	}
	c := &Catalogue{}
	if err := json.Unmarshal(text, c, json.RejectUnknownMembers(true)); err != nil {
		return nil, event.Errorf(event.CodePolicyInvalid, "The catalogue of verbs cannot be read: %.200v.", err)
	}
	if !versionForm(c.Version) || c.TargetsMax < 1 {
		return nil, event.Errorf(event.CodePolicyInvalid, "The catalogue of verbs has no version such as 1.0.0, or no targets_max from 1 on.").With("version")
	}
	if c.BreakerFailures < 0 || c.BreakerFailures > maxBreakerFailures || c.BreakerWithin < 0 {
		return nil, event.Errorf(event.CodePolicyInvalid, "The breaker_failures of the catalogue of verbs are up to %d, and its breaker_within is a length of time.", maxBreakerFailures).With("breaker_failures")
	}
	for i := range c.Verbs {
		v := &c.Verbs[i]
		if slices.ContainsFunc(c.Verbs[:i], func(other Verb) bool { return other.Name == v.Name }) {
			return nil, event.Errorf(event.CodePolicyInvalid, "The verb %.80q is there twice.", v.Name).With(v.Name)
		}
		if fault := v.fault(); fault != "" {
			return nil, event.Errorf(event.CodePolicyInvalid, "The verb %.80q %s.", v.Name, fault).With(v.Name)
		}
	}
	return c, nil
}

// paramTypes are those that a parameter can have.
var paramTypes = []string{"", "string", "integer", "number", "boolean", "array", "object"}

func (v *Verb) fault() string {
	if v.Name == "" || len(v.Domains) == 0 || v.Tier < TierReadOnly || v.Tier > TierIrreversible {
		return "needs a name, a domain, and a tier from 0 to 3"
	}
	for name, p := range v.Params {
		if !slices.Contains(paramTypes, p.Type) {
			return fmt.Sprintf("has the parameter %.80q of the unknown type %.80q", name, p.Type)
		}
	}
	for _, d := range v.Deny {
		_, known := v.Params[d.Param]
		conditional := d.Equals != nil || d.Contains != nil || d.Names != nil || d.Below != nil
		switch {
		case d.Why == "":
			return "is denied without a reason"
		case (d.Param != "") != conditional || d.Param != "" && !known:
			return "is denied for a parameter that it has not, or of which nothing is said"
		case slices.ContainsFunc(slices.Concat(d.Contains, d.Names), empty) || d.Target != "" && empty(d.Target):
			return "is denied for a part without letters and digits"
		case slices.ContainsFunc(d.Equals, composed):
			return "is denied for a parameter that equals an object or an array, which are not compared"
		}
	}
	return ""
}

func empty(part string) bool {
	plain, _ := letters(part)
	return len(plain) == 0
}

func composed(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

// Verb returns an entry by its name.
func (c *Catalogue) Verb(name string) (*Verb, bool) {
	i := slices.IndexFunc(c.Verbs, func(v Verb) bool { return v.Name == name })
	if i < 0 {
		return nil, false
	}
	return &c.Verbs[i], true
}

// Check refuses a slice whose steps or rollback the catalogue does not have
// (verb_unknown) or denies (verb_denied). Domain is where it is to be done; "" is
// anywhere.
func (c *Catalogue) Check(domain string, s Slice) error {
	if len(s.Steps) > maxSteps || len(s.Rollback) > maxSteps {
		return event.Errorf(event.CodePayloadInvalid, "A slice has at most %d steps.", maxSteps).With("steps")
	}
	targets := targetsOf(s)
	for _, list := range []struct {
		field string
		steps []Action
	}{{"steps", s.Steps}, {"rollback", s.Rollback}} {
		for i, a := range list.steps {
			field := fmt.Sprintf("%s[%d]", list.field, i)
			v, ok := c.Verb(a.Verb)
			if !ok || domain != "" && !slices.Contains(v.Domains, domain) {
				return event.Errorf(event.CodeVerbUnknown, "The catalogue %s has no action %.80q for the domain %.80q, and free text is no action.", c.Version, a.Verb, domain).With(field)
			}
			params, err := v.params(a)
			if err != nil {
				return err.With(field)
			}
			for _, d := range v.Deny {
				if d.holds(a, params, targets[a.Verb]) {
					return event.Errorf(event.CodeVerbDenied, "The action %s on %.80q is never done through a ticket. %s", a.Verb, a.Target, d.Why).With(field)
				}
			}
		}
	}
	return nil
}

// targetsOf counts the targets of each verb of a slice.
func targetsOf(s Slice) map[string]int {
	seen := map[[2]string]bool{}
	count := map[string]int{}
	for _, list := range [][]Action{s.Steps, s.Rollback} {
		for _, a := range list {
			if at := [2]string{a.Verb, strings.ToLower(a.Target)}; !seen[at] {
				seen[at] = true
				count[a.Verb]++
			}
		}
	}
	return count
}

// params checks the parameters of a step: the ones that are needed, and no others.
func (v *Verb) params(a Action) (map[string]any, *event.Error) {
	given := map[string]any{}
	if len(a.Params) > 0 && json.Unmarshal(a.Params, &given) != nil {
		return nil, event.Errorf(event.CodePayloadInvalid, "The params of %s are not a JSON object.", v.Name)
	}
	for name, value := range given {
		p, ok := v.Params[name]
		if !ok {
			return nil, event.Errorf(event.CodeVerbUnknown, "The action %s has no parameter %.80q.", v.Name, name)
		}
		if !p.fits(value) {
			return nil, event.Errorf(event.CodePayloadInvalid, "The parameter %s of %s is not of type %s.", name, v.Name, p.Type)
		}
	}
	for name, p := range v.Params {
		if _, ok := given[name]; p.Required && !ok {
			return nil, event.Errorf(event.CodePayloadInvalid, "The action %s needs the parameter %s.", v.Name, name)
		}
	}
	return given, nil
}

func (p Param) fits(value any) (ok bool) {
	switch p.Type {
	case "string":
		_, ok = value.(string)
	case "integer":
		_, ok = whole(value)
	case "number":
		_, ok = value.(float64)
	case "boolean":
		_, ok = value.(bool)
	case "array":
		_, ok = value.([]any)
	case "object":
		_, ok = value.(map[string]any)
	default:
		ok = true
	}
	return ok
}

func (d *Deny) holds(a Action, params map[string]any, targets int) bool {
	if d.Target != "" && !hasAny(a.Target, []string{d.Target}) || d.TargetsOver > 0 && targets <= d.TargetsOver {
		return false
	}
	if d.Param == "" {
		return true
	}
	value, ok := params[d.Param]
	if !ok {
		return false
	}
	text, isText := value.(string)
	number, isNumber := value.(float64)
	return slices.ContainsFunc(d.Equals, func(denied any) bool { return same(denied, value) }) ||
		isText && hasAny(text, d.Contains) ||
		len(d.Names) > 0 && namesAny(value, d.Names) ||
		isNumber && d.Below != nil && number < float64(*d.Below)
}

func same(denied, value any) bool {
	a, isText := denied.(string)
	b, bothTexts := value.(string)
	if isText && bothTexts {
		return fold(a) == fold(b)
	}
	return !composed(value) && denied == value
}

func hasAny(text string, parts []string) bool {
	if len(parts) == 0 {
		return false
	}
	plain, begins := letters(text)
	return slices.ContainsFunc(parts, func(part string) bool { return has(plain, begins, part) })
}

// namesAny reports whether a name of an object within value has one of the parts in
// it. Values are not nested deeper than messages are.
func namesAny(value any, parts []string) bool {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if hasAny(name, parts) || namesAny(inner, parts) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(inner any) bool { return namesAny(inner, parts) })
	}
	return false
}

// has reports whether part is in a text, of which it takes the letters, without regard to case: as it stands within
// a run of letters and digits, or from the beginning of a word on across
// punctuation. So multi-factor and requireMulti_Factor have multifactor in them, and
// vm_failover has no mfa.
func has(plain []rune, begins []bool, part string) bool {
	want, _ := letters(part)
	for from := 0; from+len(want) <= len(plain); from++ {
		if !slices.Equal(plain[from:from+len(want)], want) {
			continue
		}
		if begins[from] || !slices.Contains(begins[from+1:from+len(want)], true) {
			return true
		}
	}
	return false
}

// letters returns the letters and digits of a text, folded, and which of them begin
// a word.
func letters(text string) (plain []rune, begins []bool) {
	begin, lower := true, false
	for _, r := range text {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			begin = true
			continue
		}
		begins = append(begins, begin || lower && unicode.IsUpper(r))
		begin, lower = false, unicode.IsLower(r)
		if r >= utf8.RuneSelf {
			r, _ = utf8.DecodeRuneInString(fold(string(r)))
		}
		plain = append(plain, unicode.ToLower(r))
	}
	return plain, begins
}
