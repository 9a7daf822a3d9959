// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/eventlog"
)

const (
	keyCount  = 6   // few, so that winners are replaced all the time
	sentMax   = 300 // requests that are remembered to be repeated
	batchMost = 12
)

// request is what a publisher has sent.
type request struct {
	broker.PublishRequest
}

// topicNames are the topics that there are from the beginning. Further ones come
// into being by their first use.
func topicNames() []string {
	return []string{
		"log.kept", "log.short", "log.sized",
		"state.kept", "state.short", "state.lagged", "state.both", "state.pathed", "state.stamped",
		"log.formed", "state.formed",
	}
}

// drawTopic draws where to publish.
func (w *world) drawTopic() string {
	if w.rng.IntN(12) == 0 {
		return fmt.Sprintf("auto.%d", w.rng.IntN(4))
	}
	return pick(w.rng, topicNames()...)
}

// schemaMost is a schema that takes small numbers only.
const schemaMost = `{"type":"object","required":["n"],"properties":{"n":{"maximum":%d}}}`

// drawPolicy draws one that suits what a topic's name says.
func (w *world) drawPolicy(name string) event.Policy {
	p := event.DefaultPolicy()
	p.Retention = nil
	p.DeleteRetention = event.Duration(pick(w.rng, time.Second, time.Minute, time.Hour, 24*time.Hour))
	retention := event.Duration(pick(w.rng, 30*time.Second, 10*time.Minute, 5*time.Hour))
	kind, what, _ := strings.Cut(name, ".")
	if kind == "live" {
		p = event.DefaultPolicy()
		p.Durability = event.DurabilityEphemeral
		return p
	}
	if kind == "state" {
		p.CleanupPolicy = event.CleanupCompact
	}
	switch what {
	case "short":
		p.Retention = &retention
	case "sized":
		p.RetentionBytes = pick[int64](w.rng, 1<<10, 8<<10)
	case "lagged":
		p.MinCompactionLag = event.Duration(pick(w.rng, 0, 10*time.Second, time.Hour))
	case "both":
		p.CleanupPolicy, p.Retention = event.CleanupCompactDelete, &retention
		p.RetentionBytes = pick[int64](w.rng, 0, 2<<10)
	case "pathed":
		p.KeyFrom = "order.id"
	case "stamped":
		p.RequireHLC = true
	case "formed":
		p.Schema = pick(w.rng, "", fmt.Sprintf(schemaMost, w.rng.IntN(400)), fmt.Sprintf(schemaMost, 1<<20))
	}
	return p
}

// drawEvent draws an event: who publishes it, about what, stamped by which clock.
func (w *world) drawEvent(n int) *event.Event {
	key := fmt.Sprintf("k%d", w.rng.IntN(keyCount))
	d := event.Draft{
		ID: fmt.Sprintf("%d-%d", w.number, n), Source: fmt.Sprintf("/p%d", w.rng.IntN(3)), Type: pick(w.rng, "made", "moved"),
		Extensions: map[string]any{}, DataContentType: "application/json",
		Data: fmt.Appendf(nil, `{"n":%d,"order":{"id":%q},"pad":"%s"}`, w.number, key, strings.Repeat("x", w.rng.IntN(200))),
	}
	if w.rng.IntN(10) > 0 {
		d.Subject = key
	}
	if w.rng.IntN(5) == 0 {
		d.Data, d.DataContentType = nil, ""
	}
	if stamp := w.drawStamp(); stamp != 0 {
		d.Extensions["hlc"] = stamp.String()
	}
	switch w.rng.IntN(12) {
	case 0:
		d.Extensions["expiry"] = 1 + w.rng.IntN(5)
	case 1:
		d.Extensions["expiry"] = 60 * (1 + w.rng.IntN(120))
	case 2: // by a clock of its own, and perhaps over already
		d.Extensions["expirytime"] = w.clock.Wall().Add(upTo(w.rng, 2*time.Minute) - time.Minute).UTC().Format(time.RFC3339Nano)
	}
	e, err := d.Event()
	if err != nil {
		w.fail("an event: %v", err)
	}
	return e
}

