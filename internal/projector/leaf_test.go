// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
)

// expectedLeaf is written down apart from the projector, as an auditor who has
// only the documentation would do it.
func expectedLeaf(index uint64, kind byte, logMillis int64, position uint64, hlc event.HLC, flags byte, topic string, body [32]byte) [32]byte {
	var b bytes.Buffer
	number := func(n uint64) { b.Write(binary.BigEndian.AppendUint64(nil, n)) }
	b.WriteByte(1)
	number(index)
	b.WriteByte(kind)
	number(uint64(logMillis))
	number(position)
	number(uint64(hlc))
	b.WriteByte(flags)
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(topic))))
	b.WriteString(topic)
	b.Write(body[:])
	return sha256.Sum256(b.Bytes())
}

// TestLeaves computes the audit chain again, leaf by leaf, for everything that
// can be decided: what cannot be computed again cannot be verified later.
func TestLeaves(t *testing.T) {
	r := newRig(t, defaultSettings())
	defer r.close()
	r.do(tick(epoch))
	publish := func(d event.Draft) *eventlog.Proposal {
		d.Source, d.Type = "/s", "t"
		ev, err := d.Event()
		if err != nil {
			t.Fatal(err)
		}
		return &eventlog.Proposal{Kind: eventlog.KindEvents, Topic: "a", AdmittedMillis: epoch, Entries: []eventlog.Entry{entry(ev)}}
	}
	late := event.NewHLC(epoch-5, 1)
	first := publish(event.Draft{ID: "1", Subject: "k"})
	second := publish(event.Draft{ID: "2", Subject: "k", Extensions: map[string]any{"hlc": late.String()}, Data: []byte("1")})
	refused := publish(event.Draft{ID: "3"})
	control := putTopic("a", compacted())
	log := []*eventlog.Proposal{
		control, first, second, first, refused,
		{Kind: eventlog.KindRefusal, Topic: "b", RefusedCode: "topic_reserved", RefusedCount: 4},
	}
	for i, p := range log {
		again := *p // a proposal has one place in the log
		r.do(&again)
		if i == 2 {
			r.do(tick(epoch + 9))
		}
	}

	configured := sha256.Sum256(mustJSON(t, configure(defaultSettings()).Control))
	refusal := func(code string, count int) [32]byte {
		return sha256.Sum256([]byte(fmt.Sprintf(`{"code":%q,"count":%d}`, code, count)))
	}
	body := func(p *eventlog.Proposal) [32]byte { return p.Entries[0].Body }
	stamp := event.NewHLC(epoch, 0)
	want := [][32]byte{
		expectedLeaf(0, 2, 0, 0, 0, 0, "", configured),
		expectedLeaf(1, 2, epoch, 0, 0, 0, "a", sha256.Sum256(mustJSON(t, control.Control))),
		expectedLeaf(2, 1, epoch, 1, stamp, projector.Accepted, "a", body(first)),
		expectedLeaf(3, 1, epoch, 2, late, projector.Superseded, "a", body(second)),
		expectedLeaf(4, 1, epoch+9, 1, stamp, projector.Duplicate, "a", body(first)),
		expectedLeaf(5, 3, epoch+9, 0, 0, 0, "a", refusal("key_required", 1)),
		expectedLeaf(6, 3, epoch+9, 0, 0, 0, "b", refusal("topic_reserved", 4)),
	}
	rows := r.rows()
	leaves := rows[len(rows)-1].value
	var head [32]byte
	for i, leaf := range want {
		if len(leaves) < 32*(i+1) || leaves[32*i:32*i+32] != string(leaf[:]) {
			t.Errorf("leaf %d is not what its documentation says", i)
		}
		head = sha256.Sum256(append(head[:], leaf[:]...))
	}
	if len(leaves) != 32*len(want) {
		t.Errorf("there are %d bytes of leaves instead of %d leaves", len(leaves), len(want))
	}
	if space := r.projector.Space(); space.Chain != head || space.Leaves != uint64(len(want)) {
		t.Errorf("the chain head of %d leaves is %x, not %x", space.Leaves, space.Chain, head)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
