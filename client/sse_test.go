// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"signalbox/client"
)

// show writes a block in a form that tests can compare.
func show(b client.Block) string {
	return fmt.Sprintf("event=%q id=%q/%t data=%q/%t retry=%s", b.Event, b.ID, b.HasID, b.Data, b.HasData, b.Retry)
}

func parseAll(t *testing.T, r io.Reader) []string {
	t.Helper()
	var got []string
	if err := client.ParseSSE(r, 1<<20, func(b client.Block) { got = append(got, show(b)) }); err != nil {
		t.Fatalf("parse: %v", err)
	}
	return got
}

// The table follows the HTML standard, section 9.2.6, and the examples of 9.2.5 and 9.2.7.
func TestSSEParser(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want []string
	}{
		"two data lines are joined by LF": {"data: YHOO\ndata: +2\ndata: 10\n\n",
			[]string{`event="" id=""/false data="YHOO\n+2\n10"/true retry=0s`}},
		"a comment alone dispatches nothing":      {": test stream\n\n", nil},
		"an id stays for the blocks that follow":  {"data: 1\nid: @1\n\ndata: 2\n\n", []string{`event="" id="@1"/true data="1"/true retry=0s`, `event="" id="@1"/false data="2"/true retry=0s`}},
		"an empty id resets it":                   {"id: @1\n\nid\n\n", []string{`event="" id="@1"/true data=""/false retry=0s`, `event="" id=""/true data=""/false retry=0s`}},
		"an id with NUL is ignored":               {"id: @1\nid: @\x002\ndata: x\n\n", []string{`event="" id="@1"/true data="x"/true retry=0s`}},
		"a heartbeat moves the id without data":   {": \nid: @7.k3f9x0ab\n\n", []string{`event="" id="@7.k3f9x0ab"/true data=""/false retry=0s`}},
		"only one space behind the colon goes":    {"data:  two\ndata:none\n\n", []string{`event="" id=""/false data=" two\nnone"/true retry=0s`}},
		"a field without a colon has no value":    {"data\ndata\n\n", []string{`event="" id=""/false data="\n"/true retry=0s`}},
		"empty data is data":                      {"data:\n\n", []string{`event="" id=""/false data=""/true retry=0s`}},
		"unknown fields and odd names are passed": {"foo: bar\nData: no\n data: no\ndata: yes\n\n", []string{`event="" id=""/false data="yes"/true retry=0s`}},
		"the last event field wins":               {"event: a\nevent: b\ndata: 1\n\n", []string{`event="b" id=""/false data="1"/true retry=0s`}},
		"the event field is for one block":        {"event: a\ndata: 1\n\ndata: 2\n\n", []string{`event="a" id=""/false data="1"/true retry=0s`, `event="" id=""/false data="2"/true retry=0s`}},
		"CRLF ends one line, not two":             {"data: 1\r\ndata: 2\r\n\r\ndata: 3\r\n\r\n", []string{`event="" id=""/false data="1\n2"/true retry=0s`, `event="" id=""/false data="3"/true retry=0s`}},
		"CR alone ends a line":                    {"data: 1\rdata: 2\r\r", []string{`event="" id=""/false data="1\n2"/true retry=0s`}},
		"CR, LF and CRLF may be mixed":            {"data: 1\rdata: 2\ndata: 3\r\n\n", []string{`event="" id=""/false data="1\n2\n3"/true retry=0s`}},
		"one byte order mark goes":                {"\xef\xbb\xbfdata: 1\n\n", []string{`event="" id=""/false data="1"/true retry=0s`}},
		"a second byte order mark stays":          {"\xef\xbb\xbf\xef\xbb\xbfdata: 1\n\n", []string{`event="" id=""/false data=""/false retry=0s`}},
		"a block without its end is discarded":    {"data: 1\n\ndata: 2\n", []string{`event="" id=""/false data="1"/true retry=0s`}},
		"a line without its end is discarded":     {"data: 1\n\ndata: 2", []string{`event="" id=""/false data="1"/true retry=0s`}},
		"retry takes digits alone":                {"retry: 2500\n\nretry: 1s\n\nretry: -1\n\nretry:\n\n", []string{`event="" id=""/false data=""/false retry=2.5s`, `event="" id=""/false data=""/false retry=0s`, `event="" id=""/false data=""/false retry=0s`, `event="" id=""/false data=""/false retry=0s`}},
		"an absurd retry is ignored":              {"retry: 99999999999999999999\n\n", []string{`event="" id=""/false data=""/false retry=0s`}},
		"a colon in a value stays":                {"data: a:b: c\n\n", []string{`event="" id=""/false data="a:b: c"/true retry=0s`}},
		"blank lines between blocks are nothing":  {"\n\n\ndata: 1\n\n\n\n", []string{`event="" id=""/false data="1"/true retry=0s`}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parseAll(t, strings.NewReader(tc.in)); !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
			if got := parseAll(t, iotest.OneByteReader(strings.NewReader(tc.in))); !slices.Equal(got, tc.want) {
				t.Errorf("byte by byte: got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// An event must not wait for a byte that may never come: behind a CR the parser does not ask for the next one.
func TestSSEParserDispatchesAtCR(t *testing.T) {
	in := io.MultiReader(strings.NewReader("data: 1\r\r"), iotest.ErrReader(io.ErrUnexpectedEOF))
	var got []string
	err := client.ParseSSE(in, 1<<20, func(b client.Block) { got = append(got, string(b.Data)) })
	if !slices.Equal(got, []string{"1"}) || err != io.ErrUnexpectedEOF {
		t.Errorf("got %q, %v; want the block, then the error", got, err)
	}
}

// What a broken connection leaves is an error, not an end: the follower must tell the two apart.
func TestSSEParserBounds(t *testing.T) {
	for name, in := range map[string]string{
		"one endless line":       "data: " + strings.Repeat("x", 4000),
		"a long line":            "data: " + strings.Repeat("x", 4000) + "\n\n",
		"many lines of one":      strings.Repeat("data: "+strings.Repeat("x", 500)+"\n", 10) + "\n",
		"an endless comment":     ":" + strings.Repeat("x", 4000),
		"a long id":              "id: " + strings.Repeat("x", 4000) + "\n\n",
		"a line over two buffer": "data: " + strings.Repeat("x", 200<<10) + "\n\n",
	} {
		err := client.ParseSSE(strings.NewReader(in), 2000, func(client.Block) { t.Errorf("%s: a block came through", name) })
		if err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("%s: got %v, want the bound", name, err)
		}
	}
	long := strings.Repeat("x", 200<<10)
	if got := parseAll(t, strings.NewReader("data: "+long+"\n\n")); len(got) != 1 || !strings.Contains(got[0], long) {
		t.Error("a long line within the bound did not come through whole")
	}
}

// reference is a second reading of the standard's algorithm, slow and plain, for streams that are there as a whole.
func reference(in string) []string {
	in = strings.TrimPrefix(in, "\xef\xbb\xbf")
	in = strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(in, "\n")
	lines = lines[:len(lines)-1] // What is behind the last line end is unfinished.
	var out []string
	lastID, seen, b, data := "", false, client.Block{}, []string(nil)
	for _, line := range lines {
		if line == "" {
			if seen {
				b.ID, b.Data, b.HasData = lastID, []byte(strings.Join(data, "\n")), data != nil
				out = append(out, show(b))
			}
			seen, b, data = false, client.Block{}, nil
			continue
		}
		if strings.HasPrefix(line, ":") {
			continue
		}
		seen = true
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "data":
			data = append(data, value)
		case "event":
			b.Event = value
		case "id":
			if !strings.Contains(value, "\x00") {
				lastID, b.HasID = value, true
			}
		case "retry":
			b.Retry = client.RetryField(value)
		}
	}
	return out
}

func FuzzSSEParser(f *testing.F) {
	for _, s := range []string{"data: 1\r\rid:\n\n", "\xef\xbb\xbfdata\r\n\r\n", "retry: 12\n: c\nevent: e\n\n", "data: a\n\rdata: b\r\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		want := reference(in)
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in)), "halves": iotest.HalfReader(strings.NewReader(in)),
		} {
			if got := parseAll(t, r); !slices.Equal(got, want) {
				t.Errorf("%s: got  %q\nwant %q", name, got, want)
			}
		}
	})
}
