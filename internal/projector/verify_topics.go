// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"signalbox/event"
	"signalbox/internal/store"
)

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

func (v *verifier) names() error {
	return v.in.Names(func(t store.Topic, err error) error {
		v.tally.Topics++
		if err != nil {
			v.undecoded(Finding{Topic: t.Name}, err)
			return v.row()
		}
		if other := v.topics[t.Number]; other != nil {
			v.found(Finding{What: "topic_number", Topic: t.Name, Explanation: sprintf("The topic has the number %d, as topic %q has.", t.Number, other.Name)})
		}
		if t.Number == 0 || t.Number > v.space.TopicLast {
			v.found(Finding{What: "topic_number", Topic: t.Name, Explanation: sprintf("The topic has the number %d; the last one given out is %d.", t.Number, v.space.TopicLast)})
		}
		if err := event.CheckTopic(t.Name); err != nil {
			v.found(Finding{What: "topic_name", Topic: t.Name, Explanation: "The name is none that a topic can have: " + err.Error()})
		}
		v.topics[t.Number] = &verified{Topic: t}
		return v.row()
	})
}

func (v *verifier) garbageMarks() error {
	return v.in.Garbage(func(number uint32, err error) error {
		v.tally.Garbage++
		switch {
		case err != nil:
			v.undecoded(Finding{}, err)
		case v.topics[number] != nil:
			v.found(Finding{What: "garbage", Topic: v.name(number), Explanation: "The topic exists, and its rows are marked to be reclaimed."})
		case number == 0 || number > v.space.TopicLast:
			v.found(Finding{What: "garbage", Explanation: sprintf("The topic number %d is marked to be reclaimed and was never given out.", number)})
		default:
			v.garbage[number] = true
		}
		return v.row()
	})
}

func (v *verifier) figureRows() error {
	err := v.in.Figures(func(f store.FiguresAt, err error) error {
		t := v.topics[f.Topic]
		switch {
		case err != nil:
			v.undecoded(Finding{Topic: v.name(f.Topic)}, err)
		case t == nil:
			v.orphan(f.Topic, 0, "figures")
		default:
			t.Figures, t.figures = f.Figures, true
			v.checkFigures(t)
		}
		return v.row()
	})
	if err != nil {
		return err
	}
	for _, number := range v.numbers() {
		if t := v.topics[number]; !t.figures {
			v.found(Finding{What: "figures", Topic: t.Name, Explanation: "The topic has no row with its figures."})
		}
	}
	return nil
}

// checkFigures checks what figures say by themselves.
func (v *verifier) checkFigures(t *verified) {
	f := &t.Figures
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{f.Last > v.space.Position, "the last event's position is beyond the space's"},
		{f.RemovedTo > v.space.Position, "the last removal is beyond the space's last position"},
		{f.RetiredTo > f.RemovedTo, "retention went further than the last removal"},
		{f.CompactedTo > f.Last, "compaction went further than the last event"},
		{f.GivenUpTo > f.Last, "more was given up than there were events"},
		{f.History > f.Events, "more superseded events are retained than events"},
		{f.Events > f.Count, "more events are retained than were ever applied"},
		{f.Retained > f.Bytes, "more bytes are retained than were ever applied"},
		{f.HighestHLC > v.space.HLC, "the highest HLC is above the space's"},
		{f.Floor > v.space.HLC, "the floor is above the space's HLC"},
		{t.Deleted && f.Events+f.Keys+f.Tombstones > 0, "the topic is deleted and retains something"},
	} {
		if c.bad {
			v.found(Finding{What: "figures", Topic: t.Name, Explanation: "The figures contradict themselves or the space: " + c.text + "."})
		}
	}
}

// numbers returns the numbers of the topics, in order of the topics' names.
func (v *verifier) numbers() []uint32 {
	return slices.SortedFunc(maps.Keys(v.topics), func(a, b uint32) int { return cmp.Compare(v.topics[a].Name, v.topics[b].Name) })
}

// orphan reports a row under a topic number that nothing knows.
func (v *verifier) orphan(number uint32, position uint64, kind string) {
	if v.garbage[number] || !v.complete("topics", "garbage") {
		return
	}
	v.found(Finding{What: "orphan", Position: position, Explanation: sprintf("There is a row of kind %q under topic number %d, which belongs to no topic and is not marked to be reclaimed.", kind, number)})
}

// compareFigures compares the figures with what was counted. Those of a topic
// that is not compacted include events that expired, for their sizes are not
// known any more; so they are an upper bound.
func (v *verifier) compareFigures() {
	if !v.complete("topics", "garbage", "figures", "events", "history", "winners") || v.ctx.Err() != nil {
		return
	}
	for _, number := range v.numbers() {
		t := v.topics[number]
		if !t.figures || t.Deleted {
			continue
		}
		check := func(what string, figure, counted uint64, exact bool) {
			if figure == counted || !exact && figure > counted {
				return
			}
			v.found(Finding{What: "figures", Topic: t.Name, Explanation: sprintf("The topic's figures say %d %s, and there are %d.", figure, what, counted)})
		}
		compacts := t.Policy.Compacts()
		check("retained events", t.Events, t.events, compacts)
		check("bytes", t.Retained, t.retained, compacts)
		check("superseded events", t.History, t.history, true)
		check("live keys", t.Keys, t.keys, true)
		check("tombstones", t.Tombstones, t.tombstones, true)
	}
}
