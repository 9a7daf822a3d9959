// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"slices"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/filter"
)

// The causes of dead letters, as docs/subscriptions.md has them.
const (
	causeAttempts    = "attempts"
	causeRejected    = "rejected"
	causeQuarantined = "quarantined"
)

// letters are the dead letters of a subscription since it was moved last.
func (w *world) letters(p *pull, f broker.LetterFilter) []broker.Letter {
	list, next, err := w.broker.Letters(anonymous(), p.id, f, p.moved, broker.LetterMax)
	if err != nil || next != 0 {
		w.fail("%s: dead letters: %v, and more after %d", p, err, next)
	}
	return list
}

// mark notes which events have become dead letters, and finds each dead letter where
// it must be.
func (w *world) mark(p *pull) {
	listed := map[uint64]bool{}
	list := w.letters(p, broker.LetterFilter{})
	for i := range list {
		l := &list[i]
		d := p.deals[l.At.Position]
		if d == nil { // nobody heard of its hand-outs
			d = &deal{position: l.At.Position, item: w.find(l.At.Position)}
			p.deals[d.position] = d
		}
		listed[d.position] = true
		switch {
		case l.Position.Position < d.letter || d.discarded:
			w.fail("%s: the dead letter %s of @%d is there, which was replaced or discarded", p, l.Position, d.position)
		case l.Position.Position > d.letter:
			w.checkLetter(p, d, l)
			d.letter, d.event, d.redrives = l.Position.Position, bytes.Clone(l.Event), l.Redrives
			d.dead, d.again, d.rejected = true, false, false
		case d.acked:
			w.fail("%s: @%d is acknowledged and a dead letter (%s)", p, d.position, l.Cause)
		case l.Redriven != d.again && !d.perhaps:
			w.fail("%s: of the dead letter of @%d it is said that it is under way again: %t", p, d.position, l.Redriven)
		case l.Redriven && !d.again:
			d.revive()
		}
	}
	for _, d := range p.deals {
		if d.letter == 0 || listed[d.position] || d.acked || d.discarded {
			continue
		}
		if !d.perhaps {
			w.fail("%s: the dead letter of @%d is gone: %+v", p, d.position, *d)
		}
		d.acked, d.discarded = d.again, !d.again
	}
}

// revive has a dead letter under way again.
func (d *deal) revive() {
	d.redrives++
	d.again, d.dead = true, false
	d.token, d.attempts, d.due, d.ready = "", 0, 0, 0
}

// checkLetter judges a dead letter that is new: what it is of, and why it is one.
func (w *world) checkLetter(p *pull, d *deal, l *broker.Letter) {
	known := !d.perhaps && p.lost == 0 // workers have heard of all that was handed out
	c := &p.config
	spent := l.Attempts == c.MaxAttempts
	silent := l.Attempts >= c.QuarantineAfter
	switch {
	case d.acked:
		w.fail("%s: @%d is acknowledged and a dead letter (%s)", p, d.position, l.Cause)
	case l.Redriven:
		w.fail("%s: the new dead letter of @%d is under way", p, d.position)
	case known && (l.Attempts != d.attempts || l.Redrives != d.redrives):
		w.fail("%s: the dead letter of @%d has %d attempts and %d redrives, and must have %d and %d", p, d.position, l.Attempts, l.Redrives, d.attempts, d.redrives)
	case l.Cause == causeQuarantined:
		if l.Redrives < c.MaxRedrives && !silent {
			w.fail("%s: @%d is quarantined after %d attempts and %d redrives", p, d.position, l.Attempts, l.Redrives)
		}
	case l.Redrives >= c.MaxRedrives:
		w.fail("%s: @%d has come back %d times, and is a dead letter by %s", p, d.position, l.Redrives, l.Cause)
	case l.Cause == causeAttempts && !spent, l.Cause == causeRejected && known && !d.rejected:
		w.fail("%s: @%d is a dead letter by %s after %d attempts", p, d.position, l.Cause, l.Attempts)
	}
	got, err := event.DecodeDelivered(l.Event)
	if err != nil || got.Position() != d.position {
		w.fail("%s: the dead letter of @%d is of %s: %v", p, d.position, l.Event, err)
	}
	if e := d.item; e != nil && (got.ID() != e.id || got.Source() != e.source || got.HLC() != e.hlc || l.Topic != e.topic) {
		w.fail("%s: the dead letter of %s is of %s", p, e, l.Event)
	}
	if d.event != nil && !bytes.Equal(d.event, l.Event) {
		w.fail("%s: the dead letter of @%d was of %s, and is of %s", p, d.position, d.event, l.Event)
	}
	w.counts["dead letters"]++
	w.note("%s: @%d is a dead letter by %s", p, d.position, l.Cause)
}

