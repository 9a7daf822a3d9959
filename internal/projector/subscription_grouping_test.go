// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// subscribing draws proposals about subscriptions. Most of them only take effect
// if they fit what is stored, so each is drawn from the state that the last one
// left on a rig which applies them one by one.
type subscribing struct {
	*drawn
	rig *rig
	ids []string
}

func (d *subscribing) op(op string) *eventlog.Subscription {
	return &eventlog.Subscription{Op: op, ID: rapid.SampledFrom(d.ids).Draw(d.t, "subscription")}
}

func (d *subscribing) propose(op *eventlog.Subscription, entries ...eventlog.Entry) *eventlog.Proposal {
	return &eventlog.Proposal{Kind: eventlog.KindSubscription, AdmittedMillis: d.now, Subscription: op, Entries: entries}
}

func (d *subscribing) next() *eventlog.Proposal {
	switch rapid.IntRange(0, 13).Draw(d.t, "what") {
	case 0, 1, 2:
		return d.drawn.proposal()
	case 3:
		return d.events()
	case 4:
		return d.create()
	case 5:
		op := d.op(rapid.SampledFrom([]string{eventlog.SubscriptionPause, eventlog.SubscriptionResume, eventlog.SubscriptionDelete,
			eventlog.SubscriptionUpdate, eventlog.SubscriptionSeek, eventlog.SubscriptionAcknowledge}).Draw(d.t, "op"))
		op.Document = d.document()
		op.Place = &eventlog.Place{Cursor: uint64(rapid.IntRange(0, 20).Draw(d.t, "place"))}
		op.IfUnused = rapid.Bool().Draw(d.t, "ifUnused")
		return d.propose(op)
	case 6:
		d.now += 1000
		return tick(d.now)
	case 7, 8, 9:
		return d.handOut()
	case 10:
		return d.settle()
	case 11:
		return d.bury()
	case 12:
		return d.letters()
	}
	op := d.op(eventlog.SubscriptionGap)
	_, _, state, _, _ := d.rig.store.Subscription(op.ID)
	from := eventlog.Place{Cursor: state.Cursor, Began: state.Began}
	op.Gap = &eventlog.Gap{From: from, To: eventlog.Place{Cursor: state.Cursor, Began: state.Cursor + 3}, Lost: state.Cursor + 3}
	return d.propose(op, d.entry())
}

func (d *subscribing) document() *event.Subscription {
	c := event.DefaultSubscriptionConfig()
	c.Kind = rapid.SampledFrom([]string{event.KindPull, event.KindPull, event.KindPull, event.KindStream}).Draw(d.t, "subscriptionKind")
	c.MaxAttempts, c.QuarantineAfter = rapid.IntRange(1, 3).Draw(d.t, "attempts"), rapid.IntRange(1, 3).Draw(d.t, "quarantine")
	c.MaxOutstanding, c.MaxParked = rapid.IntRange(1, 4).Draw(d.t, "outstanding"), rapid.IntRange(0, 3).Draw(d.t, "parked")
	c.ExpiresAfter = event.Duration(rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(d.t, "expires"))
	c.DeadLetterRetention = event.Duration(30 * time.Second)
	return &event.Subscription{Protocol: event.ProtocolSignalbox, Config: c}
}

func (d *subscribing) create() *eventlog.Proposal {
	op := d.op(eventlog.SubscriptionCreate)
	if _, _, _, exists, _ := d.rig.store.Subscription(op.ID); exists { // ids are drawn by the broker and never come twice
		op.ID += "x"
		d.ids = append(d.ids, op.ID)
		if len(d.ids) > 8 {
			op = d.op(eventlog.SubscriptionPause)
			return d.propose(op)
		}
	}
	op.Document, op.Now = d.document(), rapid.Bool().Draw(d.t, "now")
	op.Place = &eventlog.Place{}
	return d.propose(op)
}

