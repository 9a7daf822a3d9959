// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"signalbox/event"
)

// FollowOptions says where to begin and what to do when that is impossible. At most one of Cursor, Now, Since and
// EventID may be set; none of them means the oldest that is retained.
type FollowOptions struct {
	Cursor  event.Cursor // resume after this cursor
	Now     bool         // only what comes from now on; from ItemSynced on nothing is missed
	Since   time.Time    // what was recorded from this time on
	EventID string       // after the event with this id; one exact topic only
	// View is "current" or "history"; "" is the topics' default.
	View string
	// Filter is a CESQL expression, such as type = 'task.done' AND data.severity >= 4: only events that pass it come.
	// While none do, an ItemProgress moves the cursor now and then. A tombstone passes a filter that looks into data.
	Filter string
	// OnReset decides what happens when events are gone that this follower had not seen. It returns the cursor to go on
	// from, or an error, which ends the follower. It may call State and hand the state to the agent before it returns
	// the state's cursor. Nil ends the follower with the reset's error; see also [ResetToOldest].
	OnReset func(context.Context, *Reset) (event.Cursor, error)
	// Agent is this follower's name, a URI-reference as in the source of its events: others see it on $presence. "" shows
	// a connection without a name.
	Agent string
	// OnRetry is told why a stream ended and when the next try follows. It is for logs; nil is fine. Err is nil when the
	// broker ended the stream in good order.
	OnRetry func(err error, wait time.Duration)
}

// ResetToOldest goes on from the oldest that is retained. The follower has been told by an ItemReset before.
func ResetToOldest(_ context.Context, r *Reset) (event.Cursor, error) { return r.Oldest, nil }

// Follow reads topics or patterns of topics, first what is there and then what comes, without a seam. The loop ends
// when its body breaks, or with an error: the end of ctx, a refusal, a reset that OnReset does not accept. Broken
// connections are not errors: the follower reconnects and resumes, as long as it takes.
//
// The body of the loop sets the pace: while it works, nothing is read and the broker waits.
func (c *Client) Follow(ctx context.Context, topics []string, o FollowOptions) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		f := &follower{c: c, topics: topics, opts: o, cursor: o.Cursor, started: o.Cursor != event.Cursor{}}
		err := f.run(ctx, yield)
		if err != nil && !errors.Is(err, errStopped) {
			yield(Item{Cursor: f.cursor}, err)
		}
	}
}

// errStopped ends a follower whose caller left the loop.
var errStopped = errors.New("client: the loop was left")

// follower is one Follow loop, on its caller's goroutine.
type follower struct {
	c      *Client
	topics []string
	ticket string // "": the topics are followed
	opts   FollowOptions
	// cursor is behind the last item that the caller was handed; it counts once started is set.
	cursor  event.Cursor
	started bool
	hint    time.Duration // the last retry field
	sub     *acknowledger // of a subscription; nil: the cursor is the caller's
	moved   bool          // this connection brought something
}

