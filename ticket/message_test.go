// SPDX-License-Identifier: Apache-2.0

package ticket_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/ticket"
)

func TestSignedMessageIsRead(t *testing.T) {
	m := sign(t, open(somePayload))
	h := m.Header()
	want := open(somePayload).Header
	want.SchemaVersion, want.CausationID = ticket.SchemaVersion(), ticket.None
	if h != want {
		t.Errorf("the header is %+v", h)
	}
	if err := m.Verify(publicOf("desk")); err != nil {
		t.Error(err)
	}
	if err := m.Verify(publicOf("net")); code(err) != event.CodeSignatureInvalid {
		t.Errorf("another key: %v", err)
	}
	if err := m.Verify(nil); code(err) != event.CodeSignatureInvalid {
		t.Errorf("no key: %v", err)
	}
	if got := m.Topic("main"); got != "bus.main.ticket.orchestrator" {
		t.Errorf("the topic is %s", got)
	}
	if due, err := m.Expires(); err != nil || !due.Equal(epoch.Add(10*time.Minute)) {
		t.Errorf("it expires at %v, %v", due, err)
	}
}

// TestBytesAreKept: what was received is what is forwarded, however it is spelt.
func TestBytesAreKept(t *testing.T) {
	raw := append([]byte("\n "), sign(t, open(somePayload)).Bytes()...)
	raw = append(raw, "\r\n\t"...)
	m, err := ticket.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.Bytes(), raw) {
		t.Errorf("kept %q", m.Bytes())
	}
	for i := range raw {
		raw[i] = 'x'
	}
	if err := m.Verify(publicOf("desk")); err != nil || m.Bytes()[0] != '\n' {
		t.Errorf("the message shares memory with the input: %v", err)
	}
}

func TestDraftFillsWhatIsLeftOut(t *testing.T) {
	d := ticket.Draft{Header: ticket.Header{Type: ticket.TypeOpen, TicketID: "INC-1", TraceID: "t", From: "desk", To: "orchestrator"}, Payload: map[string]any{"op": "open"}}
	first, second := sign(t, d).Header(), sign(t, d).Header()
	if first.ID == second.ID || first.Nonce == second.Nonce {
		t.Errorf("two messages have the id %s and the nonce %s", first.ID, first.Nonce)
	}
	if first.IdempotencyKey != first.ID || first.CausationID != ticket.None || time.Since(first.Time) > time.Hour {
		t.Errorf("the header is %+v", first)
	}
	if !regexp.MustCompile(`^msg_[0-7][0-9A-HJKMNP-TV-Z]{25}$`).MatchString(first.ID) {
		t.Errorf("the id is %s", first.ID)
	}
	// The first ten characters of a ULID are its time.
	if a, b := ticket.NewID(epoch), ticket.NewID(epoch); a[:14] != b[:14] || a == b || a[:14] >= ticket.NewID(epoch.Add(time.Millisecond))[:14] {
		t.Errorf("ids are %s and %s", a, b)
	}
}

// spelt is an envelope whose member is replaced, added or, with "", left out.
func spelt(t *testing.T, member, value string) string {
	t.Helper()
	text := string(sign(t, open(somePayload)).Bytes())
	at := regexp.MustCompile(`"` + member + `":("[^"]*"|\{[^}]*\})`)
	switch {
	case value == "":
		text = strings.ReplaceAll(strings.ReplaceAll(at.ReplaceAllString(text, ""), ",,", ","), "{,", "{")
	case at.MatchString(text):
		text = at.ReplaceAllString(text, `"`+member+`":`+value)
	default:
		text = strings.Replace(text, "{", `{"`+member+`":`+value+`,`, 1)
	}
	return strings.Replace(text, ",}", "}", 1)
}

