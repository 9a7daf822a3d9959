// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// reader is one SSE connection: a file descriptor, not a goroutine, so that a
// thousand of them cost the generator little.
type reader struct {
	fd     int
	chunks chunks
	carry  []byte // the beginning of a marker that was cut
}

// dialReader subscribes and returns once the head of the answer is there.
func dialReader(rawURL string, headers []string) (*reader, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	addr, err := net.ResolveTCPAddr("tcp4", u.Host)
	if err != nil {
		return nil, err
	}
	sa := &unix.SockaddrInet4{Port: addr.Port}
	copy(sa.Addr[:], addr.IP.To4())
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, sa); err != nil {
		return nil, err
	}
	head := "GET " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\nAccept: text/event-stream\r\n"
	for _, h := range headers {
		head += h + "\r\n"
	}
	if _, err := unix.Write(fd, []byte(head+"\r\n")); err != nil {
		return nil, err
	}
	r := &reader{fd: fd}
	return r, r.readHead()
}

func (r *reader) readHead() error {
	b := make([]byte, 8192)
	for got := 0; got < len(b); {
		n, err := unix.Read(r.fd, b[got:])
		if err != nil || n <= 0 {
			return fmt.Errorf("subscribe: %w after %q", errors.Join(err, errors.New("no answer")), b[:got])
		}
		got += n
		if end := bytes.Index(b[:got], []byte("\r\n\r\n")); end >= 0 {
			head := bytes.ToLower(b[:end])
			if !bytes.Contains(b[:16], []byte(" 200")) {
				return fmt.Errorf("subscribe: %q", b[:got])
			}
			r.chunks.raw = !bytes.Contains(head, []byte("transfer-encoding: chunked"))
			r.chunks.strip(b[end+4 : got]) // Comments and retry, not events yet.
			return unix.SetNonblock(r.fd, true)
		}
	}
	return errors.New("subscribe: the head of the answer is too long")
}

// crowd is many readers that one goroutine serves by epoll.
type crowd struct {
	epoll   int
	readers map[int32]*reader

	from, to int64 // events stamped in [from, to) are measured
	lat      hist  // owned by the receiving goroutine until it ends

	seen, measured, lost atomic.Int64
	wake                 *sync.Cond
}

func dialCrowd(n int, url string, headers []string) (*crowd, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	c := &crowd{epoll: ep, readers: make(map[int32]*reader, n), wake: sync.NewCond(new(sync.Mutex))}
	for i := range n {
		r, err := dialReader(url, headers)
		if err != nil {
			return nil, fmt.Errorf("reader %d: %w", i, err)
		}
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(r.fd)}
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, r.fd, &ev); err != nil {
			return nil, err
		}
		c.readers[int32(r.fd)] = r
	}
	return c, nil
}

// receive runs until stop is closed.
func (c *crowd) receive(stop <-chan struct{}) {
	events := make([]unix.EpollEvent, 512)
	buf := make([]byte, 256<<10)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, err := unix.EpollWait(c.epoll, events, 20)
		if err != nil {
			continue // Interrupted.
		}
		for _, e := range events[:n] {
			c.read(c.readers[e.Fd], buf)
		}
		c.wake.L.Lock()
		c.wake.Broadcast()
		c.wake.L.Unlock()
	}
}

func (c *crowd) read(r *reader, buf []byte) {
	k := copy(buf, r.carry)
	n, err := unix.Read(r.fd, buf[k:])
	if err == unix.EAGAIN {
		return
	}
	if err != nil || n <= 0 || r.chunks.done {
		c.lost.Add(1)
		_ = unix.EpollCtl(c.epoll, unix.EPOLL_CTL_DEL, r.fd, nil)
		return
	}
	now := time.Now().UnixNano()
	b := buf[:k+len(r.chunks.strip(buf[k:k+n]))]
	seen, measured := int64(0), int64(0)
	rest := stamps(b, func(ns int64) {
		seen++
		if ns >= c.from && ns < c.to {
			measured++
			c.lat.add(time.Duration(now - ns))
		}
	})
	r.carry = append(r.carry[:0], rest...)
	if seen > 0 {
		c.seen.Add(seen)
		c.measured.Add(measured)
	}
}

func (c *crowd) close() {
	for _, r := range c.readers {
		_ = unix.Close(r.fd)
	}
	_ = unix.Close(c.epoll)
}
