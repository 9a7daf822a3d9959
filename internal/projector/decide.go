// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"cmp"
	"strconv"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// decision is what is known of an event before anything is written.
type decision struct {
	entry      *eventlog.Entry
	key        string
	policy     event.Policy
	floor      event.HLC
	winner     store.WinnerRow // of key, if found
	found      bool
	kept       *store.EventRow // of winner, if it is to become history
	hlc        event.HLC
	superseded bool
}

// decide checks the precondition and the HLC, and settles whether the event wins.
func (p *Projector) decide(proposal *eventlog.Proposal, d *decision) *event.Error {
	if refused := p.checkCondition(&proposal.Condition, d); refused != nil {
		return refused
	}
	d.hlc = d.entry.HLC
	if d.hlc == 0 {
		d.hlc = p.space.HLC.Next(proposal.AdmittedMillis)
	} else if refused := CheckDrift(d.hlc, proposal.AdmittedMillis, p.settings.MaxDriftMillis, p.space.HLC); refused != nil {
		return refused
	}
	switch {
	case !d.policy.Compacts():
	case !d.found:
		if d.hlc <= d.floor {
			return event.Errorf(event.CodeHLCStale, "The key is unknown and the event's `hlc` %s is not above the topic's floor %s: a newer state of the key may have been removed. Publish with a current `hlc` if it is still true.", d.hlc, d.floor).
				With("hlc").Fact("floor", d.floor.String())
		}
	case !d.wins():
		if !proposal.Condition.Empty() {
			return event.Errorf(event.CodeHLCBehind, "The precondition holds, but the event's `hlc` %s is behind that of the key's state, %s. Merge what was read before stamping.", d.hlc, d.winner.HLC).
				With("hlc").Fact("etag", etag(d.winner.Position)).Fact("hlc", d.winner.HLC.String())
		}
		d.superseded = true
	}
	return nil
}

// CheckDrift refuses a producer's stamp that is too far ahead of the broker's
// clock, unless what the space has seen is as far.
func CheckDrift(hlc event.HLC, admittedMillis, maxMillis int64, seen event.HLC) *event.Error {
	drift := hlc.Millis() - admittedMillis
	if drift <= maxMillis || hlc.Millis() <= seen.Millis() {
		return nil
	}
	return event.Errorf(event.CodeHLCDrift, "The event's `hlc` is %s ahead of the broker's clock, and at most %s are allowed. Correct the producer's clock.", millis(drift), millis(maxMillis)).
		With("hlc").Fact("drift_ms", drift).Fact("max_drift_ms", maxMillis)
}

// wins compares (HLC, source, id) with the winner's.
func (d *decision) wins() bool {
	c := cmp.Compare(d.hlc, d.winner.HLC)
	if c == 0 {
		c = cmp.Or(cmp.Compare(d.entry.Source, d.winner.Source), cmp.Compare(d.entry.ID, d.winner.ID))
	}
	return c > 0
}

// checkCondition checks If-Match and If-None-Match against the key's live state.
func (p *Projector) checkCondition(c *eventlog.Condition, d *decision) *event.Error {
	if c.Empty() {
		return nil
	}
	if !d.policy.Compacts() {
		field := "If-Match"
		if c.IfNoneMatch {
			field = "If-None-Match"
		}
		return event.Errorf(event.CodeNotCompacted, "If-Match and If-None-Match compare with the state of a key, and the topic has no state. Create it with `cleanup_policy` `compact`.").With(field)
	}
	live := d.found && d.winner.Live(p.space.LogMillis)
	met := !live
	if !c.IfNoneMatch {
		met = live && (c.IfMatchAny || contains(c.IfMatch, d.winner.Position))
	}
	if met {
		return nil
	}
	e := event.Errorf(event.CodeConflict, "The precondition failed: the key has no value. Read the state and try again.").Fact("outcome", "conflict")
	if live {
		e = event.Errorf(event.CodeConflict, "The precondition failed: the key's state is that of %s. Read it and try again.", etag(d.winner.Position)).
			Fact("outcome", "conflict").Fact("etag", etag(d.winner.Position))
	}
	return e
}

func contains(positions []uint64, position uint64) bool {
	for _, p := range positions {
		if p == position {
			return true
		}
	}
	return false
}

func etag(position uint64) string { return `"@` + strconv.FormatUint(position, 10) + `"` }

