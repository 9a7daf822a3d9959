// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"signalbox/event"
)

// Events are foreign text: they must not be able to write to a terminal what they like.
func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain ä 🐻 text":       "plain ä 🐻 text",
		"two\nlines\tand\rone": "two lines and one",
		"\x1b[31mred\x07":      `\x1b[31mred\a`,
		"abc\u202edef":         `abc\u202edef`,
		"bad \xff utf":         "bad \ufffd utf",
		"quote ' stays":        "quote ' stays",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestWriteEvent(t *testing.T) {
	ev, err := event.DecodeDelivered([]byte(`{"position":"7","topic":"a.b","hlc":"5000.00001","superseded":true,"specversion":"1.0","id":"1","source":"/s","type":"t\u202e.x","data":"` +
		strings.Repeat("x", 500) + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := writeEvent(&b, ev, true); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	if !strings.HasPrefix(got, "@7  a.b  1970-01-01 ") || strings.Count(got, "\n") != 1 || !strings.Contains(got, `t\u202e.x`) ||
		!strings.HasSuffix(got, "… (502 bytes)  (superseded)\n") {
		t.Errorf("got %q", got)
	}
}

func TestByteSize(t *testing.T) {
	for in, want := range map[string]byteSize{"0": 0, "512": 512, "7B": 7, "64KiB": 64 << 10, "256MiB": 256 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40} {
		var got byteSize
		if err := got.Set(in); err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "-1", "1MB", "1 KiB", "KiB", "1.5GiB", "9999999TiB", "1k"} {
		var got byteSize
		if err := got.Set(in); err == nil {
			t.Errorf("%q was read as %d", in, got)
		}
	}
	for size, want := range map[byteSize]string{0: "0", 512: "512", 1 << 10: "1KiB", 1000: "1000", 256 << 20: "256MiB", 3 << 29: "1536MiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d is written as %s, want %s", uint64(size), got, want)
		}
	}
}
