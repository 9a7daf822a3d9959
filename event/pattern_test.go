// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/event"
)

// drawPattern draws patterns and names of few tokens, so that they meet.
func drawPattern(t *rapid.T, name string, wild bool) string {
	tokens := []string{"a", "b", "c"}
	if wild {
		tokens = append(tokens, "*", "*")
	}
	drawn := rapid.SliceOfN(rapid.SampledFrom(tokens), 1, 4).Draw(t, name)
	if wild && rapid.IntRange(0, 2).Draw(t, "rest") == 0 {
		drawn[len(drawn)-1] = ">"
	}
	text := strings.Join(drawn, ".")
	if drawn[0] != "*" && drawn[0] != ">" && rapid.IntRange(0, 5).Draw(t, "reserved") == 0 {
		text = "$" + text
	}
	return text
}

// TestPatternOfBoth: it selects what both select, and there is one whenever
// something is.
func TestPatternOfBoth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := event.ParsePattern(drawPattern(t, "p", true))
		if err != nil {
			t.Fatal(err)
		}
		q, err := event.ParsePattern(drawPattern(t, "q", true))
		if err != nil {
			t.Fatal(err)
		}
		topic := drawPattern(t, "topic", false)
		both, ok := p.Both(q)
		if got, want := ok && both.Match(topic), p.Match(topic) && q.Match(topic); got != want {
			t.Fatalf("%s and %s make %s: it selects %s: %t, want %t", p, q, both, topic, got, want)
		}
		if !ok {
			return
		}
		if again, err := event.ParsePattern(both.String()); err != nil || again != both {
			t.Fatalf("%s and %s make %q: %v", p, q, both, err)
		}
	})
}

func TestPatternExcept(t *testing.T) {
	p, err := event.ParsePattern(">")
	if err != nil {
		t.Fatal(err)
	}
	p = p.Except("bus.")
	for topic, want := range map[string]bool{"bus": true, "bus.main": false, "busy.main": true, "a.bus.main": true, "$dlq.x": false} {
		if p.Match(topic) != want || p.MatchBytes([]byte(topic)) != want {
			t.Errorf("%s selects %s: %t", p, topic, !want)
		}
	}
	if p.String() != "> except bus.>" || p.Except("").String() != ">" {
		t.Errorf("it is written %q, and without the exception %q", p, p.Except(""))
	}
	exact, err := event.ParsePattern("bus.main")
	if err != nil || !exact.Except("bus.").Match("bus.main") {
		t.Errorf("something was taken out of a single topic: %v", err)
	}
}
