// SPDX-License-Identifier: Apache-2.0

package eventlog_test

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/eventlog"
)

// proposals draws proposals of every kind, with everything that an encoding
// has to carry.
func proposals() *rapid.Generator[*eventlog.Proposal] {
	return rapid.Custom(func(t *rapid.T) *eventlog.Proposal {
		p := &eventlog.Proposal{
			Node: rapid.Uint32().Draw(t, "node"), Sequence: rapid.Uint64().Draw(t, "sequence"),
			Kind:           eventlog.Kind(rapid.IntRange(1, 7).Draw(t, "kind")),
			AdmittedMillis: rapid.Int64().Draw(t, "admitted"),
			Principal:      rapid.String().Draw(t, "principal"), Topic: rapid.StringMatching(`[a-z.]{0,9}`).Draw(t, "topic"),
		}
		switch p.Kind {
		case eventlog.KindEvents:
			p.Batch = rapid.Bool().Draw(t, "batch")
			p.Condition = conditions().Draw(t, "condition")
			p.Schema = schemaChecks().Draw(t, "schema")
			if rapid.Bool().Draw(t, "idempotent") {
				p.Idempotency = eventlog.Idempotency{Set: true, Scope: [16]byte(draw(t, 16)), Request: [16]byte(draw(t, 16))}
			}
			least, most := 0, 5
			if p.Message = messages().Draw(t, "message"); p.Message != nil {
				least, most = 1, 1
			}
			p.Entries = rapid.SliceOfN(entries(), least, most).Draw(t, "entries")
		case eventlog.KindControl:
			p.Control = controls().Draw(t, "control")
		case eventlog.KindSubscription:
			p.Subscription = subscriptions().Draw(t, "subscription")
			p.Entries = rapid.SliceOfN(entries(), 0, 2).Draw(t, "entries")
		case eventlog.KindReading:
			p.Reading = &eventlog.Reading{Door: rapid.String().Draw(t, "door"), Positions: "1-3,9", Messages: rapid.Uint64().Draw(t, "messages"), To: rapid.Uint64().Draw(t, "to")}
		case eventlog.KindRefusal:
			p.RefusedCode = rapid.String().Draw(t, "code")
			p.RefusedCount = rapid.Uint64().Draw(t, "count")
		}
		return p
	})
}

func draw(t *rapid.T, n int) []byte { return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "bytes") }

// messages draws what apply has to know of a message; nil for no message.
func messages() *rapid.Generator[*eventlog.Message] {
	return rapid.Custom(func(t *rapid.T) *eventlog.Message {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		text := func(label string) string { return rapid.String().Draw(t, label) }
		m := &eventlog.Message{
			Key: text("key"), Verbs: text("verbs"), Type: text("type"), Ticket: text("ticket"), Trace: text("trace"), Cause: text("cause"), From: text("from"), To: text("to"),
			Nonce: text("nonce"), Idempotency: text("idempotency"), SentMillis: rapid.Int64().Draw(t, "sent"), Payload: text("payload"), Op: text("op"), Execute: text("execute"),
		}
		for range rapid.IntRange(0, 2).Draw(t, "inflight") {
			m.Inflight = append(m.Inflight, eventlog.Inflight{Execute: text("executed"), Progress: draw(t, 3)})
		}
		notes(t, m)
		return m
	})
}

