// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// heldAgain is how much later a topic is looked at again of which something is
// held back.
const heldAgain = 60_000 // ms

// held returns up to which position of those that retention would remove nothing
// is wanted by a subscription any more, or has been kept for one for as long as
// the operator allows. Past that the subscription is told of a gap.
func (c *cleaner) held(t *store.Topic, to uint64, now int64) (free uint64, err error) {
	free = to
	err = c.b.store.SubscriptionStates(func(number uint32, s store.SubscriptionState) error {
		wanted, err := c.wanted(number, &s)
		if err != nil || wanted >= free {
			return err
		}
		config, ok, err := c.b.store.SubscriptionConfig(number)
		if err != nil || !ok {
			return err // it has ended since
		}
		d := &config.Document
		pending := s.Outstanding+s.Parked > 0 && (t.Name == projector.LetterTopic(d.ID) || t.Name == projector.TopicSubscriptions)
		if pending || d.Config.Matches(t.Name) {
			free = wanted
		}
		return nil
	})
	if err != nil || free >= to {
		return to, err
	}
	return c.overheld(t, free, to, now)
}

// wanted returns the position behind which a subscription has not settled
// everything.
func (c *cleaner) wanted(number uint32, s *store.SubscriptionState) (position uint64, err error) {
	position = s.Cursor
	first := func(at uint64, _ store.Pending) (bool, error) {
		position = min(position, at-1)
		return false, nil
	}
	if s.Outstanding > 0 {
		if err := c.b.store.Outstanding(number, s.Epoch, first); err != nil {
			return 0, err
		}
	}
	if s.Parked > 0 {
		if err := c.b.store.Parked(number, s.Epoch, first); err != nil {
			return 0, err
		}
	}
	return position, nil
}

// overheld returns up to which position the operator's cap on holding is
// exceeded, if that is more than free.
func (c *cleaner) overheld(t *store.Topic, free, to uint64, now int64) (uint64, error) {
	var bytes uint64 // of the topic, up to to
	_, err := c.b.store.EventAtOrBefore(t.Number, to, func(_ uint64, row store.EventRow) error {
		bytes = row.Bytes
		return nil
	})
	if err != nil {
		return 0, err
	}
	cutoff := now - c.b.options.HoldMax.Milliseconds()
	if r := t.Policy.Retention; r != nil {
		cutoff -= r.Std().Milliseconds()
	}
	err = c.b.store.Events(t.Number, max(free, t.RetiredTo), to, func(position uint64, row store.EventRow) (bool, error) {
		if row.LogMillis > cutoff && bytes-row.Bytes < c.b.options.HoldBytes {
			return false, nil
		}
		free = position
		return true, nil
	})
	return free, err
}
