// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestLinesThatRepeatAreLeftOut: a flood of one kind neither fills the disk nor hides the others, and is told of.
func TestLinesThatRepeatAreLeftOut(t *testing.T) {
	var out bytes.Buffer
	h := limitLines(slog.NewTextHandler(&out, nil)).WithAttrs([]slog.Attr{slog.String("a", "b")})
	now := time.Unix(1000, 0)
	log := func(message string) {
		if err := h.Handle(context.Background(), slog.NewRecord(now, slog.LevelWarn, message, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 {
		log(fmt.Sprintf("http: TLS handshake error from 192.0.2.%d", i))
	}
	log("publishes are refused: the disk is nearly full")
	if n := strings.Count(out.String(), "TLS handshake"); n != sameLinesMax {
		t.Errorf("%d lines of one kind", n)
	}
	if !strings.Contains(out.String(), "nearly full") {
		t.Error("a flood of one kind has hidden another")
	}
	out.Reset()
	now = now.Add(sameLinesWindow)
	log("http: TLS handshake error from 192.0.2.1")
	log("http: TLS handshake error from 192.0.2.2")
	if strings.Count(out.String(), "left_out=480") != 1 || strings.Count(out.String(), "\n") != 2 {
		t.Errorf("later:\n%s", &out)
	}
	for i := range 3 * kindsMax {
		log(fmt.Sprintf("%04d is a message of its own", i))
	}
	if n := len(h.(limitedHandler).lines.kinds); n > kindsMax {
		t.Errorf("%d kinds are remembered", n)
	}
}
