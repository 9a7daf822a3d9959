// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/eventlog"
)

func testIdentity(n uint64) (id eventlog.IdentityHash) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, n))
	copy(id.ID[:], sum[:])
	copy(id.Source[:], sum[16:])
	return id
}

// fillSegments puts records of n identities from first on into a generation.
func fillSegments(t *testing.T, s *Store, generation uint32, first, n uint64) {
	t.Helper()
	for done := uint64(0); done < n; {
		batch := s.NewBatch()
		for range min(n-done, 10_000) {
			done++
			batch.SetSeen(generation, 1, testIdentity(first+done-1), &SeenRow{Position: first + done})
		}
		if err := s.Commit(batch, func() {}); err != nil {
			t.Fatal(err)
		}
		batch.Close()
	}
}

// TestSeenRecordsAreFoundAcrossSegments fills several segments of two
// generations, with a stop in between, and looks everything up; and counts the
// look-ups that strangers cost, of which there must be few or the filter spares
// nothing.
func TestSeenRecordsAreFoundAcrossSegments(t *testing.T) {
	const n = 2*segmentRecords + 1000
	fs := vfs.NewMem()
	s := openSeen(t, fs)
	fillSegments(t, s, 0, 0, n)
	fillSegments(t, s, 1, n, segmentRecords/2)
	s = reopenSeen(t, s, fs)
	fillSegments(t, s, 1, n+segmentRecords/2, segmentRecords/2+1)
	alarms := 0
	check := func(s *Store) {
		t.Helper()
		lookup := s.NewLookup()
		for i := uint64(0); i < n+segmentRecords+1; i += 7 {
			generation := uint32(0)
			if i >= n {
				generation = 1
			}
			row, ok, err := lookup.Seen(generation, 1, testIdentity(i))
			if err != nil || !ok || row.Position != i+1 {
				t.Fatalf("identity %d: %+v, %t, %v", i, row, ok, err)
			}
			if _, ok, err := lookup.Seen(generation, 2, testIdentity(i)); err != nil || ok {
				t.Fatalf("identity %d is known in another topic, %v", i, err)
			}
			stranger := testIdentity(1<<40 + i)
			alarms += len(s.seen.candidates(nil, generation, identityHash(1, &stranger)))
		}
		if err := lookup.Close(); err != nil {
			t.Fatal(err)
		}
	}
	check(s)
	if most := n / 7 / 1000; alarms > most {
		t.Errorf("%d candidates for strangers, of %d look-ups in at most three segments", alarms, n/7)
	}
	s = reopenSeen(t, s, fs)
	check(s)
	var ids int
	id := testIdentity(5)
	if err := s.SeenByID(0, 1, id.ID, func(row SeenRow) { ids += int(row.Position) }); err != nil || ids != 6 {
		t.Errorf("by its id alone: %d, %v", ids, err)
	}
	if got := s.seen.next(0); got != (seenPlace{2, 1000}) {
		t.Errorf("generation 0 goes on at %+v", got)
	}
	if got := s.seen.next(1); got != (seenPlace{1, 1}) {
		t.Errorf("generation 1 goes on at %+v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFiltersOfManySegmentsAreAskedTogether checks that each identity is found in
// its segment, however the filters came in: one by one, as they become complete, or
// many at a time, as at a start.
func TestFiltersOfManySegmentsAreAskedTogether(t *testing.T) {
	const segments, records = 150, 40
	filters := make([]*bloomFilter, segments)
	for s := range filters {
		filters[s] = newBloomFilter(uint32(s))
		for i := range records {
			id := testIdentity(uint64(s*records + i))
			at := probesOf(identityHash(1, &id))
			filters[s].add(&at)
		}
	}
	alone, together := newSeenFilter(), newSeenFilter()
	for _, f := range filters {
		alone.generation(0).completed(f)
	}
	for at := 0; at < segments; at += 64 {
		together.generation(0).completed(filters[at:min(at+64, segments)]...)
	}
	for i, one := range alone.generation(0).slices {
		if *one != *together.generation(0).slices[i] {
			t.Errorf("slices %d differ", i)
		}
	}
	for n := range uint64(segments * records) {
		id := testIdentity(n)
		for _, f := range []*seenFilter{alone, together} {
			got := f.candidates(nil, 0, identityHash(1, &id))
			if !slices.Contains(got, uint32(n/records)) || len(got) > 2 || !slices.IsSortedFunc(got, func(a, b uint32) int { return int(b) - int(a) }) {
				t.Fatalf("identity %d may be in %v", n, got)
			}
		}
	}
}

func TestTransposeExchangesRowsAndColumns(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var square [64]uint64
	for i := range square {
		square[i] = r.Uint64()
	}
	before := square
	transpose(&square)
	for row := range 64 {
		for column := range 64 {
			if square[row]>>column&1 != before[column]>>row&1 {
				t.Fatalf("row %d, column %d", row, column)
			}
		}
	}
}

func openSeen(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(Options{Dir: "data", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func reopenSeen(t *testing.T, s *Store, fs vfs.FS) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return openSeen(t, fs)
}

// TestCutRecordsLeaveNoTrace checks that records that are taken back free their
// places: the rows of a log do not depend on what was refused, nor when.
func TestCutRecordsLeaveNoTrace(t *testing.T) {
	s := openSeen(t, vfs.NewMem())
	defer s.Close()
	batch := s.NewBatch()
	batch.SetSeen(3, 1, testIdentity(1), &SeenRow{Position: 1})
	mark := batch.Mark()
	batch.SetSeen(3, 1, testIdentity(2), &SeenRow{Position: 2})
	batch.Cut(mark)
	batch.SetSeen(3, 1, testIdentity(3), &SeenRow{Position: 2})
	if err := s.Commit(batch, func() {}); err != nil {
		t.Fatal(err)
	}
	batch.Close()
	if got := s.seen.next(3); got != (seenPlace{0, 2}) {
		t.Errorf("the next record goes to %+v", got)
	}
	if id := testIdentity(2); len(s.seen.candidates(nil, 3, identityHash(1, &id))) > 0 {
		t.Error("the filter has what was taken back")
	}
}

// TestTheLastSegmentTakesAnyNumber checks that the bound on memory costs
// look-ups and not truth.
func TestTheLastSegmentTakesAnyNumber(t *testing.T) {
	last := seenPlace{segmentsMax - 1, segmentRecords - 1}
	if next := last.next(); next.segment != last.segment {
		t.Fatalf("after the last segment comes %+v", next)
	}
	f := newSeenFilter()
	g := f.generation(0)
	for segment := range uint32(segmentsMax - 1) {
		g.completed(newBloomFilter(segment))
	}
	if completed := f.add(0, last, [2]uint64{1, 2}); completed != nil {
		t.Error("the last segment is complete")
	}
	if got := f.candidates(nil, 0, [2]uint64{3, 4}); len(got) != 1 || got[0] != segmentsMax-1 {
		t.Errorf("a stranger may be in %v", got)
	}
}

// TestMissingFilterIsDamage removes the filter of a complete segment: what lies
// behind it would never be found, so the store does not open.
func TestMissingFilterIsDamage(t *testing.T) {
	fs := vfs.NewMem()
	s := openSeen(t, fs)
	fillSegments(t, s, 0, 0, segmentRecords+1)
	if err := s.db.Delete(appendSegmentKey(nil, prefixFilter, 0, 0), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: "data", FS: fs}); event.AsError(err).Code != event.CodeStoreDamaged {
		t.Errorf("it opens with %v", err)
	}
}

// TestFiltersOfBeforeAreMadeAgain opens a store whose filters are of the size that they
// had up to feature level 3.
func TestFiltersOfBeforeAreMadeAgain(t *testing.T) {
	const n = segmentRecords + 10
	fs := vfs.NewMem()
	s := openSeen(t, fs)
	fillSegments(t, s, 0, 0, n)
	if err := s.db.Set(appendSegmentKey(nil, prefixFilter, 0, 0), make([]byte, filterBytesBefore), nil); err != nil {
		t.Fatal(err)
	}
	s = reopenSeen(t, s, fs)
	defer s.Close()
	lookup := s.NewLookup()
	defer lookup.Close()
	for i := uint64(0); i < n; i += 101 {
		if row, ok, err := lookup.Seen(0, 1, testIdentity(i)); err != nil || !ok || row.Position != i+1 {
			t.Fatalf("identity %d: %+v, %t, %v", i, row, ok, err)
		}
	}
	if got := s.seen.next(0); got != (seenPlace{1, 10}) {
		t.Errorf("the generation goes on at %+v", got)
	}
}

// TestDroppedGenerationsLeaveNoFilters fills a segment exactly, drops its
// generation, and opens the store again.
func TestDroppedGenerationsLeaveNoFilters(t *testing.T) {
	fs := vfs.NewMem()
	s := openSeen(t, fs)
	fillSegments(t, s, 0, 0, segmentRecords)
	s = reopenSeen(t, s, fs)
	if got := s.seen.next(0); got != (seenPlace{1, 0}) && got != (seenPlace{0, segmentRecords}) {
		t.Errorf("a full segment is followed by %+v", got)
	}
	fillSegments(t, s, 0, segmentRecords, 1)
	batch := s.NewBatch()
	batch.DeleteGeneration(0)
	if err := s.Commit(batch, func() {}); err != nil {
		t.Fatal(err)
	}
	batch.Close()
	s = reopenSeen(t, s, fs)
	defer s.Close()
	if got := s.seen.next(0); got != (seenPlace{}) {
		t.Errorf("a dropped generation goes on at %+v", got)
	}
	if err := scan(s.db, []byte{prefixFilter}, func(key, _ []byte) error { t.Errorf("there is a row %x", key); return nil }); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkSeenFilter asks about new identities, of which a generation holds so
// many segments.
func BenchmarkSeenFilter(b *testing.B) {
	for _, segments := range []int{1, 20, 150, 510} {
		b.Run(strconv.Itoa(segments), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 2))
			f := newSeenFilter()
			for range segments {
				filter := newBloomFilter(0)
				for range segmentRecords {
					at := probesOf([2]uint64{r.Uint64(), r.Uint64()})
					filter.add(&at)
				}
				f.generation(0).completed(filter)
			}
			var candidates []uint32
			alarms := 0
			for b.Loop() {
				candidates = f.candidates(candidates[:0], 0, [2]uint64{r.Uint64(), r.Uint64()})
				alarms += len(candidates)
			}
			b.ReportMetric(float64(alarms)/float64(b.N), "alarms/op")
		})
	}
}

// BenchmarkCompletedFilter takes in the filter of one segment, as a commit does that
// completes it.
func BenchmarkCompletedFilter(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	filter, slices := newBloomFilter(0), &bloomSlices{}
	for range segmentRecords {
		at := probesOf([2]uint64{r.Uint64(), r.Uint64()})
		filter.add(&at)
	}
	for n := 0; b.Loop(); n++ {
		slices.add(n%64, filter)
	}
}
