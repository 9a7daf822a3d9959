// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"encoding/json"
	"strings"
	"testing"

	"signalbox/event"
)

func TestParseCursor(t *testing.T) {
	for in, want := range map[string]event.Cursor{
		"@105.k3f9x0ab": {Position: 105, Incarnation: "k3f9x0ab"}, "@105": {Position: 105}, "@0": {},
		"@0.00000000": {Incarnation: "00000000"}, "@18446744073709551615": {Position: 1<<64 - 1},
		"@105.k3f9x0ab.900": {Position: 105, Incarnation: "k3f9x0ab", Began: 900},
	} {
		got, err := event.ParseCursor(in)
		if err != nil || got != want {
			t.Errorf("%q is %v (%v)", in, got, err)
		}
		if got.String() != in {
			t.Errorf("%q is written %q", in, got)
		}
		var back event.Cursor
		if text, err := json.Marshal(got); err != nil || json.Unmarshal(text, &back) != nil || back != got {
			t.Errorf("%q came back from JSON as %v", in, back)
		}
	}
	for _, in := range []string{
		"", "@", "105", "@+1", "@-1", "@01", "@00", "@1.", "@1.k3f9x0a", "@1.k3f9x0abc", "@1.K3F9X0AB", "@1.k3f9x0a-", "@1.k3f9x0ab.1", "@1.k3f9x0ab.02", "@1.k3f9x0ab.", "@1.k3f9x0ab.2.3", "@1..2",
		"@18446744073709551616", "@99999999999999999999999", " @1", "@1 ", "@1\n", "@٣", "@a", "now", "@@1",
	} {
		_, err := event.ParseCursor(in)
		wantCode(t, err, event.CodeCursorInvalid)
	}
	if err := new(event.Cursor).UnmarshalText([]byte("x")); err == nil {
		t.Error("nonsense is accepted as text")
	}
	for in, want := range map[string]bool{"@1": true, "@0x": true, "@": false, "@a": false, "1": false, "": false} {
		if event.LooksLikeCursor(in) != want {
			t.Errorf("LooksLikeCursor(%q) is %v", in, !want)
		}
	}
}

