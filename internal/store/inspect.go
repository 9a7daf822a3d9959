// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"signalbox/event"
	"signalbox/internal/eventlog"
)

// Inspect opens a data directory for reading however damaged it is, and says
// which of its files are. The store is nil if the damage leaves nothing to
// read. It fails with code store_locked or store_format, or if the operating
// system refuses.
func Inspect(o Options) (s *Store, damages []Damage, err error) {
	o.ReadOnly, o.found = true, &damages
	if o.FS == nil {
		o.FS = vfs.Default
	}
	s, err = Open(o)
	switch {
	case err == nil:
		return s, damages, nil
	case len(damages) > 0:
		return nil, damages, nil // they are the reason
	case event.AsError(err).Code != event.CodeStoreDamaged:
		return nil, nil, err
	}
	broken, listErr := brokenLogs(o.FS, o.Dir)
	if listErr != nil {
		return nil, nil, listErr
	}
	return nil, append(broken, Damage{File: namedFile(err), Offset: -1, Detail: "the database does not open: " + cause(err)}), nil
}

// cause is the text of what the storage itself said.
func cause(err error) string {
	if inner := errors.Unwrap(event.AsError(err)); inner != nil {
		return inner.Error()
	}
	return err.Error()
}

// namedFile finds the file that a message of Pebble names.
func namedFile(err error) string {
	if name := regexp.MustCompile(`MANIFEST-\d+|OPTIONS-\d+|\d{6,}\.(?:sst|log|blob)`).FindString(err.Error()); name != "" {
		return name
	}
	if table := regexp.MustCompile(`\bL\d: (\d{6,})`).FindStringSubmatch(err.Error()); table != nil {
		return table[1] + ".sst"
	}
	return ""
}

// brokenLogs lists the logs that hold bytes that are no chunk. It is asked when
// Pebble has refused a log and does not say which.
func brokenLogs(fsys vfs.FS, dir string) (damages []Damage, err error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		number, _, ok := wal.ParseLogFilename(name)
		if !ok {
			continue
		}
		t, err := readChunks(fsys, dir, name, chunkReader{log: true, number: uint32(number)})
		if err != nil {
			return nil, err
		}
		if t.broken >= 0 {
			damages = append(damages, Damage{File: name, Offset: t.broken, Detail: "this log has bytes here that are no record"})
		}
	}
	return damages, nil
}

// Tables returns the names of the tables that hold the store's rows.
func (s *Store) Tables() ([]string, error) {
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, readError(err)
	}
	var names []string
	for _, level := range levels {
		for _, t := range level {
			names = append(names, t.BackingSSTNum.String()+".sst")
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// ListTables returns the names of all tables in a directory. Some may be
// leftovers of an interrupted write that no manifest refers to.
func ListTables(fsys vfs.FS, dir string) (tables []string, err error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".sst") }), nil
}

// CheckTable checks the checksum of every block of a table.
func CheckTable(ctx context.Context, fsys vfs.FS, dir, name string) (damage *Damage, err error) {
	if fsys == nil {
		fsys = vfs.Default
	}
	f, err := fsys.Open(fsys.PathJoin(dir, name))
	if err != nil {
		return &Damage{File: name, Offset: -1, Detail: err.Error()}, nil
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	options := &pebble.Options{FS: fsys}
	options.Levels[0].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
	options.EnsureDefaults()
	r, err := sstable.NewReader(ctx, readable, options.MakeReaderOptions()) // it closes readable when it fails
	if err == nil {
		err = errors.Join(r.ValidateBlockChecksums(), r.Close())
	}
	if err != nil {
		return &Damage{File: name, Offset: -1, Detail: err.Error()}, nil
	}
	return nil, nil
}

// Inspector reads rows of every kind as they are, in the order of their keys,
// on one snapshot. A row that does not decode is passed on with its error; a
// file that cannot be read ends the walk with one.
type Inspector struct {
	snapshot *pebble.Snapshot
	leaves   *pebble.Iterator
	unread   uint64      // the first leaf that could not be read last
	leafErr  error       // why; nil: each could be read so far
	seen     *seenFilter // nil until Remembered needs it
}

// NewInspector must be closed.
func (s *Store) NewInspector() (*Inspector, error) {
	in := &Inspector{snapshot: s.db.NewSnapshot()}
	var err error
	in.leaves, err = in.snapshot.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixLeaves}, UpperBound: []byte{prefixLeaves + 1}})
	if err != nil {
		return nil, errors.Join(readError(err), in.snapshot.Close())
	}
	return in, nil
}

// Close releases the snapshot.
func (in *Inspector) Close() error {
	return errors.Join(closeIterator(in.leaves), in.snapshot.Close())
}

