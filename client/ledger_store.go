// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"iter"
	"os"
	"sync"
)

// ledgerHeader begins the file of a ledger; the number is the format's.
const ledgerHeader = "signalbox.ledger/1\n"

// LedgerStore keeps a ledger: a list of records that only a ledger can read. Its methods are called by one goroutine at
// a time. [LedgerFile] is the usual one; an agent that has a database needs one table, with a rising number and the
// bytes of a record in each row, see [LedgerTransactor].
type LedgerStore interface {
	// Load hands over every record since the last Replace, in the order in which they were appended. A record is valid
	// during the call only.
	Load(ctx context.Context, each func(record []byte) error) error
	// Append adds a record, as a whole or not at all. It is durable when Append returns.
	Append(ctx context.Context, record []byte) error
	// Replace puts records in the place of all that there are, in one step: a crash leaves the ones or the others.
	Replace(ctx context.Context, records iter.Seq[[]byte]) error
}

// LedgerTransactor is a store in a database that the agent's effects go to as well. With it every effect happens exactly
// once: what the agent does and the record that it did commit together, or neither does.
type LedgerTransactor interface {
	LedgerStore
	// Transact begins a transaction, calls act, appends the record, and commits. If act fails, nothing stays, and
	// Transact returns its error. The context of act carries the transaction in the store's own way, so that the agent
	// finds it there.
	Transact(ctx context.Context, record []byte, act func(context.Context) error) error
}

// LedgerFile keeps a ledger in a file, synced at every change. A torn last record, which a crash in the middle of a
// write leaves behind, is trimmed when the file is opened: nobody was told that it was there. Any other damage is
// refused with journal_damaged: marks of effects that were done may be lost, so that only a person can decide to start
// anew, by removing the file.
type LedgerFile struct {
	mu      sync.Mutex
	journal *journal // guarded by mu
}

// OpenLedgerFile opens or creates the file of a ledger. A second one that opens it is refused with store_locked.
func OpenLedgerFile(path string) (*LedgerFile, error) {
	j, _, _, err := openJournal(path, ledgerHeader, false, func([]byte) error { return nil })
	if err != nil {
		return nil, err
	}
	return &LedgerFile{journal: j}, nil
}

// Load implements [LedgerStore].
func (f *LedgerFile) Load(_ context.Context, each func([]byte) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, err := os.ReadFile(f.journal.path)
	if err != nil {
		return fmt.Errorf("client: read the ledger: %w", err)
	}
	records, _, damages := scanJournal(data, ledgerHeader)
	if len(damages) > 0 {
		return damagedJournal(f.journal.path, damages, len(records))
	}
	for _, record := range records {
		if err := each(record); err != nil {
			return err
		}
	}
	return nil
}

// Append implements [LedgerStore].
func (f *LedgerFile) Append(_ context.Context, record []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.journal.append(record)
}

// Replace implements [LedgerStore].
func (f *LedgerFile) Replace(_ context.Context, records iter.Seq[[]byte]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.journal.replace(records)
}

// Close gives the file up. It is called after the ledger's Run has returned.
func (f *LedgerFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.journal.close()
	return nil
}
