// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// loop drives publishers, closed (each sends when it has its answer) or open
// (requests fall due at a rate, whether or not answers have come).
type loop struct {
	cfg        *pubConfig
	ops        []op
	crowd      *crowd // readers of what is published, or nil
	start, end time.Time
	elapsed    time.Duration
	cpu0, cpu1 time.Duration

	mu    sync.Mutex
	all   hist
	posts int
	err   error
}

func (l *loop) run(finish func() error) error {
	c := l.cfg
	l.start = time.Now()
	if c.events == 0 {
		l.start = l.start.Add(c.warm)
	}
	l.end = l.start.Add(c.dur)
	if l.crowd != nil {
		defer l.follow()()
	}
	atStart := make(chan struct{})
	time.AfterFunc(time.Until(l.start), func() {
		_, l.cpu0 = procStat(c.pid)
		close(atStart)
	})
	if c.rate > 0 {
		l.open()
	} else {
		l.closed()
	}
	if err := finish(); err != nil && l.err == nil {
		l.err = err
	}
	<-atStart
	l.elapsed = time.Since(l.start)
	_, l.cpu1 = procStat(c.pid)
	return l.err
}

// follow has the readers measure what is sent within the measured time. The
// function that it returns waits, 10 s at most, for what is still on its way.
func (l *loop) follow() (drain func()) {
	l.crowd.from, l.crowd.to = l.start.UnixNano(), l.end.UnixNano()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { l.crowd.receive(stop) })
	return func() {
		for limit := time.Now().Add(10 * time.Second); l.crowd.measured.Load() < l.due() && time.Now().Before(limit); {
			time.Sleep(5 * time.Millisecond)
		}
		close(stop)
		wg.Wait()
	}
}

// due is how many deliveries were to be measured.
func (l *loop) due() int64 { return int64(l.posts*l.cfg.perPost()) * int64(l.cfg.subs) }

// closed gives each publisher every n-th number. A failed publish ends the run:
// a figure with errors in it means nothing.
func (l *loop) closed() {
	var wg sync.WaitGroup
	for i, publish := range l.ops {
		wg.Go(func() {
			h := new(hist)
			defer l.done(h)
			for post := i; !l.finished(post); post += len(l.ops) {
				begin := time.Now()
				if l.cfg.events == 0 && !begin.Before(l.end) {
					return
				}
				if err := publish(post, begin); err != nil {
					l.fail(err)
					return
				}
				if !begin.Before(l.start) {
					h.add(time.Since(begin))
				}
			}
		})
	}
	wg.Wait()
}

func (l *loop) finished(post int) bool {
	if l.cfg.events > 0 {
		return post*l.cfg.perPost() >= l.cfg.events
	}
	return time.Now().After(l.end)
}

// slot is one request of the open loop.
type slot struct {
	post int
	due  time.Time
}

// open releases requests as they fall due; free publishers take them in order.
// Latency counts from the schedule, so a stall of the server is charged to
// every request that had to wait for it.
func (l *loop) open() {
	slots := make(chan slot, int(l.cfg.rate*(l.cfg.dur+l.cfg.warm).Seconds())+1)
	var wg sync.WaitGroup
	for _, publish := range l.ops {
		wg.Go(func() {
			h := new(hist)
			defer l.done(h)
			for s := range slots {
				if err := publish(s.post, s.due); err != nil {
					l.fail(err)
					return
				}
				if !s.due.Before(l.start) {
					h.add(time.Since(s.due))
				}
			}
		})
	}
	l.schedule(slots)
	wg.Wait()
}

// schedule sleeps with the system call, because timers of the Go scheduler are
// only as fine as a millisecond while the process is idle.
func (l *loop) schedule(slots chan<- slot) {
	defer close(slots)
	begin := time.Now()
	interval := time.Duration(float64(time.Second) / l.cfg.rate)
	for post := 0; ; {
		due := begin.Add(time.Duration(post) * interval)
		if due.After(l.end) {
			return
		}
		if wait := time.Until(due); wait > 0 {
			ts := unix.NsecToTimespec(int64(max(wait, 200*time.Microsecond)))
			_ = unix.Nanosleep(&ts, nil) // An early return only costs another turn.
			continue
		}
		slots <- slot{post, due}
		post++
	}
}

func (l *loop) done(h *hist) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.merge(h)
	l.posts += int(h.n)
}

func (l *loop) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = fmt.Errorf("publish: %w", err)
	}
}

func (l *loop) result() result {
	c := l.cfg
	events := l.posts * c.perPost()
	r := result{
		"bench": "pub", "target": c.target, "mode": c.spec.Mode, "n": c.n, "size": c.spec.Size, "rate": c.rate,
		"events": events, "ops_s": float64(l.posts) / l.elapsed.Seconds(),
		"events_s": float64(events) / l.elapsed.Seconds(),
	}
	if c.pid != 0 && events > 0 {
		r["srv_cpu_us_per_event"] = float64((l.cpu1 - l.cpu0).Microseconds()) / float64(events)
	}
	if l.crowd != nil {
		r["subs"], r["missing"], r["conn_lost"] = c.subs, l.due()-l.crowd.measured.Load(), l.crowd.lost.Load()
		l.crowd.lat.into(r, "reader_")
	}
	if c.target != "nats-async" { // There a publish returns before its acknowledgement.
		l.all.into(r, "")
	}
	return r
}
