// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"encoding/json"

	"signalbox/event"
)

// SubscriptionConfig is the row of a subscription that only its owner changes.
type SubscriptionConfig struct {
	Document      event.Subscription `json:"document"` // with its id and secrets
	Owner         string             `json:"owner,omitempty"`
	CreatedMillis int64              `json:"created_ms"`
	UpdatedMillis int64              `json:"updated_ms"`
	Terms         [][]byte           `json:"terms,omitempty"` // its Y rows
}

// SubscriptionState is the row of a subscription that its deliveries change. It
// is written once with each commit that changes it.
type SubscriptionState struct {
	Paused   bool
	Disabled bool // its endpoint is gone, or has failed for too long
	Webhook  bool
	Endpoint Endpoint // of a webhook
	Epoch    uint32   // of its pending rows; a seek leaves those of the last epoch behind

	Cursor, Began uint64 // where it reads from on, see event.Cursor
	Since         int64  // what was applied before this log time is skipped
	Token         uint64 // of the last hand-out

	Outstanding uint64 // rows of PendingOut and PendingReady
	Ready       uint64 // among these
	Parked      uint64
	Letters     uint64 // dead letters
	Timer       int64  // when its timer for deadlines is due; 0: none is armed
	UnusedTimer int64  // when it is looked at whether it is used; 0: never
	Used        int64  // log time of the last sign of a consumer

	Matched, Dropped, Errors        uint64 // by its filters
	Handed, Acked, Nacked, Lost     uint64 // hand-outs, and how they ended
	Buried, Gone, Gaps, Quarantined uint64

	GapFrom, GapTo uint64 // a gap that a stream's client has not come past; 0: none
	ErrorMillis    int64
	Error          string // the last one that a consumer or the broker gave
}

func (s *SubscriptionState) fields() []*uint64 {
	return []*uint64{
		&s.Cursor, &s.Began, &s.Token, &s.Outstanding, &s.Ready, &s.Parked, &s.Letters,
		&s.Matched, &s.Dropped, &s.Errors, &s.Handed, &s.Acked, &s.Nacked, &s.Lost,
		&s.Buried, &s.Gone, &s.Gaps, &s.Quarantined, &s.GapFrom, &s.GapTo,
	}
}

func (s *SubscriptionState) times() [5]*int64 {
	return [5]*int64{&s.Since, &s.Timer, &s.UnusedTimer, &s.Used, &s.ErrorMillis}
}

func (s *SubscriptionState) append(dst []byte) []byte {
	dst = append(dst, rowFormat, s.flags())
	dst = binary.AppendUvarint(dst, uint64(s.Epoch))
	for _, v := range s.fields() {
		dst = binary.AppendUvarint(dst, *v)
	}
	for _, v := range s.times() {
		dst = binary.AppendUvarint(dst, uint64(*v))
	}
	if s.Webhook {
		dst = s.Endpoint.append(dst)
	}
	return append(dst, s.Error...)
}

// DecodeSubscriptionState decodes the value of a V row.
func DecodeSubscriptionState(b []byte) (SubscriptionState, error) {
	r := rowReader{b: b}
	r.format()
	flags := r.byte()
	s := SubscriptionState{Paused: flags&statePaused != 0, Disabled: flags&stateDisabled != 0, Webhook: flags&stateWebhook != 0}
	s.Epoch = uint32(r.uvarint())
	for _, v := range s.fields() {
		*v = r.uvarint()
	}
	for _, v := range s.times() {
		*v = int64(r.uvarint())
	}
	if s.Webhook {
		s.Endpoint = r.endpoint(flags&stateConsented != 0)
	}
	s.Error = string(r.b)
	return s, r.error("subscription")
}

// DeliveryCounts are the counts of a subscription, or of several, that only grow.
type DeliveryCounts struct {
	Matched, Dropped, Errors        uint64
	Handed, Acked, Nacked, Lost     uint64
	Buried, Gone, Gaps, Quarantined uint64
}

// Counts returns the subscription's counts.
func (s *SubscriptionState) Counts() DeliveryCounts {
	return DeliveryCounts{
		Matched: s.Matched, Dropped: s.Dropped, Errors: s.Errors,
		Handed: s.Handed, Acked: s.Acked, Nacked: s.Nacked, Lost: s.Lost,
		Buried: s.Buried, Gone: s.Gone, Gaps: s.Gaps, Quarantined: s.Quarantined,
	}
}

