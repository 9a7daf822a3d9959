// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
)

// pull is what workers know of a subscription: what they were handed, and what
// they were told of what they said.
type pull struct {
	id     string
	config event.SubscriptionConfig
	sink   string // of a webhook, whose worker is the sender
	types  []string
	paused bool
	from   uint64 // events up to here do not concern it
	moved  uint64 // where the head was when it was moved; older dead letters do not count
	deals  map[uint64]*deal
	lost   int       // answers to fetch that nobody got
	seeks  int       // after each of which it may drop everything again
	unsure int64     // until then it may have handed out what nobody heard of; 0: it has not
	over   time.Time // since when that is over
	usage  usage
}

// deal is an event that was handed out.
type deal struct {
	position uint64
	item     *item // as it was published; nil: a notice of the broker
	token    string
	attempts int
	due      int64 // Unix ms: until then it is its worker's
	ready    int64 // not before that it comes again; 0: when it is due
	acked    bool
	rejected bool
	dead     bool
	perhaps  bool // an answer was lost: it may be acknowledged, or dead
	// Of a dead letter, the last one that there was of the event:
	letter    uint64 // where it is; 0: there was none
	event     []byte // as it was delivered
	redrives  int
	again     bool // it is under way again, whatever has become of the event itself
	discarded bool
}

// slack is how much later than its deadline an event may be taken back: ticks
// come once a second, and look for deadlines no more often than that.
const slack = 4 * time.Second

const pullsMax = 3

func (p *pull) clone() *pull {
	c := *p
	c.deals = make(map[uint64]*deal, len(p.deals))
	for position, d := range p.deals {
		copied := *d
		c.deals[position] = &copied
	}
	return &c
}

func (p *pull) String() string {
	return fmt.Sprintf("%s %s of %v %s %q", p.config.Kind, p.id[:4], p.config.Topics, p.config.Order, p.config.View)
}

// settled reports whether an event will not come again.
func (d *deal) settled() bool { return d.acked || d.dead }

// out reports whether somebody surely has an event.
func (d *deal) out(now int64) bool { return !d.settled() && d.ready == 0 && now < d.due }

// sure reports whether workers know everything that was handed out and not
// taken back.
func (p *pull) sure(now int64) bool {
	switch {
	case p.unsure == 0:
		return true
	case now < p.unsure:
		return false
	case p.over.IsZero():
		p.over = time.Now()
	case time.Since(p.over) > slack:
		p.unsure = 0
	}
	return p.unsure == 0
}

// stepSubscribe creates a pull subscription, or does to one what owners do.
func stepSubscribe(w *world) {
	if len(w.pulls) < pullsMax && (len(w.pulls) == 0 || w.rng.IntN(3) == 0) {
		w.subscribe()
		return
	}
	p := w.pulls[w.rng.IntN(len(w.pulls))]
	ctx, cancel := w.waiting()
	defer cancel()
	var err error
	switch w.rng.IntN(5) {
	case 0:
		_, err = w.broker.DeleteSubscription(ctx, anonymous(), p.id)
		w.pulls = slices.DeleteFunc(w.pulls, func(other *pull) bool { return other == p })
		w.note("%s ends", p)
	case 1:
		start := pick(w.rng, "now", "earliest")
		_, err = w.broker.SeekSubscription(ctx, anonymous(), p.id, start)
		p.from, p.moved, p.deals, p.unsure = w.model.position, w.model.position, map[uint64]*deal{}, 0
		p.seeks++
		if start == "earliest" {
			p.from = 0
		}
		w.note("%s goes to %s", p, start)
	default:
		p.paused = !p.paused
		_, err = w.broker.PauseSubscription(ctx, anonymous(), p.id, p.paused)
		w.note("%s: paused %t", p, p.paused)
	}
	if err != nil {
		w.fail("%s: %v", p, err)
	}
	w.settle()
	p.usage.used(w.model.millis, true)
}