// pending returns the positions of pending events that are not parked.
func (d *subscribing) pending(id string) (state store.SubscriptionState, positions []uint64, rows map[uint64]store.Pending) {
	number, _, state, _, err := d.rig.store.Subscription(id)
	if err != nil {
		d.t.Fatal(err)
	}
	rows = map[uint64]store.Pending{}
	err = d.rig.store.Outstanding(number, state.Epoch, func(position uint64, p store.Pending) (bool, error) {
		positions = append(positions, position)
		rows[position] = p
		return true, nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return state, positions, rows
}

func (d *subscribing) handOut() *eventlog.Proposal {
	op := d.op(eventlog.SubscriptionHandOut)
	state, positions, _ := d.pending(op.ID)
	from := eventlog.Place{Cursor: state.Cursor, Began: state.Began, Since: state.Since}
	h := &eventlog.HandOut{Epoch: state.Epoch, From: from, To: from, Max: rapid.IntRange(1, 4).Draw(d.t, "max"),
		Visibility: int64(rapid.SampledFrom([]int{0, 1000, 5000}).Draw(d.t, "visibility"))}
	for _, position := range positions {
		switch rapid.IntRange(0, 4).Draw(d.t, "again") {
		case 0:
			h.Gone = append(h.Gone, position)
		case 1, 2:
			h.Again = append(h.Again, position)
		}
	}
	for position := state.Cursor + 1; position <= min(d.rig.projector.Space().Position, state.Cursor+4); position++ {
		c := eventlog.Candidate{Position: position, Topic: "a", Before: eventlog.Counts{Dropped: 1}}
		c.Ordered = rapid.IntRange(0, 3).Draw(d.t, "ordered") > 0
		c.Key[0] = byte(rapid.IntRange(0, 1).Draw(d.t, "candidateKey"))
		h.Events = append(h.Events, c)
		h.To.Cursor = position
	}
	op.HandOut = h
	return d.propose(op)
}

func (d *subscribing) settle() *eventlog.Proposal {
	op := d.op(eventlog.SubscriptionSettle)
	_, positions, rows := d.pending(op.ID)
	for _, position := range positions {
		op.Settle = append(op.Settle, eventlog.Settle{
			Position: position, Token: rows[position].Token - uint64(rapid.IntRange(0, 1).Draw(d.t, "older")),
			Verdict: rapid.SampledFrom([]string{eventlog.VerdictAck, eventlog.VerdictNack, eventlog.VerdictExtend, eventlog.VerdictReturn}).Draw(d.t, "verdict"),
			Delay:   int64(rapid.SampledFrom([]int{0, 3000}).Draw(d.t, "delay")),
		})
	}
	return d.propose(op)
}

func (d *subscribing) bury() *eventlog.Proposal {
	op := d.op(eventlog.SubscriptionBury)
	_, positions, rows := d.pending(op.ID)
	op.Bury = &eventlog.Bury{Cause: rapid.SampledFrom([]string{projector.CauseAttempts, projector.CauseQuarantined}).Draw(d.t, "cause")}
	if len(positions) > 0 {
		op.Bury.Position = rapid.SampledFrom(positions).Draw(d.t, "bury")
		if rapid.Bool().Draw(d.t, "reject") {
			op.Bury.Token = rows[op.Bury.Position].Token
		}
	}
	entries := []eventlog.Entry{d.entry(), d.entry()}
	for i := range entries { // as a dead letter is made: it does not expire
		entries[i].ExpiryMillis, entries[i].HLC = 0, 0
	}
	return d.propose(op, entries[:rapid.IntRange(0, 2).Draw(d.t, "entries")]...)
}

func (d *subscribing) letters() *eventlog.Proposal {
	op := d.op(rapid.SampledFrom([]string{eventlog.SubscriptionRedrive, eventlog.SubscriptionDiscard}).Draw(d.t, "op"))
	number, _, _, _, _ := d.rig.store.Subscription(op.ID)
	view := d.rig.store.View(func() {})
	defer view.Close()
	err := view.Letters(number, 0, func(position uint64, _ store.Letter) (bool, error) {
		op.Letters = append(op.Letters, position)
		return true, nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
	op.Force = rapid.Bool().Draw(d.t, "force")
	if rapid.IntRange(0, 3).Draw(d.t, "retire") == 0 && len(op.Letters) > 0 {
		return retire(projector.LetterTopic(op.ID), op.Letters[0])
	}
	return d.propose(op, d.entry())
}

// TestGroupingOfSubscriptions is invariant 2 for subscriptions: the same
// proposals give the same rows and the same answers, however they are grouped
// and wherever the process restarts; and they leave rows that verification finds
// sound.
func TestGroupingOfSubscriptions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		single := emptyRig(t)
		defer single.close()
		d := &subscribing{drawn: &drawn{t: t, now: epoch, topics: []string{"a", "b", "c"}}, rig: single, ids: []string{"A", "B"}}
		settings := defaultSettings()
		settings.TimersPerTick = rapid.IntRange(1, 5).Draw(t, "timersPerTick")
		settings.SubscriptionsMax = 3
		var log []*eventlog.Proposal
		var want []string
		apply := func(p *eventlog.Proposal) {
			if p.Kind == eventlog.KindControl && p.Control.Op == eventlog.OpConfigure {
				p.Control.Settings.SubscriptionsMax = 3
			}
			p.Sequence = uint64(len(log)) + 1
			log = append(log, p)
			want = append(want, verdict(single.apply([]*eventlog.Proposal{p})[0]))
		}
		apply(configure(settings))
		apply(tick(epoch))
		for range rapid.IntRange(1, 80).Draw(t, "proposals") {
			apply(d.next())
		}
		grouped := emptyRig(t)
		defer grouped.close()
		var got []string
		for rest := log; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "group")
			for _, result := range grouped.apply(rest[:n]) {
				got = append(got, verdict(result))
			}
			rest = rest[n:]
			if rapid.IntRange(0, 5).Draw(t, "then") == 0 {
				grouped.reopen()
			}
		}
		if !slices.Equal(want, got) {
			t.Fatalf("one by one:\n%s\n\ngrouped:\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
		if difference := diff(single.rows(), grouped.rows()); difference != "" {
			t.Fatal(difference)
		}
		checkSound(t, grouped)
	})
}
