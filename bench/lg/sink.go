// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sink is the cheapest endpoint of webhooks: it reads each request whole and
// answers 204.
type sink struct {
	listener net.Listener

	mu    sync.Mutex
	conns int                 // open; guarded by mu
	most  int                 // that were open at one time; guarded by mu
	seen  map[string]struct{} // webhook-ids; guarded by mu
	again int                 // requests with an id that was seen; guarded by mu
	at    map[int]chan struct{}
}

func listenSink(addr string) (*sink, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &sink{listener: l, seen: map[string]struct{}{}, at: map[int]chan struct{}{}}, nil
}

// after is closed when so many different events have come. It is called before
// the first does.
func (s *sink) after(n int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{})
	s.at[n] = c
	return c
}

// serve takes connections until the sink is closed.
func (s *sink) serve() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.answer(c)
	}
}

var noContent = []byte("HTTP/1.1 204 No Content\r\n\r\n")

func (s *sink) answer(c net.Conn) {
	defer c.Close()
	s.open(1)
	defer s.open(-1)
	in := bufio.NewReaderSize(c, 16<<10)
	for {
		id, err := readPush(in)
		if err != nil {
			return
		}
		s.note(id)
		if _, err := c.Write(noContent); err != nil {
			return
		}
	}
}

func (s *sink) open(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns += n
	s.most = max(s.most, s.conns)
}

// note counts a request. One without an id is not the broker's.
func (s *sink) note(id string) {
	if id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seen[id]; ok {
		s.again++
		return
	}
	s.seen[id] = struct{}{}
	if c := s.at[len(s.seen)]; c != nil {
		close(c)
	}
}

// readPush reads a request whole, and returns its webhook-id.
func readPush(in *bufio.Reader) (id string, err error) {
	length := -1
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		k := bytes.IndexByte(line, ':')
		switch {
		case k == 14 && strings.EqualFold(string(line[:k]), "Content-Length"):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[k+1:]))); err != nil {
				return "", err
			}
		case k == 10 && strings.EqualFold(string(line[:k]), "Webhook-Id"):
			id = string(bytes.TrimSpace(line[k+1:]))
		}
	}
	if length < 0 {
		return "", errors.New("the request has no length")
	}
	_, err = io.CopyN(io.Discard, in, int64(length))
	return id, err
}

// sinkMain is the sink alone, so that its own limit can be measured.
func sinkMain(args []string) error {
	fs := flag.NewFlagSet("sink", flag.ContinueOnError)
	addr := fs.String("addr", "127.0.0.1:0", "host:port to listen on")
	life := fs.Duration("life", time.Hour, "ends by itself after")
	if err := fs.Parse(args); err != nil {
		return err
	}
	s, err := listenSink(*addr)
	if err != nil {
		return err
	}
	time.AfterFunc(*life, func() { _ = s.listener.Close() })
	s.serve()
	return nil
}
