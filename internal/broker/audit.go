// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// AuditKey is the public key with which checkpoints of this broker are checked.
func (b *Broker) AuditKey() string { return b.audit.signer.Public() }

// AuditSize is how many entries of the audit trail are durable.
func (b *Broker) AuditSize() uint64 { return b.audit.trail.Load().size }

// Checkpoint returns the newest checkpoint; a fresh one is over all that was durable
// when it was asked for.
func (b *Broker) Checkpoint(ctx context.Context, fresh bool) (audit.Checkpoint, error) {
	atLeast := uint64(1) // the configuration of the log is its first entry
	if fresh {
		atLeast = b.AuditSize()
	}
	return b.audit.checkpoint(ctx, atLeast, forReader)
}

// StoredCheckpoint returns the checkpoint over so many entries, if one was signed.
func (b *Broker) StoredCheckpoint(size uint64) (signed []byte, err error) {
	err = b.store.Checkpoints(size, func(at uint64, text []byte) (bool, error) {
		if at == size {
			signed = bytes.Clone(text)
		}
		return false, nil
	})
	return signed, err
}

// StoredCheckpoints calls each with at most so many of the checkpoints over from to
// to entries. The text is valid during the call.
func (b *Broker) StoredCheckpoints(from, to uint64, most int, each func(size uint64, signed []byte)) error {
	return b.store.Checkpoints(from, func(size uint64, signed []byte) (bool, error) {
		if size > to {
			return false, nil
		}
		each(size, signed)
		most--
		return most > 0, nil
	})
}

// ProveEntry proves that an entry is part of what a checkpoint has signed, and waits
// until there is such a checkpoint.
func (b *Broker) ProveEntry(ctx context.Context, as identity.Principal, index uint64) (audit.Proof, error) {
	return b.prove(ctx, b.Bodies(as), index, forReader)
}

func (b *Broker) prove(ctx context.Context, bodies Bodies, index uint64, who purpose) (audit.Proof, error) {
	if size := b.AuditSize(); index >= size {
		return audit.Proof{}, event.Errorf(event.CodeParameterInvalid, "There is no entry %d: the audit trail has %d.", index, size).With("leaf")
	}
	c, err := b.audit.checkpoint(ctx, index+1, who)
	if err != nil {
		return audit.Proof{}, err
	}
	p := audit.Proof{Index: index, Size: c.Size, Checkpoint: string(c.Note)}
	if p.Hashes, err = audit.ProveInclusion(c.Size, index, b.audit.tree.hash); err != nil {
		return p, err
	}
	err = b.AuditLines(ctx, index, index+1, bodies, func(l *audit.Line) (bool, error) {
		p.Leaf = fmt.Sprintf("%x", l.Leaf)
		p.Entry = json.RawMessage(bytes.TrimSpace(audit.AppendLine(nil, l)))
		return false, nil
	})
	return p, err
}

// ProvePosition is ProveEntry for the entry by which an event got its position.
func (b *Broker) ProvePosition(ctx context.Context, as identity.Principal, position uint64) (audit.Proof, error) {
	leave, err := b.audit.enter()
	if err != nil {
		return audit.Proof{}, err
	}
	index, err := b.entryOf(ctx, position)
	leave()
	if err != nil {
		return audit.Proof{}, err
	}
	return b.prove(ctx, b.Bodies(as), index, forReader)
}

// ProveReceipt is ProvePosition for whoever has just published the event, and so
// knows it.
func (b *Broker) ProveReceipt(ctx context.Context, position uint64) (audit.Proof, error) {
	index, err := b.entryOf(ctx, position)
	if err != nil {
		return audit.Proof{}, err
	}
	return b.prove(ctx, func(string) bool { return true }, index, forWriter)
}

// ProveConsistency proves that the trail of to entries begins with that of from. With
// to 0 it is that of the newest checkpoint.
func (b *Broker) ProveConsistency(ctx context.Context, from, to uint64) (p audit.Consistency, err error) {
	size := b.AuditSize()
	if from > size || to > size || to != 0 && from > to {
		return p, event.Errorf(event.CodeParameterInvalid, "There is no proof from %d to %d entries: the audit trail has %d.", from, to, size).With("from")
	}
	var signed []byte
	if to == 0 {
		c, err := b.audit.checkpoint(ctx, max(1, from), forReader)
		if err != nil {
			return p, err
		}
		to, signed = c.Size, c.Note
	} else if signed, err = b.StoredCheckpoint(to); err != nil {
		return p, err
	}
	if signed == nil {
		return p, event.Errorf(event.CodeNotFound, "No checkpoint was signed over %d entries. Leave `to` out for the newest one.", to).With("to")
	}
	p = audit.Consistency{From: from, To: to, Checkpoint: string(signed)}
	p.Hashes, err = audit.ProveConsistency(from, to, b.audit.tree.hash)
	return p, err
}

