// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/sql/v2/parser"

	"signalbox/internal/cesql"
)

const expression = `type = 'com.example.task.completed' AND source LIKE 'spiffe://domain/fleet/%' AND EXISTS severity`

func benchEvent() *both {
	b := newBoth(map[string]any{"severity": int32(5), "subject": "task-1"})
	b.ours.Reset()
	for name, text := range map[string]string{"id": "1", "source": "spiffe://domain/fleet/drones/17", "type": "com.example.task.completed", "subject": "task-1"} {
		b.ours.Set([]byte(name), cesql.TextValue([]byte(text)))
	}
	b.ours.Set([]byte("severity"), cesql.IntegerValue(5))
	b.theirs.SetSource("spiffe://domain/fleet/drones/17")
	b.theirs.SetType("com.example.task.completed")
	return b
}

// ratio runs ours and theirs in turns and reports how many times as fast ours is,
// beside the time of one of ours.
func ratio(b *testing.B, theirTimes int, ours, theirs func()) {
	var ourTime, theirTime time.Duration
	our, their := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		for range 1000 {
			ours()
		}
		ourTime += time.Since(began)
		our += 1000
		b.StopTimer()
		began = time.Now()
		for range theirTimes {
			theirs()
		}
		theirTime += time.Since(began)
		their += theirTimes
		b.StartTimer()
	}
	a, c := float64(ourTime)/float64(our), float64(theirTime)/float64(their)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(a, "ours-ns")
	b.ReportMetric(c, "theirs-ns")
	b.ReportMetric(c/a, "times-as-fast")
}

func BenchmarkEvaluation(b *testing.B) {
	e := benchEvent()
	x, err := cesql.Parse(expression, cesql.Options{})
	if err != nil {
		b.Fatal(err)
	}
	y, err := parser.Parse(expression)
	if err != nil {
		b.Fatal(err)
	}
	var m cesql.Machine
	ratio(b, 100, func() {
		if !m.Match(x, &e.ours) {
			b.Fatal("ours says no")
		}
	}, func() {
		if v, err := evaluate(y, &e.theirs); err != nil || v != true {
			b.Fatal(v, err)
		}
	})
}

func BenchmarkParsing(b *testing.B) {
	ratio(b, 100, func() {
		if _, err := cesql.Parse(expression, cesql.Options{}); err != nil {
			b.Fatal(err)
		}
	}, func() {
		if _, err := parser.Parse(expression); err != nil {
			b.Fatal(err)
		}
	})
}
