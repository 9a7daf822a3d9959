// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// MessageKind is the kind of a row about ticket messages. Their bytes are part of
// the format.
type MessageKind byte

// The rows about ticket messages, by the byte behind the prefix. Their keys are
// texts, joined by zero bytes, which no part has in it.
const (
	MessageID          MessageKind = 'i' // id: the message, see MessageRow
	MessageNonce       MessageKind = 'n' // from, nonce: the id of the message that had it
	MessageIdempotency MessageKind = 'k' // from, type, key: see IdempotencyRow
	MessageTicket      MessageKind = 't' // ticket: see TicketRow
	MessageExecution   MessageKind = 'x' // id of an execute: see ExecutionRow
	MessageOfTicket    MessageKind = 'o' // ticket, position: see OfTicketRow
	MessageBreaker     MessageKind = 'b' // target, in lower case: see BreakerRow
	MessageDeadline    MessageKind = 'd' // ticket, id, member: a deadline that is open, see DeadlineRow
	MessageObligation  MessageKind = 'q' // id: a message that the bus has to send, see ObligationRow
	MessageBeat        MessageKind = 'h' // agent: its latest heartbeat, see BeatRow
	MessageWithheld    MessageKind = 'w' // agent, position: the id of a message that it does not read
	MessageUnknown     MessageKind = 'u' // ticket, from, type: the id of the obligation for a type that is none
	MessageEntry       MessageKind = 'e' // ticket, index: the kind of an entry of the audit trail that is about the ticket
	MessagePosition    MessageKind = 'p' // position: the ticket of the message there
	MessageTrace       MessageKind = 'c' // trace, ticket: the id of a message that opened or amended the ticket
	MessageStanding    MessageKind = 's' // state, ticket: the id of the message that put the ticket there
)

// messageKinds has the kinds whose writes have a section of their own in a batch.
const messageKinds = "inktxobdqhwuepcs"

// messageSection is where the writes of a kind go.
func (b *Batch) messageSection(kind MessageKind) *section {
	if at := strings.IndexByte(messageKinds, byte(kind)); at >= 0 {
		return &b.messages[at]
	}
	return &b.rows
}

// MessageRow is what is known of a message beside its event.
type MessageRow struct {
	Content  [16]byte `json:"content"` // of the event, see event.ContentHash
	Type     string   `json:"type"`
	Ticket   string   `json:"ticket"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	Topic    string   `json:"topic"`
	Position uint64   `json:"position,string"`
	HLC      uint64   `json:"hlc,string"`
}

// IdempotencyRow is the first message with an idempotency key.
type IdempotencyRow struct {
	Payload string `json:"payload"`
	ID      string `json:"id"`
}

func appendMessageKey(dst []byte, kind MessageKind, key string) []byte {
	return append(append(dst, prefixMessage, byte(kind)), key...)
}

// SetMessage stores a row about messages.
func (b *Batch) SetMessage(kind MessageKind, key string, value []byte) {
	b.messageSection(kind).write(kindSet, appendMessageKey(nil, kind, key), value)
}

// DeleteMessage removes a row about messages.
func (b *Batch) DeleteMessage(kind MessageKind, key string) {
	b.messageSection(kind).write(kindDelete, appendMessageKey(nil, kind, key), nil)
}

// Message returns a row about messages, nil if there is none. It is valid until the
// next look-up.
func (l *Lookup) Message(kind MessageKind, key string) ([]byte, error) {
	l.key = appendMessageKey(l.key[:0], kind, key)
	value, _, err := l.get()
	return value, err
}

// HasMessage reports whether there is a row about messages that has been committed.
func (s *Store) HasMessage(kind MessageKind, key string) (bool, error) {
	return get(s.db, appendMessageKey(nil, kind, key), func([]byte) error { return nil })
}

// Message reads a row about messages that is durable.
func (v *View) Message(kind MessageKind, key string, into any) (bool, error) {
	return get(v.snapshot, appendMessageKey(nil, kind, key), func(b []byte) error { return DecodeMessage(kind, b, into) })
}

// DecodeMessage decodes a row about messages into a pointer to its type; that of a
// nonce is a string.
func DecodeMessage(kind MessageKind, b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return Damagedf("a row of kind %q about messages: %w", kind, err)
	}
	return nil
}

// MessageAt is a row about messages.
type MessageAt struct {
	Kind  MessageKind
	Key   string
	Value []byte
}

// Messages walks the rows about messages.
func (in *Inspector) Messages(each func(MessageAt, error) error) error {
	return walk(in, prefixMessage, func(key, value []byte) (MessageAt, error) {
		if len(key) < 3 {
			return MessageAt{}, badKey("message", key)
		}
		return MessageAt{MessageKind(key[1]), string(key[2:]), append([]byte(nil), value...)}, nil
	}, each)
}

// HasMessage reports whether a message is known.
func (in *Inspector) HasMessage(id string) (bool, error) {
	return get(in.snapshot, appendMessageKey(nil, MessageID, id), func([]byte) error { return nil })
}

// MessagesOfKind calls each with the committed rows of a kind whose keys begin with a
// prefix, by key, until it returns false. The value is valid during the call.
func (s *Store) MessagesOfKind(kind MessageKind, prefix string, each func(key string, value []byte) (more bool, err error)) error {
	return messagesOfKind(s.db, kind, prefix, each)
}

// MessagesOfKind is the durable form of [Store.MessagesOfKind].
func (v *View) MessagesOfKind(kind MessageKind, prefix string, each func(key string, value []byte) (more bool, err error)) error {
	return messagesOfKind(v.snapshot, kind, prefix, each)
}

func messagesOfKind(r pebble.Reader, kind MessageKind, prefix string, each func(key string, value []byte) (more bool, err error)) error {
	lower := appendMessageKey(nil, kind, prefix)
	return scanWhile(r, lower, successor(lower), func(key, value []byte) (bool, error) {
		return each(string(key[2:]), value)
	})
}