// notes draws what one type of message says.
func notes(t *rapid.T, m *eventlog.Message) {
	text := func(label string) string { return rapid.String().Draw(t, label) }
	number := func(label string) int { return rapid.Int().Draw(t, label) }
	millis := func(label string) int64 { return rapid.Int64().Draw(t, label) }
	list := func(label string) []string { return rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, label) }
	switch rapid.IntRange(0, 8).Draw(t, "noted") {
	case 1:
		m.Requester = text("requester")
	case 2:
		m.Asked = &eventlog.Asked{Slice: text("slice"), Revision: number("revision"), DueMillis: millis("due")}
	case 3:
		m.Proposed = &eventlog.Proposed{
			Slice: text("slice"), Revision: number("revision"), Hash: text("hash"), Steps: text("steps"), Rollback: text("rollback"), Tier: number("tier"), Targets: list("targets"), ValidMillis: millis("valid"),
		}
	case 4:
		m.Planned = &eventlog.Planned{
			Plan: text("plan"), Hash: text("hash"), Revision: number("revision"), Tier: number("tier"), Slices: []eventlog.PlannedSlice{{ID: text("id"), Hash: text("of")}}, Frozen: text("frozen"), ValidMillis: millis("valid"),
		}
	case 5:
		m.Approval = &eventlog.Approval{
			Request: text("request"), Kind: text("kind"), Revision: number("revision"), Tier: number("tier"), Approvers: number("approvers"), Target: text("target"), Options: list("options"),
			Plan: text("plan"), Hash: text("hash"), Choice: text("choice"), ExpiresMillis: millis("expires"),
		}
	case 6:
		m.Executed = &eventlog.Executed{
			Plan: text("plan"), Hash: text("hash"), Slice: text("slice"), Mode: text("mode"), Steps: text("steps"), Numbers: []int{1, number("n")}, Approvals: list("approvals"), Targets: list("targets"), DeliverMillis: millis("deliver"), CompleteMillis: millis("complete"),
		}
	case 7:
		m.Resulted = &eventlog.Resulted{Hash: text("hash"), Slice: text("slice"), Outcome: text("outcome"), Passed: rapid.Bool().Draw(t, "passed"), Numbers: []int{1, number("n")}, Unfinished: rapid.Bool().Draw(t, "unfinished")}
	case 8:
		tier := number("tier")
		m.Moved = &eventlog.Moved{From: text("from"), To: text("to"), Causes: list("causes"), Slices: []eventlog.MovedSlice{{ID: text("id"), State: text("state")}}, Tier: &tier, Target: text("target"), Action: text("action")}
	}
}

func schemaChecks() *rapid.Generator[eventlog.SchemaCheck] {
	return rapid.Custom(func(t *rapid.T) (c eventlog.SchemaCheck) {
		if rapid.Bool().Draw(t, "unchecked") {
			return c
		}
		c.Hash[rapid.IntRange(0, 15).Draw(t, "at")] = 1
		for range rapid.IntRange(0, 3).Draw(t, "faults") {
			c.Faults = append(c.Faults, eventlog.SchemaFault{
				Entry: rapid.IntRange(0, 999).Draw(t, "entry"), Pointer: rapid.String().Draw(t, "pointer"),
				Keyword: rapid.String().Draw(t, "keyword"), Text: rapid.String().Draw(t, "text"),
			})
		}
		return c
	})
}

func conditions() *rapid.Generator[eventlog.Condition] {
	return rapid.Custom(func(t *rapid.T) eventlog.Condition {
		c := eventlog.Condition{IfMatchAny: rapid.Bool().Draw(t, "any"), IfNoneMatch: rapid.Bool().Draw(t, "none")}
		if rapid.Bool().Draw(t, "positions") { // an empty list is not the same as none
			c.IfMatch = rapid.SliceOf(rapid.Uint64()).Draw(t, "match")
		}
		return c
	})
}

func entries() *rapid.Generator[eventlog.Entry] {
	return rapid.Custom(func(t *rapid.T) eventlog.Entry {
		e := eventlog.Entry{
			ID: rapid.String().Draw(t, "id"), Source: rapid.String().Draw(t, "source"),
			Key: rapid.String().Draw(t, "key"), HasKey: rapid.Bool().Draw(t, "hasKey"),
			HLC: event.HLC(rapid.Uint64().Draw(t, "hlc")), ExpiryMillis: rapid.Int64().Draw(t, "expiry"),
			Flags: eventlog.EntryFlags(rapid.Byte().Draw(t, "flags")), WireBytes: rapid.Uint32().Draw(t, "wire"),
			Members: rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "members"),
		}
		e.DataOffset = uint32(rapid.IntRange(0, len(e.Members)).Draw(t, "offset"))
		e.DataLength = uint32(rapid.IntRange(0, len(e.Members)-int(e.DataOffset)).Draw(t, "length"))
		raw := draw(t, 16+8+16+16+32)
		copy(e.Identity.ID[:], raw)
		copy(e.Identity.Source[:], raw[16:])
		copy(e.Content[:], raw[24:])
		copy(e.Salt[:], raw[40:])
		copy(e.Body[:], raw[56:])
		if len(e.Members) == 0 {
			e.Members = nil
		}
		return e
	})
}

