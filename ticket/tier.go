// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"fmt"
	"strings"
)

// Proposed is a slice and where it is to be done.
type Proposed struct {
	Domain string
	Slice
	// Irreversible says that a step was proposed as such, whatever the catalogue
	// says of its verb; Suggested is the tier that its agent asks for.
	Irreversible bool
	Suggested    int
}

// Tier returns the tier of a plan of several slices, which are to have passed
// Check, and the reason for it. An agent may raise it by what it suggests, and
// nobody can lower it.
func (c *Catalogue) Tier(proposed []Proposed) (tier int, reason string) {
	raise := func(to int, format string, args ...any) {
		if to > tier || reason == "" {
			tier, reason = max(tier, to), fmt.Sprintf(format, args...)
		}
	}
	raise(TierReadOnly, "Nothing is changed.")
	domains, targets := map[string]bool{}, map[string]bool{}
	for _, p := range proposed {
		domains[p.Domain] = true
		writes := false
		for _, list := range [][]Action{p.Steps, p.Rollback} {
			for _, a := range list {
				targets[strings.ToLower(a.Target)] = true
				v, ok := c.Verb(a.Verb)
				if !ok {
					raise(TierIrreversible, "The catalogue has no %s.", a.Verb)
					continue
				}
				writes = writes || v.Tier > TierReadOnly
				raise(v.Tier, "%s is of tier %d.", v.Name, v.Tier)
				if v.Irreversible {
					raise(TierIrreversible, "%s cannot be undone.", v.Name)
				}
			}
		}
		if p.Irreversible {
			raise(TierIrreversible, "A step of %s cannot be undone.", p.Domain)
		}
		if writes && len(p.Rollback) == 0 {
			raise(TierMaterial, "%s has no rollback.", p.Domain)
		}
	}
	if len(domains) > 1 && tier > TierReadOnly {
		raise(TierMaterial, "There are %d domains.", len(domains))
	}
	if len(targets) > c.TargetsMax {
		raise(TierIrreversible, "There are %d targets, and more than %d are many.", len(targets), c.TargetsMax)
	}
	for _, p := range proposed {
		raise(p.Suggested, "The agent of %s asks for tier %d.", p.Domain, p.Suggested)
	}
	return tier, reason
}

// Approvers is how many different people have to approve a plan of a tier.
func Approvers(tier int) int {
	switch {
	case tier >= TierIrreversible:
		return 2
	case tier == TierMaterial:
		return 1
	}
	return 0
}
