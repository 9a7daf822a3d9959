// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"signalbox/event"
	"signalbox/internal/store"
)

// Actions on a breaker.
const (
	actionOpen  = "open"
	actionClose = "close"
)

// breakerIsOpen reports whether the breaker of a target is open.
func (j *judged) breakerIsOpen(target string) (bool, error) {
	row, err := j.breakerOf(target)
	return row.OpenedMillis != 0, err
}

// breakerOf reads what is known of a target.
func (j *judged) breakerOf(target string) (row store.BreakerRow, err error) {
	_, err = j.p.messageRow(store.MessageBreaker, target, &row)
	return row, err
}

// failed notes that a verification of targets has failed. Too many within the time
// that the policy gives open the breaker.
func (j *judged) failed(targets []string) error {
	most, within := j.p.registry.Verbs.Breaker()
	for _, target := range targets {
		row, err := j.breakerOf(target)
		if err != nil {
			return err
		}
		recent := row.Failures[:0]
		for _, at := range row.Failures {
			if at > j.now-within.Milliseconds() {
				recent = append(recent, at)
			}
		}
		recent = append(recent, j.now)
		row.Failures, row.Message = recent[max(0, len(recent)-most):], j.id
		if len(row.Failures) >= most && row.OpenedMillis == 0 {
			row.OpenedMillis = max(1, j.now)
		}
		j.set(store.MessageBreaker, target, row)
	}
	return nil
}

// breaker does to a breaker what a ticket.state says. Opening it is safe; it is
// closed by a grant, which that uses up.
func (j *judged) breaker(causes []cause) (*event.Error, error) {
	m := j.m.Moved
	switch {
	case m.Action == "":
		return nil, nil
	case m.Action == actionOpen:
		row, err := j.breakerOf(m.Target)
		if err == nil && row.OpenedMillis == 0 {
			row.OpenedMillis, row.Message = max(1, j.now), j.id
			j.set(store.MessageBreaker, m.Target, row)
		}
		return nil, err
	}
	for _, by := range causes {
		if j.mayChangeBreaker(by.id) {
			j.use(by.id)
			j.void(func(r *store.RequestRow) bool { return r.Kind == requestBreakerReset && r.Target == m.Target })
			j.set(store.MessageBreaker, m.Target, store.BreakerRow{Message: j.id})
			return nil, nil
		}
	}
	return j.illegal("payload/breaker", ruleOfGuard("breaker")), nil
}

// mayChangeBreaker reports whether a message allows what a ticket.state does to a
// breaker.
func (j *judged) mayChangeBreaker(id string) bool {
	if j.m.Moved.Action != actionClose {
		return true
	}
	r, _, ok := j.enough(id, requestBreakerReset)
	return ok && r.Target == j.m.Moved.Target
}