// walk passes every row under a prefix on as decode makes it.
func walk[T any](in *Inspector, prefix byte, decode func(key, value []byte) (T, error), each func(T, error) error) (err error) {
	it, err := in.snapshot.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return readError(err)
		}
		if err := each(decode(it.Key(), value)); err != nil {
			return err
		}
	}
	return nil
}

func badKey(kind string, key []byte) error {
	return Damagedf("the key %x is none of a row of kind %q", key, kind)
}

// EventAt is an E or an H row.
type EventAt struct {
	Topic    uint32
	Position uint64
	EventRow
}

// Events walks the E rows. A row is valid during the call.
func (in *Inspector) Events(each func(EventAt, error) error) error {
	return walk(in, prefixEvent, decodeEventAt, each)
}

func decodeEventAt(key, value []byte) (e EventAt, err error) {
	if len(key) != 1+4+8 {
		return e, badKey("event", key)
	}
	e.Topic, e.Position = binary.BigEndian.Uint32(key[1:]), binary.BigEndian.Uint64(key[5:])
	e.EventRow, err = DecodeEvent(value)
	return e, err
}

// WinnerAt is an S row.
type WinnerAt struct {
	Topic uint32
	Key   string
	WinnerRow
}

// Winners walks the S rows.
func (in *Inspector) Winners(each func(WinnerAt, error) error) error {
	return walk(in, prefixWinner, func(key, value []byte) (w WinnerAt, err error) {
		if len(key) < 1+4+1 {
			return w, badKey("winner", key)
		}
		w.Topic, w.Key = binary.BigEndian.Uint32(key[1:]), string(key[5:])
		w.WinnerRow, err = DecodeWinner(value)
		return w, err
	}, each)
}

// SeenAt is a D row.
type SeenAt struct {
	Generation, Segment, Topic uint32
	Hidden                     bool // the filter of its segment denies it, so it would not be found
	SeenRow
}

// Seen walks the D rows.
func (in *Inspector) Seen(each func(SeenAt, error) error) error {
	var last seenKey
	var filter *bloomFilter
	first := true
	return walk(in, prefixSeen, func(key, value []byte) (s SeenAt, err error) {
		k, err := decodeSeenKey(key)
		if err != nil {
			return s, err
		}
		if first || k.generation != last.generation || k.segment != last.segment {
			first, last, filter = false, k, nil
			if filter, err = in.filter(k.generation, k.segment); err != nil {
				return s, err // once for the segment
			}
		}
		at := probesOf(identityHash(k.topic, &k.identity))
		s.Generation, s.Segment, s.Topic = k.generation, k.segment, k.topic
		s.Hidden = !filter.mayHave(&at)
		s.SeenRow, err = decodeSeen(value)
		return s, err
	}, each)
}

// filter returns the stored filter of a segment; nil if it has none.
func (in *Inspector) filter(generation, segment uint32) (filter *bloomFilter, err error) {
	key := appendSegmentKey(nil, prefixFilter, generation, segment)
	_, err = get(in.snapshot, key, func(value []byte) error {
		_, _, filter, err = loadFilter(in.snapshot, key, value)
		return err
	})
	return filter, err
}

// AnsweredAt is an I row.
type AnsweredAt struct {
	Generation uint32
	AnsweredRow
}

// Answered walks the I rows.
func (in *Inspector) Answered(each func(AnsweredAt, error) error) error {
	return walk(in, prefixAnswered, func(key, value []byte) (a AnsweredAt, err error) {
		if len(key) != 1+4+16 {
			return a, badKey("answered", key)
		}
		a.Generation = binary.BigEndian.Uint32(key[1:])
		a.AnsweredRow, err = decodeAnswered(value)
		return a, err
	}, each)
}

// Timers walks the X rows.
func (in *Inspector) Timers(each func(Timer, error) error) error {
	return walk(in, prefixTimer, decodeTimer, each)
}

// MinuteAt is a K row.
type MinuteAt struct {
	Minute   int64
	Position uint64
}

// Minutes walks the K rows.
func (in *Inspector) Minutes(each func(MinuteAt, error) error) error {
	return walk(in, prefixMinute, func(key, value []byte) (m MinuteAt, err error) {
		if len(key) != 1+8 || len(value) != 8 {
			return m, badKey("minute", key)
		}
		return MinuteAt{int64(binary.BigEndian.Uint64(key[1:])), binary.BigEndian.Uint64(value)}, nil
	}, each)
}

// Names walks the N rows; the figures are not filled in.
func (in *Inspector) Names(each func(Topic, error) error) error {
	return walk(in, prefixName, func(key, value []byte) (Topic, error) { return decodeName(string(key[1:]), value) }, each)
}