func controls() *rapid.Generator[eventlog.Control] {
	return rapid.Custom(func(t *rapid.T) eventlog.Control {
		c := eventlog.Control{
			Op:       rapid.SampledFrom([]string{eventlog.OpConfigure, eventlog.OpPutTopic, eventlog.OpDeleteTopic, eventlog.OpRetire, eventlog.OpFound, eventlog.OpAgent, eventlog.OpVerbs, eventlog.OpBus}).Draw(t, "op"),
			Topic:    rapid.StringMatching(`[a-z]{0,9}`).Draw(t, "name"),
			RetireTo: rapid.Uint64().Draw(t, "retireTo"),
		}
		switch c.Op {
		case eventlog.OpConfigure:
			c.Settings = &eventlog.Settings{
				FeatureLevel: rapid.Int().Draw(t, "level"), MaxDriftMillis: rapid.Int64().Draw(t, "drift"),
				DedupMillis: rapid.Int64().Draw(t, "window"), TopicsMax: rapid.Int().Draw(t, "topics"),
				TimersPerTick: rapid.Int().Draw(t, "timers"), IncarnationName: rapid.StringMatching(`[a-z0-9]{8}`).Draw(t, "incarnation"),
			}
		case eventlog.OpPutTopic:
			policy := event.DefaultPolicy()
			policy.CleanupPolicy = rapid.SampledFrom([]string{event.CleanupDelete, event.CleanupCompact, event.CleanupCompactDelete}).Draw(t, "cleanup")
			policy.KeyFrom = rapid.SampledFrom([]string{"", "order.id"}).Draw(t, "keyFrom")
			policy.RequireHLC = rapid.Bool().Draw(t, "requireHLC")
			if rapid.Bool().Draw(t, "unlimited") {
				policy.Retention = nil
			}
			c.Policy = &policy
		case eventlog.OpFound:
			c.Founding = &eventlog.Founding{Space: rapid.String().Draw(t, "space"), Administrator: rapid.String().Draw(t, "administrator")}
		case eventlog.OpAgent:
			c.Change = "x" + rapid.String().Draw(t, "change")
		case eventlog.OpVerbs:
			c.Verbs = "x" + rapid.String().Draw(t, "verbs")
		case eventlog.OpBus:
			c.Key = "x" + rapid.String().Draw(t, "key")
		}
		return c
	})
}

