// SPDX-License-Identifier: Apache-2.0

package signature_test

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/signature"
)

// BenchmarkSign is what one attempt to deliver an event of the benchmark's size
// costs: 512 B of data in an envelope. Time of the CPU is what a delivery's cost
// is compared with, whoever else uses the machine.
func BenchmarkSign(b *testing.B) {
	body, at := bytes.Repeat([]byte("d"), 800), time.Unix(1_700_000_000, 0)
	for name, text := range map[string]string{"v1a": signature.NewPrivate(), "v1": signature.NewSecret()} {
		b.Run(name, func(b *testing.B) {
			key, err := signature.Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			keys := []signature.Key{key}
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				signature.Sign(keys, "msg_k3f9x0ab_u1c2d3e4f5g6h7i8_105", at, body)
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func cpu(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