func (f *follower) run(ctx context.Context, yield func(Item, error) bool) error {
	if err := f.opts.check(f.topics); err != nil {
		return err
	}
	for n := 0; ; {
		f.moved = false
		err := f.connection(ctx, yield)
		if f.moved {
			n = 0
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		after := f.hint
		if err != nil {
			if errors.Is(err, errStopped) {
				return err
			}
			again, asked := transient(err)
			if !again {
				return final(err)
			}
			after = max(after, asked)
		}
		n++
		wait := f.c.retry.wait(n, after)
		if f.opts.OnRetry != nil {
			f.opts.OnRetry(plain(err), wait)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// permanent wraps an error that another connection would only meet again.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

func transient(err error) (bool, time.Duration) {
	if p := (permanent{}); errors.As(err, &p) || errors.Is(err, errLineTooLong) {
		return false, 0
	}
	return retryable(err)
}

// final takes the wrappings off an error that the caller will see.
func final(err error) error {
	if r := (*refusal)(nil); errors.As(err, &r) {
		return r.problem
	}
	if p := (permanent{}); errors.As(err, &p) {
		return p.error
	}
	return err
}

// connection opens one stream and reads it to its end. A nil error is an end in good order.
func (f *follower) connection(ctx context.Context, yield func(Item, error) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dog := newWatchdog(f.c.watchdog, cancel)
	defer dog.stop()
	res, err := f.open(ctx, dog)
	if err != nil {
		return dog.explain(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	p := newSSEParser(dog.reader(res.Body), lineBytesMax)
	for {
		b, err := p.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return dog.explain(ctx, err)
		}
		if err := f.block(ctx, b, yield); err != nil {
			return err
		}
	}
}

// open sends the request and checks that the answer is a stream.
func (f *follower) open(ctx context.Context, dog *watchdog) (*http.Response, error) {
	req, err := f.c.request(ctx, call{method: http.MethodGet, url: f.url(), header: f.header()})
	if e := (*tokenError)(nil); errors.As(err, &e) {
		return nil, e.error // the broker, which was asked for the space, may be back soon
	}
	if err != nil {
		return nil, permanent{err}
	}
	dog.arm()
	defer dog.disarm()
	res, err := f.c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		defer func() { _ = res.Body.Close() }()
		return nil, readRefusal(res)
	}
	if media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); media != "text/event-stream" {
		_ = res.Body.Close()
		return nil, permanent{fmt.Errorf("client: %s answered with %q instead of an event stream; check that the URL is a Signalbox broker's",
			f.c.base, res.Header.Get("Content-Type"))}
	}
	return res, nil
}

// block deals with one block of the stream.
func (f *follower) block(ctx context.Context, b block, yield func(Item, error) bool) error {
	if b.Retry > 0 {
		f.hint = b.Retry
	}
	if b.HasData && b.Event == "signalbox.reset" {
		return f.reset(ctx, b, yield)
	}
	if f.sub != nil && b.HasData && (b.Event == "signalbox.gap" || b.Event == "signalbox.end") {
		return f.sub.notice(f, b, yield)
	}
	cursor := f.cursor
	if b.ID != "" {
		var err error
		if cursor, err = event.ParseCursor(b.ID); err != nil {
			return permanent{fmt.Errorf("client: the stream's id is not a cursor: %w", err)}
		}
	}
	item := Item{Cursor: cursor}
	switch {
	case b.HasData && b.Event == "signalbox.sync":
		item.Kind = ItemSynced
		var err error
		if item.LogTime, err = parseSync(b.Data); err != nil {
			return permanent{err}
		}
	case b.HasData && b.Event == "":
		// A proxy that replays a buffer must not show an event twice. Those of ephemeral topics have no id.
		if b.HasID && f.started && cursor.Incarnation == f.cursor.Incarnation && cursor.Position <= f.cursor.Position {
			return nil
		}
		ev, err := event.DecodeDelivered(b.Data)
		if err != nil {
			return permanent{fmt.Errorf("client: the event at %s is unreadable: %w", cursor, err)}
		}
		f.c.observe(ev.HLC())
		item.Kind, item.Event = ItemEvent, ev
	case b.ID != "" && (!f.started || cursor != f.cursor):
		// A heartbeat, or a kind of block that a newer broker sends: the cursor counts all the same.
		item.Kind = ItemProgress
	default:
		return nil
	}
	return f.hand(item, yield)
}

// hand gives an item to the caller; the cursor moves once the caller is back.
func (f *follower) hand(item Item, yield func(Item, error) bool) error {
	f.moved = true
	if !yield(item, nil) {
		return errStopped
	}
	f.cursor, f.started = item.Cursor, true
	if f.sub != nil {
		return f.sub.passed(f, item.Kind != ItemEvent)
	}
	return nil
}

// reset asks the policy where to go on. The broker's long retry field is for browsers, which cannot choose; it must not
// delay a follower that just did.
func (f *follower) reset(ctx context.Context, b block, yield func(Item, error) bool) error {
	r, err := parseReset(b.Data)
	if err != nil {
		return permanent{err}
	}
	if f.opts.OnReset == nil {
		return permanent{r.Err()}
	}
	if !yield(Item{Kind: ItemReset, Cursor: f.cursor, Reset: r}, nil) {
		return errStopped
	}
	next, err := f.opts.OnReset(ctx, r)
	if err != nil {
		return permanent{err}
	}
	f.cursor, f.started, f.hint = next, true, 0
	return nil
}

// url is the stream's URL. One exact topic has its own, which also resolves event ids.
func (f *follower) url() string {
	if f.sub != nil {
		return f.c.subscriptionPath(f.sub.id, "events")
	}
	q := url.Values{}
	base := f.c.base + "/v1/events"
	if f.ticket != "" {
		base = f.c.base + "/v1/tickets/" + url.PathEscape(f.ticket) + "/stream"
	} else if len(f.topics) == 1 && event.CheckTopic(f.topics[0]) == nil {
		base = f.c.topicPath(f.topics[0], "events")
	} else {
		q.Set("topics", strings.Join(f.topics, ","))
	}
	if f.opts.View != "" {
		q.Set("view", f.opts.View)
	}
	if f.opts.Filter != "" {
		q.Set("filter", f.opts.Filter)
	}
	if f.opts.Agent != "" {
		q.Set("agent", f.opts.Agent)
	}
	if !f.started {
		switch o := f.opts; {
		case o.Now:
			q.Set("cursor", "now")
		case !o.Since.IsZero():
			q.Set("cursor", o.Since.UTC().Format(time.RFC3339Nano))
		}
	}
	if len(q) == 0 {
		return base
	}
	return base + "?" + q.Encode()
}

// header carries the place to resume from as a browser's EventSource would.
func (f *follower) header() http.Header {
	h := http.Header{"Accept": {"text/event-stream"}, "Cache-Control": {"no-store"}}
	switch {
	case f.started:
		h.Set("Last-Event-ID", f.cursor.String())
	case f.opts.EventID != "":
		h.Set("Last-Event-ID", f.opts.EventID)
	}
	return h
}

// check refuses options that contradict each other before anything is sent.
func (o FollowOptions) check(topics []string) error {
	if len(topics) == 0 {
		return event.Errorf(event.CodeTopicInvalid, "Name at least one topic or pattern to follow.").With("topics")
	}
	if _, err := event.ParsePatterns(strings.Join(topics, ",")); err != nil {
		return err
	}
	starts := 0
	for _, set := range []bool{o.Cursor != event.Cursor{}, o.Now, !o.Since.IsZero(), o.EventID != ""} {
		if set {
			starts++
		}
	}
	if starts > 1 {
		return event.Errorf(event.CodeParameterInvalid, "Set at most one of Cursor, Now, Since and EventID.").With("cursor")
	}
	if o.EventID != "" && (len(topics) != 1 || event.CheckTopic(topics[0]) != nil) {
		return event.Errorf(event.CodeParameterInvalid, "An event id is looked up in one topic; follow exactly one.").With("last-event-id")
	}
	return nil
}