// AddSince adds what was counted between two moments.
func (c *DeliveryCounts) AddSince(was, is DeliveryCounts) {
	c.Matched, c.Dropped, c.Errors = c.Matched+is.Matched-was.Matched, c.Dropped+is.Dropped-was.Dropped, c.Errors+is.Errors-was.Errors
	c.Handed, c.Acked, c.Nacked, c.Lost = c.Handed+is.Handed-was.Handed, c.Acked+is.Acked-was.Acked, c.Nacked+is.Nacked-was.Nacked, c.Lost+is.Lost-was.Lost
	c.Buried, c.Gone, c.Gaps, c.Quarantined = c.Buried+is.Buried-was.Buried, c.Gone+is.Gone-was.Gone, c.Gaps+is.Gaps-was.Gaps, c.Quarantined+is.Quarantined-was.Quarantined
}

// PendingState says where an event is on its way to a subscription's consumers.
type PendingState uint8

// The states of pending events. Their numbers are part of the format.
const (
	PendingReady  PendingState = 1 // to be handed out from its due time on
	PendingOut    PendingState = 2 // handed out until its due time
	PendingParked PendingState = 3 // behind another of its key
)

// Pending is an event that a subscription's cursor has passed and that is not
// settled yet. Those of one key are a list, in order: the first is out or
// ready, the others are parked, each with the position of the next.
type Pending struct {
	State     PendingState
	Ordered   bool // it has a Key
	Key       [16]byte
	Next      uint64 // the parked event that follows it; 0: none
	Attempts  uint32 // hand-outs, counted when they are made
	Lost      uint32 // among these, ended by their deadline without an answer
	Token     uint64 // of the last hand-out
	DueMillis int64
	AckedAt   uint64 // how many events had been acknowledged at its first hand-out
	Letter    uint64 // position of the dead letter that it comes from; 0: none
	Topic     string
	Error     string
}

func (p *Pending) append(dst []byte) []byte {
	ordered := byte(0)
	if p.Ordered {
		ordered = 1
	}
	dst = append(dst, rowFormat, byte(p.State), ordered)
	dst = append(dst, p.Key[:]...)
	for _, v := range []uint64{p.Next, uint64(p.Attempts), uint64(p.Lost), p.Token, uint64(p.DueMillis), p.AckedAt, p.Letter, uint64(len(p.Topic))} {
		dst = binary.AppendUvarint(dst, v)
	}
	return append(append(dst, p.Topic...), p.Error...)
}

// DecodePending decodes the value of a W row of a pending event.
func DecodePending(b []byte) (Pending, error) {
	r := rowReader{b: b}
	r.format()
	p := Pending{State: PendingState(r.byte()), Ordered: r.byte() == 1}
	copy(p.Key[:], r.take(16))
	p.Next = r.uvarint()
	p.Attempts, p.Lost = uint32(r.uvarint()), uint32(r.uvarint())
	p.Token = r.uvarint()
	p.DueMillis = int64(r.uvarint())
	p.AckedAt = r.uvarint()
	p.Letter = r.uvarint()
	p.Topic = string(r.take(r.uvarint()))
	p.Error = string(r.b)
	return p, r.error("pending event")
}

// Letter is what is known of a dead letter beside the event, which is in the
// topic $dlq.<subscription>.
type Letter struct {
	Redriven  uint32 // the epoch in which it is pending again; 0: it is not
	Ordered   bool
	Key       [16]byte
	Position  uint64 // of the original event
	Attempts  uint32
	Redrives  uint32
	Prefix    uint32 // bytes of the event's members before the original ones
	LogMillis int64
	Topic     string // of the original event
	Cause     string
	Error     string
}

func (l *Letter) append(dst []byte) []byte {
	ordered := byte(0)
	if l.Ordered {
		ordered = 1
	}
	dst = append(dst, rowFormat, ordered)
	dst = append(dst, l.Key[:]...)
	for _, v := range []uint64{uint64(l.Redriven), l.Position, uint64(l.Attempts), uint64(l.Redrives), uint64(l.Prefix), uint64(l.LogMillis), uint64(len(l.Topic)), uint64(len(l.Cause))} {
		dst = binary.AppendUvarint(dst, v)
	}
	return append(append(append(dst, l.Topic...), l.Cause...), l.Error...)
}

// DecodeLetter decodes the value of a W row of a dead letter.
func DecodeLetter(b []byte) (Letter, error) {
	r := rowReader{b: b}
	r.format()
	l := Letter{Ordered: r.byte() == 1}
	copy(l.Key[:], r.take(16))
	l.Redriven = uint32(r.uvarint())
	l.Position = r.uvarint()
	l.Attempts, l.Redrives, l.Prefix = uint32(r.uvarint()), uint32(r.uvarint()), uint32(r.uvarint())
	l.LogMillis = int64(r.uvarint())
	topic, cause := r.uvarint(), r.uvarint()
	l.Topic = string(r.take(topic))
	l.Cause = string(r.take(cause))
	l.Error = string(r.b)
	return l, r.error("dead letter")
}

