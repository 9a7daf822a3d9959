// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/eventlog"
)

// openMem opens a store in memory.
func openMem(t testing.TB, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(Options{Dir: "data", FS: fs, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func bytesOf(from byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = from + byte(i)
	}
	return b
}

func sampleEvent() EventRow {
	return EventRow{
		Flags: EventTombstone | EventJSON, LogMillis: 1_800_000_000_000, HLC: event.NewHLC(1_800_000_000_001, 2), ExpiryMillis: 1_800_000_060_000,
		Count: 300, Bytes: 70_000, Leaf: 129, Salt: [16]byte(bytesOf(0x10, 16)), Key: []byte("T-998"),
		DataOffset: 5, DataLength: 3, Members: []byte(`"id":"1"}`),
	}
}

func sampleWinner() WinnerRow {
	return WinnerRow{
		Position: 105, HLC: event.NewHLC(1_800_000_000_001, 2), Flags: WinnerTombstone | WinnerHidden,
		ExpiryMillis: 1_800_000_060_000, Size: 300, Source: "/alpha", ID: "1",
	}
}

func sampleIdentity() eventlog.IdentityHash {
	return eventlog.IdentityHash{ID: [16]byte(bytesOf(0x20, 16)), Source: [8]byte(bytesOf(0x40, 8))}
}

func sampleSeen() SeenRow {
	return SeenRow{Superseded: true, Position: 105, HLC: event.NewHLC(1_800_000_000_001, 2), LogMillis: 1_800_000_000_000, Content: [16]byte(bytesOf(0x50, 16))}
}

func sampleAnswered() AnsweredRow {
	return AnsweredRow{LogMillis: 1_800_000_000_000, Request: [16]byte(bytesOf(0x60, 16)), Verdicts: []Verdict{
		{Outcome: 1, Position: 105, HLC: event.NewHLC(1_800_000_000_001, 2)}, {Outcome: 3, Position: 7, HLC: 9},
	}}
}

func sampleTimer() Timer {
	return Timer{DueMillis: 1_800_000_060_000, Topic: 3, Position: 105, Kind: TimerPurge, Key: "T-998"}
}

func sampleTopic() Topic {
	policy := event.DefaultPolicy()
	policy.CleanupPolicy, policy.KeyFrom = event.CleanupCompactDelete, "order.id"
	return Topic{Name: "fleet.tasks", Number: 3, Deleted: true, Policy: policy, Figures: Figures{
		Last: 105, RetiredTo: 100, RemovedTo: 101, Floor: 102, HighestHLC: 103, Count: 104, Bytes: 1050, Events: 106, Retained: 1070, Keys: 108, Tombstones: 109, History: 110, CompactedTo: 111, GivenUpTo: 112,
	}}
}

func sampleSpace() Space {
	return Space{
		Position: 105, HLC: event.NewHLC(1_800_000_000_001, 2), LogMillis: 1_800_000_000_000, Sequence: 77, Leaves: 200,
		Chain: [32]byte(bytesOf(0x70, 32)), TopicLast: 3, Generation: 2, GenerationMillis: 1_799_999_999_000, Minute: 30_000_000,
	}
}

func sampleSettings() eventlog.Settings {
	return eventlog.Settings{FeatureLevel: 1, MaxDriftMillis: 500, DedupMillis: 86_400_000, TopicsMax: 10, TimersPerTick: 20, IncarnationName: "k3f9x0ab"}
}

// writeSamples writes one row of each kind.
func writeSamples(t testing.TB, s *Store) {
	t.Helper()
	e, w, seen, answered, topic, space := sampleEvent(), sampleWinner(), sampleSeen(), sampleAnswered(), sampleTopic(), sampleSpace()
	b := s.NewBatch()
	defer b.Close()
	b.SetEvent(3, 105, &e)
	b.SetHistory(3, 104, &e)
	b.SetWinner(3, "T-998", &w)
	b.SetSeen(2, 3, sampleIdentity(), &seen)
	b.SetAnswered(2, [16]byte(bytesOf(0x30, 16)), &answered)
	b.SetTimer(sampleTimer())
	b.SetMinute(30_000_000, 105)
	b.SetName(&topic)
	b.SetFigures(3, &topic.Figures)
	b.SetGarbage(2)
	b.SetLeaves(198, bytesOf(0, 64))
	b.SetSpace(&space)
	b.SetSettings(sampleSettings())
	if err := s.Commit(b, func() {}); err != nil {
		t.Fatal(err)
	}
}

// rawRows lists everything that is stored, as Pebble has it.
func rawRows(t testing.TB, s *Store) (rows []string) {
	t.Helper()
	err := scan(s.db, nil, func(key, value []byte) error {
		rows = append(rows, fmt.Sprintf("%x = %x", key, value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestFormatOfEveryRow holds the bytes of one row of each kind. A change here
// is a change of the data that users have: it needs a new format byte and a way
// to read the old one.
func TestFormatOfEveryRow(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	defer closeStore(t, s)
	writeSamples(t, s)
	got := rawRows(t, s)
	want := []string{
		"44000000020000000000000003202122232425262728292a2b2c2d2e2f4041424344454647 = 0101000000000000006901a3185c50010002000001a3185c5000505152535455565758595a5b5c5d5e5f",
		"45000000030000000000000069 = 010980a0f1c2b13401a3185c50010002e0f4f4c2b134ac02f0a2048101101112131415161718191a1b1c1d1e1f05542d3939380503226964223a2231227d",
		"4700000002 = ",
		"48000000030000000000000068 = 010980a0f1c2b13401a3185c50010002e0f4f4c2b134ac02f0a2048101101112131415161718191a1b1c1d1e1f05542d3939380503226964223a2231227d",
		"4900000002303132333435363738393a3b3c3d3e3f = 01000001a3185c5000606162636465666768696a6b6c6d6e6f01000000000000006901a3185c500100020300000000000000070000000000000009",
		"4b0000000001c9c380 = 0000000000000069",
		"4c00000000000000c6 = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f",
		"4d73657474696e6773 = 7b22666561747572655f6c6576656c223a312c226d61785f64726966745f6d73223a3530302c2264656475705f77696e646f775f6d73223a38363430303030302c22746f706963735f6d6178223a31302c2274696d6572735f7065725f7469636b223a32302c22696e6361726e6174696f6e223a226b33663978306162227d",
		"4d7370616365 = 01000000000000006901a3185c50010002000001a3185c5000000000000000004d00000000000000c8707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f0000000300000002000001a3185c4c180000000001c9c380",
		"4e666c6565742e7461736b73 = 7b226e756d626572223a332c2264656c65746564223a747275652c22706f6c696379223a7b22636c65616e75705f706f6c696379223a22636f6d706163742c64656c657465222c22726574656e74696f6e223a223764222c22726574656e74696f6e5f6279746573223a6e756c6c2c226d696e5f636f6d70616374696f6e5f6c6167223a223073222c2264656c6574655f726574656e74696f6e223a223164222c226b65795f66726f6d223a226f726465722e6964222c22726571756972655f686c63223a66616c73652c227369676e6564223a66616c73652c22736368656d61223a6e756c6c2c226d61785f6576656e745f6279746573223a3236323134342c226475726162696c697479223a2264757261626c65227d7d",
		"5300000003542d393938 = 0103000000000000006901a3185c50010002e0f4f4c2b134ac02062f616c70686131",
		"5400000003 = 030000000000000069000000000000006400000000000000650000000000000068000000000000041a000000000000006a000000000000042e000000000000006c000000000000006d00000000000000660000000000000067000000000000006e000000000000006f0000000000000070",
		"58000001a3185d3a6000000003000000000000006902 = 542d393938",
	}
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			t.Errorf("there is also %s", got[i])
		case i >= len(got):
			t.Errorf("there is no %s", want[i])
		case got[i] != want[i]:
			t.Errorf("there is   %s\n  and not %s", got[i], want[i])
		}
	}
}

// TestRowsComeBackAsTheyWere also reads them after a restart, from a table.
func TestRowsComeBackAsTheyWere(t *testing.T) {
	fs := vfs.NewMem()
	s := openMem(t, fs)
	writeSamples(t, s)
	for _, when := range []string{"from the memtable", "from a table"} {
		in, err := s.NewInspector()
		if err != nil {
			t.Fatal(err)
		}
		same := func(what string, got, want any, err error) {
			t.Helper()
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: %+v, %v, want %+v", when, what, got, err, want)
			}
		}
		walks := []error{
			in.Events(func(e EventAt, err error) error { same("event", e, EventAt{3, 105, sampleEvent()}, err); return nil }),
			in.Histories(func(e EventAt, err error) error {
				same("history", e, EventAt{3, 104, sampleEvent()}, err)
				return nil
			}),
			in.Winners(func(w WinnerAt, err error) error {
				same("winner", w, WinnerAt{3, "T-998", sampleWinner()}, err)
				return nil
			}),
			in.Seen(func(v SeenAt, err error) error {
				same("seen", v, SeenAt{2, 0, 3, false, sampleSeen()}, err)
				return nil
			}),
			in.Answered(func(a AnsweredAt, err error) error {
				same("answered", a, AnsweredAt{2, sampleAnswered()}, err)
				return nil
			}),
			in.Timers(func(v Timer, err error) error { same("timer", v, sampleTimer(), err); return nil }),
			in.Minutes(func(m MinuteAt, err error) error { same("minute", m, MinuteAt{30_000_000, 105}, err); return nil }),
			in.Figures(func(f FiguresAt, err error) error {
				same("figures", f, FiguresAt{3, sampleTopic().Figures}, err)
				return nil
			}),
			in.Garbage(func(n uint32, err error) error { same("garbage", n, uint32(2), err); return nil }),
			in.Leaves(func(l LeavesAt, err error) error { same("leaves", l, LeavesAt{198, bytesOf(0, 64)}, err); return nil }),
			in.Unknown(func(key []byte) error { t.Errorf("the key %x is unknown", key); return nil }),
			s.LoadTopics(func(v Topic) error { same("topic", v, sampleTopic(), nil); return nil }),
		}
		space, settings, ok, err := s.LoadSpace()
		same("space", space, sampleSpace(), err)
		same("settings", settings, sampleSettings(), err)
		leaf, found, err := in.Leaf(199)
		same("leaf", leaf[:], bytesOf(32, 32), err)
		if !ok || !found || errors.Join(walks...) != nil {
			t.Errorf("%s: space %v, leaf %v, %v", when, ok, found, errors.Join(walks...))
		}
		for _, beyond := range []uint64{0, 197, 200, 1 << 60} {
			if _, found, err := in.Leaf(beyond); found || err != nil {
				t.Errorf("there is a leaf %d, %v", beyond, err)
			}
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		s = openMem(t, fs)
	}
	closeStore(t, s)
}

// TestKeysSortAsTheirNumbers is what resuming, retention and timers rely on.
func TestKeysSortAsTheirNumbers(t *testing.T) {
	numbers := []uint64{0, 1, 255, 256, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1}
	for _, make := range []func(n uint64) []byte{
		func(n uint64) []byte { return appendEventKey(nil, 7, n) },
		func(n uint64) []byte { return appendHistoryKey(nil, 7, n) },
		func(n uint64) []byte { return appendTimerKey(nil, Timer{DueMillis: int64(n >> 1), Position: n}) },
		func(n uint64) []byte { return appendUint64Key(nil, prefixLeaves, n) },
	} {
		for i := 1; i < len(numbers); i++ {
			if a, b := make(numbers[i-1]), make(numbers[i]); bytes.Compare(a, b) >= 0 {
				t.Errorf("%x does not sort before %x", a, b)
			}
		}
	}
	if a, b := appendEventKey(nil, 7, 1<<64-1), appendEventKey(nil, 8, 0); bytes.Compare(a, b) >= 0 {
		t.Errorf("%x does not sort before %x", a, b)
	}
}

func TestSuccessor(t *testing.T) {
	for prefix, want := range map[string]string{"E": "F", "E\x00": "E\x01", "E\xff": "F", "E\xff\xff": "F", "\xff": "", "": ""} {
		if got := successor([]byte(prefix)); string(got) != want {
			t.Errorf("the successor of %q is %q, want %q", prefix, got, want)
		}
	}
}

// TestShortRowsAreDamage cuts every row anywhere: a row that has lost its end
// never decodes to less, except where its last field has no length of its own.
func TestShortRowsAreDamage(t *testing.T) {
	e, w, seen, answered, topic, space := sampleEvent(), sampleWinner(), sampleSeen(), sampleAnswered(), sampleTopic(), sampleSpace()
	for _, c := range []struct {
		kind   string
		row    []byte
		open   int // length of the last field, which may be cut
		decode func([]byte) error
	}{
		{"event", e.append(nil), len(e.Members), func(b []byte) error { _, err := DecodeEvent(b); return err }},
		{"winner", w.append(nil), len(w.ID), func(b []byte) error { _, err := DecodeWinner(b); return err }},
		{"seen", seen.append(nil), 0, func(b []byte) error { _, err := decodeSeen(b); return err }},
		{"answered", answered.append(nil)[:25], 0, func(b []byte) error { _, err := decodeAnswered(b); return err }},
		{"figures", topic.append(nil), 0, func(b []byte) error { _, err := decodeFigures(b); return err }},
		{"space", space.append(nil), 0, func(b []byte) error { _, err := decodeSpace(b); return err }},
	} {
		if err := c.decode(c.row); err != nil {
			t.Errorf("a row of kind %s: %v", c.kind, err)
		}
		for n := range len(c.row) - c.open {
			err := c.decode(c.row[:n])
			if !errors.Is(err, ErrDamaged) || event.AsError(err).Code != event.CodeStoreDamaged {
				t.Errorf("%d of %d bytes of a row of kind %s: %v", n, len(c.row), c.kind, err)
			}
		}
		foreign := slices.Clone(c.row)
		foreign[0]++
		if err := c.decode(foreign); !errors.Is(err, ErrDamaged) {
			t.Errorf("a row of kind %s in another format: %v", c.kind, err)
		}
	}
}

// TestFiguresOfEarlierVersions: those of the first had no history, and those of the
// second nothing that was given up.
func TestFiguresOfEarlierVersions(t *testing.T) {
	topic := sampleTopic()
	b := topic.append(nil)
	topic.GivenUpTo = 0
	second := b[:len(b)-8]
	second[0] = 2
	if f, err := decodeFigures(second); err != nil || f != topic.Figures {
		t.Errorf("those of the second are %+v, %v", f, err)
	}
	topic.History, topic.CompactedTo = 0, 0
	first := second[:len(second)-16]
	first[0] = 1
	if f, err := decodeFigures(first); err != nil || f != topic.Figures {
		t.Errorf("those of the first are %+v, %v", f, err)
	}
}

// FuzzRows decodes anything as a row of every kind: it never panics, and what
// decodes is written back as something that decodes to the same.
func FuzzRows(f *testing.F) {
	e, w, seen, answered, topic, space := sampleEvent(), sampleWinner(), sampleSeen(), sampleAnswered(), sampleTopic(), sampleSpace()
	timer := sampleTimer()
	for _, row := range [][]byte{e.append(nil), w.append(nil), seen.append(nil), answered.append(nil), topic.append(nil), space.append(nil), {}, {rowFormat}} {
		f.Add(appendTimerKey(nil, timer), row)
	}
	f.Fuzz(func(t *testing.T, key, b []byte) {
		if row, err := DecodeEvent(b); err == nil {
			again(t, "event", row, row.append(nil), DecodeEvent)
		}
		if row, err := DecodeWinner(b); err == nil {
			again(t, "winner", row, row.append(nil), DecodeWinner)
		}
		if row, err := decodeSeen(b); err == nil {
			again(t, "seen", row, row.append(nil), decodeSeen)
		}
		if row, err := decodeAnswered(b); err == nil {
			again(t, "answered", row, row.append(nil), decodeAnswered)
		}
		if row, err := decodeFigures(b); err == nil {
			again(t, "figures", row, row.append(nil), decodeFigures)
		}
		if row, err := decodeSpace(b); err == nil {
			again(t, "space", row, row.append(nil), decodeSpace)
		}
		_, _ = decodeName("topic", b)
		_, _ = decodeLeaves(key, b)
		if timer, err := decodeTimer(key, b); err == nil && !bytes.Equal(appendTimerKey(nil, timer)[1:], key[1:]) {
			t.Errorf("the timer of %x has the key %x", key, appendTimerKey(nil, timer))
		}
		// The reader of chunks meets whatever a disk returns.
		for _, r := range []chunkReader{{crcs: castagnoli()}, {log: true, number: 2, crcs: castagnoli()}} {
			if _, err := r.read(bytes.NewReader(b)); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
		}
	})
}

func again[T any](t *testing.T, kind string, row T, b []byte, decode func([]byte) (T, error)) {
	back, err := decode(b)
	if err != nil || strings.Compare(fmt.Sprintf("%+v", back), fmt.Sprintf("%+v", row)) != 0 {
		t.Errorf("%s %+v comes back as %+v, %v", kind, row, back, err)
	}
}
