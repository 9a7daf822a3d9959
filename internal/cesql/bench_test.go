// SPDX-License-Identifier: Apache-2.0

package cesql_test

import (
	"strings"
	"testing"

	"signalbox/internal/cesql"
)

// The expression and the event of the figures in bench/README.md.
const benchExpression = `type = 'com.example.task.completed' AND source LIKE 'spiffe://domain/fleet/%' AND EXISTS severity`

func benchEvent() *cesql.Event {
	return newEvent(attrs{"type": "com.example.task.completed", "source": "spiffe://domain/fleet/drones/17", "subject": "task-1",
		"severity": 5, "partitionkey": "task-1", "time": "2026-11-29T12:00:00Z", "correlationid": "c-1"}, payload)
}

// TestEvaluationDoesNotAllocate: in a machine that has been used.
func TestEvaluationDoesNotAllocate(t *testing.T) {
	e := benchEvent()
	for _, text := range []string{
		benchExpression,
		`EXISTS data.error_code AND source LIKE 'spiffe://domain/fleet/%'`,
		`data.price > 10.25 AND data.big > data.long OR data.items[*].code = 'B'`,
		`data.escaped LIKE '%"🐻' AND CONCAT_WS('-', UPPER(type), SUBSTRING(subject, 2, 3), severity) != ''`,
		`severity + INT('5') * 3 % 4 = 5 XOR NOT nothing IN (1, 'x')`,
		`subject IN ('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'task-1')`,
		`nothing = 1`,
	} {
		x := mustParse(t, text)
		var m cesql.Machine
		if n := testing.AllocsPerRun(100, func() { m.Match(x, e); m.Eval(x, e) }); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

func BenchmarkEvaluate(b *testing.B) {
	x, e, m := mustParse(b, benchExpression), benchEvent(), &cesql.Machine{}
	b.ReportAllocs()
	for b.Loop() {
		if !m.Match(x, e) {
			b.Fatal("it does not match")
		}
	}
}

func BenchmarkEvaluateData(b *testing.B) {
	x, e, m := mustParse(b, `type = 'com.example.task.completed' AND data.items[2].n = 3`), benchEvent(), &cesql.Machine{}
	b.ReportAllocs()
	for b.Loop() {
		if !m.Match(x, e) {
			b.Fatal("it does not match")
		}
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		mustParse(b, benchExpression)
	}
}

// BenchmarkExplainHostile explains about the costliest expression that is
// accepted: a part is evaluated once, however deep it lies.
func BenchmarkExplainHostile(b *testing.B) {
	deep := `LENGTH(CONCAT(data.blob, data.blob)) > 0`
	for range 26 {
		deep = "NOT (" + deep + ")"
	}
	text := deep
	for len(text)+len(deep) < cesql.MaxBytes && strings.Count(text, "CONCAT") < cesql.MaxCalls/2 {
		text += " AND " + deep
	}
	e := newEvent(attrs{}, `{"blob":"`+strings.Repeat("x", 30_000)+`"}`)
	x, m := mustParse(b, text), &cesql.Machine{}
	for b.Loop() {
		m.Explain(x, e)
	}
}
