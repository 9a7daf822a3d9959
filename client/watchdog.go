// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// silence is why a watchdog cut a connection.
type silence struct{ after time.Duration }

func (s silence) Error() string {
	return fmt.Sprintf("nothing came from the broker for %s, not even a heartbeat", s.after)
}

// watchdog cuts a connection on which nothing arrives: a peer that vanished without a FIN leaves a socket that looks
// open for hours. Only the time spent waiting counts, not the time that the reader's caller takes for its work.
type watchdog struct {
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func newWatchdog(limit time.Duration, cancel context.CancelCauseFunc) *watchdog {
	w := &watchdog{limit: limit, cancel: cancel}
	w.timer = time.AfterFunc(limit, func() { cancel(silence{limit}) })
	w.timer.Stop()
	return w
}

func (w *watchdog) arm()    { w.timer.Reset(w.limit) }
func (w *watchdog) disarm() { w.timer.Stop() }
func (w *watchdog) stop()   { w.timer.Stop() }

// explain returns the watchdog's reason in place of the "context canceled" that it caused.
func (w *watchdog) explain(ctx context.Context, err error) error {
	if s := (silence{}); errors.As(context.Cause(ctx), &s) {
		return s
	}
	return err
}

// reader passes r through and watches it.
func (w *watchdog) reader(r io.Reader) io.Reader { return watched{r: r, dog: w} }

type watched struct {
	r   io.Reader
	dog *watchdog
}

func (r watched) Read(p []byte) (int, error) {
	r.dog.arm()
	defer r.dog.disarm()
	return r.r.Read(p)
}
