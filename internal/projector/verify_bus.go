// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"signalbox/internal/store"
)

// owing checks a row of the bus. It reports false for rows of other kinds.
func (v *verifier) owing(m *store.MessageAt) (bool, error) {
	bad := func(format string, args ...any) {
		v.found(Finding{What: "deadline", Key: m.Key, Explanation: sprintf(format, args...)})
	}
	switch m.Kind {
	case store.MessageDeadline:
		v.tally.Deadlines++
		return true, v.openDeadline(m, bad)
	case store.MessageObligation:
		v.tally.Obligations++
		var row store.ObligationRow
		if err := store.DecodeMessage(m.Kind, m.Value, &row); err != nil {
			return true, err
		}
		sent, err := v.in.HasMessage(m.Key)
		if err == nil && sent {
			bad("The bus has sent the message %s, and still has to.", m.Key)
		}
		return true, err
	case store.MessageBeat:
		var row store.BeatRow
		if err := store.DecodeMessage(m.Kind, m.Value, &row); err != nil {
			return true, err
		}
		known, err := v.in.HasMessage(row.ID)
		if err == nil && !known {
			bad("What the agent %q was heard of or sent is the message %q, which is not there.", m.Key, row.ID)
		}
		if err != nil || row.Timer == 0 {
			return true, err
		}
		return true, v.armedFor(store.Timer{DueMillis: row.Timer, Topic: row.Index, Position: row.Armed, Kind: store.TimerSilence}, bad)
	case store.MessageWithheld:
		var id string
		if err := store.DecodeMessage(m.Kind, m.Value, &id); err != nil {
			return true, err
		}
		known, err := v.in.HasMessage(id)
		if err == nil && !known {
			bad("The message %q is withheld from an agent, and is not there.", id)
		}
		return true, err
	case store.MessageUnknown:
		var id string
		return true, store.DecodeMessage(m.Kind, m.Value, &id)
	}
	return false, nil
}

// openDeadline checks that a deadline is that of a message, and that somebody looks
// at it when it is due.
func (v *verifier) openDeadline(m *store.MessageAt, bad func(string, ...any)) error {
	var row store.DeadlineRow
	if err := store.DecodeMessage(m.Kind, m.Value, &row); err != nil {
		return err
	}
	_, id, _ := deadlineOf(m.Key)
	known, err := v.in.HasMessage(id)
	if err != nil {
		return err
	}
	if !known {
		bad("The message %q has a deadline, and is not there.", id)
	}
	return v.armedFor(timerOf(m.Key, &row), bad)
}

func (v *verifier) armedFor(t store.Timer, bad func(string, ...any)) error {
	armed, err := v.in.HasTimer(t)
	if err == nil && !armed && v.complete("timers") {
		bad("No timer is armed for it.")
	}
	return err
}

// messageTimer checks that a timer of a message or of an agent is that of a row.
func (v *verifier) messageTimer(t *store.Timer) (bool, error) {
	if t.Kind == store.TimerSilence {
		var row store.BeatRow
		ok, err := v.in.Message(store.MessageBeat, t.Key, &row)
		return ok && row.Timer == t.DueMillis && row.Armed == t.Position && row.Index == t.Topic, err
	}
	var row store.DeadlineRow
	ok, err := v.in.Message(store.MessageDeadline, t.Key, &row)
	return ok && timerOf(t.Key, &row) == *t, err
}
