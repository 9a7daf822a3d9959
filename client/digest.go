// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	"signalbox/event"
)

// digestBuckets is how many buckets a digest has: one for each first byte of a key's hash.
const digestBuckets = 256

// Digest sums up the state of a compacted topic. Two parties that hold the same state have the same digest; where they
// do not, the buckets that differ tell which keys to look at.
type Digest struct {
	Topic string
	// Cursor and LogTime say when the digest is exact; they are zero for a digest computed from events.
	Cursor  event.Cursor
	LogTime time.Time
	// Keys is the number of keys that have a state.
	Keys int
	// Buckets are chosen by the first byte of SHA-256(key). Each is the XOR over its keys of SHA-256(key ‖ HLC ‖ source
	// ‖ id) of the winning event, each part preceded by its length in 4 bytes, the HLC packed in 8, all big-endian.
	Buckets [digestBuckets][sha256.Size]byte
}

// Bucket returns the number of the bucket that a key is in.
func Bucket(key string) byte { return sha256.Sum256([]byte(key))[0] }

// Diff returns the numbers of the buckets that differ, ascending.
func (d *Digest) Diff(other *Digest) []byte {
	var out []byte
	for i := range d.Buckets {
		if d.Buckets[i] != other.Buckets[i] {
			out = append(out, byte(i))
		}
	}
	return out
}

// Sum is the whole digest in one value, to show or to compare at a glance.
func (d *Digest) Sum() [sha256.Size]byte {
	h := sha256.New()
	for i := range d.Buckets {
		h.Write(d.Buckets[i][:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// DigestOptions says how to compute a digest from events.
type DigestOptions struct {
	// KeyFrom is the topic's key_from, the path into data that gives the key of events without a key attribute.
	KeyFrom string
	// At is the log time at which what expired no longer counts: LogTime of the digest to compare with. The zero time
	// counts everything.
	At time.Time
}

// DigestOf computes the digest of the state that events add up to: of every key the event with the highest (HLC,
// source, id) counts, unless it is a tombstone or has expired. The events may be an agent's ledger or all that it ever
// read, in any order and with repeats; events without a key are passed over.
func DigestOf(events iter.Seq[*event.Event], o DigestOptions) *Digest {
	winners := make(map[string]*event.Event)
	for ev := range events {
		key, ok := KeyOf(ev, o.KeyFrom)
		if !ok {
			continue
		}
		if w := winners[key]; w == nil || beats(ev, w) {
			winners[key] = ev
		}
	}
	d := &Digest{}
	for key, ev := range winners {
		if live(ev, o.At) {
			d.add(key, ev)
		}
	}
	return d
}

// KeyOf returns the key of an event by the rule of the broker: partitionkey, else subject, else the topic's key_from.
func KeyOf(ev *event.Event, keyFrom string) (string, bool) {
	if key, ok := ev.Key(); ok || keyFrom == "" || ev.DataKind() != event.JSONData {
		return key, ok
	}
	return event.LookupJSON(ev.Data(), keyFrom)
}

// beats reports whether a wins over b; no two different events are equal in all three.
func beats(a, b *event.Event) bool {
	return cmp.Or(cmp.Compare(a.HLC(), b.HLC()), cmp.Compare(a.Source(), b.Source()), cmp.Compare(a.ID(), b.ID())) > 0
}

// live reports whether a winner is a state: neither a tombstone (no data at all, not even a reference to it) nor expired.
func live(ev *event.Event, at time.Time) bool {
	if _, claimed := ev.Attribute("dataref"); ev.DataKind() == event.NoData && !claimed {
		return false
	}
	expiry, ok := ev.ExpiryTime()
	return !ok || at.IsZero() || expiry.After(at)
}

// add counts a key in.
func (d *Digest) add(key string, ev *event.Event) {
	var b []byte
	for _, part := range []string{key, string(binary.BigEndian.AppendUint64(nil, uint64(ev.HLC()))), ev.Source(), ev.ID()} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	bucket := &d.Buckets[Bucket(key)]
	for i := range bucket {
		bucket[i] ^= sum[i]
	}
	d.Keys++
}

// digestJSON is the digest on the wire.
type digestJSON struct {
	Topic   string       `json:"topic"`
	Cursor  event.Cursor `json:"cursor"`
	LogMS   int64        `json:"log_ms"`
	Keys    int          `json:"keys"`
	Buckets []string     `json:"buckets"`
}

// MarshalJSON writes the digest as the broker does.
func (d *Digest) MarshalJSON() ([]byte, error) {
	w := digestJSON{Topic: d.Topic, Cursor: d.Cursor, LogMS: d.LogTime.UnixMilli(), Keys: d.Keys}
	if d.LogTime.IsZero() {
		w.LogMS = 0
	}
	for i := range d.Buckets {
		w.Buckets = append(w.Buckets, hex.EncodeToString(d.Buckets[i][:]))
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads the broker's digest.
func (d *Digest) UnmarshalJSON(b []byte) error {
	var w digestJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	if len(w.Buckets) != digestBuckets {
		return fmt.Errorf("the digest has %d buckets instead of %d", len(w.Buckets), digestBuckets)
	}
	*d = Digest{Topic: w.Topic, Cursor: w.Cursor, LogTime: time.UnixMilli(w.LogMS), Keys: w.Keys}
	for i, s := range w.Buckets {
		if len(s) != 2*sha256.Size {
			return fmt.Errorf("bucket %d of the digest has %d digits instead of %d", i, len(s), 2*sha256.Size)
		}
		if _, err := hex.Decode(d.Buckets[i][:], []byte(s)); err != nil {
			return fmt.Errorf("bucket %d of the digest: %w", i, err)
		}
	}
	return nil
}

// Digest asks for the digest of a compacted topic.
func (c *Client) Digest(ctx context.Context, topic string) (*Digest, error) {
	d := &Digest{}
	if _, _, err := c.do(ctx, call{method: http.MethodGet, url: c.topicPath(topic, "digest")}, d); err != nil {
		return nil, err
	}
	return d, nil
}