// AuditStart returns what an export from an entry on begins with.
func (b *Broker) AuditStart(ctx context.Context, from uint64) (s audit.Start, chain [32]byte, err error) {
	if err = b.audit.lock(ctx); err != nil {
		return s, chain, err
	}
	defer b.audit.unlock()
	if err = b.audit.tree.build(from); err != nil {
		return s, chain, err
	}
	chain, subtrees, err := b.audit.tree.before(from)
	return audit.Start{From: from, Chain: fmt.Sprintf("%x", chain), Subtrees: subtrees, Keys: []string{b.AuditKey()}}, chain, err
}

// AuditLines calls each with the entries in [from, to), which must be durable, until
// it returns false. Of the events on topics that bodies has, those that still exist
// are filled in. What it hands over is valid during the call; the chain is not filled in.
func (b *Broker) AuditLines(ctx context.Context, from, to uint64, bodies Bodies, each func(*audit.Line) (more bool, err error)) error {
	more := true
	for from < to && more {
		end := min(to, from+auditPortion)
		err := b.linesOf(ctx, from, end, bodies, func(l *audit.Line) (_ bool, err error) {
			more, err = each(l)
			return more, err
		})
		if err != nil {
			return err
		}
		from = end
	}
	return nil
}

// auditPortion is how many entries are read from one state of the store, which keeps
// the space of what is removed meanwhile: an export may take hours.
const auditPortion = 10_000

func (b *Broker) linesOf(ctx context.Context, from, to uint64, bodies Bodies, each func(*audit.Line) (more bool, err error)) error {
	next := from
	return b.store.LeafRows(from, true, func(row store.LeafRow) (bool, error) {
		if row.First > next {
			return false, store.Damagedf("audit leaf %d is missing", next)
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		entries := row.Entries
		for i := 0; i < len(row.Leaves)/32 && next < to; i++ {
			l := audit.Line{Known: len(entries) > 0, Leaf: [32]byte(row.Leaves[32*i:])}
			if l.Known {
				var err error
				if l.Entry, entries, err = audit.DecodeEntry(entries); err != nil {
					return false, store.Damagedf("%w", err)
				}
			}
			l.Index = row.First + uint64(i)
			if l.Index < next {
				continue
			}
			next++
			if err := b.fillBody(&l, bodies); err != nil {
				return false, err
			}
			if more, err := each(&l); err != nil || !more {
				return false, err
			}
		}
		return next < to, nil
	})
}

// fillBody adds what an entry's digest is the hash of, as far as it still exists.
func (b *Broker) fillBody(l *audit.Line, bodies Bodies) error {
	switch {
	case !l.Known:
		return nil
	case l.Kind != audit.KindEvent:
		l.Body = l.Detail
		return nil
	case bodies == nil || l.Flags == projector.Duplicate || !bodies(l.Topic): // whose body was never stored
		return nil
	}
	t, err := b.dispatch.Topic(l.Topic)
	if err != nil {
		return nil // it was deleted
	}
	if !b.dispatch.Shown(l.Topic, l.Position) {
		return nil // it is not delivered to anybody yet
	}
	take := func(row store.EventRow) error {
		if row.Leaf == l.Index {
			l.Salt, l.Body = bytes.Clone(row.Salt[:]), bytes.Clone(row.Members)
		}
		return nil
	}
	found, err := b.store.Event(t.Number, l.Position, take)
	if err == nil && !found {
		_, err = b.store.HistoryEvent(t.Number, l.Position, take)
	}
	return err
}

// entryLinear is from how few entries on a search looks at each of them.
const entryLinear = 256

// entryOf finds the entry by which an event got its position. Positions rise with
// the entries, and none has fewer entries before it than positions.
func (b *Broker) entryOf(ctx context.Context, position uint64) (uint64, error) {
	low, high := position-1, b.AuditSize()
	unknown := event.Errorf(event.CodeParameterInvalid, "There is no entry for the position %d.", position).With("position")
	if position == 0 || position > b.Head().Position {
		return 0, unknown
	}
	for high-low > entryLinear && low < high {
		middle := low + (high-low)/2
		at, found, err := b.placed(ctx, middle, high)
		switch {
		case err != nil:
			return 0, err
		case found != 0 && found <= position:
			low = at
		default:
			high = middle
		}
	}
	index, ok := uint64(0), false
	err := b.AuditLines(ctx, low, high, nil, func(l *audit.Line) (bool, error) {
		ok = l.Places(position)
		index = l.Index
		return !ok, nil
	})
	if err == nil && !ok {
		err = unknown
	}
	return index, err
}

// placed returns the first entry in [from, to) that gave an event a position.
func (b *Broker) placed(ctx context.Context, from, to uint64) (index, position uint64, err error) {
	err = b.AuditLines(ctx, from, to, nil, func(l *audit.Line) (bool, error) {
		if l.Places(l.Position) {
			index, position = l.Index, l.Position
		}
		return position == 0, nil
	})
	return index, position, err
}