func TestCheckTopic(t *testing.T) {
	for _, name := range []string{"a", "fleet.tasks", "A-z_0.9", "$audit", "$dlq.sub-1", strings.Repeat("a", 255)} {
		if err := event.CheckTopic(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if event.ReservedTopic(name) != (name[0] == '$') {
			t.Errorf("%q reserved: %v", name, event.ReservedTopic(name))
		}
	}
	for _, name := range []string{"", ".", "a.", ".a", "a..b", "a b", "a/b", "ä", "a.*", ">", "*", "$", "$.a", "a.$b", "a$", "$$a", "a\n", "a\x00", strings.Repeat("a", 256)} {
		wantCode(t, event.CheckTopic(name), event.CodeTopicInvalid)
	}
}

func TestPatternMatch(t *testing.T) {
	cases := []struct {
		pattern   string
		yes, no   []string
		exactName bool
	}{
		{"fleet.tasks", []string{"fleet.tasks"}, []string{"fleet", "fleet.tasks.x", "fleet.task", "Fleet.tasks", ""}, true},
		{"fleet.*", []string{"fleet.tasks", "fleet.x"}, []string{"fleet", "fleet.a.b", "fleets.a", "fleet."}, false},
		{"*", []string{"a", "b"}, []string{"a.b", "$audit", ""}, false},
		{">", []string{"a", "a.b", "a.b.c"}, []string{"$audit", "$dlq.x", ""}, false},
		{"*.*", []string{"a.b"}, []string{"a", "a.b.c", "$dlq.x"}, false},
		{"*.b.>", []string{"a.b.c", "a.b.c.d"}, []string{"a.b", "a.c.d", "$a.b.c"}, false},
		{"a.>", []string{"a.b", "a.b.c"}, []string{"a", "ab.c", "b.a"}, false},
		{"$dlq.*", []string{"$dlq.x"}, []string{"dlq.x", "$dlq", "$dlq.x.y", "$other.x"}, false},
		{"$dlq.>", []string{"$dlq.x", "$dlq.x.y"}, []string{"$dlq"}, false},
		{"$audit", []string{"$audit"}, []string{"audit"}, true},
	}
	for _, c := range cases {
		p, err := event.ParsePattern(c.pattern)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		if name, exact := p.Exact(); exact != c.exactName || exact && name != c.pattern || p.String() != c.pattern {
			t.Errorf("%q is exact: %v", p, exact)
		}
		for _, topic := range c.yes {
			if !p.Match(topic) {
				t.Errorf("%q does not match %q", c.pattern, topic)
			}
		}
		for _, topic := range c.no {
			if p.Match(topic) {
				t.Errorf("%q matches %q", c.pattern, topic)
			}
		}
		for _, topic := range append(c.yes, c.no...) {
			if matches := p.MatchBytes([]byte(topic)); matches != p.Match(topic) || matches && !strings.HasPrefix(topic, p.Beginning()) {
				t.Errorf("%q and the bytes of %q: %t, beginning %q", c.pattern, topic, matches, p.Beginning())
			}
		}
	}
	for _, in := range []string{"", "a.", ".a", "a..b", "a*", "*a", "a.>.b", ">.a", "**", ">>", "$*", "$>", "$", "a.$b", "a,b", "a b", "#", "+", strings.Repeat("a", 256)} {
		_, err := event.ParsePattern(in)
		wantCode(t, err, event.CodeTopicInvalid)
	}
	if (event.Pattern{}).Match("") || (event.Pattern{}).Match("a") {
		t.Error("the zero pattern matches")
	}
}

func TestParsePatterns(t *testing.T) {
	got, err := event.ParsePatterns("a.*,b.>,c")
	if err != nil || len(got) != 3 || got[1].String() != "b.>" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := event.ParsePatterns(strings.Repeat("a,", event.MaxPatterns-1) + "a"); err != nil || len(got) != event.MaxPatterns {
		t.Errorf("at the limit: %d, %v", len(got), err)
	}
	for _, in := range []string{"", ",", "a,", ",a", "a, b", "a,,b", strings.Repeat("a,", event.MaxPatterns) + "a"} {
		_, err := event.ParsePatterns(in)
		wantCode(t, err, event.CodeTopicInvalid)
	}
}

func TestLookupJSON(t *testing.T) {
	const data = ` {"order":{"id":"A\u00e9\"","n":1.50,"ok":true,"no":false,"nil":null,"list":[1],"deep":{"":{"x":"y"}}},"o\u0072d":"esc","a.b":1,"skip":[{"x":1}],"last":"z"} `
	for path, want := range map[string]string{
		"order.id": `Aé"`, "order.n": "1.50", "order.ok": "true", "order.no": "false", "ord": "esc", "last": "z", "order.list[0]": "1", "skip[0].x": "1",
	} {
		if got, ok := event.LookupJSON([]byte(data), path); !ok || got != want {
			t.Errorf("%s is %q, %v", path, got, ok)
		}
	}
	for _, path := range []string{"", "order", "order.nil", "order.list", "order.list.0", "order.list", "order.list[1]", "order.list[00]", "order[0]", "order.list[0", "order.list[0]x", "order.list.[0]", "order.x", "x", "a.b", "order.id.x", "Order.id", "order..x", "order.deep"} {
		if got, ok := event.LookupJSON([]byte(data), path); ok {
			t.Errorf("%s is %q", path, got)
		}
	}
	for path, want := range map[string]string{"[0].id": "a", "[1][0]": "b", "[1][1].c[0]": "d"} {
		if got, ok := event.LookupJSON([]byte(`[{"id":"a"},["b",{"c":["d"]}]]`), path); !ok || got != want {
			t.Errorf("%s is %q, %v", path, got, ok)
		}
	}
	for _, data := range []string{"", "null", `"a"`, "[1]", "{", `{"a"`, `{"a":`, `{"a":x}`, `{"a":"\xff"}`, `{"b":1 "a":2}`} {
		if got, ok := event.LookupJSON([]byte(data), "a"); ok {
			t.Errorf("a in %s is %q", data, got)
		}
	}
}

func TestCheckPathAndKey(t *testing.T) {
	for _, path := range []string{"a", "order.id", "Ünï.code", "a b.c", strings.Repeat("a.", 15) + "a", "items[0].id", "[0]", "[0][99999].a", "a[10][0]"} {
		if err := event.CheckPath(path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, path := range []string{"", ".", "a.", ".a", "a..b", "a\n", "\xff", strings.Repeat("a.", 16) + "a", strings.Repeat("a", 257),
		"a[", "a[]", "a[0", "a]", "a[x]", "a[-1]", "a[01]", "a[+1]", "a[ 1]", "a[1 ]", "a[100000]", "a[0]b", "a[0].", "a.[0]", ".[0]", "a[*]", "a[0]]", strings.Repeat("[0]", 17)} {
		wantCode(t, event.CheckPath(path), event.CodePolicyInvalid)
	}
	for _, key := range []string{"a", "a/b c", "🐻", strings.Repeat("a", event.MaxKeyBytes)} {
		if err := event.CheckKey(key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range []string{"", "a\n", "\x00", "\xff", strings.Repeat("a", event.MaxKeyBytes+1)} {
		wantCode(t, event.CheckKey(key), event.CodeKeyInvalid)
	}
}
