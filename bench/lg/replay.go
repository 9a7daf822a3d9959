// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"
)

type replayConfig struct {
	target, addr, stream, url, until string
	count, reps, pid                 int
	limit                            time.Duration
}

// reading is what one fresh reader saw.
type reading struct {
	events     int
	bytes      int // without the chunked coding; sse only
	first, all time.Duration
}

// replayMain measures how long a fresh reader needs for what is stored.
func replayMain(args []string) error {
	c := new(replayConfig)
	fs := flag.NewFlagSet("replay", flag.ContinueOnError)
	fs.StringVar(&c.target, "target", "sse", "sse | nats (ordered consumer) | nats-pull (pull consumer, no acknowledgements)")
	fs.StringVar(&c.addr, "addr", "", "nats: host:port")
	fs.StringVar(&c.stream, "stream", "FULL", "nats: stream")
	fs.StringVar(&c.url, "url", "", "sse: URL")
	fs.StringVar(&c.until, "until", "\nevent: signalbox.sync\n", "sse: text that ends the reading")
	fs.IntVar(&c.count, "count", 500000, "events that must come")
	fs.IntVar(&c.reps, "reps", 5, "readings, one after another; the median counts")
	fs.IntVar(&c.pid, "pid", 0, "process of the server, for CPU and memory")
	fs.DurationVar(&c.limit, "limit", time.Minute, "give up a reading after")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if c.reps < 1 {
		return errors.New("-reps must be at least 1")
	}
	m := newMeter(c.pid)
	var all []float64
	var firsts []float64
	var size int
	for range c.reps {
		r, err := c.read()
		if err != nil {
			return err
		}
		if r.events != c.count {
			return fmt.Errorf("%d events came instead of %d", r.events, c.count)
		}
		size = r.bytes
		all = append(all, r.all.Seconds())
		firsts = append(firsts, r.first.Seconds())
	}
	s := median(all)
	return m.emit(result{
		"bench": "replay", "target": c.target, "events": c.count, "s": s, "s_all": all,
		"ms": s * 1000, "bytes": size, "events_s": float64(c.count) / s, "first_ms": median(firsts) * 1000,
	})
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func (c *replayConfig) read() (reading, error) {
	if c.target == "sse" {
		return c.readSSE()
	}
	js, err := dialJetStream(c.addr, 0)
	if err != nil {
		return reading{}, err
	}
	defer js.Conn().Close()
	// The connection stands before the clock starts: that is to JetStream's advantage.
	n, first, all, err := readJetStream(js, c.stream, c.target == "nats-pull", c.count)
	return reading{events: n, first: first, all: all}, err
}

// readSSE counts data fields until the text that ends the reading. The clock
// starts before the connection is opened.
func (c *replayConfig) readSSE() (reading, error) {
	u, err := url.Parse(c.url)
	if err != nil {
		return reading{}, err
	}
	begin := time.Now()
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return reading{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(begin.Add(c.limit)); err != nil {
		return reading{}, err
	}
	if _, err := io.WriteString(conn, "GET "+u.RequestURI()+" HTTP/1.1\r\nHost: "+u.Host+"\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		return reading{}, err
	}
	// net/http takes the chunks off: a boundary may fall inside a field name.
	answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 64<<10), nil)
	if err != nil {
		return reading{}, err
	}
	if answer.StatusCode != http.StatusOK {
		return reading{}, fmt.Errorf("status %d", answer.StatusCode)
	}
	return countUntil(answer.Body, "\ndata:", c.until, begin)
}

// countUntil counts a mark in the stream up to the end text.
func countUntil(body io.Reader, mark, end string, begin time.Time) (r reading, err error) {
	buf := make([]byte, 256<<10)
	m, e := []byte(mark), []byte(end)
	keep := 0 // The tail of the last piece, in which a mark may begin.
	for {
		n, err := body.Read(buf[keep:])
		if n == 0 && err != nil {
			return r, fmt.Errorf("after %d events: %w", r.events, err)
		}
		b := buf[:keep+n]
		i := bytes.Index(b, e)
		r.bytes += n
		if i >= 0 {
			r.bytes -= len(b) - i
			b = b[:i]
		}
		// A mark that lies wholly in the kept tail was counted with the last piece.
		from := max(0, keep-len(m)+1)
		k := bytes.Count(b[min(from, len(b)):], m)
		if r.events += k; k > 0 && r.first == 0 {
			r.first = time.Since(begin)
		}
		if i >= 0 {
			r.all = time.Since(begin)
			return r, nil
		}
		keep = min(max(len(m), len(e))-1, len(b))
		copy(buf, b[len(b)-keep:])
	}
}
