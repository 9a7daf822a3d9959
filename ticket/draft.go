// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Draft is a message before it is signed. Of its header, ID, SchemaVersion, Time,
// Nonce, CausationID and IdempotencyKey may be left empty: an id and a nonce are
// drawn, the version is the one spoken here, the time is now, the cause is none,
// and the key is the id.
type Draft struct {
	Header
	Payload any // becomes JSON; a []byte is JSON already
}

// Sign makes the message that a draft stands for. It fails as [Parse] does.
func (d Draft) Sign(key ed25519.PrivateKey) (*Message, error) {
	d.fill()
	payload, err := encode(d.Payload)
	if err != nil {
		return nil, invalid("payload", "has no JSON form: %.200v", err)
	}
	var values [members][]byte
	for at, text := range map[member]string{
		memberID: d.ID, memberSchemaVersion: d.SchemaVersion, memberType: d.Type, memberTicketID: d.TicketID,
		memberTraceID: d.TraceID, memberCausationID: d.CausationID, memberFrom: d.From, memberTo: d.To,
		memberNonce: d.Nonce, memberIdempotencyKey: d.IdempotencyKey, memberTS: d.Time.UTC().Format(time.RFC3339Nano),
	} {
		if values[at], err = jsontext.AppendQuote(nil, text); err != nil {
			return nil, invalid(memberNames[at], "is not valid UTF-8")
		}
	}
	if err := checkValue(payload, "payload"); err != nil {
		return nil, err
	}
	values[memberPayload] = payload
	out := canonical(join(&values))
	signature := ed25519.Sign(key, out)
	out = append(out[:len(out)-1], `,"sig":"`+signaturePrefix...)
	out = encoding.AppendEncode(out, signature)
	return Parse(append(out, `"}`...))
}

func (d *Draft) fill() {
	if d.Time.IsZero() {
		d.Time = time.Now()
	}
	if d.ID == "" {
		d.ID = NewID(d.Time)
	}
	if d.SchemaVersion == "" {
		d.SchemaVersion = SchemaVersion()
	}
	if d.CausationID == "" {
		d.CausationID = None
	}
	if d.Nonce == "" {
		var nonce [16]byte
		_, _ = rand.Read(nonce[:]) // never fails: it ends the process if the system has no randomness
		d.Nonce = encoding.EncodeToString(nonce[:])
	}
	if d.IdempotencyKey == "" {
		d.IdempotencyKey = d.ID
	}
}

func encode(payload any) ([]byte, error) {
	if raw, ok := payload.([]byte); ok {
		return raw, nil
	}
	return json.Marshal(payload)
}

// crockford is the alphabet of a ULID: base 32 without I, L, O and U.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// NewID draws the id of a message: msg_ and a ULID, 48 bits of milliseconds and
// 80 random ones. The order of messages is the log's and never that of their ids.
func NewID(at time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see fill
	return idOf(stamped(b, at))
}

// DeriveID returns the id of a message that follows from something: the same for the
// same texts, of which none has a zero byte in it.
func DeriveID(at time.Time, of ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(of, "\x00")))
	return idOf(stamped([16]byte(sum[:16]), at))
}

// stamped puts a time into the first 48 bits of an id.
func stamped(b [16]byte, at time.Time) [16]byte {
	millis := uint64(at.UnixMilli())
	for i := range 6 {
		b[i] = byte(millis >> (40 - 8*i))
	}
	return b
}

// idOf writes 128 bits as 26 characters of 5 bits, the first of which has 3.
func idOf(b [16]byte) string {
	const length = 26
	out := make([]byte, 4+length)
	copy(out, "msg_")
	for i := range length {
		at, value := 5*i-2, 0 // the first bit of the character
		for bit := at; bit < at+5; bit++ {
			value <<= 1
			if bit >= 0 {
				value |= int(b[bit/8]>>(7-bit%8)) & 1
			}
		}
		out[4+i] = crockford[value]
	}
	return string(out)
}
