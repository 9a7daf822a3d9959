// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"crypto/sha256"
	"errors"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

const (
	// FetchMax bounds the events of one fetch, and fetchBytes their size: they
	// are in memory until they are sent.
	FetchMax   = 1000
	fetchBytes = 4 << 20
	// candidatesMax bounds the events that one hand-out looks at, most of which
	// may only be parked.
	candidatesMax = 2000
	// planTime bounds the search for events that are selected.
	planTime = 2 * time.Second
	// planAttempts is how often a plan is made anew because the subscription
	// has changed under it.
	planAttempts = 10
	// movedMin is from how many positions on it is worth to store that nothing
	// was found in them.
	movedMin = 10_000
)

// FetchRequest says how many events a worker wants, and for how long.
type FetchRequest struct {
	Max        int           // at least 1
	Visibility time.Duration // 0: that of the subscription
	Wait       time.Duration // how long to wait for the first event
}

// HandedOut is an event that was given to a worker, who has to settle it with
// the token before the deadline.
type HandedOut struct {
	Token    string
	Attempt  int
	Deadline time.Time
	Event    []byte // in the CloudEvents JSON format
}

// Fetch hands out events of a pull subscription. It returns once they are
// counted durably; an empty answer means that nothing came within the wait.
func (b *Broker) Fetch(ctx context.Context, p identity.Principal, id string, req FetchRequest) ([]HandedOut, error) {
	if req.Visibility != 0 && (req.Visibility < time.Second || req.Visibility > event.MaxVisibility.Std()) {
		return nil, event.Errorf(event.CodeParameterInvalid, "The visibility must be from 1s to 12h.").With("visibility")
	}
	req.Max = min(max(req.Max, 1), FetchMax)
	s := b.deliveries.enter(id)
	defer b.deliveries.leave(id, s)
	over := time.NewTimer(req.Wait)
	defer over.Stop()
	waits := req.Wait > 0
	for {
		changed := b.deliveries.changes(s)
		if err := s.lock(ctx); err != nil {
			return nil, err
		}
		pl := plan{b: b, s: s, p: p, id: id, req: req, final: !waits}
		out, err := pl.run(ctx)
		arrived := pl.arrived
		s.unlock()
		if err != nil || len(out) > 0 || !waits {
			return out, err
		}
		due := time.NewTimer(pl.next)
		select {
		case <-changed:
		case <-arrived:
		case <-due.C:
		case <-over.C:
			waits = false
		case <-b.draining:
			waits = false
		case <-ctx.Done():
			waits = false
		}
		due.Stop()
	}
}

// plan is one look for events to hand out. What it finds is only proposed.
type plan struct {
	b     *Broker
	s     *session
	p     identity.Principal
	id    string
	req   FetchRequest
	final bool // nobody will wait after it

	number  uint32
	config  store.SubscriptionConfig
	state   store.SubscriptionState
	hand    eventlog.HandOut
	json    map[uint64][]byte // by position
	counts  eventlog.Counts   // since the last candidate
	locked  map[[16]byte]bool // keys of candidates
	parked  int               // events that would be, with the candidates
	next    time.Duration     // until something that is ready becomes due
	arrived <-chan struct{}   // closed when there is something to read; nil: nothing is read for
}

func (pl *plan) settings() *event.SubscriptionConfig { return &pl.config.Document.Config }

// run plans and proposes until a plan fits what the subscription is.
func (pl *plan) run(ctx context.Context) ([]HandedOut, error) {
	for attempts := 0; attempts < planAttempts; attempts++ {
		out, err := pl.once(ctx)
		if !errors.Is(err, errStale) {
			return out, err
		}
		if len(pl.hand.Gone) > 0 {
			attempts = 0 // each time there are fewer
		}
	}
	return nil, event.Errorf(event.CodeOverloaded, "The subscription changes faster than it can be read. Try again in a moment.")
}

const idleWait = time.Minute

