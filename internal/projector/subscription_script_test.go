// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

func (s *script) subscriptionCommands() map[string]func() string {
	return map[string]func() string{
		"sub-create": s.subCreate, "sub-update": s.subUpdate, "sub": s.subShow, "sub-pending": s.subPending, "sub-letters": s.subLetters,
		"sub-delete": func() string {
			op := s.subOp(eventlog.SubscriptionDelete)
			op.IfUnused = s.data.HasArg("if-unused")
			return s.proposeOp(op, s.subNotice()...)
		},
		"sub-pause":  func() string { return s.proposeOp(s.subOp(eventlog.SubscriptionPause)) },
		"sub-resume": func() string { return s.proposeOp(s.subOp(eventlog.SubscriptionResume)) },
		"sub-seek":   func() string { return s.proposeOp(s.subAt(s.subOp(eventlog.SubscriptionSeek))) },
		"sub-ack":    func() string { return s.proposeOp(s.subAt(s.subOp(eventlog.SubscriptionAcknowledge))) },
		"sub-disable": func() string {
			op := s.subOp(eventlog.SubscriptionDisable)
			op.IfFailing, op.Reason = s.data.HasArg("if-failing"), "why not"
			return s.proposeOp(op, s.subNotice()...)
		},
		"sub-consent": s.subConsent, "sub-endpoint": s.subEndpoint,
		"hand-out": s.handOut, "settle": s.settle, "bury": s.bury, "gap": s.gap,
		"redrive": func() string {
			op := s.subOp(eventlog.SubscriptionRedrive)
			op.Letters, op.Force = s.positions("letters"), s.data.HasArg("force")
			return s.proposeOp(op)
		},
		"discard": func() string {
			op := s.subOp(eventlog.SubscriptionDiscard)
			op.Letters, op.Reason = s.positions("letters"), "why not"
			return s.proposeOp(op, s.subNotice()...)
		},
	}
}

func (s *script) subOp(op string) *eventlog.Subscription {
	return &eventlog.Subscription{Op: op, ID: s.text("id")}
}

// subAt: now, or to=@5 [began=@9]
func (s *script) subAt(op *eventlog.Subscription) *eventlog.Subscription {
	op.Now = s.data.HasArg("now")
	if !op.Now {
		op.Place = &eventlog.Place{Cursor: s.position(s.text("to"))}
		if began := s.text("began"); began != "" {
			op.Place.Began = s.position(began)
		}
	}
	return op
}

func (s *script) proposeOp(op *eventlog.Subscription, entries ...eventlog.Entry) string {
	return s.propose(&eventlog.Proposal{Kind: eventlog.KindSubscription, AdmittedMillis: s.admitted(), Subscription: op, Entries: entries}, verdict)
}

// subNotice: notice=I gives the proposal a notice with this id.
func (s *script) subNotice() []eventlog.Entry {
	if id := s.text("notice"); id != "" {
		return []eventlog.Entry{plainEntry(s.t, id)}
	}
	return nil
}

func plainEntry(t fataler, id string) eventlog.Entry {
	ev, err := event.Draft{ID: id, Source: "/broker", Type: "t", Data: []byte("1")}.Event()
	if err != nil {
		t.Fatal(err)
	}
	return entry(ev)
}

// sub-create id=A kind=(pull|stream|webhook) (now|to=@0) [order=key] [attempts=5] [quarantine=3]
// [outstanding=1000] [parked=10000] [expires=1h] [letters-kept=30d]
// [sink=https://sink.example/] [disable-after=5d]
func (s *script) subCreate() string {
	op := s.subAt(s.subOp(eventlog.SubscriptionCreate))
	op.Document = s.document()
	return s.proposeOp(op)
}

// sub-update …: as sub-create, but for the place
func (s *script) subUpdate() string {
	op := s.subOp(eventlog.SubscriptionUpdate)
	op.Document = s.document()
	return s.proposeOp(op)
}

