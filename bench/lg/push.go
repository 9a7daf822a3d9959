// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"
)

type pushConfig struct {
	url, topic, mode, signature string
	events, warm, size, pid     int
	limit                       time.Duration
}

// pushMain stores events, makes a webhook that begins with the first of them, and
// measures how fast they come to its sink.
func pushMain(args []string) error {
	c := new(pushConfig)
	fs := flag.NewFlagSet("push", flag.ContinueOnError)
	fs.StringVar(&c.url, "url", "", "URL of the broker, which must be allowed to send to 127.0.0.0/8")
	fs.StringVar(&c.topic, "topic", "bench", "topic")
	fs.StringVar(&c.mode, "mode", "structured", "content mode")
	fs.StringVar(&c.signature, "signature", "v1a", "v1a | v1")
	fs.IntVar(&c.events, "events", 40000, "events, each of which must come once")
	fs.IntVar(&c.warm, "warm", 5000, "of these that are not measured")
	fs.IntVar(&c.size, "size", 512, "bytes of data")
	fs.IntVar(&c.pid, "pid", 0, "process of the server, for CPU and memory")
	fs.DurationVar(&c.limit, "limit", 2*time.Minute, "give up after")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if c.warm < 1 || c.events <= c.warm {
		return errors.New("-events must be more than -warm, and that at least 1")
	}
	if err := c.store(); err != nil {
		return err
	}
	s, err := listenSink("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer s.listener.Close()
	warm, all := s.after(c.warm), s.after(c.events)
	go s.serve()
	m := newMeter(c.pid)
	if err := c.subscribe("http://" + s.listener.Addr().String() + "/"); err != nil {
		return err
	}
	deadline := time.After(c.limit)
	if err := s.wait(warm, deadline); err != nil {
		return err
	}
	begin := time.Now()
	_, cpu0 := procStat(c.pid)
	if err := s.wait(all, deadline); err != nil {
		return err
	}
	took := time.Since(begin)
	_, cpu1 := procStat(c.pid)
	measured := c.events - c.warm
	s.mu.Lock()
	defer s.mu.Unlock()
	r := result{"bench": "push", "mode": c.mode, "signature": c.signature, "size": c.size, "events": measured,
		"events_s": float64(measured) / took.Seconds(), "conns": s.most, "again": s.again}
	if c.pid != 0 {
		r["srv_cpu_us_per_deliv"] = float64((cpu1 - cpu0).Microseconds()) / float64(measured)
	}
	return m.emit(r)
}

func (s *sink) wait(when <-chan struct{}, deadline <-chan time.Time) error {
	select {
	case <-when:
		return nil
	case <-deadline:
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("only %d events came in time", len(s.seen))
	}
}

// store publishes the events, in batches.
func (c *pushConfig) store() error {
	const batch = 100
	r, err := newRequest(requestSpec{URL: c.url + "/v1/topics/" + c.topic + "/events", Mode: "batch", Data: statusData,
		Size: c.size, Batch: batch, Keys: 1000, Run: newRun()})
	if err != nil {
		return err
	}
	h, err := dialRaw(r.host, `"accepted"`)
	if err != nil {
		return err
	}
	defer h.conn.Close()
	for post := 0; post*batch < c.events; post++ {
		r.fill(post, time.Now())
		if err := h.post(r); err != nil {
			return err
		}
	}
	return nil
}

func (c *pushConfig) subscribe(to string) error {
	config := map[string]any{"topics": []string{c.topic}, "start": "earliest", "content_mode": c.mode, "signature": c.signature}
	if c.signature == "v1" {
		config["secrets"] = []string{"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}
	}
	document, err := json.Marshal(map[string]any{"protocol": "HTTP", "sink": to, "config": config})
	if err != nil {
		return err
	}
	answer, err := http.Post(c.url+"/v1/subscriptions", "application/json", bytes.NewReader(document))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 500))
		return fmt.Errorf("status %d: %s", answer.StatusCode, text)
	}
	return nil
}
