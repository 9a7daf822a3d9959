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

// BenchmarkPublish measures durable publishing through HTTP, one event for
// each request, over connections that stay open. The client is as cheap as can
// be, so that a profile shows the server.
func BenchmarkPublish(b *testing.B) {
	for _, conns := range []int{1, 64} {
		b.Run(fmt.Sprint("conns=", conns), func(b *testing.B) {
			address := serveBench(b)
			var id, left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			done := make(chan error, conns)
			for range conns {
				go func() { done <- publishBench(address, &id, &left) }()
			}
			for range conns {
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

func publishBench(address string, id, left *atomic.Int64) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	data := append(append([]byte(`{"pad":"`), bytes.Repeat([]byte("x"), 502)...), `"}`...)
	var request []byte
	for left.Add(-1) >= 0 {
		n := id.Add(1)
		request = fmt.Appendf(request[:0], "POST /v1/topics/bench/events HTTP/1.1\r\nHost: 127.0.0.1\r\nce-specversion: 1.0\r\nce-id: %d\r\nce-source: /bench\r\nce-type: bench.event\r\nce-subject: key-%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", n, n*7919%1000, len(data))
		request = append(request, data...)
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