func (s *script) document() *event.Subscription {
	c := event.DefaultSubscriptionConfig()
	c.Kind = s.text("kind")
	if order := s.text("order"); order != "" {
		c.Order = order
	}
	c.MaxAttempts = int(s.number("attempts", 5))
	c.QuarantineAfter = int(s.number("quarantine", 3))
	c.MaxOutstanding = int(s.number("outstanding", 1000))
	c.MaxParked = int(s.number("parked", 10_000))
	c.ExpiresAfter = event.Duration(s.duration("expires", 0) * 1e6)
	c.DeadLetterRetention = event.Duration(s.duration("letters-kept", 30*24*time.Hour) * 1e6)
	d := &event.Subscription{Protocol: event.ProtocolSignalbox, Config: c}
	if c.Kind == event.KindWebhook {
		d.Protocol, d.Sink = event.ProtocolHTTP, "https://sink.example/"
		if sink := s.text("sink"); sink != "" {
			d.Sink = sink
		}
		d.Config.DisableAfter = event.Duration(s.duration("disable-after", 5*24*time.Hour) * 1e6)
	}
	if err := d.Validate(); err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *script) subscription(id string) (number uint32, state store.SubscriptionState, ok bool) {
	number, _, state, ok, err := s.store.Subscription(id)
	if err != nil {
		s.t.Fatal(err)
	}
	return number, state, ok
}

// sub id=A: how far the subscription is, without what is zero.
func (s *script) subShow() string {
	_, state, ok := s.subscription(s.text("id"))
	if !ok {
		return "no subscription"
	}
	line := fmt.Sprintf("cursor=@%d", state.Cursor)
	for _, f := range []struct {
		name  string
		value uint64
	}{
		{"began", state.Began}, {"epoch", uint64(state.Epoch)}, {"outstanding", state.Outstanding}, {"ready", state.Ready}, {"parked", state.Parked},
		{"matched", state.Matched}, {"dropped", state.Dropped}, {"handed", state.Handed}, {"acked", state.Acked}, {"nacked", state.Nacked},
		{"lost", state.Lost}, {"buried", state.Buried}, {"quarantined", state.Quarantined}, {"gone", state.Gone}, {"gaps", state.Gaps},
		{"gap-to", state.GapTo}, {"letters", state.Letters},
	} {
		if f.value != 0 {
			line += fmt.Sprintf(" %s=%d", f.name, f.value)
		}
	}
	if state.Paused {
		line += " paused"
	}
	if state.Timer != 0 {
		line += " timer=" + moment(state.Timer)
	}
	if state.Error != "" {
		line += fmt.Sprintf(" error=%q", state.Error)
	}
	return line
}

// sub-pending id=A: the pending events, by position.
func (s *script) subPending() string {
	number, state, _ := s.subscription(s.text("id"))
	var lines []string
	each := func(position uint64, p store.Pending) (bool, error) {
		names := map[store.PendingState]string{store.PendingReady: "ready", store.PendingOut: "out", store.PendingParked: "parked"}
		line := fmt.Sprintf("@%d %s %s", position, p.Topic, names[p.State])
		if p.DueMillis != 0 {
			line += " until " + moment(p.DueMillis)
		}
		if p.Attempts != 0 {
			line += fmt.Sprintf(" attempts=%d lost=%d token=%d", p.Attempts, p.Lost, p.Token)
		}
		if p.Next != 0 {
			line += fmt.Sprintf(" next=@%d", p.Next)
		}
		if p.Letter != 0 {
			line += fmt.Sprintf(" letter=@%d", p.Letter)
		}
		lines = append(lines, line)
		return true, nil
	}
	if err := s.store.Outstanding(number, state.Epoch, each); err != nil {
		s.t.Fatal(err)
	}
	if err := s.store.Parked(number, state.Epoch, each); err != nil {
		s.t.Fatal(err)
	}
	return orNothing(lines)
}