func TestEnvelopeIsStrict(t *testing.T) {
	valid := string(sign(t, open(somePayload)).Bytes())
	refused := map[string]string{
		"nothing": "", "no object": "[]", "null": "null", "text after it": valid + "x", "two of them": valid + valid, "half of it": valid[:len(valid)/2],
		"a comma too many":  strings.Replace(valid, ",", ",,", 1),
		"a duplicate name":  strings.Replace(valid, "{", `{"id":"msg_01KDTX9K5D8Z3N7QW2R4S6T8VA",`, 1),
		"an escaped double": strings.Replace(valid, "{", `{"\u0069d":"msg_01KDTX9K5D8Z3N7QW2R4S6T8VA",`, 1),
		"a byte order mark": "\ufeff" + valid,
		"invalid UTF-8":     strings.Replace(valid, "Web", "W\xff", 1),
		"a lone surrogate":  strings.Replace(valid, "Web", `\ud800`, 1),
		"comments":          strings.Replace(valid, "{", "{/**/", 1),
	}
	for _, c := range [][2]string{
		{"extra", `"1"`}, {"ID", `"1"`}, {"Payload", "{}"}, {"ts", `1767268800`}, {"ts", `"2026-01-01T12:00:00+00:00"`}, {"ts", `"2026-02-30T12:00:00Z"`},
		{"ts", `"2026-01-01t12:00:00z"`}, {"ts", `"2026-01-01T12:00:00.0000000001Z"`}, {"id", `"01KDTX9K5D8Z3N7QW2R4S6T8VA"`}, {"id", `"msg_81KDTX9K5D8Z3N7QW2R4S6T8VA"`},
		{"id", `"msg_01kdtx9k5d8z3n7qw2r4s6t8va"`}, {"schema_version", `"1.0"`}, {"schema_version", `"01.0.0"`}, {"schema_version", `"1.0.0-rc1"`},
		{"ticket_id", `"-"`}, {"ticket_id", `"a b"`}, {"ticket_id", `""`}, {"trace_id", `""`}, {"causation_id", `""`}, {"causation_id", `"INC-1"`}, {"from", `"Desk"`},
		{"from", `"a.b"`}, {"from", `"-a"`}, {"to", `"gate"`}, {"to", `""`}, {"nonce", `"short"`}, {"nonce", `"nonce+0123456789"`}, {"idempotency_key", `""`},
		{"idempotency_key", `"é"`}, {"payload", `[]`}, {"payload", `null`}, {"payload", `"{}"`}, {"sig", `""`}, {"sig", `"` + strings.Repeat("A", 86) + `"`},
		{"sig", `"ed25519:` + strings.Repeat("A", 85) + `"`}, {"sig", `"ed25519:` + strings.Repeat("A", 86) + `=="`},
		{"sig", `"ed25519:` + strings.Repeat("A", 85) + `B"`}, // the last bits have to be zero
		{"sig", `"ed25519:` + strings.Repeat("/", 86) + `"`}, {"sig", `"rsa:` + strings.Repeat("A", 86) + `"`},
	} {
		refused[c[0]+" is "+c[1]] = spelt(t, c[0], c[1])
	}
	for _, member := range []string{"id", "schema_version", "type", "ticket_id", "trace_id", "causation_id", "from", "to", "ts", "nonce", "idempotency_key", "payload", "sig"} {
		refused["no "+member] = spelt(t, member, "")
		refused[member+" is a number"] = spelt(t, member, "7")
		refused[member+" is null"] = spelt(t, member, "null")
	}
	for name, text := range refused {
		if m, err := ticket.Parse([]byte(text)); code(err) != event.CodeMessageInvalid || m != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	if _, err := ticket.Parse([]byte(spelt(t, "type", `"act"`))); code(err) != event.CodeMessageTypeUnknown {
		t.Errorf("an unknown type: %v", err)
	}
	if _, err := ticket.Parse([]byte(strings.Repeat(" ", ticket.MaxMessageBytes) + valid)); code(err) != event.CodeEventTooLarge {
		t.Errorf("a large one: %v", err)
	}
}

func TestHeartbeatHasNoTicket(t *testing.T) {
	d := open(`{}`)
	d.Type, d.To, d.TicketID = ticket.TypeHeartbeat, "platform-ops", ticket.None
	if got := sign(t, d).Topic("main"); got != "bus.main.heartbeat.platform-ops" {
		t.Error(got)
	}
	d.TicketID = "INC-1"
	if _, err := d.Sign(keyOf("desk")); code(err) != event.CodeMessageInvalid {
		t.Error(err)
	}
}

// TestAnyChangeBreaksTheSignature: of what is signed, no value can be changed.
func TestAnyChangeBreaksTheSignature(t *testing.T) {
	for member, value := range map[string]string{
		"id": `"msg_01KDTX9K5D8Z3N7QW2R4S6T8VB"`, "schema_version": `"1.0.1"`, "ticket_id": `"INC-2"`, "trace_id": `"trace-2"`, "from": `"desk2"`,
		"causation_id": `"msg_01KDTX9K5D8Z3N7QW2R4S6T8VB"`, "ts": `"2026-01-01T12:00:00.50Z"`, "nonce": `"nonce-0123456780"`, "idempotency_key": `"k"`, "payload": `{}`,
	} {
		m, err := ticket.Parse([]byte(spelt(t, member, value)))
		if err != nil {
			t.Errorf("%s: %v", member, err)
			continue
		}
		if err := m.Verify(publicOf("desk")); code(err) != event.CodeSignatureInvalid {
			t.Errorf("%s was changed: %v", member, err)
		}
	}
}

// TestSignedPayloadsVerify: whatever JSON an agent has to say.
func TestSignedPayloadsVerify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := open("")
		d.Payload = map[string]any{"v": value(3).Draw(t, "value")}
		m, err := d.Sign(keyOf("desk"))
		if err != nil {
			t.Fatal(err)
		}
		again, err := ticket.Parse(m.Bytes())
		if err != nil || again.Verify(publicOf("desk")) != nil || !bytes.Equal(again.Signed(), m.Signed()) {
			t.Fatalf("%v: %s", err, m.Bytes())
		}
	})
}