func (pl *plan) once(ctx context.Context) ([]HandedOut, error) {
	var ok bool
	var err error
	pl.number, pl.config, pl.state, ok, err = pl.b.store.Subscription(pl.id)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, unknownSubscription(pl.id)
	case pl.settings().Kind != event.KindPull:
		return nil, event.Errorf(event.CodeSubscriptionConflict, "The subscription's kind is %s: nothing can be fetched from it.", pl.settings().Kind)
	}
	place := eventlog.Place{Cursor: pl.state.Cursor, Began: pl.state.Began, Since: pl.state.Since}
	pl.hand = eventlog.HandOut{Epoch: pl.state.Epoch, From: place, To: place, Max: pl.req.Max, Visibility: pl.settings().Visibility.Std().Milliseconds()}
	if pl.req.Visibility != 0 {
		pl.hand.Visibility = pl.req.Visibility.Milliseconds()
	}
	pl.json, pl.counts, pl.next, pl.arrived = map[uint64][]byte{}, eventlog.Counts{}, idleWait, nil
	if !pl.state.Paused {
		if err := pl.again(ctx); err != nil {
			return nil, err
		}
		if err := pl.read(ctx); err != nil {
			return nil, err
		}
	}
	if !pl.worth() {
		return nil, nil
	}
	return pl.propose(ctx)
}

// worth reports whether there is anything to store.
func (pl *plan) worth() bool {
	h := &pl.hand
	if len(h.Again)+len(h.Gone)+len(h.Events) > 0 {
		return true
	}
	if moved := h.To.Cursor - h.From.Cursor; moved >= movedMin || moved > 0 && pl.final {
		return true
	}
	// A worker that finds nothing is a sign of life, too.
	expires := pl.settings().ExpiresAfter.Std().Milliseconds()
	return expires > 0 && pl.b.clock.Millis()-pl.state.Used > expires/4
}

