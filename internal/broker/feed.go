// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"context"
	"time"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/metrics"
	"signalbox/internal/outside"
)

// feed brings the entries of the audit trail to one place outside, in order and
// without gaps. An entry's line there has no event in it and never changes, so what a
// crash has interrupted is brought again byte for byte, and what the place has
// already can be told.
type feed struct {
	e      *external
	name   string
	place  outside.Place
	counts *metrics.AuditPlace
	wake   chan struct{} // holds one token when entries should be brought at once

	// Owned by loop once it runs.
	has    brought
	chain  [32]byte // the chain's head behind what the place has
	stored uint64   // of has.entries, what the store knows
	noted  time.Duration
}

// brought is how far a place has the trail.
type brought struct {
	entries  uint64
	position uint64 // that of the last event among them
}

const (
	// pieceEntriesMax and pieceBytesMax bound what is brought at one time.
	pieceEntriesMax = 10_000
	pieceBytesMax   = 4 << 20
	// feedEvery is how often entries are brought that no ticket message waits for.
	feedEvery = time.Second
	// feedRetry is how long a feed waits after a failure, doubled up to the most.
	feedRetry    = 100 * time.Millisecond
	feedRetryMax = 2 * time.Second
	// feedNoteEvery is how often the store is told how far the place is. What it does
	// not know the place is asked for.
	feedNoteEvery = 5 * time.Second
)

// locate finds out how far the place has the trail.
func (f *feed) locate(ctx context.Context) error {
	line, err := f.place.Last(ctx)
	if err != nil {
		return err
	}
	b := f.e.b
	has := f.has
	if line != nil {
		var scratch []byte
		l, err := audit.ParseLine(line, &scratch)
		if err != nil {
			return event.Errorf(event.CodeStoreDamaged, "What is at the end of %s is no entry of an audit trail: %w. Name another place.", f.name, err)
		}
		has = brought{entries: l.Index + 1}
		if size := b.AuditSize(); has.entries > size {
			return event.Errorf(event.CodeStoreDamaged, "The audit trail has %d entries, and %s has %d: the end of the log is missing. Restore a copy that has it, and find out who can write to the directory; after a restore of an older copy on purpose, name another place.", size, f.name, has.entries)
		}
		_, chain, err := b.AuditStart(ctx, has.entries)
		if err != nil {
			return err
		}
		if chain != l.Chain {
			return event.Errorf(event.CodeStoreDamaged, "Entry %d of the audit trail is not the one that %s has: the log was replaced. Restore a copy, and find out who can write to the directory; for another log, name another place.", l.Index, f.name)
		}
	}
	return f.at(ctx, has.entries)
}

// at goes on behind so many entries.
func (f *feed) at(ctx context.Context, entries uint64) (err error) {
	b := f.e.b
	if _, f.chain, err = b.AuditStart(ctx, entries); err != nil {
		return err
	}
	size, head := b.AuditSize(), b.Head().Position
	_, next, err := b.placed(ctx, entries, size)
	if err != nil {
		return err
	}
	f.has = brought{entries, head}
	if next != 0 {
		f.has.position = next - 1
	}
	return nil
}

// loop brings what is added, until ctx ends or there is no more after closing.
func (f *feed) loop(ctx context.Context) {
	every := time.NewTicker(feedEvery)
	defer every.Stop()
	wait := feedRetry
	defer f.note(true)
	for closing := false; ; {
		if to := f.e.b.AuditSize(); f.has.entries < to {
			err := f.bring(ctx, to)
			if err == nil {
				wait = feedRetry
				f.e.advanced(f)
				continue
			}
			f.failed(err)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
			wait = min(2*wait, feedRetryMax)
			if err := f.locate(ctx); err != nil {
				f.failed(err)
			}
			continue
		}
		f.note(false)
		if closing {
			return
		}
		select {
		case <-f.wake:
		case <-every.C:
		case <-f.e.closing:
			closing = true
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed) failed(err error) {
	f.counts.Failures.Inc()
	f.e.b.logger.Error("entries of the audit trail were not taken outside: ticket messages wait for them, and are tried again", "place", f.name, "entries", f.has.entries, "err", err,
		"todo", "see that the place can be written to and answers; nothing is lost meanwhile, and other topics go on")
}

// bring brings the next piece.
func (f *feed) bring(ctx context.Context, to uint64) error {
	p, err := f.piece(ctx, min(to, f.has.entries+pieceEntriesMax), pieceBytesMax)
	if err != nil {
		return err
	}
	taken, err := f.place.Append(ctx, f.has.entries, p.lines)
	if err != nil {
		return err
	}
	if taken != nil {
		if p, err = f.taken(ctx, taken, to); err != nil {
			return err
		}
	}
	f.has, f.chain = p.brought, p.chain
	f.counts.Size.Set(float64(f.has.entries))
	f.note(false)
	return nil
}

// taken takes a piece that the place has already for one of this log, if it is.
func (f *feed) taken(ctx context.Context, taken []byte, to uint64) (piece, error) {
	n := uint64(bytes.Count(taken, []byte{'\n'}))
	if f.has.entries == 0 && n > 0 {
		n-- // the line before the first entry
	}
	if n > 0 && f.has.entries+n <= to {
		p, err := f.piece(ctx, f.has.entries+n, len(taken))
		if err != nil || bytes.Equal(p.lines, taken) {
			return p, err
		}
	}
	return piece{}, event.Errorf(event.CodeStoreDamaged, "%s has other entries from %d on than this log: the log was cut or replaced. Restore a copy, and find out who can write to the directory; after a restore on purpose, name another place.", f.name, f.has.entries)
}

// piece is a number of entries as they are brought.
type piece struct {
	brought
	lines []byte
	chain [32]byte
}

// piece makes the next one.
func (f *feed) piece(ctx context.Context, to uint64, bytesMax int) (p piece, err error) {
	p.brought, p.chain = f.has, f.chain
	if f.has.entries == 0 {
		start := audit.Start{Chain: hexOf(f.chain), Keys: []string{}}
		if p.lines, err = audit.AppendStart(nil, start); err != nil {
			return p, err
		}
	}
	err = f.e.b.AuditLines(ctx, f.has.entries, to, nil, func(l *audit.Line) (bool, error) {
		p.chain = audit.NextChain(p.chain, l.Leaf)
		l.Chain = p.chain
		p.lines = audit.AppendLine(p.lines, l)
		p.entries = l.Index + 1
		if l.Places(l.Position) {
			p.position = l.Position
		}
		return len(p.lines) < bytesMax, nil
	})
	return p, err
}

// note tells the store how far the place is, now and then and in the end.
func (f *feed) note(last bool) {
	now := f.e.b.elapsed()
	if f.stored == f.has.entries || !last && now-f.noted < feedNoteEvery {
		return
	}
	batch := f.e.b.store.NewBatch()
	defer batch.Close()
	batch.SetOutside(f.name, f.has.entries)
	if err := f.e.b.store.WriteAudit(batch); err != nil {
		f.e.b.logger.Error("it cannot be noted how far a place outside has the audit trail", "place", f.name, "err", err)
		return
	}
	f.stored, f.noted = f.has.entries, now
}
