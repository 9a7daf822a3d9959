// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
)

// State is a download of the state of one or several compacted topics: for every key its winning event, in position
// order, all exact at one cursor. It is read once, and must be closed unless it was read to its end.
type State struct {
	c       *Client
	cursor  event.Cursor
	logTime time.Time
	cut     bool
	body    io.ReadCloser
	dog     *watchdog
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

// State opens the state of topics. Opening is tried again like every call; a download that breaks later ends with an
// error, because a second one would show a later state.
func (c *Client) State(ctx context.Context, topics ...string) (*State, error) {
	return c.FilteredState(ctx, "", topics...)
}

// FilteredState is State with only those events that pass a filter; see [FollowOptions].
func (c *Client) FilteredState(ctx context.Context, filter string, topics ...string) (*State, error) {
	q := url.Values{}
	where := c.base + "/v1/state"
	if len(topics) == 1 && event.CheckTopic(topics[0]) == nil {
		where = c.topicPath(topics[0], "state")
	} else {
		q.Set("topics", strings.Join(topics, ","))
	}
	if filter != "" {
		q.Set("filter", filter)
	}
	if len(q) > 0 {
		where += "?" + q.Encode()
	}
	for n := 1; ; n++ {
		s, err := c.openState(ctx, where)
		if err == nil {
			return s, nil
		}
		again, after := transient(err)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("client: GET %s: %w", where, context.Cause(ctx))
		case !again:
			return nil, final(err)
		case n >= c.retry.Attempts:
			return nil, c.giveUp(err, n)
		}
		if err := sleep(ctx, c.retry.wait(n, after)); err != nil {
			return nil, err
		}
	}
}

func (c *Client) openState(ctx context.Context, where string) (_ *State, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &State{c: c, ctx: ctx, cancel: cancel, dog: newWatchdog(c.watchdog, cancel)}
	defer func() {
		if err != nil {
			err = s.dog.explain(ctx, err)
			_ = s.Close()
		}
	}()
	req, err := c.request(ctx, call{method: http.MethodGet, url: where, header: http.Header{"Accept": {"application/x-ndjson"}}})
	if err != nil {
		return nil, permanent{err}
	}
	s.dog.arm()
	res, err := c.http.Do(req) //nolint:bodyclose // The state owns the body from here on, and Close closes it.
	s.dog.disarm()
	if err != nil {
		return nil, err
	}
	s.body = res.Body
	if res.StatusCode != http.StatusOK {
		return nil, readRefusal(res)
	}
	if s.cursor, err = event.ParseCursor(res.Header.Get("Signalbox-Cursor")); err != nil {
		return nil, permanent{fmt.Errorf("client: the state carries no cursor; check that %s is a Signalbox broker: %w", c.base, err)}
	}
	if ms, err := strconv.ParseInt(res.Header.Get("Signalbox-Log-Ms"), 10, 64); err == nil {
		s.logTime = time.UnixMilli(ms)
	}
	return s, nil
}

// Cursor is where to follow from once Events is through: what follows is exactly what this state does not hold. Before
// that it is the cursor at which the state is exact.
func (s *State) Cursor() event.Cursor { return s.cursor }

// LogTime is the log's time at the cursor; what expired before it is not in the state.
func (s *State) LogTime() time.Time { return s.logTime }

// Cut reports whether the broker ended the download early, because it took too long. The state is then complete up to
// Cursor, and following from there brings the rest.
func (s *State) Cut() bool { return s.cut }

// Events reads the state once. An error ends the loop; what was read before it is not the whole state.
func (s *State) Events() iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		defer func() { _ = s.Close() }()
		lines := bufio.NewReaderSize(s.dog.reader(s.body), 64<<10)
		for {
			line, err := readLine(lines)
			if errors.Is(err, io.EOF) {
				return
			}
			var ev *event.Event
			if err == nil {
				ev, err = event.DecodeDelivered(line)
			}
			if err != nil {
				yield(nil, fmt.Errorf("client: read the state: %w", s.dog.explain(s.ctx, err)))
				return
			}
			if ev.Type() == "signalbox.cut" {
				if err := s.resumeAfter(ev); err != nil {
					yield(nil, err)
				}
				return
			}
			s.c.observe(ev.HLC())
			if !yield(ev, nil) {
				return
			}
		}
	}
}

func (s *State) resumeAfter(cut *event.Event) error {
	var d struct {
		Cursor string `json:"cursor"`
	}
	if err := json.Unmarshal(cut.Data(), &d); err != nil {
		return fmt.Errorf("client: read where the state was cut: %w", err)
	}
	cur, err := event.ParseCursor(d.Cursor)
	if err != nil {
		return fmt.Errorf("client: read where the state was cut: %w", err)
	}
	s.cursor, s.cut = cur, true
	return nil
}

// Close ends the download.
func (s *State) Close() error {
	s.dog.stop()
	s.cancel(nil)
	if s.body == nil {
		return nil
	}
	return s.body.Close()
}

// readLine returns one line of NDJSON without its end, valid until the next call. A last line without LF is a download
// that was cut by force.
func readLine(r *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := r.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			return bytes.TrimSuffix(part, []byte{'\n'}), nil
		case err == nil:
			return bytes.TrimSuffix(append(long, part...), []byte{'\n'}), nil
		case errors.Is(err, bufio.ErrBufferFull):
			if long = append(long, part...); len(long) > lineBytesMax {
				return nil, errLineTooLong
			}
		case errors.Is(err, io.EOF) && len(long)+len(part) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// Key returns the event that is the state of a key, with code key_unknown when the key has none. Its Position goes into
// [IfPosition].
func (c *Client) Key(ctx context.Context, topic, key string) (*event.Event, error) {
	_, _, body, err := c.roundTrip(ctx, call{method: http.MethodGet, url: c.topicPath(topic, "state", key)})
	if err != nil {
		return nil, err
	}
	ev, err := event.DecodeDelivered(body)
	if err != nil {
		return nil, fmt.Errorf("client: the state of key %q in %s is unreadable: %w", key, topic, err)
	}
	c.observe(ev.HLC())
	return ev, nil
}