// again finds what is ready to be handed out again.
func (pl *plan) again(ctx context.Context) error {
	if pl.state.Ready == 0 {
		return nil
	}
	now := pl.b.clock.Millis()
	var spent []uint64
	rows := map[uint64]store.Pending{}
	err := pl.b.store.Outstanding(pl.number, pl.state.Epoch, func(position uint64, row store.Pending) (bool, error) {
		switch {
		case row.State != store.PendingReady:
		case projector.Spent(&row, pl.settings(), pl.state.Acked) != "":
			spent = append(spent, position)
			rows[position] = row
		case row.DueMillis > now:
			pl.next = min(pl.next, time.Duration(row.DueMillis-now)*time.Millisecond)
		case len(pl.hand.Again) < pl.req.Max:
			pl.hand.Again = append(pl.hand.Again, position)
			rows[position] = row
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, position := range spent {
		row := rows[position]
		if err := pl.b.buryOne(ctx, pl.id, position, &row, 0, "", row.Error); err != nil {
			pl.b.logger.Error("an event cannot be made a dead letter, and is kept", "subscription", pl.id, "position", position, "err", err)
			pl.next = min(pl.next, buryRetry)
		}
	}
	if len(spent) > 0 {
		return pl.unlessFailing(len(spent))
	}
	kept := pl.hand.Again[:0]
	for _, position := range pl.hand.Again {
		row := rows[position]
		json, ok, err := pl.b.pendingEvent(pl.number, pl.id, position, &row, pl.settings().View)
		if err != nil {
			return err
		}
		if !ok {
			if err := pl.gone(position, &row); err != nil {
				return err
			}
			continue
		}
		pl.json[position] = json
		kept = append(kept, position)
	}
	pl.hand.Again = kept
	return nil
}

// gone takes out an event that is not stored any more, and of those that are
// parked behind it the first ones, as far as they are gone, too: in a compacted
// topic all but the last of a key usually are.
func (pl *plan) gone(position uint64, row *store.Pending) error {
	for {
		pl.hand.Gone = append(pl.hand.Gone, position)
		if position = row.Next; position == 0 || len(pl.hand.Gone) >= candidatesMax {
			return nil
		}
		next, ok, err := pl.b.store.ParkedEvent(pl.number, pl.state.Epoch, position)
		if err != nil || !ok {
			return err
		}
		if _, stored, err := pl.b.pendingEvent(pl.number, pl.id, position, &next, pl.settings().View); err != nil || stored {
			return err
		}
		row = &next
	}
}

// buryRetry is how long an event waits that could not be made a dead letter.
const buryRetry = 5 * time.Second

// unlessFailing has the plan made anew where spent events are gone now. Where
// none could be buried, the others go on without them.
func (pl *plan) unlessFailing(spent int) error {
	_, _, state, ok, err := pl.b.store.Subscription(pl.id)
	if err != nil {
		return err
	}
	if !ok || state.Buried != pl.state.Buried || state.Gone != pl.state.Gone {
		return errStale
	}
	return nil
}

// pendingEvent returns a pending event as it is delivered, and whether it is
// still there for a reader of the view.
func (b *Broker) pendingEvent(number uint32, id string, position uint64, row *store.Pending, view string) (json []byte, ok bool, err error) {
	if row.Letter == 0 {
		stored, ok, err := b.dispatch.Lookup(row.Topic, position, view)
		if err != nil || !ok {
			return nil, false, err
		}
		return stored.JSON(), true, nil
	}
	snapshot := b.store.View(func() {})
	letter, known, err := snapshot.Letter(number, row.Letter)
	snapshot.Close()
	if err != nil || !known {
		return nil, false, err
	}
	stored, ok, err := b.dispatch.Lookup(projector.LetterTopic(id), row.Letter, dispatch.ViewDefault)
	if err != nil || !ok {
		return nil, false, err
	}
	original := b.dispatch.Original(&stored.Row, letter.Prefix, letter.Topic, letter.Position)
	return original.JSON(), true, nil
}

// read looks for events behind the cursor until there are enough, or as many
// are pending as may be.
func (pl *plan) read(ctx context.Context) error {
	room := min(pl.req.Max-len(pl.hand.Again), pl.settings().MaxOutstanding-int(pl.state.Outstanding))
	if pl.settings().Order == event.OrderStrict {
		room = min(room, 1-int(pl.state.Outstanding))
	}
	if room <= 0 {
		return nil
	}
	if err := pl.open(ctx); err != nil {
		return err
	}
	reader := pl.s.reader
	pl.arrived = reader.Changed()
	pl.locked, pl.parked = map[[16]byte]bool{}, int(pl.state.Parked)
	bytes := 0
	for began := time.Now(); room > 0 && len(pl.hand.Events) < candidatesMax && bytes < fetchBytes; {
		pl.s.passed = dispatch.Counts{}
		window, err := reader.Poll(dispatch.Limit{Events: room, Bytes: fetchBytes})
		if err != nil {
			pl.closeReader()
			return pl.gap(ctx, err)
		}
		for i := range window.Deliveries {
			d := &window.Deliveries[i]
			free, err := pl.candidate(d)
			if err != nil {
				return err
			}
			if pl.parked > pl.settings().MaxParked {
				pl.full()
				return nil
			}
			if free {
				room--
			}
			bytes += len(d.JSON())
		}
		// What is told apart within a window only is counted behind it.
		pl.counts.Dropped += pl.s.passed.Dropped
		pl.counts.Errors += pl.s.passed.Failed
		pl.hand.To = eventlog.Place{Cursor: window.Cursor.Position, Began: window.Cursor.Began, Since: pl.state.Since}
		if window.CaughtUp {
			break
		}
		if time.Since(began) > planTime {
			done := make(chan struct{})
			close(done)
			pl.arrived = done // there is more
			break
		}
	}
	pl.hand.Rest = pl.counts
	return nil
}

// full ends the plan before the last candidate, which would have to be parked
// where nothing more may be. Until something is settled there is no use in
// looking again.
func (pl *plan) full() {
	last := len(pl.hand.Events) - 1
	pl.hand.Events = pl.hand.Events[:last]
	pl.hand.To = pl.hand.From
	if last > 0 {
		pl.hand.To.Cursor = pl.hand.Events[last-1].Position
	}
	pl.arrived = nil
}

// candidate adds an event, and reports whether nothing keeps it from being
// handed out.
func (pl *plan) candidate(d *dispatch.Delivery) (free bool, err error) {
	c := eventlog.Candidate{Position: d.Position, Before: pl.counts}
	pl.counts = eventlog.Counts{}
	c.Topic, _ = event.LookupJSON(d.JSON(), "topic")
	free = true
	if pl.settings().Order == event.OrderKey {
		if key := pl.b.keyOf(c.Topic, d.JSON()); key != "" {
			c.Ordered = true
			sum := sha256.Sum256([]byte(c.Topic + "\x00" + key))
			copy(c.Key[:], sum[:])
			waits := pl.locked[c.Key]
			if !waits {
				if waits, err = pl.b.store.HasKeyList(pl.number, pl.state.Epoch, c.Key); err != nil {
					return false, err
				}
			}
			pl.locked[c.Key] = true
			if free = !waits; waits {
				pl.parked++
			}
		}
	}
	pl.hand.Events = append(pl.hand.Events, c)
	pl.json[d.Position] = append([]byte(nil), d.JSON()...)
	return free, nil
}

// keyOf returns the entity that an event is about, "" if it has none.
func (b *Broker) keyOf(topic string, json []byte) string {
	for _, name := range []string{"partitionkey", "subject"} {
		if key, ok := event.LookupJSON(json, name); ok && key != "" {
			return key
		}
	}
	t, err := b.dispatch.Topic(topic)
	if err != nil || t.Policy.KeyFrom == "" {
		return ""
	}
	path := "data." + t.Policy.KeyFrom
	if strings.HasPrefix(t.Policy.KeyFrom, "[") {
		path = "data" + t.Policy.KeyFrom
	}
	key, _ := event.LookupJSON(json, path)
	return key
}

// open sees to it that the session's reader is where the subscription is.
func (pl *plan) open(ctx context.Context) error {
	filter := string(pl.config.Document.AppendJSON(nil, false))
	if r := pl.s.reader; r != nil {
		c := r.Cursor()
		if c.Position == pl.state.Cursor && c.Began <= max(pl.state.Began, c.Position) && pl.s.filter == filter {
			return nil
		}
		pl.closeReader()
	}
	// The reader outlives this plan, so what it counts is the session's.
	spec, err := pl.b.specOf(&pl.config.Document, &pl.state, pl.s.count)
	if err != nil {
		return err
	}
	reader, err := pl.b.dispatch.Open(spec)
	if err != nil {
		return pl.gap(ctx, err)
	}
	pl.s.reader, pl.s.filter = reader, filter
	return nil
}

func (pl *plan) closeReader() {
	if pl.s.reader != nil {
		pl.s.reader.Close()
		pl.s.reader = nil
	}
}

// gap logs what was removed behind the cursor, and has the plan made anew.
func (pl *plan) gap(ctx context.Context, cause error) error {
	if event.AsError(cause).Code != event.CodeCursorExpired {
		return cause
	}
	if err := pl.b.noteGap(ctx, pl.id, &pl.config.Document, &pl.state, event.AsError(cause)); err != nil {
		return err
	}
	return errStale
}

func (pl *plan) propose(ctx context.Context) ([]HandedOut, error) {
	// What is planned takes effect whether its caller stays or leaves: it is
	// counted as handed out, and comes back after its deadline.
	result, err := pl.b.subscribe(context.WithoutCancel(ctx), pl.p, &eventlog.Subscription{Op: eventlog.SubscriptionHandOut, ID: pl.id, HandOut: &pl.hand})
	if err != nil {
		return nil, err
	}
	if result.Delivery.Stale {
		pl.closeReader()
		return nil, errStale
	}
	selection, err := event.ParseSelection(pl.settings().Select)
	if err != nil {
		return nil, err
	}
	out := make([]HandedOut, len(result.Delivery.Handed))
	for i, h := range result.Delivery.Handed {
		json := pl.json[h.Position]
		if !selection.All() {
			json = selection.AppendSelected(nil, json)
		}
		out[i] = HandedOut{
			Token: formatToken(h.Position, h.Token), Attempt: int(h.Attempt), Deadline: time.UnixMilli(h.DueMillis), Event: json,
		}
	}
	if len(out) == 0 && len(pl.hand.Gone) > 0 {
		return nil, errStale // others of their keys may have come forward
	}
	return out, nil
}

// formatToken names one hand-out of one event, so that what is said of an
// earlier one cannot be taken for it.
func formatToken(position, token uint64) string {
	return strconv.FormatUint(position, 10) + "." + strconv.FormatUint(token, 10)
}

func parseToken(s string) (position, token uint64, err error) {
	left, right, ok := strings.Cut(s, ".")
	position, err1 := strconv.ParseUint(left, 10, 64)
	token, err2 := strconv.ParseUint(right, 10, 64)
	if !ok || err1 != nil || err2 != nil || formatToken(position, token) != s {
		return 0, 0, event.Errorf(event.CodeParameterInvalid, "%.40q is not a token: send it as it came with the event.", s).With("tokens")
	}
	return position, token, nil
}