// drawStamp draws what a producer's clock says; 0 is no stamp.
func (w *world) drawStamp() event.HLC {
	now := w.clock.Wall().UnixMilli()
	counter := uint16(w.rng.IntN(3))
	switch w.rng.IntN(10) {
	case 0, 1:
		return event.NewHLC(now, counter)
	case 2:
		return event.NewHLC(now-w.rng.Int64N(1000), counter)
	case 3: // it was on its way for long
		return event.NewHLC(now-upTo(w.rng, 48*time.Hour).Milliseconds(), counter)
	case 4: // its clock is ahead
		return event.NewHLC(now+upTo(w.rng, pick(w.rng, time.Second, 24*time.Hour)).Milliseconds(), counter)
	case 5: // it has merged what it read
		return w.model.hlc.Next(now)
	}
	return 0
}

// drawRequest draws a request that was not made before.
func (w *world) drawRequest() request {
	q := request{broker.PublishRequest{Topic: w.drawTopic()}}
	n := 1
	if w.rng.IntN(5) == 0 {
		q.Batch, n = true, 1+w.rng.IntN(batchMost)
	}
	for i := range n {
		q.Events = append(q.Events, w.drawEvent(i))
	}
	switch w.rng.IntN(12) {
	case 0:
		q.IdempotencyKey = fmt.Sprintf("key-%d", w.rng.IntN(20))
	case 1: // the same id twice, with other content the second time or not
		if q.Batch {
			q.Events = append(q.Events, pick(w.rng, q.Events[0], w.drawEvent(0)))
		}
	case 2:
		q.IfNoneMatch = !q.Batch
	case 3:
		if !q.Batch {
			q.IfMatch = &broker.Match{Any: true}
		}
	case 4:
		if !q.Batch {
			q.IfMatch = &broker.Match{Positions: w.drawPositions(q.Topic)}
		}
	}
	return q
}

// drawPositions are what somebody has read of a topic lately.
func (w *world) drawPositions(name string) (list []uint64) {
	list = []uint64{w.rng.Uint64N(w.model.position + 2)}
	if t := w.model.topics[name]; t != nil {
		for _, e := range t.keys {
			list = append(list, e.position)
		}
	}
	slices.Sort(list)
	return list[:1+w.rng.IntN(len(list))]
}

// stepPublish publishes something.
func stepPublish(w *world) {
	q := w.drawRequest()
	q.NoAck = w.rng.IntN(10) == 0 && q.IdempotencyKey == ""
	w.publish(q)
}

// stepRepeat sends again what was sent before, perhaps long ago: as it was, or
// under the same id with other content.
func stepRepeat(w *world) {
	if len(w.sent) == 0 {
		return
	}
	q := w.sent[w.rng.IntN(len(w.sent))]
	if w.rng.IntN(6) == 0 {
		q.Events = slices.Clone(q.Events)
		first := q.Events[0]
		other, err := event.Draft{ID: first.ID(), Source: first.Source(), Type: "other", Subject: "k0", Data: []byte("1")}.Event()
		if err != nil {
			w.fail("an event: %v", err)
		}
		q.Events[0] = other
	}
	w.publish(q)
}

// publish publishes and judges the answer.
func (w *world) publish(q request) {
	ctx, cancel := w.waiting()
	defer cancel()
	result, err := w.broker.Publish(ctx, anonymous(), q.PublishRequest)
	w.settle()
	if w.lost() {
		w.note("publish %s: the power failed", q)
		return
	}
	must := w.answer(eventlog.KindEvents)
	if len(must) != 1 {
		w.fail("publish %s: %d proposals, answer %v", q, len(must), err)
	}
	w.judge(q, must[0], result, err)
	w.remember(q)
}

func (w *world) remember(q request) {
	q.NoAck = false
	if len(w.sent) < sentMax {
		w.sent = append(w.sent, q)
	} else {
		w.sent[w.rng.IntN(sentMax)] = q
	}
}

// stepBurst has several requests in the queue at once, so that they may share a
// commit.
func stepBurst(w *world) {
	wake := make(chan struct{}, 1)
	var requests []request
	var pending []*broker.Pending
	ctx, cancel := w.waiting()
	defer cancel()
	for range 2 + w.rng.IntN(5) {
		q := w.drawRequest()
		for i, e := range q.Events { // ids of their own
			q.Events[i] = renamed(e, fmt.Sprintf("%s-%d", e.ID(), len(requests)))
		}
		p, err := w.broker.Submit(ctx, anonymous(), q.PublishRequest, wake)
		if err != nil {
			w.fail("submit %s: %v", q, err)
		}
		requests, pending = append(requests, q), append(pending, p)
	}
	w.settle()
	must := w.answer(eventlog.KindEvents)
	if len(must) != len(pending) {
		w.fail("%d requests were submitted, %d proposed", len(pending), len(must))
	}
	for i, p := range pending {
		result, done, err := p.Result()
		if !done {
			w.fail("submit %s was not answered", requests[i])
		}
		w.judge(requests[i], must[i], result, err)
		w.remember(requests[i])
	}
}

