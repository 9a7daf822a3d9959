// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
	"signalbox/internal/validjson"
)

// None stands where there is nothing to name: as the ticket of a heartbeat, and
// as the cause of a message that nothing caused.
const None = "-"

// Header has the members of an envelope that are not its payload or signature.
type Header struct {
	ID             string // msg_ and a ULID
	SchemaVersion  string // semver of envelope and payloads together
	Type           string // one of the registry
	TicketID       string
	TraceID        string
	CausationID    string // the message that this one answers, or None
	From           string // the agent that signs
	To             string // a role or a domain, the last token of the topic
	Nonce          string
	IdempotencyKey string
	Time           time.Time // ts, by the sender's clock
}

// Message is a decoded envelope. It cannot be changed.
type Message struct {
	header    Header
	raw       []byte
	payload   []byte // a part of raw
	signed    []byte // canonical form without sig
	canonical bool   // the payload is its own canonical form
	signature [ed25519.SignatureSize]byte
}

// Header returns the members that are not payload or signature.
func (m *Message) Header() Header { return m.header }

// Bytes returns the envelope as it was received. They must not be changed.
func (m *Message) Bytes() []byte { return m.raw }

// Payload returns the payload as it was received. It must not be changed.
func (m *Message) Payload() []byte { return m.payload }

// CanonicalPayload returns the canonical form (RFC 8785) of the payload, which its
// hash is over. It must not be changed.
func (m *Message) CanonicalPayload() []byte {
	if m.canonical {
		return m.payload
	}
	return canonical(bytes.Clone(m.payload))
}

// Signed returns what the signature is over: the canonical form (RFC 8785) of the
// envelope without sig. It must not be changed.
func (m *Message) Signed() []byte { return m.signed }

// Verify reports whether the message was signed with a key, with code
// signature_invalid if it was not.
func (m *Message) Verify(key ed25519.PublicKey) error {
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, m.signed, m.signature[:]) {
		return event.Errorf(event.CodeSignatureInvalid, "The signature is not that of %q over the canonical form (RFC 8785) of the envelope without sig.", m.header.From).With("sig")
	}
	return nil
}

// VerifyBy has the signature verified by other means, which are given what is signed
// and the signature, and must not change them.
func (m *Message) VerifyBy(verify func(signed, signature []byte) bool) bool {
	return verify(m.signed, m.signature[:])
}

// Topic returns the topic of the message in a space.
func (m *Message) Topic(space string) string {
	t, _ := TypeOf(m.header.Type) // Parse took only types that there are
	return TopicRoot + "." + space + "." + t.Family + "." + m.header.To
}

// TopicRoot is the first token of all topics of messages.
const TopicRoot = "bus"

// member numbers the members of an envelope, in canonical order.
type member uint8

const (
	memberCausationID member = iota
	memberFrom
	memberID
	memberIdempotencyKey
	memberNonce
	memberPayload
	memberSchemaVersion
	memberSig
	memberTicketID
	memberTo
	memberTraceID
	memberTS
	memberType
	members
)

var memberNames = [members]string{
	memberCausationID: "causation_id", memberFrom: "from", memberID: "id", memberIdempotencyKey: "idempotency_key",
	memberNonce: "nonce", memberPayload: "payload", memberSchemaVersion: "schema_version", memberSig: "sig",
	memberTicketID: "ticket_id", memberTo: "to", memberTraceID: "trace_id", memberTS: "ts", memberType: "type",
}

// Parse decodes an envelope and keeps a copy of its bytes. It refuses with code
// message_invalid whatever is no envelope, with version_unsupported a major version
// that is not spoken here, and with message_type_unknown a type that is not in the
// registry. It does not verify the signature, and does not look at what the payload
// says.
func Parse(raw []byte) (*Message, error) {
	m, err := ParseAny(raw)
	if err != nil {
		return nil, err
	}
	if v := m.header.SchemaVersion; !SpeaksMajor(major(v)) {
		return nil, event.Errorf(event.CodeVersionUnsupported, "The schema_version is %s, and messages of version %s are spoken here.", v, SchemaVersion()).
			With("schema_version").Fact("schema_version", SchemaVersion())
	}
	if _, ok := TypeOf(m.header.Type); !ok {
		return nil, m.header.unknown()
	}
	return m, nil
}

