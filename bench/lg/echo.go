// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"
)

type echoConfig struct {
	url       string
	size, pid int
	rate      float64
	dur, warm time.Duration
}

// echoMain measures how long an event takes through the broker and back on the
// socket that it was published on, at light load: the next is due only after the
// last has come.
func echoMain(args []string) error {
	c := new(echoConfig)
	fs := flag.NewFlagSet("echo", flag.ContinueOnError)
	fs.StringVar(&c.url, "url", "", "ws:// URL of one topic, with cursor=now")
	fs.IntVar(&c.size, "size", 256, "bytes of data")
	fs.Float64Var(&c.rate, "rate", 100, "events/s")
	fs.DurationVar(&c.dur, "dur", 4*time.Second, "measured duration")
	fs.DurationVar(&c.warm, "warm", time.Second, "warm-up")
	fs.IntVar(&c.pid, "pid", 0, "process of the server, for CPU and memory")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if c.rate <= 0 {
		return errors.New("-rate must be positive")
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.warm+c.dur+time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, c.url, &websocket.DialOptions{Subprotocols: []string{"signalbox.v1"}})
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	m := newMeter(c.pid)
	h, receipts, err := c.echo(ctx, conn)
	if err != nil {
		return err
	}
	r := result{"bench": "echo", "size": c.size, "rate": c.rate, "events": int(h.n)}
	h.into(r, "")
	receipts.into(r, "receipt_")
	return m.emit(r)
}

// echo returns the times from sending to the event and to the receipt.
func (c *echoConfig) echo(ctx context.Context, conn *websocket.Conn) (h, receipts *hist, err error) {
	h, receipts = new(hist), new(hist)
	run, pad := newRun(), strings.Repeat("x", c.size)
	begin := time.Now()
	for i := 0; time.Since(begin) < c.warm+c.dur; i++ {
		if wait := time.Until(begin.Add(time.Duration(float64(i) / c.rate * float64(time.Second)))); wait > 0 {
			ts := unix.NsecToTimespec(int64(wait))
			_ = unix.Nanosleep(&ts, nil) // An early return only makes the load less light.
		}
		id := fmt.Sprintf("%s-%d", run, i)
		message := fmt.Appendf(nil, `{"op":"publish","ref":%q,"event":{"specversion":"1.0","id":%q,"source":"/bench","type":"echo","subject":"k","data":%q}}`, id, id, pad)
		sent := time.Now()
		if err := conn.Write(ctx, websocket.MessageText, message); err != nil {
			return nil, nil, err
		}
		for event, receipt := false, false; !event || !receipt; {
			_, b, err := conn.Read(ctx)
			took := time.Since(sent)
			into := h
			switch {
			case err != nil:
				return nil, nil, err
			case !bytes.Contains(b, []byte(id)):
				continue // the marker, or a heartbeat
			case bytes.HasPrefix(b, []byte(`{"op":"event"`)):
				event = true
			case bytes.HasPrefix(b, []byte(`{"op":"receipt"`)):
				receipt, into = true, receipts
			default:
				return nil, nil, fmt.Errorf("the event was not taken: %s", b)
			}
			if sent.Sub(begin) >= c.warm {
				into.add(took)
			}
		}
	}
	return h, receipts, nil
}
