// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"maps"
	"slices"

	"signalbox/internal/store"
)

// terms checks that each webhook is found by its events, and nothing else is.
func (v *verifier) terms(found map[uint32]*verifiedSubscription) error {
	err := v.in.Terms(func(t store.TermAt, err error) error {
		if err != nil {
			v.undecoded(Finding{}, err)
			return v.row()
		}
		s := found[t.Number]
		if s == nil {
			s = &verifiedSubscription{}
		}
		if _, ok := s.terms[string(t.Term)]; !ok {
			v.badSubscription(s, "Events are looked up for subscription number %d under %q, which is not what it asks for.", t.Number, t.Term)
			return v.row()
		}
		s.terms[string(t.Term)] = true
		return v.row()
	})
	if err != nil || !v.complete("subscriptions") {
		return err
	}
	for _, number := range slices.Sorted(maps.Keys(found)) {
		s := found[number]
		for _, term := range slices.Sorted(maps.Keys(s.terms)) {
			if !s.terms[term] {
				v.badSubscription(s, "The row is missing by which events under %q find the subscription: it would not be woken.", term)
			}
		}
	}
	return nil
}
