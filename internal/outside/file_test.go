// SPDX-License-Identifier: Apache-2.0

package outside_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/outside"
)

// TestFileGoesOnWhereverAWriteWasInterrupted: what is brought again after that makes the
// same file, whatever piece was cut at whatever byte.
func TestFileGoesOnWhereverAWriteWasInterrupted(t *testing.T) {
	dir, n := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		name := filepath.Join(dir, strconv.Itoa(n))
		lines := [][]byte{[]byte("start\n")} // goes with the first entry
		for i := range rapid.IntRange(1, 30).Draw(t, "entries") {
			lines = append(lines, []byte(strings.Repeat(strconv.Itoa(i)+";", rapid.SampledFrom([]int{1, 3, 3, 3, 3, 40_000}).Draw(t, "length"))+"\n"))
		}
		want := bytes.Join(lines, nil)
		f := outside.NewFile(name)
		for next := 0; next < len(lines); {
			last, err := f.Last(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			next = 0
			for i := 1; last != nil && next == 0; i++ {
				if bytes.Equal(bytes.TrimSuffix(lines[i], []byte("\n")), last) {
					next = i + 1
				}
			}
			end := min(len(lines), max(next, 1)+rapid.IntRange(1, 10).Draw(t, "piece"))
			if taken, err := f.Append(context.Background(), uint64(next), bytes.Join(lines[next:end], nil)); err != nil || taken != nil {
				t.Fatalf("adding line %d: %q, %v", next, taken, err)
			}
			next = end
			if !rapid.Bool().Draw(t, "interrupted") {
				continue
			}
			got, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			size := rapid.IntRange(0, len(got)).Draw(t, "size")
			if err := os.Truncate(name, int64(size)); err != nil {
				t.Fatal(err)
			}
			f, next = outside.NewFile(name), 0
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the file has %d bytes and is to have %d, %v", len(got), len(want), err)
		}
	})
}

// TestFileOfAnotherLogIsNotGoneOnWith: the beginning of a line at its end is part of it.
func TestFileOfAnotherLogIsNotGoneOnWith(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("start\nfirst\nsec"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := outside.NewFile(name)
	if last, err := f.Last(context.Background()); err != nil || string(last) != "first" {
		t.Fatalf("the last line is %q, %v", last, err)
	}
	if _, err := f.Append(context.Background(), 1, []byte("other\n")); err == nil {
		t.Error("another line is put behind the beginning of one")
	}
	if _, err := f.Append(context.Background(), 1, []byte("second\n")); err != nil {
		t.Error(err)
	}
}
