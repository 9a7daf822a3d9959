// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"
	"strconv"
	"strings"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
)

// Ephemeral reports whether a topic's events are kept in memory only.
func (d *Dispatch) Ephemeral(topic string) bool {
	_, ok := d.ephemeral.Load(topic)
	return ok
}

// Place delivers events on an ephemeral topic to whoever is reading it, all or
// none, and holds the last of each key. With an error comes the index of the
// event at fault; it is ErrNotEphemeral if the events belong in the log.
func (d *Dispatch) Place(topic string, entries []eventlog.Entry, nowMillis int64) (placed []Placed, at int, err error) {
	found, ok := d.ephemeral.Load(topic)
	if !ok {
		return nil, 0, ErrNotEphemeral
	}
	v := found.(*view)
	t := v.info.Load()
	events := make([]*held, len(entries))
	for i := range entries {
		key, refused := projector.CheckPolicy(t.Policy, &entries[i])
		if refused != nil {
			return nil, i, refused
		}
		events[i] = newHeld(t, key, &entries[i], nowMillis)
	}
	d.mu.RLock()
	seen := d.space.HLC
	d.mu.RUnlock()
	placed, at, err = d.hub.place(v, events, nowMillis, seen)
	superseded := 0
	for i := range placed {
		if placed[i].Superseded {
			superseded++
		}
	}
	d.metrics.Ephemeral.Superseded.Add(float64(superseded))
	d.metrics.Ephemeral.Accepted.Add(float64(len(placed) - superseded))
	if superseded < len(placed) {
		d.mu.RLock()
		d.wakeTopic(topic)
		d.mu.RUnlock()
		d.offer(events)
	}
	return placed, at, err
}

// Expire takes out what has expired on ephemeral topics.
func (d *Dispatch) Expire() { d.hub.sweep(d.LogMillis()) }

// settle notes that a topic is ephemeral or no longer so. It is called with mu
// held.
func (d *Dispatch) settle(v *view) {
	if t := v.info.Load(); !v.gone.Load() && !t.Deleted && t.Policy.Ephemeral() {
		if was, ok := d.ephemeral.Swap(v.name, v); !ok || was != any(v) {
			d.regroup(v.name)
		}
		return
	}
	if !d.ephemeral.CompareAndDelete(v.name, v) {
		return
	}
	dropped := d.hub.drop(v)
	for i := range d.interested(v.name) {
		i.dropped.Store(max(i.dropped.Load(), dropped))
	}
	d.regroup(v.name)
	d.wakeTopic(v.name)
	d.stirAll()
}

// regroup finds the ephemeral topics of the interests that match a topic. It is
// called with mu held.
func (d *Dispatch) regroup(topic string) {
	for i := range d.interested(topic) {
		i.findLive()
	}
}

// findLive is called with Dispatch.mu held.
func (i *interest) findLive() {
	var live []*view
	for _, v := range i.views {
		if t := v.info.Load(); !t.Deleted && t.Policy.Ephemeral() {
			live = append(live, v)
		}
	}
	if live == nil {
		i.live.Store(nil)
		return
	}
	i.live.Store(&live)
}

// liveViews are the ephemeral topics that the group matches.
func (g *group) liveViews() (views []*view) {
	for _, i := range g.interests {
		switch live := i.live.Load(); {
		case live == nil:
		case views == nil:
			views = *live
		default:
			views = slices.Concat(views, *live)
		}
	}
	return views
}

// isLive reports whether the group matches an ephemeral topic.
func (g *group) isLive() bool {
	return slices.ContainsFunc(g.interests, func(i *interest) bool { return i.live.Load() != nil })
}

// dropped is the sequence at which values were last dropped with their topic.
func (g *group) dropped() (dropped uint64) {
	for _, i := range g.interests {
		dropped = max(dropped, i.dropped.Load())
	}
	return dropped
}

// Mark is a place in the sequence of the events of ephemeral topics, for a
// reader that comes again: it means nothing after a restart. The zero value is
// before everything.
type Mark struct {
	Boot     string
	Sequence uint64
}

// String writes a mark as ParseMark reads it.
func (m Mark) String() string { return m.Boot + "." + strconv.FormatUint(m.Sequence, 10) }

// ParseMark reads a mark.
func ParseMark(s string) (Mark, error) {
	boot, digits, ok := strings.Cut(s, ".")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || len(boot) != bootBytes || digits[0] == '+' || digits[0] == '0' && digits != "0" {
		return Mark{}, event.Errorf(event.CodeParameterInvalid, "live=%.40q is not a mark: give it as it was received in Signalbox-Live, or leave it out.", s).With("live")
	}
	return Mark{boot, n}, nil
}

// bootBytes is the length of the name of one run of the broker.
const bootBytes = 8

// Mark is the mark of whoever needs nothing that was placed before now.
func (d *Dispatch) Mark() Mark {
	d.hub.mu.RLock()
	defer d.hub.mu.RUnlock()
	return Mark{d.boot, d.hub.sequence}
}

// startLive begins at a mark, or with what is held if the mark is not known or
// something was forgotten since.
func (r *Reader) startLive(m Mark) {
	now := r.d.Mark()
	r.spot = spot{began: now.Sequence}
	if m.Boot != now.Boot || m.Sequence > now.Sequence {
		return
	}
	resumed := spot{after: m.Sequence, began: m.Sequence}
	if _, _, _, current := r.nextLive(resumed, Limit{}, nil); current {
		r.spot = resumed
	}
}

// Mark is the reader's place on ephemeral topics; ok is false if it reads none.
func (r *Reader) Mark() (m Mark, ok bool) {
	return Mark{r.d.boot, r.spot.after}, r.group.isLive()
}

func (r *Reader) nextLive(p spot, limit Limit, events []*held) (_ []*held, to spot, done, current bool) {
	if dropped := r.group.dropped(); dropped > max(p.after, p.began) {
		return events, p, false, false
	}
	return r.d.hub.next(r.group.liveViews(), p, r.d.LogMillis(), limit, events)
}

// pollLive takes the next events of ephemeral topics into the window, no more
// than half of it where the log has something for the reader too.
func (r *Reader) pollLive(limit *Limit) (done bool, err error) {
	if !r.group.isLive() && r.group.dropped() <= max(r.spot.after, r.spot.began) {
		return true, nil
	}
	share := *limit
	if r.cursor < r.ended() {
		share.Events /= 2
	}
	var current bool
	r.held, r.spot, done, current = r.nextLive(r.spot, share, r.held)
	if !current {
		return false, event.Errorf(event.CodeValuesReset, "Values of ephemeral topics that the reader may know were removed before it was told. Connect again: what is held comes first, and what is not among it is gone.")
	}
	if r.sieve != nil {
		r.held = sieveHeld(r.sieve.filter, r.held)
	}
	limit.Events -= len(r.held)
	for _, e := range r.held {
		limit.Bytes -= len(e.Members)
	}
	limit.Bytes = max(1, limit.Bytes)
	return done, nil
}

// addLive appends the frames of the events that pollLive took.
func (r *Reader) addLive(w *Window, done bool) {
	for _, e := range r.held {
		d := e.frame()
		if !r.spec.Select.All() {
			shaped := r.shape(d)
			d = &shaped
		}
		r.out = append(r.out, *d)
	}
	w.Deliveries = r.out
	w.CaughtUp = w.CaughtUp && done
}
