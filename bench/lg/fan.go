// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"sync"
	"time"
)

// fanData carries the marker that the readers look for: a server only has to
// pass the data through.
const fanData = `{"t":"{ts}","pad":"{pad}"}`

type fanConfig struct {
	sub, expect       string
	headers           lines
	spec              requestSpec
	subs, window, pid int
	rate              float64
	dur, warm, settle time.Duration
}

func fanFlags(args []string) (*fanConfig, error) {
	c := new(fanConfig)
	fs := flag.NewFlagSet("fan", flag.ContinueOnError)
	fs.StringVar(&c.sub, "sub", "", "SSE URL")
	fs.Var(&c.headers, "SH", "another header line of the readers (repeatable)")
	specFlags(fs, &c.spec, fanData, 256)
	fs.StringVar(&c.expect, "expect", "", "text that every answer to a publish must have near its beginning")
	fs.IntVar(&c.subs, "subs", 1000, "readers")
	fs.Float64Var(&c.rate, "rate", 0, "publishes/s, latency from the schedule; 0 = saturate")
	fs.IntVar(&c.window, "window", 4, "saturate: publish when every reader has all but the last so many events")
	fs.DurationVar(&c.dur, "dur", 4*time.Second, "measured duration")
	fs.DurationVar(&c.warm, "warm", time.Second, "warm-up")
	fs.DurationVar(&c.settle, "settle", time.Second, "wait after the readers connected")
	fs.IntVar(&c.pid, "pid", 0, "process of the server, for CPU and memory")
	err := fs.Parse(args)
	c.spec.Run = newRun()
	return c, err
}

// fan is one run: one publisher, many readers.
type fan struct {
	cfg    *fanConfig
	crowd  *crowd
	req    *request
	conn   *rawHTTP
	start  time.Time
	end    time.Time
	acks   hist
	sent   int // all publishes
	marked int // those within the measured time
	cpu    time.Duration
}

func fanMain(args []string) error {
	c, err := fanFlags(args)
	if err != nil {
		return err
	}
	f := &fan{cfg: c}
	if f.req, err = newRequest(c.spec); err != nil {
		return err
	}
	m := newMeter(c.pid)
	if f.crowd, err = dialCrowd(c.subs, c.sub, c.headers); err != nil {
		return err
	}
	defer f.crowd.close()
	if f.conn, err = dialRaw(f.req.host, c.expect); err != nil {
		return err
	}
	time.Sleep(c.settle)
	f.start = time.Now().Add(c.warm)
	f.end = f.start.Add(c.dur)
	f.crowd.from, f.crowd.to = f.start.UnixNano(), f.end.UnixNano()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { f.crowd.receive(stop) })
	err = f.publish()
	elapsed := f.drain()
	close(stop)
	wg.Wait()
	if err != nil {
		return err
	}
	return m.emit(f.result(elapsed))
}

// publish sends until the end of the measured time.
func (f *fan) publish() error {
	cpu0, measuring := time.Duration(0), false
	begin := time.Now()
	for {
		due := f.next(begin)
		if !measuring && !due.Before(f.start) {
			measuring = true
			_, cpu0 = procStat(f.cfg.pid)
		}
		if !due.Before(f.end) {
			_, cpu1 := procStat(f.cfg.pid)
			f.cpu = cpu1 - cpu0
			return nil
		}
		f.req.fill(f.sent, due)
		sent := time.Now()
		if err := f.conn.post(f.req); err != nil {
			return fmt.Errorf("publish %d: %w", f.sent, err)
		}
		f.sent++
		if measuring {
			f.marked++
			f.acks.add(time.Since(sent))
		}
	}
}

// next waits until the next publish is due and returns the moment from which
// its latency counts.
func (f *fan) next(begin time.Time) time.Time {
	c := f.cfg
	if c.rate > 0 {
		due := begin.Add(time.Duration(float64(f.sent) / c.rate * float64(time.Second)))
		time.Sleep(time.Until(due))
		return due
	}
	// The receiver wakes us at least every 20 ms, so a loss cannot hang the run:
	// the end of the measured time ends it, and the loss is reported.
	f.crowd.wake.L.Lock()
	for f.crowd.seen.Load() < int64(f.sent-c.window+1)*int64(c.subs) && time.Now().Before(f.end) {
		f.crowd.wake.Wait()
	}
	f.crowd.wake.L.Unlock()
	return time.Now()
}

// drain waits, 3 s at most, for what is still on its way, and returns the time
// in which the measured events were delivered.
func (f *fan) drain() time.Duration {
	limit := time.Now().Add(3 * time.Second)
	for f.crowd.measured.Load() < int64(f.marked)*int64(f.cfg.subs) && time.Now().Before(limit) {
		time.Sleep(5 * time.Millisecond)
	}
	if f.cfg.rate > 0 {
		return f.cfg.dur
	}
	return time.Since(f.start)
}

func (f *fan) result(elapsed time.Duration) result {
	c := f.cfg
	delivered := f.crowd.measured.Load()
	r := result{
		"bench": "fan", "subs": c.subs, "size": c.spec.Size, "rate": c.rate, "published": f.marked,
		"pub_s": float64(f.marked) / elapsed.Seconds(), "deliv_s": float64(delivered) / elapsed.Seconds(),
		"missing": int64(f.marked)*int64(c.subs) - delivered, "conn_lost": f.crowd.lost.Load(),
	}
	if c.pid != 0 && delivered > 0 {
		r["srv_cpu_us_per_deliv"] = float64(f.cpu.Microseconds()) / float64(delivered)
	}
	f.crowd.lat.into(r, "")
	f.acks.into(r, "ack_")
	return r
}
