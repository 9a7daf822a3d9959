// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"time"
)

// op publishes the post-th request and returns when it is acknowledged. due is
// the moment from which its latency counts.
type op func(post int, due time.Time) error

// pubConfig is what the flags of `lg pub` say.
type pubConfig struct {
	target, addr, stream, subjects string
	maxPerSubject                  int64
	inflight                       int
	keep                           bool
	spec                           requestSpec
	expect, sub                    string
	agent, key                     string
	n, events, subs, pid, signed   int
	rate                           float64
	dur, warm                      time.Duration
}

func pubFlags(args []string) (*pubConfig, error) {
	c := new(pubConfig)
	fs := flag.NewFlagSet("pub", flag.ContinueOnError)
	fs.StringVar(&c.target, "target", "http", "http | ticket (signed messages that open tickets) | nats (one publish at a time) | nats-async")
	fs.StringVar(&c.addr, "addr", "", "nats: host:port")
	fs.StringVar(&c.stream, "stream", "BENCH", "nats: stream, created afresh")
	fs.StringVar(&c.subjects, "subjects", "bench", "nats: first token of the subjects; the key is the second")
	fs.Int64Var(&c.maxPerSubject, "mps", -1, "nats: MaxMsgsPerSubject")
	fs.IntVar(&c.inflight, "inflight", 256, "nats-async: publishes without an acknowledgement, per connection")
	fs.BoolVar(&c.keep, "keep", false, "nats: leave the stream")
	fs.StringVar(&c.agent, "agent", "desk", "ticket: who signs")
	fs.StringVar(&c.key, "key", "", "ticket: file with its key")
	fs.IntVar(&c.signed, "signed", 100_000, "ticket: how many are signed before anything is measured")
	specFlags(fs, &c.spec, statusData, 512)
	fs.StringVar(&c.expect, "expect", "", "http: text that every answer must have near its beginning")
	fs.StringVar(&c.sub, "sub", "", "SSE URL of readers that measure how long each event takes to them; its data needs {ts}")
	fs.IntVar(&c.subs, "subs", 1, "such readers")
	fs.IntVar(&c.n, "n", 1, "connections, each with one publisher")
	fs.IntVar(&c.events, "events", 0, "stop after about this many events instead of after -dur")
	fs.Float64Var(&c.rate, "rate", 0, "requests/s in an open loop: latency counts from the schedule; 0 = closed loop")
	fs.DurationVar(&c.dur, "dur", 4*time.Second, "measured duration")
	fs.DurationVar(&c.warm, "warm", time.Second, "warm-up")
	fs.IntVar(&c.pid, "pid", 0, "process of the server, for CPU and memory")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if c.n < 1 || c.rate < 0 {
		return nil, errors.New("-n must be at least 1 and -rate at least 0")
	}
	c.spec.Run = newRun()
	return c, nil
}

func specFlags(fs *flag.FlagSet, s *requestSpec, data string, size int) {
	fs.StringVar(&s.URL, "url", "", "URL to POST to")
	fs.StringVar(&s.Mode, "mode", "plain", "plain (data only) | binary (CloudEvents headers) | batch (JSON array of events)")
	fs.StringVar(&s.Type, "type", "application/json", "Content-Type")
	fs.Var((*lines)(&s.Headers), "H", "another header line (repeatable)")
	fs.StringVar(&s.Data, "data", data, "data; {seq} {key} {run} {ts} are replaced and {pad} fills up to -size")
	fs.IntVar(&s.Size, "size", size, "bytes of data")
	fs.IntVar(&s.Batch, "batch", 1, "mode batch: events per request")
	fs.IntVar(&s.Keys, "keys", 1000, "number of keys")
	fs.IntVar(&s.Topics, "topics", 1, "number of topics, for {topic} in the URL")
	fs.Var(&s.Expiry, "expiry", "mode batch: of every hundred events how many expire after how many seconds, such as 87:2,3:3600")
}

func pubMain(args []string) error {
	c, err := pubFlags(args)
	if err != nil {
		return err
	}
	ops, finish, err := c.ops()
	if err != nil {
		return err
	}
	m := newMeter(c.pid)
	l := &loop{cfg: c, ops: ops}
	if c.sub != "" {
		if l.crowd, err = dialCrowd(c.subs, c.sub, nil); err != nil {
			return err
		}
		defer l.crowd.close()
	}
	if err := l.run(finish); err != nil {
		return err
	}
	return m.emit(l.result())
}

// ops makes one publisher per connection. finish waits for what is not yet
// acknowledged, and cleans up.
func (c *pubConfig) ops() (ops []op, finish func() error, err error) {
	switch c.target {
	case "http":
	case "ticket":
		ops, err := c.ticketOps()
		return ops, func() error { return nil }, err
	default:
		return c.natsOps()
	}
	for range c.n {
		// Each publisher patches its own request.
		r, err := newRequest(c.spec)
		if err != nil {
			return nil, nil, err
		}
		h, err := dialRaw(r.host, c.expect)
		if err != nil {
			return nil, nil, err
		}
		ops = append(ops, func(post int, due time.Time) error {
			r.fill(post, due)
			return h.post(r)
		})
	}
	return ops, func() error { return nil }, nil
}

// perPost is the number of events in one request.
func (c *pubConfig) perPost() int {
	if c.target == "http" && c.spec.Mode == "batch" {
		return max(1, c.spec.Batch)
	}
	return 1
}