// ParseAny is Parse for messages of other versions, too, whose type may not be known
// here. Such a message has no topic and no deadline; all that can be done with it is
// to verify who signed it.
func ParseAny(raw []byte) (*Message, error) {
	if len(raw) > MaxMessageBytes {
		return nil, event.Errorf(event.CodeEventTooLarge, "The message has %d bytes and may have %d. Put what is large elsewhere and refer to it.", len(raw), MaxMessageBytes).
			Fact("limit", MaxMessageBytes)
	}
	m := &Message{raw: bytes.Clone(raw)}
	values, ok := parts(m.raw)
	if !ok {
		var err error
		if values, err = split(m.raw); err != nil {
			return nil, err
		}
	}
	if err := m.header.set(&values); err != nil {
		return nil, err
	}
	m.payload = values[memberPayload]
	if jsontext.Value(m.payload).Kind() != jsontext.KindBeginObject {
		return nil, invalid("payload", "is not a JSON object")
	}
	look := surveyed(m.payload)
	if !look.plain {
		if err := checkValue(m.payload, "payload"); err != nil {
			return nil, err
		}
	}
	if err := m.setSignature(values[memberSig]); err != nil {
		return nil, err
	}
	m.canonical = look.canonical
	m.signed = join(&values)
	if !look.canonical || escaped(&values) {
		m.signed = canonical(m.signed)
	}
	return m, nil
}

// parts is split for an envelope in which nothing is wrong or out of the ordinary.
func parts(raw []byte) (values [members][]byte, ok bool) {
	if !jsontext.Value(raw).IsValid() {
		return values, false
	}
	r := validjson.NewReader(raw)
	if r.Kind() != validjson.Object {
		return values, false
	}
	r.Enter()
	found := 0
	for ; !r.Leave(); found++ {
		at := memberOf(string(validjson.Text(r.Scalar())))
		if at == members {
			return values, false
		}
		r.Kind()
		start := r.Offset()
		r.Skip(nil)
		values[at] = raw[start:r.Offset()]
	}
	return values, found == int(members) // no name is there twice
}

// split finds the values of the members. They are parts of raw.
func split(raw []byte) (values [members][]byte, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if d.PeekKind() != jsontext.KindBeginObject {
		return values, invalid("", "is not a JSON object")
	}
	if _, err := d.ReadToken(); err != nil {
		return values, syntaxFault(err, "")
	}
	for d.PeekKind() == jsontext.KindString {
		token, err := d.ReadToken()
		if err != nil {
			return values, syntaxFault(err, "")
		}
		name := token.String()
		at := memberOf(name)
		if at == members {
			return values, unknownMember(name)
		}
		value, err := d.ReadValue()
		if err != nil {
			return values, syntaxFault(err, name)
		}
		end := d.InputOffset()
		values[at] = raw[end-int64(len(value)) : end]
	}
	if _, err := d.ReadToken(); err != nil {
		return values, syntaxFault(err, "")
	}
	if len(bytes.TrimLeft(raw[d.InputOffset():], " \t\r\n")) > 0 {
		return values, invalid("", "has text after its JSON object")
	}
	for at, name := range memberNames {
		if values[at] == nil {
			return values, invalid(name, "is missing")
		}
	}
	return values, nil
}

func memberOf(name string) member {
	for at, n := range memberNames {
		if n == name {
			return member(at)
		}
	}
	return members
}

func unknownMember(name string) error {
	if at := memberOf(fold(name)); at != members {
		return invalid(memberNames[at], "is written %.40q", name)
	}
	return invalid("", "has the member %.40q, which is none of an envelope", name)
}

// escaped reports whether a text of the envelope is written with escapes. What has
// none is written in one way only.
func escaped(values *[members][]byte) bool {
	for at, value := range values {
		if member(at) != memberPayload && bytes.IndexByte(value, '\\') >= 0 {
			return true
		}
	}
	return false
}

// join puts the members without sig into one object, in canonical order.
func join(values *[members][]byte) []byte {
	size := 0
	for at, value := range values {
		size += len(memberNames[at]) + len(value) + len(`"":,`)
	}
	out := append(make([]byte, 0, size), '{')
	for at, value := range values {
		if member(at) == memberSig {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), memberNames[at]...), `":`...), value...)
	}
	return append(out, '}')
}

const signaturePrefix = "ed25519:"

// encoding is base64url without padding; strict, so that a signature has one
// form only.
var encoding = base64.RawURLEncoding.Strict()

func (m *Message) setSignature(value []byte) error {
	text, _ := unquote(value)
	if !decodeSignature(&m.signature, text) {
		return invalid("sig", "is not ed25519: and the signature in base64url without padding")
	}
	return nil
}

func decodeSignature(to *[ed25519.SignatureSize]byte, text string) bool {
	encoded, ok := strings.CutPrefix(text, signaturePrefix)
	if !ok || len(encoded) != encoding.EncodedLen(len(to)) {
		return false
	}
	_, err := encoding.Decode(to[:], []byte(encoded))
	return err == nil
}

func unquote(value []byte) (string, bool) {
	if jsontext.Value(value).Kind() != jsontext.KindString {
		return "", false
	}
	text, err := jsontext.AppendUnquote(nil, value)
	return string(text), err == nil
}
