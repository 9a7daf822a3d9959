// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// sameLinesMax is how many lines of one kind are logged in sameLinesWindow; the next window tells how many were left
	// out. A client that fails ten thousand times a second must not fill the disk, nor hide what else happens.
	sameLinesMax    = 20
	sameLinesWindow = 10 * time.Second
	// kindBytes is how much of a message says of what kind a line is: those of net/http go on with an address.
	kindBytes = 24
	// kindsMax bounds the memory.
	kindsMax = 1000
)

// limitedHandler leaves out lines that repeat themselves too often.
type limitedHandler struct {
	slog.Handler
	lines *lines
}

// lines counts what was logged, for a handler and all that were made from it.
type lines struct {
	mu    sync.Mutex
	kinds map[string]*kind // guarded by mu
}

type kind struct {
	began  time.Time // of the window
	logged int       // in the window
	left   int       // out of it
}

func limitLines(h slog.Handler) slog.Handler {
	return limitedHandler{h, &lines{kinds: map[string]*kind{}}}
}

// Handle implements [slog.Handler].
func (h limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	left, ok := h.lines.take(r.Message, r.Time)
	if !ok {
		return nil
	}
	if left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", left))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return limitedHandler{h.Handler.WithAttrs(attrs), h.lines}
}

// WithGroup implements [slog.Handler].
func (h limitedHandler) WithGroup(name string) slog.Handler {
	return limitedHandler{h.Handler.WithGroup(name), h.lines}
}

// take says whether a line may be logged, and how many like it were left out since the last one.
func (l *lines) take(message string, now time.Time) (left int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := message[:min(len(message), kindBytes)]
	k := l.kinds[name]
	if k == nil {
		if len(l.kinds) >= kindsMax {
			clear(l.kinds)
		}
		k = &kind{began: now}
		l.kinds[name] = k
	}
	if now.Sub(k.began) >= sameLinesWindow {
		left = k.left
		*k = kind{began: now}
	}
	if k.logged >= sameLinesMax {
		k.left++
		return 0, false
	}
	k.logged++
	return left, true
}
