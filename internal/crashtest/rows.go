// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"signalbox/event"
	"signalbox/internal/store"
)

// shownMax is how many rows of a kind are shown that differ.
const shownMax = 4

// Compare compares every row of two stores, in a form that does not depend on how
// proposals were grouped into commits, nor on what the cleaner has reclaimed:
// leaves one by one, and no events that are declared gone. It says what differs.
func Compare(got, want *store.Store) (differences []string, err error) {
	for _, k := range rowKinds() {
		have, err := k.sum(got)
		if err != nil {
			return nil, err
		}
		expect, err := k.sum(want)
		if err != nil {
			return nil, err
		}
		if have == expect {
			continue
		}
		more, err := k.differ(got, want)
		if err != nil {
			return nil, err
		}
		differences = append(differences, more...)
	}
	return differences, nil
}

// rowKind is one kind of row. Walk calls each with every row as text.
type rowKind struct {
	name string
	walk func(s *store.Store, in *store.Inspector, each func(string)) error
}

func (k *rowKind) rows(s *store.Store, each func(string)) error {
	in, err := s.NewInspector()
	if err != nil {
		return err
	}
	return errors.Join(k.walk(s, in, each), in.Close())
}

func (k *rowKind) sum(s *store.Store) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	err = k.rows(s, func(row string) { fmt.Fprintln(h, row) })
	h.Sum(sum[:0])
	return sum, err
}

// differ lists both, for the sums say only that they differ.
func (k *rowKind) differ(got, want *store.Store) (differences []string, err error) {
	var have, expect []string
	err = errors.Join(
		k.rows(got, func(row string) { have = append(have, row) }),
		k.rows(want, func(row string) { expect = append(expect, row) }),
	)
	if err != nil {
		return nil, err
	}
	differences = append(differences, fmt.Sprintf("the rows of kind %s (%d) are not those of the same proposals applied afresh (%d):", k.name, len(have), len(expect)))
	for n := 0; n < max(len(have), len(expect)) && len(differences) <= shownMax; n++ {
		a, b := "nothing", "nothing"
		if n < len(have) {
			a = have[n]
		}
		if n < len(expect) {
			b = expect[n]
		}
		if a != b {
			differences = append(differences, fmt.Sprintf("  it has:  %.600s\n  afresh:  %.600s", a, b))
		}
	}
	return differences, nil
}

// textOf makes a walk's callback write its row as text.
func textOf[T any](each func(string)) func(T, error) error {
	return func(row T, err error) error {
		each(fmt.Sprintf("%+v", row))
		return err
	}
}

func rowKinds() []rowKind {
	return []rowKind{
		{"space", walkSpace},
		{"topics", walkTopics},
		{"leaves", walkLeaves},
		{"events", func(s *store.Store, in *store.Inspector, each func(string)) error {
			return eachEvent(s, in.Events, func(t *store.Topic) uint64 { return t.RetiredTo }, each)
		}},
		{"history", func(s *store.Store, in *store.Inspector, each func(string)) error {
			return eachEvent(s, in.Histories, (*store.Topic).HistoryFrom, each)
		}},
		{"winners", walkWinners},
		{"seen", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.Seen(textOf[store.SeenAt](each))
		}},
		{"answered", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.Answered(textOf[store.AnsweredAt](each))
		}},
		{"timers", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.Timers(textOf[store.Timer](each))
		}},
		{"minutes", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.Minutes(textOf[store.MinuteAt](each))
		}},
		{"subscriptions", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.SubscriptionConfigs(textOf[store.SubscriptionConfigAt](each))
		}},
		{"places of subscriptions", func(_ *store.Store, in *store.Inspector, each func(string)) error {
			return in.SubscriptionStates(textOf[store.SubscriptionStateAt](each))
		}},
		{"deliveries", walkDeliveries},
	}
}

func walkDeliveries(_ *store.Store, in *store.Inspector, each func(string)) error {
	return in.Deliveries(func(d store.DeliveryAt, err error) error {
		row := fmt.Sprintf("%d/%d/%d %t %x", d.Number, d.Epoch, d.Position, d.Parked, d.Key)
		switch {
		case d.Pending != nil:
			row += fmt.Sprintf(" pending %+v", *d.Pending)
		case d.List != nil:
			row += fmt.Sprintf(" list %+v", *d.List)
		case d.Letter != nil:
			row += fmt.Sprintf(" letter %+v", *d.Letter)
		}
		each(row)
		return err
	})
}

func walkSpace(s *store.Store, _ *store.Inspector, each func(string)) error {
	space, settings, _, err := s.LoadSpace()
	each(fmt.Sprintf("%+v %+v", space, settings))
	return err
}

func walkTopics(s *store.Store, _ *store.Inspector, each func(string)) error {
	return s.LoadTopics(func(t store.Topic) error {
		policy, err := t.Policy.MarshalJSON()
		t.Policy = event.Policy{}
		each(fmt.Sprintf("%+v %s", t, policy))
		return err
	})
}

// walkLeaves passes them on one by one.
func walkLeaves(_ *store.Store, in *store.Inspector, each func(string)) error {
	return in.Leaves(func(l store.LeavesAt, err error) error {
		for i := 0; i < len(l.Leaves); i += sha256.Size {
			each(fmt.Sprintf("%d %x", l.First+uint64(i/sha256.Size), l.Leaves[i:i+sha256.Size]))
		}
		return err
	})
}

func walkWinners(s *store.Store, in *store.Inspector, each func(string)) error {
	live, err := liveTopics(s)
	if err != nil {
		return err
	}
	return in.Winners(func(w store.WinnerAt, err error) error {
		if live[w.Topic] != nil {
			each(fmt.Sprintf("%+v", w))
		}
		return err
	})
}

func liveTopics(s *store.Store) (map[uint32]*store.Topic, error) {
	topics := map[uint32]*store.Topic{}
	err := s.LoadTopics(func(t store.Topic) error { topics[t.Number] = &t; return nil })
	return topics, err
}

// eachEvent passes on the rows that are after where their topic's begin.
func eachEvent(s *store.Store, walk func(func(store.EventAt, error) error) error, from func(*store.Topic) uint64, each func(string)) error {
	topics, err := liveTopics(s)
	if err != nil {
		return err
	}
	return walk(func(e store.EventAt, err error) error {
		if t := topics[e.Topic]; t != nil && e.Position > from(t) {
			each(fmt.Sprintf("%d/%d %d %d %s %d %d %d %d %x %q %d+%d %s", e.Topic, e.Position, e.Flags, e.LogMillis, e.HLC, e.ExpiryMillis,
				e.Count, e.Bytes, e.Leaf, e.Salt, e.Key, e.DataOffset, e.DataLength, e.Members))
		}
		return err
	})
}
