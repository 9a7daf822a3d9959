// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/eventlog"
	"signalbox/ticket"
)

// BenchmarkReplay applies a log of ticket messages again, in groups of 100: every other
// one opens a ticket, the rest are heartbeats. With -benchtime 1000000x it is that of a
// million messages. The file system is memory, so what is measured is decoding, deciding
// and writing.
func BenchmarkReplay(b *testing.B) {
	const group = 100
	r := staffedRig(b)
	defer r.close()
	draw := func(n int) said {
		if n%2 == 0 {
			s := opened(n)
			s.Ticket = fmt.Sprint("T", n)
			return s
		}
		return said{id: n, Message: eventlog.Message{Type: ticket.TypeHeartbeat, Ticket: ticket.None, From: "net", To: "platform-ops", Payload: "p"}}
	}
	var used time.Duration
	b.ResetTimer()
	for n := 0; n < b.N; n += group {
		b.StopTimer()
		var log [][]byte
		for i := n; i < min(n+group, b.N); i++ {
			log = append(log, draw(i).proposal(b).AppendBinary(nil))
		}
		b.StartTimer()
		before := cpuTime(b)
		proposals := make([]*eventlog.Proposal, len(log))
		for i, encoded := range log {
			var err error
			if proposals[i], err = eventlog.DecodeProposal(encoded); err != nil {
				b.Fatal(err)
			}
		}
		r.stamp(proposals)
		for _, result := range r.apply(proposals) {
			if result.Err != nil {
				b.Fatal(result.Err)
			}
		}
		used += cpuTime(b) - before
	}
	b.StopTimer()
	perSecond := float64(b.N) / b.Elapsed().Seconds()
	b.ReportMetric(perSecond, "messages/s")
	b.ReportMetric(1e6/perSecond, "s/million")
	b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
}

// cpuTime is what the process has used so far, for machines that others use, too.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