// Subscriptions is how many subscriptions there are, and the last number given
// to one. Numbers are not used again.
type Subscriptions struct {
	Last  uint32 `json:"last"`
	Count uint32 `json:"count"`
}

// The kinds of W rows, by the byte behind the number.
const (
	pendingRow = 'o' // epoch, position: out or ready
	parkedRow  = 'p' // epoch, position: parked
	keyRow     = 'k' // epoch, hash of topic and key: its list
	letterRow  = 'd' // position of the dead letter
)

func appendPendingKey(dst []byte, number uint32, kind byte, epoch uint32) []byte {
	dst = append(appendUint32Key(dst, prefixDelivery, number), kind)
	return binary.BigEndian.AppendUint32(dst, epoch)
}

func pendingKind(p *Pending) byte {
	if p.State == PendingParked {
		return parkedRow
	}
	return pendingRow
}

func appendLetterKey(dst []byte, number uint32, position uint64) []byte {
	dst = append(appendUint32Key(dst, prefixDelivery, number), letterRow)
	return binary.BigEndian.AppendUint64(dst, position)
}

// SetSubscriptions stores how many there are.
func (b *Batch) SetSubscriptions(s Subscriptions) {
	b.setJSON(appendNameKey(nil, prefixMeta, metaSubscriptions), s)
}

// SetSubscriptionID stores which number a subscription has.
func (b *Batch) SetSubscriptionID(id string, number uint32) {
	b.rows.write(kindSet, appendNameKey(nil, prefixSubscriptionID, id), binary.BigEndian.AppendUint32(nil, number))
}

// SetSubscriptionConfig stores what its owner says of a subscription.
func (b *Batch) SetSubscriptionConfig(number uint32, c *SubscriptionConfig) {
	b.setJSON(appendUint32Key(nil, prefixSubscription, number), c)
}

// SetSubscriptionState stores how far a subscription is.
func (b *Batch) SetSubscriptionState(number uint32, s *SubscriptionState) {
	b.rows.write(kindSet, appendUint32Key(nil, prefixSubscriptionState, number), s.append(nil))
}

// DeleteSubscription removes every row of a subscription.
func (b *Batch) DeleteSubscription(id string, number uint32) {
	b.rows.write(kindDelete, appendNameKey(nil, prefixSubscriptionID, id), nil)
	for _, prefix := range []byte{prefixSubscription, prefixSubscriptionState, prefixDelivery} {
		start := appendUint32Key(nil, prefix, number)
		b.rows.deleteRange(start, successor(start))
	}
}

// DeletePending removes the pending events of an epoch.
func (b *Batch) DeletePending(number, epoch uint32) {
	for _, kind := range []byte{pendingRow, parkedRow, keyRow} {
		start := appendPendingKey(nil, number, kind, epoch)
		b.rows.deleteRange(start, successor(start))
	}
}

// DeleteLetters removes what is known of the dead letters up to a position.
func (b *Batch) DeleteLetters(number uint32, to uint64) {
	b.rows.deleteRange(appendLetterKey(nil, number, 0), appendLetterKey(nil, number, to+1))
}

// SetPending stores a pending event.
func (b *Batch) SetPending(number, epoch uint32, position uint64, p *Pending) {
	key := binary.BigEndian.AppendUint64(appendPendingKey(nil, number, pendingKind(p), epoch), position)
	b.rows.write(kindSet, key, p.append(nil))
}

// DeletePendingEvent removes a pending event.
func (b *Batch) DeletePendingEvent(number, epoch uint32, position uint64, parked bool) {
	kind := byte(pendingRow)
	if parked {
		kind = parkedRow
	}
	b.rows.write(kindDelete, binary.BigEndian.AppendUint64(appendPendingKey(nil, number, kind, epoch), position), nil)
}

// SetLetter stores what is known of a dead letter.
func (b *Batch) SetLetter(number uint32, position uint64, l *Letter) {
	b.rows.write(kindSet, appendLetterKey(nil, number, position), l.append(nil))
}

// DeleteLetter removes what is known of a dead letter.
func (b *Batch) DeleteLetter(number uint32, position uint64) {
	b.rows.write(kindDelete, appendLetterKey(nil, number, position), nil)
}

func decodeSubscriptionConfig(value []byte) (c SubscriptionConfig, err error) {
	if err := json.Unmarshal(value, &c); err != nil {
		return c, Damagedf("a subscription: %w", err)
	}
	return c, nil
}

func decodeSubscriptionID(value []byte) (uint32, error) {
	if len(value) != 4 {
		return 0, Damagedf("a subscription's number has %d bytes", len(value))
	}
	return binary.BigEndian.Uint32(value), nil
}