func subscriptions() *rapid.Generator[*eventlog.Subscription] {
	return rapid.Custom(func(t *rapid.T) *eventlog.Subscription {
		number := func(label string) uint64 { return rapid.Uint64().Draw(t, label) }
		place := eventlog.Place{Cursor: number("cursor"), Began: number("began"), Since: rapid.Int64().Draw(t, "since")}
		s := &eventlog.Subscription{ID: rapid.StringMatching(`[a-z0-9]{16}`).Draw(t, "id")}
		switch rapid.IntRange(0, 5).Draw(t, "op") {
		case 0:
			config := event.DefaultSubscriptionConfig()
			config.Kind = rapid.SampledFrom([]string{event.KindPull, event.KindStream}).Draw(t, "kind")
			s.Op, s.Now, s.Place, s.Owner = eventlog.SubscriptionCreate, rapid.Bool().Draw(t, "now"), &place, "somebody"
			s.Document = &event.Subscription{Protocol: event.ProtocolSignalbox, Types: []string{"t"}, Filters: []byte(`[{"sql":"TRUE"}]`), Config: config}
		case 1:
			s.Op = eventlog.SubscriptionHandOut
			s.HandOut = &eventlog.HandOut{Epoch: rapid.Uint32().Draw(t, "epoch"), From: place, To: place, Again: []uint64{number("again")}, Max: 3, Visibility: 1000,
				Events: []eventlog.Candidate{{Position: number("position"), Topic: "a", Ordered: true, Key: [16]byte(draw(t, 16)), Before: eventlog.Counts{Dropped: 1}}}}
		case 2:
			s.Op = eventlog.SubscriptionSettle
			s.Settle = []eventlog.Settle{{Position: number("position"), Token: number("token"), Verdict: eventlog.VerdictNack, Delay: 5, Error: "busy"}}
		case 3:
			s.Op, s.Bury = eventlog.SubscriptionBury, &eventlog.Bury{Position: number("position"), Token: number("token"), Cause: "rejected", Prefix: 7}
		case 4:
			s.Op, s.Gap = eventlog.SubscriptionGap, &eventlog.Gap{From: place, To: place, Lost: number("lost")}
		case 5:
			s.Op, s.Letters, s.Reason = eventlog.SubscriptionDiscard, []uint64{number("letter")}, "why"
		}
		return s
	})
}

// TestProposalRoundTrip shows that a log which keeps proposals hands apply the
// same ones as the embedded log, which does not encode them.
func TestProposalRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := proposals().Draw(t, "proposal")
		encoded := p.AppendBinary([]byte("before"))[len("before"):]
		got, err := eventlog.DecodeProposal(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if p.Kind == eventlog.KindEvents && p.Entries == nil {
			p.Entries = []eventlog.Entry{}
		}
		if !reflect.DeepEqual(got, p) {
			t.Fatalf("decoded %+v\n  encoded %+v", got, p)
		}
		// Whatever is cut off is missed.
		cut := rapid.IntRange(0, len(encoded)-1).Draw(t, "cut")
		if p, err := eventlog.DecodeProposal(encoded[:cut]); !errors.Is(err, eventlog.ErrFormat) {
			t.Fatalf("the first %d of %d bytes decode to %+v, %v", cut, len(encoded), p, err)
		}
		if p, err := eventlog.DecodeProposal(append(encoded, 0)); !errors.Is(err, eventlog.ErrFormat) {
			t.Fatalf("a byte too many decodes to %+v, %v", p, err)
		}
	})
}

// TestLocalIsNotEncoded: who waits for the answer is known to one process only.
func TestLocalIsNotEncoded(t *testing.T) {
	p := &eventlog.Proposal{Kind: eventlog.KindProbe, Sequence: 1}
	plain := p.AppendBinary(nil)
	p.Local = t
	if string(p.AppendBinary(nil)) != string(plain) {
		t.Error("Local is in the encoding")
	}
}

