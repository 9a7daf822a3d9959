// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"signalbox/api"
	"signalbox/event"
)

// WholeCatalogue reads a catalogue that is to be put in force, with code policy_invalid
// if it is not whole. What a verb leaves out would be taken for harmless, since no tier
// is tier 0 and no deny is that nothing is denied, so each says all of it. And what the
// protocol never does (changing multi-factor authentication, deleting backups, deleting
// many accounts, wiping firmware) nobody permits by leaving it out: a verb of the
// built-in catalogue is denied at least what it is denied there.
//
// [ParseCatalogue] reads one that is in force, which may be older than this rule.
func WholeCatalogue(text []byte) (*Catalogue, error) {
	c, err := ParseCatalogue(text)
	if err != nil {
		return nil, err
	}
	var members struct {
		Verbs []map[string]jsontext.Value `json:"verbs"`
	}
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, event.Errorf(event.CodePolicyInvalid, "The catalogue of verbs cannot be read: %.200v.", err)
	}
	if members.Verbs == nil {
		return nil, event.Errorf(event.CodePolicyInvalid, "The catalogue has no verbs. Write all that steps may do into \"verbs\", or [] if that is nothing.").With("verbs")
	}
	for i := range c.Verbs {
		v := &c.Verbs[i]
		for _, needed := range []struct{ member, todo string }{
			{"tier", "Write the least tier that a step with it has, from 0 for what changes nothing to 3."},
			{"params", "Write the parameters that it may be given, or {} if there are none."},
			{"deny", "Write when it is refused whatever its approvals, or [] if never. What would change multi-factor authentication, delete backups, delete many accounts or wipe firmware is denied."},
		} {
			if value := members.Verbs[i][needed.member]; value == nil || value.Kind() == 'n' {
				return nil, event.Errorf(event.CodePolicyInvalid, "The verb %.80q has no %q. %s", v.Name, needed.member, needed.todo).With(v.Name)
			}
		}
		if d := permitted(v); d != nil {
			return nil, event.Errorf(event.CodePolicyInvalid, "The verb %.80q permits what no ticket does. %s Add the deny that it has in the built-in catalogue of verbs, or give what is harmless another name.", v.Name, d.Why).With(v.Name)
		}
	}
	return c, nil
}

var builtIn = sync.OnceValues(func() (*Catalogue, error) { return ParseCatalogue(api.Verbs) })

// permitted returns a condition of the built-in catalogue that a verb of the same name
// is not denied under; nil: it is denied all of that. It panics if that catalogue cannot
// be read, which a test does.
func permitted(v *Verb) *Deny {
	c, err := builtIn()
	if err != nil {
		panic("ticket: the built-in catalogue of verbs: " + err.Error())
	}
	b, ok := c.Verb(v.Name)
	if !ok {
		return nil
	}
	for i := range b.Deny {
		d := &b.Deny[i]
		if !slices.ContainsFunc(v.Deny, func(by Deny) bool { return by.covers(d) }) {
			return d
		}
	}
	return nil
}

// covers reports whether a condition holds wherever another one does.
func (d *Deny) covers(other *Deny) bool {
	switch {
	case d.Target != "" && !hasAny(other.Target, []string{d.Target}):
		return false
	case d.TargetsOver > 0 && (other.TargetsOver == 0 || d.TargetsOver > other.TargetsOver):
		return false
	case d.Param == "":
		return true
	case d.Param != other.Param:
		return false
	}
	// What is denied under one of several values is denied under each of them.
	within := func(these, those []string) bool {
		return !slices.ContainsFunc(these, func(text string) bool {
			return !slices.ContainsFunc(those, func(by string) bool { return strings.EqualFold(text, by) })
		})
	}
	equals := !slices.ContainsFunc(other.Equals, func(value any) bool {
		return !slices.ContainsFunc(d.Equals, func(by any) bool { return same(by, value) })
	})
	below := other.Below == nil || d.Below != nil && *d.Below >= *other.Below
	return equals && below && within(other.Contains, d.Contains) && within(other.Names, d.Names)
}
