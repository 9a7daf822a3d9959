// SPDX-License-Identifier: Apache-2.0

package store

// Size is what a part of the keyspace takes up in tables.
type Size struct {
	What  string
	Bytes uint64
}

// Sizes estimates the size of each kind of rows. What is still in memtables is
// not counted.
func (s *Store) Sizes() ([]Size, error) {
	sizes := []Size{}
	for _, part := range []struct {
		prefix byte
		what   string
	}{
		{prefixEvent, "events"}, {prefixWinner, "winners"}, {prefixSeen, "deduplication records"}, {prefixFilter, "filters of these"},
		{prefixAnswered, "idempotency records"}, {prefixTimer, "timers"}, {prefixMinute, "minutes"}, {prefixName, "names of topics"},
		{prefixFigures, "figures of topics"}, {prefixLeaves, "audit leaves"},
	} {
		n, err := s.db.EstimateDiskUsage([]byte{part.prefix}, []byte{part.prefix + 1})
		if err != nil {
			return nil, readError(err)
		}
		sizes = append(sizes, Size{part.what, n})
	}
	return sizes, nil
}
