// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type churnConfig struct {
	url, topic     string
	agents, days   int
	n, pid, scrape int
	subscribe      bool
	settle, limit  time.Duration
	run            string
}

// churnMain measures what agents cost that are not there any more: each day so
// many come under names of their own, read up to the marker and leave for good.
// A day is no time but a number of agents; nothing else tells the days apart.
// As many days pass before the first measurement as after it, so that what grows
// with how many come within a minute, and then stays, has grown.
func churnMain(args []string) error {
	c := &churnConfig{run: newRun()}
	fs := flag.NewFlagSet("churn", flag.ContinueOnError)
	fs.StringVar(&c.url, "url", "", "base URL of the broker")
	fs.StringVar(&c.topic, "topic", "bench", "what they read")
	fs.IntVar(&c.agents, "agents", 1000, "agents a day")
	fs.IntVar(&c.days, "days", 1, "days to measure, after as many that only warm up; 0: one day, without a measurement")
	fs.IntVar(&c.n, "n", 8, "agents at one time")
	fs.BoolVar(&c.subscribe, "subscribe", true, "each leaves a durable subscription behind, which is never used again")
	fs.DurationVar(&c.settle, "settle", 0, "wait before the first and the last measurement, for what is remembered of who has just left")
	fs.IntVar(&c.scrape, "scrapes", 400, "scrapes for one measurement; they make garbage, and the least is what is live")
	fs.DurationVar(&c.limit, "limit", time.Minute, "give up an agent after")
	fs.IntVar(&c.pid, "pid", 0, "process of the server")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if c.agents < 1 || c.n < 1 || c.scrape < 1 || c.days < 0 {
		return errors.New("-agents, -n and -scrapes must be at least 1")
	}
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = c.n
	m := newMeter(c.pid)
	r, err := c.churn()
	if err != nil {
		return err
	}
	return m.emit(r)
}

func (c *churnConfig) churn() (result, error) {
	begin, warm := time.Now(), max(1, c.days)
	for day := range warm {
		if err := c.day(day); err != nil {
			return nil, err
		}
	}
	r := result{"bench": "churn", "agents": c.agents, "days": c.days, "agents_s": float64(c.agents*warm) / time.Since(begin).Seconds()}
	if c.days == 0 {
		return r, nil
	}
	time.Sleep(c.settle)
	first, err := c.live()
	if err != nil {
		return nil, err
	}
	var heaps, resident []float64
	for day := 1; day <= c.days; day++ {
		if err := c.day(warm + day); err != nil {
			return nil, err
		}
		if day == c.days {
			time.Sleep(c.settle)
		}
		heap, err := c.live()
		if err != nil {
			return nil, err
		}
		rss, _ := procStat(c.pid)
		heaps, resident = append(heaps, mib(heap)), append(resident, float64(rss)/1024)
	}
	last := heaps[len(heaps)-1]
	r["first_heap_mib"], r["last_heap_mib"], r["heap_mib_days"], r["rss_mib_days"] = mib(first), last, heaps, resident
	r["bytes_per_agent"] = (last - mib(first)) * (1 << 20) / float64(c.agents*c.days)
	return r, nil
}

func mib(bytes float64) float64 { return bytes / (1 << 20) }

// day has all agents of a day come and go.
func (c *churnConfig) day(day int) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	failed := make(chan error, c.n)
	for range c.n {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(c.agents) {
					return
				}
				if err := c.visit(fmt.Sprintf("/agents/%s-%d-%d", c.run, day, i)); err != nil {
					failed <- fmt.Errorf("agent %d of day %d: %w", i, day, err)
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// visit is the life of one agent.
func (c *churnConfig) visit(name string) error {
	if c.subscribe {
		id, err := c.makeSubscription()
		if err == nil {
			err = c.follow("/v1/subscriptions/" + id + "/events")
		}
		if err != nil {
			return err
		}
	}
	return c.follow("/v1/topics/" + c.topic + "/events?cursor=now&agent=" + url.QueryEscape(name))
}

func (c *churnConfig) makeSubscription() (id string, err error) {
	document := `{"protocol":"SIGNALBOX","config":{"kind":"stream","topics":["` + c.topic + `"]}}`
	res, err := http.Post(c.url+"/v1/subscriptions", "application/json", strings.NewReader(document))
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	var made struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil {
		return "", err
	}
	if made.ID == "" {
		return "", fmt.Errorf("subscribing: status %d", res.StatusCode)
	}
	_, err = io.Copy(io.Discard, res.Body) // so that the connection can be used again
	return made.ID, err
}

// follow reads a stream up to its marker.
func (c *churnConfig) follow(path string) error {
	host := strings.TrimPrefix(c.url, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(c.limit)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		return err
	}
	// The marker is written at once, so no chunk ends within its first line.
	for in := bufio.NewReaderSize(conn, 4<<10); ; {
		line, err := in.ReadSlice('\n')
		if bytes.Contains(line, []byte("event: signalbox.sync")) {
			return nil
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if bytes.HasPrefix(line, []byte("HTTP/1.1 ")) && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("following: %s", bytes.TrimSpace(line))
		}
	}
}

// live is the least heap that a number of scrapes show.
func (c *churnConfig) live() (least float64, err error) {
	for i := range c.scrape {
		heap, err := c.heap()
		if err != nil {
			return 0, err
		}
		if i == 0 || heap < least {
			least = heap
		}
	}
	return least, nil
}

func (c *churnConfig) heap() (float64, error) {
	res, err := http.Get(c.url + "/metrics")
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "go_memory_classes_heap_objects_bytes "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, errors.New("/metrics does not tell the heap")
}
