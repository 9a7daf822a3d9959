// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"

	"signalbox/event"
)

const (
	// recordMark begins every record. Its first byte is in no UTF-8 text, so that the readable records behind a damaged
	// one can be found again.
	recordMark = "\xf5SBr"
	// recordHeadBytes is the mark, the length of the payload and the CRC-32C of length and payload.
	recordHeadBytes = len(recordMark) + 4 + 4
	// recordBytesMax bounds one record: the largest event a topic's policy allows (16 MiB), as base64 and with its
	// attributes. It stops a flipped bit in a length from being taken at its word.
	recordBytesMax = 64 << 20
)

// journal is a file of records that were made durable one after the other: what a ledger and an outbox are kept in.
//
// A record is there as a whole or not at all. Only the last one can be torn, for each is synced before the next is
// written; opening trims it. Damage anywhere else is reported and never passed over. Its methods are not safe for
// concurrent use: the owner's lock covers them.
type journal struct {
	path   string
	header string
	file   *os.File
	lock   *os.File
	size   int64 // of the records that are known to be durable, the header included
	// broken is set once it is unknown what the file holds. A second sync would prove nothing, see fsync(2).
	broken error
}

// damage is a stretch of a journal that no record could be read from.
type damage struct{ from, to int64 }

// openJournal opens or creates the file at path and hands every record to each, in order. The payload is only valid
// during the call. With salvage a damaged file is set aside as path.damaged, and what is still readable goes on.
func openJournal(path, header string, salvage bool, each func(payload []byte) error) (_ *journal, trimmed int64, damages []damage, err error) {
	j := &journal{path: path, header: header}
	if j.lock, err = lockFile(path + ".lock"); err != nil {
		return nil, 0, nil, err
	}
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return j, 0, nil, j.replace(func(func([]byte) bool) {})
	}
	if err != nil {
		return nil, 0, nil, fmt.Errorf("client: open the journal: %w", err)
	}
	records, end, damages := scanJournal(data, header)
	if len(damages) > 0 && !salvage {
		return nil, 0, damages, damagedJournal(path, damages, len(records))
	}
	for _, r := range records {
		if err := each(r); err != nil {
			return nil, 0, damages, damagedJournal(path, []damage{{0, int64(len(data))}}, len(records)).Fact("cause", err.Error())
		}
	}
	if len(damages) > 0 {
		if err := os.WriteFile(path+".damaged", data, 0o600); err != nil {
			return nil, 0, damages, fmt.Errorf("client: set the damaged journal aside: %w", err)
		}
		return j, 0, damages, j.replace(func(yield func([]byte) bool) {
			for _, r := range records {
				if !yield(r) {
					return
				}
			}
		})
	}
	if j.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return nil, 0, nil, fmt.Errorf("client: open the journal: %w", err)
	}
	j.size = end
	if trimmed = int64(len(data)) - end; trimmed > 0 {
		err = errors.Join(j.file.Truncate(end), j.file.Sync())
	}
	return j, trimmed, nil, err
}

func damagedJournal(path string, at []damage, readable int) *event.Error {
	return event.Errorf(event.CodeJournalDamaged, "The file %s is damaged from byte %d to byte %d: it holds what was never written there.",
		path, at[0].from, at[0].to).Fact("path", path).Fact("offset", at[0].from).Fact("readable", readable)
}

// scanJournal splits a file into its records. What follows the last record, up to end, is a torn write; what lies
// between two records, or stands in the place of the header, is damage.
func scanJournal(data []byte, header string) (records [][]byte, end int64, damages []damage) {
	if !bytes.HasPrefix(data, []byte(header)) {
		damages = append(damages, damage{0, int64(min(len(header), len(data)))})
	}
	for at := min(len(header), len(data)); at < len(data); {
		if payload, n := readRecord(data[at:]); n > 0 {
			records = append(records, payload)
			at += n
			end = int64(at)
			continue
		}
		next := nextRecord(data, at+1)
		if next < 0 {
			break
		}
		damages = append(damages, damage{int64(at), int64(next)})
		at = next
	}
	return records, max(end, int64(min(len(header), len(data)))), damages
}

