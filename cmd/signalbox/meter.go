// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progressEvery is how often a long command says how far it is.
const progressEvery = 500 * time.Millisecond

// meter says now and then on standard error how far a command is: on a terminal, over the same line.
type meter struct {
	w          io.Writer
	start, end string

	mu   sync.Mutex
	last time.Time // guarded by mu
}

func (a *app) meter() *meter {
	m := &meter{w: a.err, end: "\n", last: time.Now()}
	if isTerminal(a.err) {
		m.start, m.end = "\r\x1b[K", ""
	}
	return m
}

func (m *meter) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.last) < progressEvery {
		return
	}
	m.last = time.Now()
	fmt.Fprint(m.w, m.start, fmt.Sprintf(format, args...), m.end)
}

// clear removes the line, before something else is written.
func (m *meter) clear() { fmt.Fprint(m.w, m.start) }

// copying returns a function to tell of bytes that were copied, out of a total that may be unknown (0).
func (m *meter) copying(what string, total int64) func(bytes int) {
	done := int64(0)
	return func(bytes int) {
		done += int64(bytes)
		if total > 0 {
			m.say("%s: %s of %s, %d %%", what, sizeText(done), sizeText(total), min(100, done*100/total))
		} else {
			m.say("%s: %s", what, sizeText(done))
		}
	}
}

// sizeText is a size for people, with one decimal.
func sizeText(n int64) string {
	for _, u := range sizeUnits {
		if u.bytes > 1 && n >= int64(u.bytes) {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.bytes), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// existingDir refuses what is no directory: a command that looks at one must not hide a misspelt name.
func existingDir(dir string) error {
	if info, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%w; name the data directory with --data", err)
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory; name the data directory with --data", dir)
	}
	return nil
}
