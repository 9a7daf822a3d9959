// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"slices"

	"signalbox/internal/store"
)

const (
	// placesMin is the least number of places worth collecting from several topics.
	placesMin = 256
	// placesMax bounds what a reader that is behind holds: 200 KiB. To collect them
	// takes a seek for each topic, so more topics are worth more places.
	placesMax = 8192
)

// eachStored is told a stored event, and says whether to go on.
type eachStored func(t *store.Topic, position uint64, row *store.EventRow) (more bool)

// merge steps through the stored events of topics in the order of their positions:
// through the winners of compacted topics, and with all set through what is kept
// of their history, too. Of several topics it collects places in advance, which
// later snapshots can use: the log below a position gets no new events, it only
// loses some.
type merge struct {
	all    bool
	millis int64   // log time of the snapshot in hand
	places []place // that come next
	fresh  int     // so many of them have the topic of the snapshot in hand
	to     uint64  // up to here there are no others
}

// place is where an event is, or was.
type place struct {
	position   uint64
	topic      *store.Topic
	superseded bool // it was among what is kept of the topic's history
}

// renew has the next places use a later snapshot, at which now gives what has
// become of a topic; nil if it is gone.
func (m *merge) renew(expect int, now func(*store.Topic) *store.Topic) {
	m.fresh = min(max(expect, placesMin), len(m.places))
	for i := range m.places[:m.fresh] {
		p := &m.places[i]
		if p.topic != nil {
			p.topic = now(p.topic)
		}
	}
}

// step calls each with the events in (after, to], until it returns false, and
// perhaps for fewer. It returns the last position it stepped over, and whether it
// reached the end. The topics are those of the snapshot with events in that
// range, and are needed only when no places are left.
func (m *merge) step(v *store.View, topics []*store.Topic, after, to uint64, expect int, each eachStored) (end uint64, done bool, err error) {
	if len(m.places) == 0 {
		switch len(topics) {
		case 0:
			return to, true, nil
		case 1:
			return m.single(v, topics[0], after, to, each)
		}
		if err := m.collect(v, topics, after, to, max(expect, placesMin, min(len(topics), placesMax))); err != nil {
			return after, false, err
		}
	}
	for i := range m.places[:m.fresh] {
		p := &m.places[i]
		more, err := m.read(v, p, each)
		if err != nil || !more {
			m.pass(i + 1)
			return p.position, false, err
		}
		after = p.position
	}
	if m.pass(m.fresh); len(m.places) > 0 {
		return after, false, nil
	}
	return m.to, m.to >= to, nil
}

// pass drops the first n places.
func (m *merge) pass(n int) {
	if m.places, m.fresh = m.places[n:], m.fresh-n; len(m.places) == 0 {
		m.places = nil
	}
}

func (m *merge) single(v *store.View, t *store.Topic, after, to uint64, each eachStored) (end uint64, done bool, err error) {
	end, done = to, true
	step := func(position uint64, row store.EventRow) (bool, error) {
		if done = each(t, position, &row); !done {
			end = position
		}
		return done, nil
	}
	if m.all {
		err = v.AllEvents(t, after, to, func(position uint64, row store.EventRow, superseded bool) (bool, error) {
			if superseded && t.Past(position, &row, m.millis) {
				return true, nil // it only waits to be removed
			}
			return step(position, row)
		})
	} else {
		err = v.Events(t.Number, max(after, t.RetiredTo), to, step)
	}
	if err != nil {
		return after, false, err
	}
	return end, done, nil
}

// read calls each with the event at a place, if it is still there.
func (m *merge) read(v *store.View, p *place, each eachStored) (more bool, err error) {
	more = true
	if p.topic == nil || p.position <= p.topic.RetiredTo {
		return true, nil
	}
	use := func(row store.EventRow) error {
		more = each(p.topic, p.position, &row)
		return nil
	}
	if !p.superseded {
		if ok, err := v.Event(p.topic.Number, p.position, use); ok || err != nil || !m.all {
			return more, err
		} // it may have been superseded since
	}
	if p.position > p.topic.HistoryFrom() {
		_, err = v.HistoryEvent(p.topic.Number, p.position, func(row store.EventRow) error {
			if p.topic.Past(p.position, &row, m.millis) {
				return nil
			}
			return use(row)
		})
	}
	return more, err
}

// collect finds the n lowest places in (after, to]. It reads keys only, and of each
// topic no more than can be among the lowest.
func (m *merge) collect(v *store.View, topics []*store.Topic, after, to uint64, n int) (err error) {
	slices.SortFunc(topics, func(a, b *store.Topic) int { return cmp.Compare(a.Number, b.Number) }) // as their rows are
	winners, err := v.WinnerPositions()
	if err != nil {
		return err
	}
	defer func() { err = closing(err, winners) }()
	var history *store.Positions
	if m.all {
		if history, err = v.HistoryPositions(); err != nil {
			return err
		}
		defer func() { err = closing(err, history) }()
	}
	var found []place
	m.to = to // places above it cannot be among the lowest n
	trim := func() {
		slices.SortFunc(found, func(a, b place) int { return cmp.Compare(a.position, b.position) })
		if len(found) > n {
			found, m.to = found[:n], found[n-1].position
		}
	}
	for _, t := range topics {
		of := func(rows *store.Positions, from uint64) error {
			left := n // one more than n shows that there are more
			return rows.Each(t.Number, max(after, from), m.to, func(position uint64) bool {
				found = append(found, place{position, t, rows == history})
				left--
				return left >= 0
			})
		}
		err := of(winners, t.RetiredTo)
		if err == nil && m.all && t.History > 0 {
			err = of(history, t.HistoryFrom())
		}
		if err != nil {
			return err
		}
		if len(found) > 2*n {
			trim()
		}
	}
	trim()
	m.places, m.fresh = slices.Clip(found), len(found)
	return nil
}

func closing(err error, rows *store.Positions) error { return cmp.Or(err, rows.Close()) }