func (w *world) subscribe() {
	d := event.Subscription{Protocol: event.ProtocolSignalbox, Config: event.DefaultSubscriptionConfig()}
	c := &d.Config
	c.Kind = event.KindPull
	c.Topics = strings.Split(pick(w.rng, "log.>", "state.*", "state.kept", "log.kept", ">", "state.kept,log.kept", "log.kept,state.kept", "state.*,log.kept,state.>"), ",")
	c.View = pick(w.rng, "", "history")
	c.Order = pick(w.rng, event.OrderKey, event.OrderKey, event.OrderStrict, event.OrderUnordered)
	c.Start = pick(w.rng, "now", "earliest")
	c.MaxAttempts, c.MaxRedrives = 1+w.rng.IntN(4), pick(w.rng, 1, 2, 5)
	c.ExpiresAfter = event.Duration(pick(w.rng, 0, 0, 10*time.Minute, 20*time.Hour))
	c.Visibility = event.Duration(pick(w.rng, time.Second, 30*time.Second, time.Hour))
	if w.rng.IntN(3) == 0 {
		w.hook(&d)
	}
	var types []string
	switch w.rng.IntN(4) {
	case 0:
		types, d.Types = []string{"made"}, []string{"made"}
	case 1: // the same in another way
		types, d.Filters = []string{"made"}, []byte(`[{"sql":"'made' = type"}]`)
	}
	ctx, cancel := w.waiting()
	defer cancel()
	info, err := w.broker.CreateSubscription(ctx, anonymous(), d)
	if err != nil {
		w.fail("subscribing: %v", err)
	}
	w.settle()
	p := &pull{id: info.Document.ID, config: *c, sink: d.Sink, types: types, deals: map[uint64]*deal{}}
	if c.Start == "now" {
		p.from = w.model.position
	}
	p.usage = usage{after: c.ExpiresAfter.Std().Milliseconds()}
	p.usage.used(w.model.millis, true)
	w.pulls = append(w.pulls, p)
	w.note("%s from %s, %d attempts, %v each", p, c.Start, c.MaxAttempts, c.Visibility.Std())
}

// stepFetch has a worker fetch events.
func stepFetch(w *world) {
	if len(w.pulls) == 0 {
		return
	}
	if p := w.pulls[w.rng.IntN(len(w.pulls))]; p.sink == "" {
		w.fetch(p, 1+w.rng.IntN(6))
	} else {
		w.send(w.fates)
	}
}

func (w *world) fetch(p *pull, most int) []*deal {
	w.mark(p)
	surely, before := w.surely(p), w.wanted(p)
	ctx, cancel := w.waiting()
	defer cancel()
	now := w.broker.LogMillis()
	var handed []broker.HandedOut
	var err error
	if p.sink == "" {
		handed, err = w.broker.Fetch(ctx, anonymous(), p.id, broker.FetchRequest{Max: most})
	} else {
		handed, _, err = w.broker.HandOutWebhook(ctx, p.id, most)
	}
	w.settle()
	p.usage.used(w.model.millis, !w.lost())
	if w.lost() {
		w.note("%s: the power failed", p)
		p.lost++
		p.unsure, p.over = now+p.visibility(), time.Time{}
		return nil
	}
	switch {
	case err != nil:
		w.fail("%s: fetch: %v", p, err)
	case p.paused && len(handed) > 0:
		w.fail("%s is paused and hands out %s", p, handed[0].Event)
	case len(handed) > most:
		w.fail("%s: asked for %d and got %d", p, most, len(handed))
	case len(handed) == 0 && surely != nil:
		w.fail("%s hands out nothing, and there is %s", p, surely)
	}
	w.mark(p) // a fetch that meets one that is spent buries it
	list := make([]*deal, len(handed))
	for i := range handed {
		list[i] = w.handed(p, &handed[i], before, now)
	}
	w.note("%s: fetched %d", p, len(handed))
	w.counts["handed out"] += len(handed)
	return list
}

