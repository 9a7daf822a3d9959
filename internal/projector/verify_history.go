// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"signalbox/event"
	"signalbox/internal/store"
)

// about returns what reports findings about an event.
func (v *verifier) about(t *verified, e *store.EventAt) report {
	return func(what, format string, args ...any) {
		v.found(Finding{What: what, Topic: t.Name, Position: e.Position, Key: string(e.Key), Leaf: e.Leaf, HasLeaf: true, Explanation: sprintf(format, args...)})
	}
}

func (v *verifier) histories() error {
	return v.in.Histories(func(e store.EventAt, err error) error {
		t := v.topics[e.Topic]
		switch {
		case err != nil:
			v.undecoded(Finding{Topic: v.name(e.Topic), Position: e.Position}, err)
			if t != nil && e.Position > t.HistoryFrom() {
				t.events++ // it is there, so that it is not reported as missing, too
				t.history++
			}
		case t == nil:
			v.orphan(e.Topic, e.Position, "history")
		default:
			if err := v.history(t, &e); err != nil {
				return err
			}
		}
		return v.row()
	})
}

// history checks one superseded event: it is what was acknowledged, and something
// won over it.
func (v *verifier) history(t *verified, e *store.EventAt) error {
	bad := v.about(t, e)
	if e.Position == 0 || e.Position > v.space.Position || e.Position > t.Last {
		bad("position", "The superseded event's position is beyond its topic's last, %d, or the space's, %d.", t.Last, v.space.Position)
	}
	if err := v.eventLeaf(t, e, bad); err != nil {
		return err
	}
	if e.Position <= t.RetiredTo {
		v.tally.Reclaim++
		return nil
	}
	if e.Position <= t.CompactedTo {
		bad("history", "The event is superseded and still stored, and compaction has gone up to position %d.", t.CompactedTo)
		return nil
	}
	v.tally.History++
	t.events++
	t.history++
	t.retained += uint64(len(e.Members))
	v.content(t, e, &t.lastPast, bad)
	if err := v.armed(e, bad); err != nil {
		return err
	}
	if !t.Policy.Compacts() {
		bad("history", "The topic is not compacted, and a superseded event is kept.")
		return nil
	}
	twice, err := v.in.HasEvent(e.Topic, e.Position)
	if err != nil {
		return err
	}
	if twice {
		bad("history", "The event is stored as superseded and as a winner.")
	}
	w, ok, err := v.in.Winner(e.Topic, string(e.Key))
	switch {
	case err != nil:
		return err
	case !ok && e.HLC > t.Floor:
		bad("history", "The event is superseded, its key has no winner, and its HLC is above the topic's floor, %s.", t.Floor)
	case ok && (w.Position == e.Position || w.HLC < e.HLC):
		bad("history", "The event is superseded, and the winner of its key, at position %d with HLC %s, does not win over it.", w.Position, w.HLC)
	}
	object := append([]byte{'{'}, e.Members...)
	id, _ := event.LookupJSON(object, "id")
	source, _ := event.LookupJSON(object, "source")
	return v.remembered(e, id, source, bad)
}