func renamed(e *event.Event, id string) *event.Event {
	text := strings.Replace(string(e.AppendJSON(nil)), fmt.Sprintf(`"id":%q`, e.ID()), fmt.Sprintf(`"id":%q`, id), 1)
	out, err := event.DecodeJSON([]byte(text))
	if err != nil {
		panic(err)
	}
	return out
}

// judge compares an answer with what it must be.
func (w *world) judge(q request, must expected, result broker.PublishResult, err error) {
	if got := code(err); !q.NoAck && got != must.code {
		w.fail("publish %s: the answer is %q (%v), and must be %q %v", q, got, err, must.code, must.verdicts)
	}
	w.counts["events"] += len(must.verdicts)
	if must.code != "" {
		w.note("publish %s: %s", q, must.code)
		w.counts["refused"]++
		return
	}
	w.note("publish %s: %v", q, must.verdicts)
	if q.NoAck {
		return
	}
	if result.Replayed != must.replayed || len(result.Receipts) != len(must.verdicts) {
		w.fail("publish %s: replayed %t with %d receipts, and must be %t with %d", q, result.Replayed, len(result.Receipts), must.replayed, len(must.verdicts))
	}
	for i, r := range result.Receipts {
		v := must.verdicts[i]
		if r.Outcome != v.outcome || r.Position != v.position || r.HLC != v.hlc || r.ID != q.Events[i].ID() || r.Cursor != w.cursor(v.position) {
			w.fail("publish %s: receipt %d is %+v, and must be %v", q, i, r, v)
		}
	}
}

// cursor is that of whoever has everything up to a position.
func (w *world) cursor(position uint64) event.Cursor {
	return event.Cursor{Position: position, Incarnation: w.model.settings.IncarnationName}
}

func (q request) String() string {
	ids := make([]string, len(q.Events))
	for i, e := range q.Events {
		ids[i] = e.ID()
	}
	text := q.Topic + " " + strings.Join(ids, ",")
	if q.IdempotencyKey != "" {
		text += " key " + q.IdempotencyKey
	}
	if q.IfNoneMatch {
		text += " if none"
	}
	if q.IfMatch != nil {
		text += fmt.Sprintf(" if %+v", *q.IfMatch)
	}
	return text
}

// stepPolicy changes a topic, or deletes it.
func stepPolicy(w *world) {
	name := w.drawTopic()
	switch w.rng.IntN(6) {
	case 0:
		w.deleteTopic(name)
	case 1: // one that does not suit it, which is refused unless it is empty
		w.putTopic(name, w.drawPolicy(w.drawTopic()))
	default:
		w.putTopic(name, w.drawPolicy(name))
	}
}

func (w *world) putTopic(name string, policy event.Policy) {
	ctx, cancel := w.waiting()
	defer cancel()
	_, _, err := w.broker.PutTopic(ctx, anonymous(), name, policy)
	w.settle()
	if w.lost() {
		w.note("put %s: the power failed", name)
		return
	}
	must := w.controlAnswer(eventlog.OpPutTopic)
	if code(err) != must.code {
		w.fail("putting %s: the answer is %v, and must be %q", name, err, must.code)
	}
	w.note("put %s %s: %q", name, must.proposal.Control.Policy.CleanupPolicy, must.code)
}

func (w *world) deleteTopic(name string) {
	ctx, cancel := w.waiting()
	defer cancel()
	err := w.broker.DeleteTopic(ctx, anonymous(), name)
	w.settle()
	if w.lost() {
		w.note("delete %s: the power failed", name)
		return
	}
	if must := w.controlAnswer(eventlog.OpDeleteTopic); code(err) != must.code {
		w.fail("deleting %s: the answer is %v, and must be %q", name, err, must.code)
	}
	w.note("delete %s: %q", name, code(err))
}

func (w *world) controlAnswer(op string) expected {
	for _, x := range w.answer(eventlog.KindControl) {
		if x.proposal.Control.Op == op {
			return x
		}
	}
	w.fail("%s was not proposed", op)
	return expected{}
}

// stepCompact reclaims at once what is gone.
func stepCompact(w *world) {
	w.note("compact")
	w.steady(func() {
		if _, _, err := w.broker.Compact(context.Background(), func(broker.CompactProgress) {}); err != nil {
			w.fail("compacting: %v", err)
		}
	})
}