// handed judges a hand-out.
func (w *world) handed(p *pull, h *broker.HandedOut, before map[uint64]bool, now int64) *deal {
	position := tokenPosition(h.Token)
	d := p.deals[position]
	if d == nil {
		d = &deal{position: position, item: w.find(position)}
		p.deals[position] = d
	}
	switch {
	case d.again:
		if !bytes.Equal(h.Event, d.event) {
			w.fail("%s hands out %s again, and the dead letter is of %s", p, h.Event, d.event)
		}
		w.checkOrder(p, d, now)
		w.counts["handed out again"]++
	case d.item == nil && !strings.Contains(string(h.Event), `"topic":"$subscriptions"`):
		w.fail("%s hands out %s, which is not there", p, h.Event)
	case d.settled():
		w.fail("%s hands out @%d, which is settled: %+v", p, position, *d)
	case d.out(now) && !d.perhaps:
		w.fail("%s hands out @%d at %d, which somebody has until %d", p, position, now, d.due)
	case d.ready > now && !d.perhaps:
		w.fail("%s hands out @%d at %d, which was put off until %d", p, position, now, d.ready)
	case h.Attempt <= d.attempts || h.Attempt > d.attempts+1+p.lost:
		w.fail("%s hands out @%d as attempt %d, after %d", p, position, h.Attempt, d.attempts)
	case h.Attempt > p.config.MaxAttempts:
		w.fail("%s hands out @%d as attempt %d of %d", p, position, h.Attempt, p.config.MaxAttempts)
	case d.item != nil:
		w.checkHanded(p, d, h, before[position], now)
	}
	d.token, d.attempts, d.ready, d.perhaps = h.Token, h.Attempt, 0, false
	d.due = h.Deadline.UnixMilli()
	if want := now + p.visibility(); d.due != want {
		w.fail("%s hands out @%d until %d, and must until %d", p, position, d.due, want)
	}
	return d
}

// checkHanded judges an event that was handed out. Before says that it was there
// when the worker asked; a tick on the way may have removed it since.
func (w *world) checkHanded(p *pull, d *deal, h *broker.HandedOut, before bool, now int64) {
	e := w.find(d.position)
	if e == nil || e.id != d.item.id {
		w.fail("%s hands out %s, whose topic was deleted", p, h.Event)
	}
	got, err := event.DecodeDelivered(h.Event)
	if err != nil || got.ID() != e.id || got.Position() != e.position || got.HLC() != e.hlc {
		w.fail("%s hands out %s (%v), and must %s", p, h.Event, err, e)
	}
	if !p.selects(w, e) || e.expiryMillis != 0 && e.expiryMillis <= now || e.position <= p.from {
		w.fail("%s hands out %s, which does not concern it or has expired", p, e)
	}
	if _, may := w.wants(&reader{view: p.config.View}, e); !may && !before {
		w.fail("%s hands out %s, which is superseded", p, e)
	}
	w.checkOrder(p, d, now)
}

// checkOrder judges whether it is an event's turn. A dead letter that comes again
// does so behind whatever of its key is pending.
func (w *world) checkOrder(p *pull, d *deal, now int64) {
	for _, other := range p.deals {
		if other == d || other.item == nil || d.item == nil || other.settled() || other.perhaps {
			continue
		}
		strict := p.config.Order == event.OrderStrict
		same := p.config.Order == event.OrderKey && other.item.topic == d.item.topic && other.item.subject != "" && other.item.subject == d.item.subject
		if !strict && !same {
			continue
		}
		if other.out(now) {
			w.fail("%s hands out @%d while @%d is out", p, d.position, other.position)
		}
		if !d.again && !other.again && other.position < d.position && w.stands(p, other, now) {
			w.fail("%s hands out %s before %s, which is not settled: %+v", p, d.item, other.item, *other)
		}
	}
}

// wanted are the positions of what a reader like the subscription may get.
func (w *world) wanted(p *pull) map[uint64]bool {
	list := map[uint64]bool{}
	for _, t := range w.model.topics {
		for _, e := range t.events {
			if _, may := w.wants(&reader{view: p.config.View}, e); may {
				list[e.position] = true
			}
		}
	}
	return list
}

