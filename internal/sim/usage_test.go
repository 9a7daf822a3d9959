// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"signalbox/event"
)

// usage is when somebody has used a subscription that ends if nobody does.
type usage struct {
	after   int64 // ms; 0: it never ends by itself
	surely  int64 // log time at which somebody used it last, as far as it is certain
	perhaps int64 // and if the broker has taken all that was tried for use
}

// unusedSlack is how much later than it has to a subscription may end: ticks come
// once a second, and what a crash has prevented is done a minute later.
const unusedSlack = 65_000 // ms

func (u *usage) used(millis int64, surely bool) {
	if u.perhaps = millis; surely {
		u.surely = millis
	}
}

// expired reports whether a subscription has ended because nobody used it, and fails
// if it has not and must have, or has and must not.
func (w *world) expired(id string, u *usage) bool {
	if u.after == 0 {
		return false
	}
	info, err := w.broker.Subscription(id)
	unused := w.model.millis - u.perhaps
	switch {
	case err == nil && unused > u.after+u.after/4+unusedSlack && w.model.millis > w.lastStart+unusedSlack:
		w.fail("the subscription %s has not been used for %d ms, ends after %d, and has not ended: used at %d, and now is %d", id, unused, u.after, info.Status.Used.UnixMilli(), w.model.millis)
	case err == nil:
		return false
	case code(err) != event.CodeSubscriptionUnknown:
		w.fail("the subscription %s: %v", id, err)
	case w.model.millis-u.surely < u.after:
		w.fail("the subscription %s was used %d ms ago, ends after %d, and has ended", id, w.model.millis-u.surely, u.after)
	}
	w.note("the subscription %s has ended, as nobody used it", id[:4])
	w.counts["expired"]++
	return true
}

// endUnused forgets the subscriptions that have ended because nobody used them.
func (w *world) endUnused() {
	w.pulls = slices.DeleteFunc(w.pulls, func(p *pull) bool { return w.expired(p.id, &p.usage) })
	w.streams = slices.DeleteFunc(w.streams, func(s *stream) bool { return w.expired(s.id, &s.usage) })
}