func value(depth int) *rapid.Generator[any] {
	plain := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.String().AsAny(), rapid.Int64Range(-1<<53+1, 1<<53-1).AsAny(), rapid.Float64Range(-1e15, 1e15).AsAny(),
	}
	if depth > 0 {
		plain = append(plain, rapid.SliceOfN(value(depth-1), 0, 4).AsAny(), rapid.MapOfN(rapid.StringMatching(`[a-z0-9_é😀<&>/"]{0,4}`), value(depth-1), 0, 4).AsAny())
	}
	return rapid.OneOf(plain...)
}

func FuzzParse(f *testing.F) {
	d := open(somePayload)
	m, err := d.Sign(keyOf("desk"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.Bytes())
	f.Add([]byte(`{"id":1e400}`))
	f.Add([]byte(fmt.Sprintf(`{"payload":%s1%s}`, strings.Repeat("[", 200), strings.Repeat("]", 200))))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ticket.Parse(b)
		if err != nil {
			if c := code(err); c == event.CodeInternal {
				t.Fatalf("refused without a code: %v", err)
			}
			return
		}
		if !bytes.Equal(m.Bytes(), b) || !bytes.Contains(b, m.Payload()) {
			t.Fatal("the bytes were changed")
		}
		if again, err := ticket.Canonical(m.Signed()); err != nil || !bytes.Equal(again, m.Signed()) {
			t.Fatalf("the canonical form of %s is %s, %v", m.Signed(), again, err)
		}
		_ = m.CheckSecrets()
		_, _ = m.Expires()
	})
}

// envelopeOf is an envelope with a payload as it is, and a signature that is none.
func envelopeOf(payload string) []byte {
	return []byte(`{"causation_id":"-","from":"desk","id":"msg_01KDTX9K5D8Z3N7QW2R4S6T8VA","idempotency_key":"k","nonce":"nonce-0123456789","payload":` + payload +
		`,"schema_version":"` + ticket.SchemaVersion() + `","sig":"ed25519:` + strings.Repeat("A", 86) + `","ticket_id":"INC-1","to":"orchestrator","trace_id":"t","ts":"2026-01-01T12:00:00Z","type":"ticket.open"}`)
}

// somePayloads are in and out of canonical form, in each way that a survey of them
// tells apart.
var somePayloads = []string{
	`{}`, `{"a":1,"b":[{"c":"x"},{"b":2,"c":{}}],"d":null}`, `{"a":"\"\\\b\f\n\r\t é \u2028"}`, `{"b":1,"a":2}`, `{"a":{"c":1,"b":2}}`, `{"a":1,"ab":2,"a_b":3}`, `{"a ":1,"a":2}`,
	`{"a": 1}`, `{"a":[1 ,2]}`, "{\"a\":1\n}", `{"a":"\/"}`, `{"a":"\u0041"}`, `{"a":"\u000a"}`, `{"a":"\u001f"}`, `{"a":-0}`, `{"a":0}`, `{"a":-1}`, `{"a":1.0}`, `{"a":1e2}`, `{"a":0.5}`, `{"a":999999999999999}`,
	`{"a":9007199254740991}`, `{"a":9007199254740993}`, `{"a":1e400}`, `{"A":1}`, `{"a":1,"A":2}`, `{"Steps":1}`, `{"\u0061":1}`, `{"é":1,"z":2}`, `{"a":"\\"}`, `{"a":"\\\\\""}`, `{"":{"":""}}`, `{"\u007f":1}`, "{\"\u007f\":1}",
	`{"a":[` + strings.Repeat("[", ticket.MaxNesting-2) + strings.Repeat("]", ticket.MaxNesting-2) + `]}`, `{"a":[` + strings.Repeat("[", ticket.MaxNesting-1) + strings.Repeat("]", ticket.MaxNesting-1) + `]}`,
}

// payloadIsJudgedAlike holds what Parse makes of a payload against Canonical, which
// looks at everything.
func payloadIsJudgedAlike(t *testing.T, payload string) {
	t.Helper()
	want, fault := ticket.Canonical([]byte(payload))
	m, err := ticket.Parse(envelopeOf(payload))
	if object := strings.HasPrefix(strings.TrimLeft(payload, " \t\r\n"), "{"); !object || fault != nil {
		if err == nil {
			t.Errorf("%q is taken, and refused by itself: %v", payload, fault)
		}
		return
	}
	if err != nil {
		if len(payload) < ticket.MaxMessageBytes/2 {
			t.Errorf("%q: %v", payload, err)
		}
		return
	}
	if got := m.CanonicalPayload(); !bytes.Equal(got, want) || !bytes.Contains(m.Signed(), append([]byte(`"payload":`), want...)) {
		t.Errorf("the canonical form of %q is %q, and %q is taken for it, in %q", payload, want, got, m.Signed())
	}
}

func TestPayloadIsJudgedAlike(t *testing.T) {
	for _, payload := range somePayloads {
		payloadIsJudgedAlike(t, payload)
	}
}

func FuzzPayloadIsJudgedAlike(f *testing.F) {
	for _, payload := range somePayloads {
		f.Add(payload)
	}
	f.Fuzz(payloadIsJudgedAlike)
}
