// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
)

// stream is a subscription whose place the broker keeps, and what its client
// knows of it.
type stream struct {
	id     string
	reader reader // at is what was acknowledged
	usage  usage
}

const streamsMax = 2

func (s *stream) String() string { return fmt.Sprintf("stream %s of %s", s.id[:4], &s.reader) }

// stepStream lets the client of a stream come, read for a while, acknowledge some
// of it, and leave. What it did not acknowledge comes again.
func stepStream(w *world) {
	if len(w.streams) < streamsMax {
		w.openStream()
		return
	}
	s := w.streams[w.rng.IntN(len(w.streams))]
	w.attend(s)
	if w.rng.IntN(12) == 0 {
		ctx, cancel := w.waiting()
		defer cancel()
		if _, err := w.broker.DeleteSubscription(ctx, anonymous(), s.id); err != nil {
			w.fail("%s: %v", s, err)
		}
		w.settle()
		w.streams = slices.DeleteFunc(w.streams, func(other *stream) bool { return other == s })
		w.note("%s ends", s)
	}
}

func (w *world) openStream() {
	d := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
	list := pick(w.rng, ">", "state.*", "log.short", "state.kept")
	d.Config.Kind, d.Config.Topics, d.Config.View = event.KindStream, []string{list}, pick(w.rng, "", dispatch.ViewHistory)
	d.Config.Start = pick(w.rng, "now", "earliest")
	d.Config.ExpiresAfter = event.Duration(pick(w.rng, 0, time.Hour))
	ctx, cancel := w.waiting()
	defer cancel()
	info, err := w.broker.CreateSubscription(ctx, anonymous(), d)
	if err != nil {
		w.fail("a stream of %s: %v", list, err)
	}
	w.settle()
	s := &stream{id: info.Document.ID, reader: reader{list: list, patterns: patterns(list), view: d.Config.View, at: info.Status.Cursor}}
	s.usage = usage{after: d.Config.ExpiresAfter.Std().Milliseconds()}
	s.usage.used(w.model.millis, true)
	w.streams = append(w.streams, s)
	w.note("%s from %s", s, d.Config.Start)
}

// attend is one connection of a stream's client.
func (w *world) attend(s *stream) {
	ctx, cancel := w.waiting()
	defer cancel()
	missed := w.removedTo(&s.reader) > max(s.reader.at.Position, s.reader.at.Began)
	a, r, gap, err := w.broker.Attach(ctx, anonymous(), s.id, nil)
	if err != nil {
		w.fail("%s: %v", s, err)
	}
	defer func() {
		a.Close()
		w.settle()
		s.usage.used(w.model.millis, false)
	}()
	w.settle()
	s.reader.reader = r
	defer s.reader.close()
	switch at := r.Cursor(); {
	case missed && (gap == nil || gap.To.Position != w.removedTo(&s.reader)):
		w.fail("%s is not told that it missed something up to %d: %+v", s, w.removedTo(&s.reader), gap)
	case at.Position != s.reader.at.Position:
		w.fail("%s begins at %s", s, at)
	}
	acknowledged := s.reader.at
	for range 1 + w.rng.IntN(3) {
		if !w.poll(&s.reader, dispatch.Limit{Events: pick(w.rng, 1, 10, 1000), Bytes: 1 << 20}) {
			break
		}
	}
	got := s.reader.at
	s.reader.at = acknowledged
	if missed { // it goes on behind the gap
		s.reader.at.Began = gap.To.Position
		w.counts["gaps"]++
	}
	if got.Position == 0 || w.rng.IntN(3) == 0 {
		return // it leaves without a word
	}
	if _, err := w.broker.Acknowledge(ctx, anonymous(), s.id, got); err != nil {
		w.fail("%s acknowledges %s: %v", s, got, err)
	}
	s.usage.used(w.model.millis, true)
	if got.Position > s.reader.at.Position {
		s.reader.at = got
	}
	w.note("%s has acknowledged %s", s, got)
	w.counts["acknowledged"]++
}
