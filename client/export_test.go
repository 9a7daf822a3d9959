// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"io"
	"time"
)

// Block is a dispatched block of an event stream, for tests.
type Block = block

// ParseSSE reads all blocks of a stream; the error is nil at its end.
func ParseSSE(r io.Reader, lineMax int, each func(Block)) error {
	p := newSSEParser(r, lineMax)
	for {
		b, err := p.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		each(b)
	}
}

// Remember has a receiver remember so many messages.
func (r *WebhookReceiver) Remember(most int) { r.most = most }

// Wait exposes the wait before a further try.
func (r Retry) Wait(n int, floor time.Duration) time.Duration { return r.withDefaults().wait(n, floor) }

// RetryAfter exposes the reader of the header.
func RetryAfter(s string) time.Duration { return retryAfter(s) }

// RetryField exposes the reader of a retry field.
func RetryField(s string) time.Duration {
	ms, _ := parseDigits([]byte(s))
	return time.Duration(ms) * time.Millisecond
}

// Bootstrap makes the ledger start over from the state, as Run does after a reset.
func (l *Ledger) Bootstrap(ctx context.Context) error { return l.bootstrap(ctx) }

// ReplayLedger replays records and returns what they add up to.
func ReplayLedger(records [][]byte) (snapshot [][]byte, err error) {
	b := newBook()
	for _, r := range records {
		if err := b.replay(r); err != nil {
			return nil, err
		}
	}
	for r := range b.snapshot() {
		snapshot = append(snapshot, r)
	}
	return snapshot, nil
}

// ReplayOutbox replays what can be read of an outbox's file, and returns the file that it would be written anew as.
func ReplayOutbox(data []byte) (waiting int, again []byte, err error) {
	records, _, _ := scanJournal(data, outboxHeader)
	b := &Outbox{named: map[[3]string]*letter{}}
	for _, r := range records {
		if err := b.replay(r); err != nil {
			return 0, nil, err
		}
	}
	var out bytes.Buffer
	_, err = writeRecords(&out, outboxHeader, b.snapshot())
	return len(b.waiting), out.Bytes(), err
}