// drawLetters draws which dead letters are meant, in one of the ways that there are to
// say so.
func (w *world) drawLetters(all []broker.Letter) (f broker.LetterFilter, means func(*broker.Letter) bool) {
	one := &all[w.rng.IntN(len(all))]
	kind := func(l *broker.Letter) string {
		text, _ := event.LookupJSON(l.Event, "type")
		return text
	}
	switch w.rng.IntN(6) {
	case 0:
		return f, func(*broker.Letter) bool { return true }
	case 1:
		f.Cause = one.Cause
		return f, func(l *broker.Letter) bool { return l.Cause == one.Cause }
	case 2:
		f.Topic = one.Topic
		return f, func(l *broker.Letter) bool { return l.Topic == one.Topic }
	case 3:
		f.Type = kind(one)
		return f, func(l *broker.Letter) bool { return kind(l) == kind(one) }
	case 4:
		var err error
		if f.Filter, err = filter.ParseText("type = 'made'"); err != nil {
			w.fail("a filter: %v", err)
		}
		return f, func(l *broker.Letter) bool { return kind(l) == "made" }
	}
	f.Positions = []uint64{one.Position.Position}
	return f, func(l *broker.Letter) bool { return l.Position == one.Position }
}

// stepLetters has dead letters delivered again, or discards them.
func stepLetters(w *world) {
	if len(w.pulls) == 0 {
		return
	}
	p := w.pulls[w.rng.IntN(len(w.pulls))]
	w.mark(p)
	all := w.letters(p, broker.LetterFilter{})
	if len(all) == 0 {
		return
	}
	f, means := w.drawLetters(all)
	meant := slices.DeleteFunc(slices.Clone(all), func(l broker.Letter) bool { return !means(&l) })
	same := func(a, b broker.Letter) bool { return a.Position == b.Position }
	if got := w.letters(p, f); !slices.EqualFunc(got, meant, same) {
		w.fail("%s: of %d dead letters %+v selects %d, and must %d", p, len(all), f, len(got), len(meant))
	}
	again := w.rng.IntN(3) > 0
	force := len(f.Positions) > 0 || f.Cause == causeQuarantined
	meant = slices.DeleteFunc(meant, func(l broker.Letter) bool {
		return l.Redriven || again && l.Cause == causeQuarantined && !force
	})
	ctx, cancel := w.waiting()
	defer cancel()
	var move broker.LetterMove
	var err error
	if again {
		move, err = w.broker.Redrive(ctx, anonymous(), p.id, f, p.moved, broker.LetterMax)
	} else {
		move, err = w.broker.Discard(ctx, anonymous(), p.id, f, p.moved, broker.LetterMax, "the simulation says so")
	}
	w.settle()
	lost := w.lost()
	p.usage.used(w.model.millis, !lost)
	for i := range meant {
		switch d := p.deals[meant[i].At.Position]; {
		case lost:
			d.perhaps = true
		case again:
			d.revive()
		default:
			d.discarded = true
		}
	}
	if lost {
		w.note("%s: letters: the power failed", p)
		return
	}
	if err != nil || move.Moved != len(meant) || move.Full || move.Next != 0 {
		w.fail("%s: redriving (%t) or discarding %+v: %+v (%v), and must be %d", p, again, f, move, err, len(meant))
	}
	w.note("%s: of %d dead letters %d go, again: %t", p, len(all), move.Moved, again)
	if again {
		w.counts["redriven"] += move.Moved
	} else {
		w.counts["discarded"] += move.Moved
	}
	w.mark(p)
}
