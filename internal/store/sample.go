// SPDX-License-Identifier: Apache-2.0

package store

import "signalbox/internal/metrics"

// syncBuckets is how many of Pebble's hundred buckets become one.
const syncBuckets = 5

// Sample tells what Pebble tells about itself.
func (s *Store) Sample(sample metrics.Sample) {
	m := s.db.Metrics()
	for _, v := range []struct {
		name  string
		value float64
	}{
		{"signalbox_store_disk_bytes", float64(m.DiskSpaceUsage())},
		{"signalbox_store_flushes_total", float64(m.Flush.Count)},
		{"signalbox_store_memtables", float64(m.MemTable.Count)},
		{"signalbox_store_memtable_bytes", float64(m.MemTable.Size)},
		{"signalbox_store_wal_files", float64(m.WAL.Files)},
		{"signalbox_store_wal_bytes", float64(m.WAL.PhysicalSize)},
		{"signalbox_store_wal_written_bytes_total", float64(m.WAL.BytesWritten)},
		{"signalbox_store_compactions_total", float64(m.Compact.Count)},
		{"signalbox_store_compactions_running", float64(m.Compact.NumInProgress)},
		{"signalbox_store_compaction_debt_bytes", float64(m.Compact.EstimatedDebt)},
		{"signalbox_store_l0_files", float64(m.Levels[0].TablesCount)},
		{"signalbox_store_l0_sublevels", float64(m.Levels[0].Sublevels)},
		{"signalbox_store_read_amplification", float64(m.ReadAmp())},
		{"signalbox_store_block_cache_bytes", float64(m.BlockCache.Size)},
		{"signalbox_store_block_cache_hits_total", float64(m.BlockCache.Hits)},
		{"signalbox_store_block_cache_misses_total", float64(m.BlockCache.Misses)},
		{"signalbox_store_snapshots", float64(m.Snapshots.Count)},
	} {
		sample.Set(v.name, v.value)
	}
	sample.Copy("signalbox_store_sync_seconds", m.LogWriter.FsyncLatency, syncBuckets)
}
