// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"signalbox/internal/broker"
	"signalbox/internal/transport/web"
)

// BenchmarkPublish measures durable publishing through HTTP, for each event,
// over connections that stay open. The client is as cheap as can be, so that a
// profile shows the server.
func BenchmarkPublish(b *testing.B) {
	for _, c := range []struct{ conns, events int }{{1, 1}, {64, 1}, {16, 100}} {
		b.Run(fmt.Sprintf("conns=%d/events=%d", c.conns, c.events), func(b *testing.B) {
			address := serveBench(b)
			var id, left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			done := make(chan error, c.conns)
			for range c.conns {
				go func() { done <- publishBench(address, c.events, &id, &left) }()
			}
			for range c.conns {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func serveBench(b *testing.B) string {
	b.Helper()
	signalbox, err := broker.Open(broker.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	server, err := web.New(web.Options{Broker: signalbox})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(ctx, listener) }()
	b.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			b.Error(err)
		}
		if err := signalbox.Close(); err != nil {
			b.Error(err)
		}
	})
	return listener.Addr().String()
}

func publishBench(address string, events int, id, left *atomic.Int64) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	var request []byte
	for left.Add(-int64(events)) >= 0 {
		if request = singleRequest(request[:0], id); events > 1 {
			request = batchRequest(request[:0], events, id)
		}
		if _, err := conn.Write(request); err != nil {
			return err
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", response.Status)
		}
	}
	return nil
}

const benchData = 512

func appendData(dst []byte) []byte {
	dst = append(dst, `{"pad":"`...)
	return append(append(dst, bytes.Repeat([]byte("x"), benchData-10)...), `"}`...)
}

func singleRequest(dst []byte, id *atomic.Int64) []byte {
	n := id.Add(1)
	dst = fmt.Appendf(dst, "POST /v1/topics/bench/events HTTP/1.1\r\nHost: 127.0.0.1\r\nce-specversion: 1.0\r\nce-id: %d\r\nce-source: /bench\r\nce-type: bench.event\r\nce-subject: key-%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", n, n*7919%1000, benchData)
	return appendData(dst)
}

func batchRequest(dst []byte, events int, id *atomic.Int64) []byte {
	body := []byte("[")
	for i := range events {
		if i > 0 {
			body = append(body, ',')
		}
		n := id.Add(1)
		body = fmt.Appendf(body, `{"specversion":"1.0","id":"%d","source":"/bench","type":"bench.event","subject":"key-%d","data":`, n, n*7919%1000)
		body = append(appendData(body), '}')
	}
	body = append(body, ']')
	dst = fmt.Appendf(dst, "POST /v1/topics/bench/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/cloudevents-batch+json\r\nContent-Length: %d\r\n\r\n", len(body))
	return append(dst, body...)
}