// stands reports whether an event that was handed out would still be delivered.
func (w *world) stands(p *pull, d *deal, now int64) bool {
	if d.again {
		return true
	}
	e := w.find(d.position)
	if e == nil || e.topic != d.item.topic || e.id != d.item.id {
		return false
	}
	must, _ := w.wants(&reader{view: p.config.View}, e)
	return must && (e.expiryMillis == 0 || e.expiryMillis > now)
}

// selects reports whether an event is one of the subscription's.
func (p *pull) selects(w *world, e *item) bool {
	return p.config.Matches(e.topic) && (len(p.types) == 0 || slices.Contains(p.types, e.typ))
}

// surely returns an event that a fetch has to hand out, or one as good; nil if
// there is none for certain.
func (w *world) surely(p *pull) *item {
	now := w.broker.LogMillis()
	if p.paused || !p.sure(now) {
		return nil
	}
	waiting := map[string]bool{}
	for _, d := range p.deals {
		if d.settled() {
			continue
		}
		if p.config.Order == event.OrderStrict || d.item == nil {
			return nil
		}
		waiting[d.item.topic+" "+d.item.subject] = true
	}
	for _, name := range slices.Sorted(maps.Keys(w.model.topics)) {
		t := w.model.topics[name]
		for _, e := range t.events {
			must, _ := w.wants(&reader{view: p.config.View}, e)
			if !must || e.position <= p.from || p.deals[e.position] != nil || !p.selects(w, e) || e.expiryMillis != 0 && e.expiryMillis <= now {
				continue
			}
			if p.config.Order == event.OrderUnordered || !waiting[e.topic+" "+e.subject] {
				return e
			}
		}
	}
	return nil
}

// find returns the event at a position, nil if it is none of the publishers'.
func (w *world) find(position uint64) *item {
	for _, t := range w.model.topics {
		for _, e := range t.events {
			if e.position == position {
				return e
			}
		}
	}
	return nil
}

func tokenPosition(token string) uint64 {
	digits, _, _ := strings.Cut(token, ".")
	position, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		panic(err)
	}
	return position
}