// readRecord returns the record that data begins with, and its length with its head; 0 when there is none.
func readRecord(data []byte) (payload []byte, n int) {
	if len(data) < recordHeadBytes || string(data[:len(recordMark)]) != recordMark {
		return nil, 0
	}
	length := binary.BigEndian.Uint32(data[len(recordMark):])
	if length > recordBytesMax || int(length) > len(data)-recordHeadBytes {
		return nil, 0
	}
	n = recordHeadBytes + int(length)
	payload = data[recordHeadBytes:n]
	if binary.BigEndian.Uint32(data[len(recordMark)+4:]) != recordSum(payload) {
		return nil, 0
	}
	return payload, n
}

// nextRecord finds the first readable record at or behind an offset, or -1.
func nextRecord(data []byte, at int) int {
	for at < len(data) {
		i := bytes.Index(data[at:], []byte(recordMark))
		if i < 0 {
			return -1
		}
		if _, n := readRecord(data[at+i:]); n > 0 {
			return at + i
		}
		at += i + 1
	}
	return -1
}

// recordSum covers the length as well: a record must not verify as a part of itself.
func recordSum(payload []byte) uint32 {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(payload)))
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(length[:], table), table, payload)
}

func appendRecord(dst, payload []byte) []byte {
	dst = append(dst, recordMark...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	dst = binary.BigEndian.AppendUint32(dst, recordSum(payload))
	return append(dst, payload...)
}

// append makes one record durable. After an error that left the file as it was (a full disk) a later call may succeed.
func (j *journal) append(payload []byte) error {
	if j.broken != nil {
		return j.broken
	}
	if len(payload) > recordBytesMax {
		return event.Errorf(event.CodeEventTooLarge, "A record of %d bytes does not fit the journal; the limit is %d.", len(payload), recordBytesMax)
	}
	record := appendRecord(nil, payload)
	if _, err := j.file.WriteAt(record, j.size); err != nil {
		// What was written in part must not stand before the next record.
		if cut := j.file.Truncate(j.size); cut != nil {
			j.broken = fmt.Errorf("client: the journal %s is in an unknown state: %w", j.path, errors.Join(err, cut))
		}
		return fmt.Errorf("client: write the journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		j.broken = fmt.Errorf("client: the journal %s failed to sync; open it again to see what it holds: %w", j.path, err)
		return j.broken
	}
	j.size += int64(len(record))
	return nil
}

// replace puts new contents in the place of the old, in one step: a crash leaves the one or the other.
func (j *journal) replace(records iter.Seq[[]byte]) error {
	if j.broken != nil {
		return j.broken
	}
	next := j.path + ".new"
	f, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("client: write the journal anew: %w", err)
	}
	size, err := writeRecords(f, j.header, records)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(next)
		return fmt.Errorf("client: write the journal anew: %w", err)
	}
	if err := os.Rename(next, j.path); err != nil {
		_ = f.Close()
		return fmt.Errorf("client: write the journal anew: %w", err)
	}
	if j.file != nil {
		_ = j.file.Close()
	}
	j.file, j.size = f, size
	if err := syncDir(filepath.Dir(j.path)); err != nil {
		j.broken = fmt.Errorf("client: the folder of %s failed to sync; open the journal again to see what it holds: %w", j.path, err)
		return j.broken
	}
	return nil
}

func writeRecords(w io.Writer, header string, records iter.Seq[[]byte]) (size int64, err error) {
	if _, err := io.WriteString(w, header); err != nil {
		return 0, err
	}
	size = int64(len(header))
	for payload := range records {
		record := appendRecord(nil, payload)
		if _, err := w.Write(record); err != nil {
			return 0, err
		}
		size += int64(len(record))
	}
	return size, nil
}

func (j *journal) close() {
	if j.file != nil {
		_ = j.file.Close()
	}
	if j.lock != nil {
		_ = j.lock.Close() // which gives up the lock
	}
	if j.broken == nil {
		j.broken = fmt.Errorf("client: the journal %s is closed: %w", j.path, os.ErrClosed)
	}
}

// syncDir makes a rename durable. Windows has no such call, and none is needed there.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
