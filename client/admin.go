// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"signalbox/event"
)

// Backup is a backup on its way: a tar archive. It must be closed.
type Backup struct {
	io.Reader              // the archive; it is complete when the end comes without an error
	Cursor    event.Cursor // of the last event in it
	Bytes     int64        // of all files in it, which is a little less than the length of the archive
	body      io.Closer
	dog       *watchdog
	cancel    context.CancelCauseFunc
}

// Backup asks the broker for a backup of everything. "signalbox restore" puts it back.
func (c *Client) Backup(ctx context.Context) (*Backup, error) {
	res, dog, cancel, err := c.stream(ctx, "backup", call{method: http.MethodPost, url: c.base + "/v1/admin/backup"}) //nolint:bodyclose // The backup owns the body from here on, and Close closes it.
	if err != nil {
		return nil, err
	}
	b := &Backup{Reader: dog.reader(res.Body), body: res.Body, dog: dog, cancel: cancel}
	b.Cursor, err = event.ParseCursor(res.Header.Get("Signalbox-Cursor"))
	if err == nil {
		b.Bytes, err = strconv.ParseInt(res.Header.Get("Signalbox-Backup-Bytes"), 10, 64)
	}
	if err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("client: the backup says neither its cursor nor its length; check that %s is a Signalbox broker: %w", c.base, err)
	}
	return b, nil
}

// Close ends the download.
func (b *Backup) Close() error {
	b.dog.stop()
	b.cancel(nil)
	return b.body.Close()
}

// Compaction says how far a compaction is.
type Compaction struct {
	Step, Steps int
	Bytes       uint64 // that the broker's data occupies now
	Done        bool
	Before      uint64 // bytes at the beginning and at the end, when it is done
	After       uint64
}

// Compact has the broker reclaim disk at once and waits for the end. Progress, if not nil, is called after each step.
// Publishing and reading go on meanwhile.
func (c *Client) Compact(ctx context.Context, progress func(Compaction)) (Compaction, error) {
	res, dog, cancel, err := c.stream(ctx, "compact", call{method: http.MethodPost, url: c.base + "/v1/admin/compact"})
	if err != nil {
		return Compaction{}, err
	}
	defer func() {
		dog.stop()
		cancel(nil)
		_ = res.Body.Close()
	}()
	// A step can take long on a slow disk, so its silence means nothing.
	lines := bufio.NewReader(res.Body)
	for {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		var l struct {
			Step   int    `json:"step"`
			Steps  int    `json:"steps"`
			Bytes  uint64 `json:"bytes"`
			Done   bool   `json:"done"`
			Before uint64 `json:"before_bytes"`
			After  uint64 `json:"after_bytes"`
		}
		if err == nil {
			err = json.Unmarshal(line, &l)
		}
		if err != nil {
			return Compaction{}, fmt.Errorf("client: the compaction did not end in good order; the broker's logs say why: %w", err)
		}
		if at := (Compaction{l.Step, l.Steps, l.Bytes, l.Done, l.Before, l.After}); at.Done {
			return at, nil
		} else if progress != nil {
			progress(at)
		}
	}
}

// stream sends a call whose answer is long. It is not tried again: whoever asks decides that.
func (c *Client) stream(ctx context.Context, what string, k call) (_ *http.Response, _ *watchdog, _ context.CancelCauseFunc, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	dog := newWatchdog(c.watchdog, cancel)
	defer func() {
		if err != nil {
			dog.stop()
			cancel(nil)
		}
	}()
	req, err := c.request(ctx, k)
	if err != nil {
		return nil, nil, nil, err
	}
	res, err := c.http.Do(req)
	switch {
	case err != nil && context.Cause(ctx) != nil:
		return nil, nil, nil, fmt.Errorf("client: %s: %w", what, context.Cause(ctx))
	case err != nil:
		return nil, nil, nil, &UnreachableError{URL: c.base, Attempts: 1, Err: plain(err)}
	case res.StatusCode != http.StatusOK:
		err = readRefusal(res).problem
		_ = res.Body.Close()
		return nil, nil, nil, err
	}
	return res, dog, cancel, nil
}
