// SPDX-License-Identifier: Apache-2.0

package validjson_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/internal/validjson"
)

// FuzzReader: of valid JSON the reader finds what a strict decoder finds, and of
// anything else it finds an end.
func FuzzReader(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,-2.5e3,true,false,null,"x\"y\\",{}],"b\u0061":{"c":[]}}`, " [ 1 , 2 ] ", `"\\"`, `"\\\""`, "0", `{"":""}`, `[[],{}]`, `{"a" : 1 , "b":[ "c" ,"d"]}`,
		`{"a}`, `{a}`, `[}`, `{"a"`, `}`, "", `"`, `"\`, `[1 2`, `{{`, `:`, `{,}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := validjson.NewReader(text)
		if !jsontext.Value(text).IsValid() {
			for range len(text) + 1 {
				if kind, _, _ := r.Next(); kind == validjson.None {
					return
				}
			}
			t.Fatalf("no end of %q after %d steps", text, len(text)+1)
		}
		d := jsontext.NewDecoder(bytes.NewBuffer(text))
		for {
			kind, raw, name := r.Next()
			token, err := d.ReadToken()
			if err == io.EOF {
				if kind != validjson.None {
					t.Fatalf("%q goes on with %q", text, kind)
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			want := validjson.Kind(token.Kind())
			if want == ']' {
				want = validjson.End
			}
			within, length := d.StackIndex(d.StackDepth())
			if wantName := within == jsontext.KindBeginObject && length%2 == 1 && want == validjson.String; kind != want || name != wantName {
				t.Fatalf("%q has at %d %q (name: %v) where %q (%v) is", text, r.Offset(), kind, name, want, wantName)
			}
			if kind == validjson.String && string(validjson.Text(raw)) != token.String() {
				t.Fatalf("%s is not %q", raw, token.String())
			}
			if kind == validjson.Number && string(raw) != token.String() {
				t.Fatalf("%s is not %s", raw, token.String())
			}
		}
		compact := jsontext.Value(bytes.Clone(text))
		if err := compact.Compact(); err != nil {
			t.Fatal(err)
		}
		if spaced := len(compact) < len(text); r.Spaced() != spaced {
			t.Fatalf("%q has white space: %v", text, spaced)
		}
		whole := validjson.NewReader(text)
		if !whole.Skip(nil) || whole.Kind() != validjson.None {
			t.Fatalf("%q is skipped up to %d", text, whole.Offset())
		}
	})
}

func TestLookup(t *testing.T) {
	const object = ` {"a":{"b":1}, "b" : [2, {"b":3}] ,"\u0063":"x\ty","d":"" }`
	for name, want := range map[string]string{"a": `{"b":1}`, "b": `[2, {"b":3}]`, "c": `"x\ty"`, "d": `""`, "e": ""} {
		if got := string(validjson.Lookup([]byte(object), name)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if text, ok := validjson.LookupText([]byte(object), "c"); text != "x\ty" || !ok {
		t.Errorf("c says %q, %v", text, ok)
	}
	for _, name := range []string{"a", "b", "e"} {
		if text, ok := validjson.LookupText([]byte(object), name); ok {
			t.Errorf("%s says %q", name, text)
		}
	}
	for _, text := range []string{`[{"a":1}]`, `"a"`, "1", ""} {
		if got := validjson.Lookup([]byte(text), "a"); got != nil {
			t.Errorf("%s has %s", text, got)
		}
	}
}

// TestSkipStopsAtWhatIsNotTaken: names are not asked about.
func TestSkipStopsAtWhatIsNotTaken(t *testing.T) {
	text := func(kind validjson.Kind, _ []byte) bool { return kind != validjson.Number }
	for value, want := range map[string]bool{`{"1":"1","a":[true,{"b":null}]}`: true, `{"a":[true,{"b":0}]}`: false, "1": false, `"1"`: true, `[]`: true} {
		r := validjson.NewReader([]byte(value))
		if r.Skip(text) != want {
			t.Errorf("%s: %v", value, !want)
		}
	}
}
