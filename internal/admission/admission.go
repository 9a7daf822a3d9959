// SPDX-License-Identifier: Apache-2.0

// Package admission prepares events for the log. It does the expensive work
// (encoding for delivery, hashing, checking data against a schema) on the caller's
// goroutine, and it may only refuse early: it reads no state that depends on order,
// so what a topic's policy asks is decided in apply.
//
// It imports event, ticket and eventlog, for schemas jsonschema and jsontext,
// validjson to read a message's payload again, and edwards25519 for signatures.
package admission

import (
	"crypto/rand"
	"crypto/sha256"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
)

// Admit prepares the events of one request at the given admission time, Unix
// milliseconds on the log's clock. With an error comes the index of the event
// at fault.
func Admit(events []*event.Event, nowMillis int64, from event.Trace) (entries []eventlog.Entry, at int, err error) {
	salts := make([]byte, 16*len(events))
	// Read never returns an error: it ends the process if the system has no
	// randomness.
	_, _ = rand.Read(salts)
	recorded := event.StringValue(formatMillis(nowMillis))
	entries = make([]eventlog.Entry, len(events))
	for i, ev := range events {
		entry := &entries[i]
		copy(entry.Salt[:], salts[16*i:])
		if err := admit(entry, ev, nowMillis, recorded, from); err != nil {
			return nil, i, err
		}
	}
	return entries, 0, nil
}

// membersRoom is what the JSON form of an ordinary event needs beyond its
// smallest wire form. Base64 and escapes need more, and get it by growing.
const membersRoom = 256

func admit(entry *eventlog.Entry, ev *event.Event, nowMillis int64, recorded event.Value, from event.Trace) error {
	entry.ID, entry.Source = ev.ID(), ev.Source()
	entry.Key, entry.HasKey = ev.Key()
	entry.HLC = ev.HLC()
	entry.WireBytes = uint32(ev.WireBytes())
	entry.Identity = eventlog.IdentityHash{ID: event.HashID(entry.ID), Source: event.HashSource(entry.Source)}
	content := ev.ContentHash()
	copy(entry.Content[:], content[:])

	var room [4]event.Attribute
	added := room[:0]
	if _, ok := ev.Attribute("recordedtime"); !ok {
		added = append(added, event.Attribute{Name: "recordedtime", Value: recorded})
	}
	expires, relative, err := expiry(ev, nowMillis)
	if err != nil {
		return err
	}
	entry.ExpiryMillis = expires
	if relative {
		added = append(added, event.Attribute{Name: "expirytime", Value: event.StringValue(formatMillis(expires))})
	}
	added = began(added, ev, from)
	members, offset, length := ev.AppendMembers(make([]byte, 0, ev.WireBytes()+membersRoom), added...)
	entry.Members, entry.DataOffset, entry.DataLength = members, uint32(offset), uint32(length)
	entry.Flags = flags(ev, members)

	h := sha256.New()
	h.Write(entry.Salt[:])
	h.Write(members)
	h.Sum(entry.Body[:0])
	return nil
}

// began says in which trace the event began: where the event does not, that of
// the request which published it. It is set once, and no later hop changes it
// (CloudEvents extension Distributed Tracing). Being the broker's addition, it
// does not tell a repetition from the first.
func began(added []event.Attribute, ev *event.Event, from event.Trace) []event.Attribute {
	if from.Parent == "" {
		return added
	}
	if _, ok := ev.Attribute("traceparent"); ok {
		return added
	}
	added = append(added, event.Attribute{Name: "traceparent", Value: event.StringValue(from.Parent)})
	if _, ok := ev.Attribute("tracestate"); !ok && from.State != "" {
		added = append(added, event.Attribute{Name: "tracestate", Value: event.StringValue(from.State)})
	}
	return added
}

func flags(ev *event.Event, members []byte) (f eventlog.EntryFlags) {
	if _, claim := ev.Attribute("dataref"); !claim && ev.DataKind() == event.NoData {
		f |= eventlog.FlagBare
	}
	if ev.DataKind() == event.JSONData {
		f |= eventlog.FlagJSON
	}
	if event.NeedsLineFold(members) {
		f |= eventlog.FlagFold
	}
	return f
}

// expiry returns when the event expires, and whether that was said relative to
// admission (`expiry`, seconds) and not as `expirytime`. A time that is past,
// however long, is a time: the event has expired.
func expiry(ev *event.Event, nowMillis int64) (millis int64, relative bool, err error) {
	at, absolute := ev.ExpiryTime()
	after := ev.Expiry()
	switch {
	case absolute && after > 0:
		return 0, false, event.Errorf(event.CodeExpiryInvalid, "The event has both `expirytime` and `expiry`. Give one of them.").With("expiry")
	case absolute:
		return max(at.UnixMilli(), 1), false, nil // 0 means never
	case after > 0:
		return nowMillis + int64(after)*1000, true, nil
	}
	return 0, false, nil
}

// formatMillis writes whole seconds by RFC 3339, for which package time has a
// fast path, and the milliseconds by itself.
func formatMillis(ms int64) string {
	t := time.UnixMilli(ms).UTC()
	b := t.AppendFormat(make([]byte, 0, len("2006-01-02T15:04:05.000Z")), time.RFC3339)
	milli := t.Nanosecond() / int(time.Millisecond)
	b[len(b)-1] = '.'
	return string(append(b, byte('0'+milli/100), byte('0'+milli/10%10), byte('0'+milli%10), 'Z'))
}