// sub-letters id=A: the dead letters, by position.
func (s *script) subLetters() string {
	number, _, _ := s.subscription(s.text("id"))
	view := s.store.View(func() {})
	defer view.Close()
	var lines []string
	err := view.Letters(number, 0, func(position uint64, l store.Letter) (bool, error) {
		lines = append(lines, fmt.Sprintf("@%d of %s @%d cause=%s attempts=%d redrives=%d redriven=%d", position, l.Topic, l.Position, l.Cause, l.Attempts, l.Redrives, l.Redriven))
		return true, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return orNothing(lines)
}

// hand-out id=A max=3 [visibility=30s] [events=(@1:key,@2)] [to=@9] [again=@1] [gone=@2] [stale]
//
// From is where the subscription is, but with stale. All events are of topic t.
func (s *script) handOut() string {
	_, state, _ := s.subscription(s.text("id"))
	from := eventlog.Place{Cursor: state.Cursor, Began: state.Began, Since: state.Since}
	h := &eventlog.HandOut{Epoch: state.Epoch, From: from, To: from, Max: int(s.number("max", 1000)), Visibility: s.duration("visibility", 30*time.Second)}
	if s.data.HasArg("stale") {
		h.From.Cursor++
	}
	if arg, ok := s.data.Arg("events"); ok {
		for _, text := range arg.Vals {
			at, key, _ := strings.Cut(text, ":")
			c := eventlog.Candidate{Position: s.position(at), Topic: "t", Ordered: key != ""}
			sum := sha256.Sum256([]byte(key))
			copy(c.Key[:], sum[:])
			h.Events = append(h.Events, c)
			h.To.Cursor = c.Position
		}
	}
	if to := s.text("to"); to != "" {
		h.To.Cursor = s.position(to)
	}
	h.Again, h.Gone = s.positions("again"), s.positions("gone")
	op := s.subOp(eventlog.SubscriptionHandOut)
	op.HandOut = h
	return s.proposeOp(op)
}

func (s *script) positions(key string) (list []uint64) {
	arg, _ := s.data.Arg(key)
	for _, text := range arg.Vals {
		list = append(list, s.position(text))
	}
	return list
}

// settle id=A (ack|nack|extend)=(1.1,2.2) [delay=5s] [hold=1m] [error=E]
func (s *script) settle() string {
	op := s.subOp(eventlog.SubscriptionSettle)
	for _, verdict := range []string{eventlog.VerdictAck, eventlog.VerdictNack, eventlog.VerdictExtend, eventlog.VerdictReturn} {
		arg, _ := s.data.Arg(verdict)
		for _, text := range arg.Vals {
			position, token := s.token(text)
			op.Settle = append(op.Settle, eventlog.Settle{Position: position, Token: token, Verdict: verdict, Delay: s.duration("delay", 0), Hold: s.duration("hold", 0), Error: s.text("error")})
		}
	}
	return s.proposeOp(op)
}

func (s *script) token(text string) (position, token uint64) {
	left, right, _ := strings.Cut(text, ".")
	position, err1 := strconv.ParseUint(left, 10, 64)
	token, err2 := strconv.ParseUint(right, 10, 64)
	if err1 != nil || err2 != nil {
		s.t.Fatalf("%q is no token", text)
	}
	return position, token
}

// bury id=A (event=@1|token=1.1) cause=C [letter=I] [notice=I]
func (s *script) bury() string {
	op := s.subOp(eventlog.SubscriptionBury)
	op.Bury = &eventlog.Bury{Cause: s.text("cause")}
	if token := s.text("token"); token != "" {
		op.Bury.Position, op.Bury.Token = s.token(token)
	} else {
		op.Bury.Position = s.position(s.text("event"))
	}
	var entries []eventlog.Entry
	if id := s.text("letter"); id != "" {
		entries = append(entries, plainEntry(s.t, id))
	}
	return s.proposeOp(op, append(entries, s.subNotice()...)...)
}

// gap id=A lost=@9 notice=I
func (s *script) gap() string {
	_, state, _ := s.subscription(s.text("id"))
	from := eventlog.Place{Cursor: state.Cursor, Began: state.Began, Since: state.Since}
	to := from
	to.Began = s.position(s.text("lost"))
	op := s.subOp(eventlog.SubscriptionGap)
	op.Gap = &eventlog.Gap{From: from, To: to, Lost: to.Began}
	return s.proposeOp(op, s.subNotice()...)
}

// delivery writes down what apply said of a subscription's deliveries.
func delivery(d *projector.Delivery) string {
	if d.Stale {
		return "stale"
	}
	var parts []string
	for _, h := range d.Handed {
		parts = append(parts, fmt.Sprintf("@%d as %d.%d, attempt %d, until %s", h.Position, h.Position, h.Token, h.Attempt, moment(h.DueMillis)))
	}
	if d.Settled != nil {
		parts = append(parts, fmt.Sprint("settled ", d.Settled))
	}
	if d.Letter != 0 {
		parts = append(parts, fmt.Sprintf("letter @%d", d.Letter))
	}
	if d.Moved != 0 {
		parts = append(parts, fmt.Sprintf("moved %d", d.Moved))
	}
	if d.Full {
		parts = append(parts, "full")
	}
	if len(parts) == 0 {
		return "ok"
	}
	return strings.Join(parts, "\n")
}