// accept writes a decided event. Nothing can fail from here on.
func (p *Projector) accept(t *topic, d *decision) store.Verdict {
	e := d.entry
	p.touch(t)
	p.space.Position++
	position := p.space.Position
	p.space.HLC = max(p.space.HLC, d.hlc)
	t.HighestHLC = max(t.HighestHLC, d.hlc)
	t.Last = position
	p.minute(position)

	verdict := store.Verdict{Outcome: Accepted, Position: position, HLC: d.hlc}
	flags := eventFlags(e, d)
	if d.superseded {
		verdict.Outcome = Superseded
	}
	index := p.chain(audit.Entry{Kind: audit.KindEvent, Position: position, HLC: d.hlc, Flags: verdict.Outcome, Topic: t.Name, Digest: e.Body})
	seen := store.SeenRow{Superseded: d.superseded, Position: position, HLC: d.hlc, LogMillis: p.space.LogMillis, Content: e.Content}
	p.batch.SetSeen(p.space.Generation, t.Number, e.Identity, &seen)
	p.overlay.seen.put(seenKey{t.Number, e.Identity}, seen)

	applied := Applied{Topic: t.Name, Number: t.Number, Key: d.key, LogMillis: p.space.LogMillis, Position: position, HLC: d.hlc, ExpiryMillis: e.ExpiryMillis, Flags: flags, Members: e.Members}
	t.Count++
	t.Bytes += uint64(len(e.Members))
	row := store.EventRow{
		Flags: flags, LogMillis: p.space.LogMillis, HLC: d.hlc, ExpiryMillis: e.ExpiryMillis,
		Count: t.Count, Bytes: t.Bytes, Leaf: index, Salt: e.Salt,
		DataOffset: e.DataOffset, DataLength: e.DataLength, Members: e.Members,
	}
	applied.Replaces = p.keep(t, d, position, &row)
	p.applied = append(p.applied, applied)
	return verdict
}

// keep stores an accepted event. It returns the position of what it superseded.
func (p *Projector) keep(t *topic, d *decision, position uint64, row *store.EventRow) (replaces uint64) {
	history := d.policy.Compacts() && d.policy.MinCompactionLag > 0
	if d.policy.Compacts() {
		row.Key = []byte(d.key)
	}
	switch {
	case !d.superseded:
		if d.policy.Compacts() {
			replaces = p.win(t, d, position)
		}
		p.batch.SetEvent(t.Number, position, row)
		if history {
			p.overlay.events.put(position, *row)
		}
	case history:
		p.batch.SetHistory(t.Number, position, row)
		t.History++
	default:
		return 0 // it is compacted at once: its leaf and its identity stay
	}
	t.Events++
	t.Retained += uint64(len(row.Members))
	if row.ExpiryMillis != 0 {
		p.batch.SetTimer(store.Timer{DueMillis: row.ExpiryMillis, Topic: t.Number, Position: position, Kind: store.TimerExpire})
	}
	return replaces
}

func eventFlags(e *eventlog.Entry, d *decision) store.EventFlags {
	var flags store.EventFlags
	if e.Flags&eventlog.FlagFold != 0 {
		flags |= store.EventFold
	}
	if e.Flags&eventlog.FlagJSON != 0 {
		flags |= store.EventJSON
	}
	if e.Flags&eventlog.FlagBare != 0 && d.policy.Compacts() {
		flags |= store.EventTombstone
	}
	if d.superseded {
		flags |= store.EventSuperseded
	}
	return flags
}

// win makes the event the winner of its key, in place of the one that was. It
// returns the position of what it superseded.
func (p *Projector) win(t *topic, d *decision, position uint64) (replaces uint64) {
	e := d.entry
	row := store.WinnerRow{
		Position: position, HLC: d.hlc, ExpiryMillis: e.ExpiryMillis,
		Size: uint32(len(e.Members)), Source: e.Source, ID: e.ID,
	}
	if d.found {
		replaces = d.winner.Position
		if d.winner.Flags&store.WinnerHidden == 0 {
			p.leave(t, &d.winner, d.kept)
		}
		if d.winner.Flags == 0 {
			t.Keys--
		} else {
			t.Tombstones--
		}
	}
	if e.Flags&eventlog.FlagBare != 0 {
		row.Flags = store.WinnerTombstone
		t.Tombstones++
		p.batch.SetTimer(store.Timer{
			DueMillis: p.space.LogMillis + d.policy.DeleteRetention.Std().Milliseconds(),
			Topic:     t.Number, Position: position, Kind: store.TimerPurge, Key: d.key,
		})
	} else {
		t.Keys++
	}
	p.setWinner(t, d.key, row)
	return replaces
}

// minute records the first position of each minute of log time, for retention
// and for reading from a time on.
func (p *Projector) minute(position uint64) {
	if minute := p.space.LogMillis / 60_000; minute > p.space.Minute {
		p.space.Minute = minute
		p.batch.SetMinute(minute, position)
	}
}