// FiguresAt is a T row.
type FiguresAt struct {
	Topic uint32
	Figures
}

func decodeFiguresAt(key, value []byte) (f FiguresAt, err error) {
	if len(key) != 1+4 {
		return f, badKey("figures", key)
	}
	f.Topic = binary.BigEndian.Uint32(key[1:])
	f.Figures, err = decodeFigures(value)
	return f, err
}

// Figures walks the T rows.
func (in *Inspector) Figures(each func(FiguresAt, error) error) error {
	return walk(in, prefixFigures, decodeFiguresAt, each)
}

// Garbage walks the G rows.
func (in *Inspector) Garbage(each func(topic uint32, err error) error) error {
	return walk(in, prefixGarbage, func(key, _ []byte) (uint32, error) {
		if len(key) != 1+4 {
			return 0, badKey("garbage", key)
		}
		return binary.BigEndian.Uint32(key[1:]), nil
	}, each)
}

// Unknown walks the keys that are none of the keyspace's.
func (in *Inspector) Unknown(each func(key []byte) error) (err error) {
	known := []byte{prefixEvent, prefixHistory, prefixWinner, prefixSeen, prefixFilter, prefixAnswered, prefixTimer, prefixMinute,
		prefixName, prefixFigures, prefixGarbage, prefixLeaves, prefixEntries, prefixTree, prefixCheckpoint, prefixMeta,
		prefixSubscriptionID, prefixSubscription, prefixSubscriptionState, prefixDelivery, prefixAgent, prefixMessage}
	known = append(known, prefixTerm, prefixOutside)
	slices.Sort(known)
	it, err := in.snapshot.NewIter(nil)
	if err != nil {
		return readError(err)
	}
	defer func() { err = errors.Join(err, closeIterator(it)) }()
	for ok := it.First(); ok; {
		if slices.Contains(known, it.Key()[0]) && !unknownMeta(it.Key()) {
			next := it.Key()[0] + 1
			if it.Key()[0] == prefixMeta {
				ok = it.Next()
				continue
			}
			ok = it.SeekGE([]byte{next})
			continue
		}
		if err := each(it.Key()); err != nil {
			return err
		}
		ok = it.Next()
	}
	return nil
}

func unknownMeta(key []byte) bool {
	return key[0] == prefixMeta && string(key[1:]) != metaSpace && string(key[1:]) != metaSettings && string(key[1:]) != metaSubscriptions && string(key[1:]) != metaRegistry && string(key[1:]) != metaVerbs
}

// HasEvent reports whether a position has a row.
func (in *Inspector) HasEvent(topic uint32, position uint64) (bool, error) {
	return get(in.snapshot, appendEventKey(nil, topic, position), func([]byte) error { return nil })
}

// EventLeaf returns the index of an event's entry in the audit trail.
func (in *Inspector) EventLeaf(topic uint32, position uint64) (leaf uint64, ok bool, err error) {
	ok, err = getEvent(in.snapshot, topic, position, func(row EventRow) error {
		leaf = row.Leaf
		return nil
	})
	return leaf, ok, err
}

// HasTimer reports whether a timer is armed.
func (in *Inspector) HasTimer(t Timer) (bool, error) {
	return get(in.snapshot, appendTimerKey(nil, t), func([]byte) error { return nil })
}

// Winner returns the winner of a key.
func (in *Inspector) Winner(topic uint32, key string) (WinnerRow, bool, error) {
	return getWinner(in.snapshot, topic, key)
}

// Remembered returns what is remembered of an event in one generation.
func (in *Inspector) Remembered(generation, topic uint32, id [16]byte, source [8]byte) (row SeenRow, ok bool, err error) {
	if in.seen == nil {
		if in.seen, err = loadSeenFilter(in.snapshot); err != nil {
			return row, false, err
		}
	}
	identity := eventlog.IdentityHash{ID: id, Source: source}
	for _, segment := range in.seen.candidates(nil, generation, identityHash(topic, &identity)) {
		key := append(appendSeenKey(nil, generation, segment, topic, id[:]), source[:]...)
		ok, err = get(in.snapshot, key, func(b []byte) (err error) {
			row, err = decodeSeen(b)
			return err
		})
		if ok || err != nil {
			break
		}
	}
	return row, ok, err
}

// Damagedf makes an error with code store_damaged that is ErrDamaged, too. What
// was found is for the operator; the caller is told only that it is the
// broker's data.
func Damagedf(format string, args ...any) error {
	return &event.Error{
		Code:    event.CodeStoreDamaged,
		Message: "Stored data cannot be read, because it is damaged. The operator finds out what it is with `signalbox verify`.",
		Err:     fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...)),
	}
}