// stepSettle has workers say what became of what they were handed: most of it is
// done, some they do not want, and some they have long lost.
func stepSettle(w *world) {
	if len(w.pulls) == 0 {
		return
	}
	p := w.pulls[w.rng.IntN(len(w.pulls))]
	w.mark(p)
	var list []*deal
	for _, position := range slices.Sorted(maps.Keys(p.deals)) {
		if d := p.deals[position]; d.token != "" && (!d.settled() || w.rng.IntN(8) == 0) {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		return
	}
	d := list[w.rng.IntN(len(list))]
	if p.sink != "" {
		w.judgeSent(p, d, pick(w.rng, delivered, delivered, failed, silent))
		return
	}
	token := d.token
	if w.rng.IntN(10) == 0 {
		token = fmt.Sprintf("%d.%d", d.position, 1+w.rng.IntN(3)) // of somebody else, perhaps
	}
	verb := pick(w.rng, "ack", "ack", "ack", "nack", "nack", "extend", "reject")
	w.say(p, d, verb, token)
}

// say settles one event and judges the answer.
func (w *world) say(p *pull, d *deal, verb, token string) {
	now := w.broker.LogMillis()
	v := broker.Verdict{Tokens: []string{token}, Reason: "because"}
	switch verb {
	case "nack":
		v.Delay = pick(w.rng, 0, 0, time.Minute)
	case "extend":
		v.Delay = time.Second + upTo(w.rng, time.Minute)
	}
	ctx, cancel := w.waiting()
	defer cancel()
	do := map[string]func() ([]bool, error){
		"ack":    func() ([]bool, error) { return w.broker.Ack(ctx, anonymous(), p.id, v) },
		"nack":   func() ([]bool, error) { return w.broker.Nack(ctx, anonymous(), p.id, v) },
		"extend": func() ([]bool, error) { return w.broker.Extend(ctx, anonymous(), p.id, v) },
		"reject": func() ([]bool, error) { return w.broker.Reject(ctx, anonymous(), p.id, v) },
	}[verb]
	done, err := do()
	w.settle()
	p.usage.used(w.model.millis, !w.lost() && err == nil && verb != "reject")
	if w.lost() {
		w.note("%s: %s @%d: the power failed", p, verb, d.position)
		d.perhaps = true
		return
	}
	if err != nil {
		w.fail("%s: %s @%d: %v", p, verb, d.position, err)
	}
	must := d.token == token && d.out(now) && !d.perhaps
	lost := d.token != token && p.lost > 0            // it may be the token of a hand-out that nobody heard of
	may := (d.token == token || lost) && !d.settled() // nobody else has it, but it may have been taken back
	if must && !done[0] || !may && done[0] {
		w.fail("%s: %s @%d with %s: settled %t; %+v at %d", p, verb, d.position, token, done[0], *d, now)
	}
	w.note("%s: %s @%d: %t", p, verb, d.position, done[0])
	if !done[0] {
		return
	}
	if lost {
		d.token, d.ready = token, 0
	}
	switch verb {
	case "ack":
		d.acked = true
		w.counts["acknowledged"]++
	case "nack":
		d.ready = now + v.Delay.Milliseconds()
	case "extend":
		d.due = now + v.Delay.Milliseconds()
	case "reject":
		d.rejected = true
		w.mark(p)
		if !d.dead && (d.item != nil || d.again) && w.stands(p, d, now) { // of one that is gone nothing is kept
			w.fail("%s: @%d was rejected and is no dead letter", p, d.position)
		}
		d.dead, d.again = true, false
	}
}

// drain has workers take everything that is left, and finds each event where it
// must be: acknowledged, a dead letter, or gone.
func (w *world) drain(p *pull) {
	if p.paused {
		ctx, cancel := w.waiting()
		defer cancel()
		p.paused = false
		if _, err := w.broker.PauseSubscription(ctx, anonymous(), p.id, false); err != nil {
			w.fail("%s: %v", p, err)
		}
	}
	w.pass(0, 3*time.Second)
	w.pass(2*time.Hour, 5*time.Second) // whoever has something loses it
	if w.expired(p.id, &p.usage) {
		return
	}
	if p.sink != "" {
		w.drainHook(p)
	}
	for empty := 0; empty < 3 && p.sink == ""; {
		list := w.fetch(p, 50)
		for _, d := range list {
			w.say(p, d, "ack", d.token)
		}
		if empty++; len(list) > 0 {
			empty = 0
		}
		w.pass(0, 2*time.Second)
	}
	w.mark(p)
	now := w.broker.LogMillis()
	for _, d := range p.deals {
		if (d.item != nil || d.again) && !d.settled() && !d.perhaps && w.stands(p, d, now) {
			w.fail("%s: %s was handed out and never settled: %+v", p, d.item, *d)
		}
	}
	if left := w.surely(p); left != nil {
		w.fail("%s: %s was never handed out", p, left)
	}
	info, err := w.broker.Subscription(p.id)
	if err != nil {
		w.fail("%s: %v", p, err)
	}
	if s := info.Status; s.Outstanding+s.Parked > 0 {
		w.fail("%s has %d outstanding and %d parked events after it was drained", p, s.Outstanding, s.Parked)
	}
	if all, _, err := w.broker.Letters(anonymous(), p.id, broker.LetterFilter{}, 0, broker.LetterMax); err != nil || uint64(len(all)) != info.Status.Letters {
		w.fail("%s has %d dead letters, and counts %d: %v", p, len(all), info.Status.Letters, err)
	}
	if s, most := info.Status, w.model.position*uint64(1+p.seeks); s.Matched > most || s.Dropped > most {
		w.fail("%s: of %d events %d passed and %d were dropped", p, most, s.Matched, s.Dropped)
	}
}
