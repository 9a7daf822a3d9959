// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// TestStampsSurviveAnyCut cuts the payload into chunks, and the stream into
// reads, at every size: a marker may be cut by either.
func TestStampsSurviveAnyCut(t *testing.T) {
	var payload []byte
	for i := range 20 {
		payload = fmt.Appendf(payload, "id: @%d.k3f9x0ab\ndata: {\"t\":\"@@%019d@@\"}\n\n", i, 1000+i)
	}
	for chunk := 1; chunk <= 40; chunk++ {
		var wire []byte
		for rest := payload; len(rest) > 0; {
			n := min(chunk, len(rest))
			wire = fmt.Appendf(wire, "%X;ext=a\r\n%s\r\n", n, rest[:n])
			rest = rest[n:]
		}
		wire = append(wire, "0\r\n\r\n"...)
		for piece := 1; piece <= 60; piece++ {
			if got := feed(wire, piece); got != 20 {
				t.Fatalf("chunks of %d, reads of %d: %d markers, want 20", chunk, piece, got)
			}
		}
	}
}

// feed does what crowd.read does, without a socket.
func feed(wire []byte, piece int) (found int) {
	var c chunks
	var carry []byte
	buf := make([]byte, 4096)
	for len(wire) > 0 {
		k := copy(buf, carry)
		n := copy(buf[k:], wire[:min(piece, len(wire))])
		wire = wire[n:]
		rest := stamps(buf[:k+len(c.strip(buf[k:k+n]))], func(ns int64) {
			if ns == int64(1000+found) {
				found++
			}
		})
		carry = append(carry[:0], rest...)
	}
	return found
}

func TestCountUntilStopsAtTheEndText(t *testing.T) {
	const end = "\nevent: signalbox.sync\n"
	stream := strings.Repeat("id: @1\ndata: {\"a\":1}\n\n", 50) + "event: signalbox.sync\nid: @50\ndata: {}\n\nid: @51\ndata: {}\n\n"
	for _, r := range []*iotestReader{{"whole", bytes.NewReader([]byte(stream)).Read}, {"bytes", iotest.OneByteReader(strings.NewReader(stream)).Read}} {
		got, err := countUntil(r, "\ndata:", end, time.Now())
		if err != nil || got.events != 50 {
			t.Errorf("%s: %d events, %v; want 50", r.name, got.events, err)
		}
	}
	if _, err := countUntil(strings.NewReader("data: {}\n\n"), "\ndata:", end, time.Now()); err == nil {
		t.Error("a stream that ends before the end text is no result")
	}
}

type iotestReader struct {
	name string
	read func([]byte) (int, error)
}

func (r *iotestReader) Read(b []byte) (int, error) { return r.read(b) }

func TestQuantilesAreWithinABucket(t *testing.T) {
	var h hist
	for i := range 10000 {
		h.add(time.Duration(i) * time.Microsecond)
	}
	for q, want := range map[float64]float64{.5: 5000, .99: 9900, .999: 9990} {
		if got := micros(h.quantile(q)); got < want*.98 || got > want*1.02 {
			t.Errorf("quantile %v is %v us, want %v", q, got, want)
		}
	}
}