// TestDecodeRefuses has encodings that are whole but mean nothing that apply
// could act upon.
func TestDecodeRefuses(t *testing.T) {
	head := []byte{1, 1, 0, 0, 0, 0, 0} // format, kind, node, sequence, admitted, principal, topic
	with := func(change func(b []byte), rest ...byte) []byte {
		b := append(append([]byte(nil), head...), rest...)
		change(b)
		return b
	}
	keep := func([]byte) {}
	entry := (&eventlog.Proposal{Kind: eventlog.KindEvents, Entries: []eventlog.Entry{{Members: []byte("{}"), DataOffset: 1, DataLength: 2}}}).AppendBinary(nil)
	for name, b := range map[string][]byte{
		"nothing":                       {},
		"another format":                with(func(b []byte) { b[0] = 2 }, 0, 0),
		"an unknown kind":               with(func(b []byte) { b[1] = 9 }),
		"unknown request bits":          with(keep, 0x80, 0),
		"more entries than a batch has": with(keep, 0, 0xe9, 0x07),
		"more positions than bytes":     with(keep, 1<<4, 0xff, 0xff, 0xff, 0xff, 0x0f),
		"a node beyond 32 bits":         append([]byte{1, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f}, 0, 0, 0, 0),
		"data outside the event":        entry,
		"an unknown operation":          (&eventlog.Proposal{Kind: eventlog.KindControl, Control: eventlog.Control{Op: "x"}}).AppendBinary(nil),
		"settings without settings":     (&eventlog.Proposal{Kind: eventlog.KindControl, Control: eventlog.Control{Op: eventlog.OpConfigure}}).AppendBinary(nil),
		"a policy without a policy":     (&eventlog.Proposal{Kind: eventlog.KindControl, Control: eventlog.Control{Op: eventlog.OpPutTopic}}).AppendBinary(nil),
	} {
		if p, err := eventlog.DecodeProposal(b); !errors.Is(err, eventlog.ErrFormat) {
			t.Errorf("%s: decoded to %+v, %v", name, p, err)
		}
	}
}

// FuzzDecodeProposal: no bytes panic the decoder or make it allocate beyond
// their own size, and what it takes apply can use and encode again.
func FuzzDecodeProposal(f *testing.F) {
	for _, p := range []*eventlog.Proposal{
		{Kind: eventlog.KindTick, Sequence: math.MaxUint64, AdmittedMillis: math.MinInt64},
		{Kind: eventlog.KindRefusal, RefusedCode: "hlc_drift", RefusedCount: 3},
		{Kind: eventlog.KindReading, Reading: &eventlog.Reading{Door: "sse", Topics: "bus.>", Positions: "5-9,12", Messages: 6, From: 4, To: 12}},
		{Kind: eventlog.KindControl, Control: eventlog.Control{Op: eventlog.OpRetire, Topic: "a", RetireTo: 7}},
		{Kind: eventlog.KindControl, Control: eventlog.Control{Op: eventlog.OpConfigure, Settings: &eventlog.Settings{FeatureLevel: 1}}},
		{Kind: eventlog.KindEvents, Topic: "a", Entries: []eventlog.Entry{{ID: "1", Source: "/s", Members: []byte(`"data":1}`), DataOffset: 7, DataLength: 1}}},
		{Kind: eventlog.KindEvents, Schema: eventlog.SchemaCheck{Hash: [16]byte{1}, Faults: []eventlog.SchemaFault{{Entry: 3, Pointer: "/a", Keyword: "type", Text: "is wrong"}}}},
		{Kind: eventlog.KindEvents, Batch: true, Condition: eventlog.Condition{IfMatch: []uint64{1, 1 << 60}}, Idempotency: eventlog.Idempotency{Set: true}},
		{Kind: eventlog.KindEvents, Message: &eventlog.Message{Type: "heartbeat", Inflight: []eventlog.Inflight{{Execute: "m", Progress: []byte("{}")}}}, Entries: []eventlog.Entry{{ID: "1"}}},
		{Kind: eventlog.KindControl, Control: eventlog.Control{Op: eventlog.OpFound, Founding: &eventlog.Founding{Space: "main"}}},
		{Kind: eventlog.KindControl, Control: eventlog.Control{Op: eventlog.OpAgent, Change: "{}"}},
	} {
		f.Add(p.AppendBinary(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := eventlog.DecodeProposal(b)
		if err != nil {
			if p != nil || !errors.Is(err, eventlog.ErrFormat) {
				t.Fatalf("refused with %+v, %v", p, err)
			}
			return
		}
		for i := range p.Entries {
			e := &p.Entries[i]
			_ = e.Members[e.DataOffset : e.DataOffset+e.DataLength]
		}
		again, err := eventlog.DecodeProposal(p.AppendBinary(nil))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, p) {
			t.Fatalf("encoded and decoded again it is %+v\n  instead of %+v", again, p)
		}
	})
}
