// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"testing"

	"signalbox/internal/egress"
)

// BenchmarkCheck is what the guard costs a connection. Connections are kept, so
// it is more than what it costs a delivery.
func BenchmarkCheck(b *testing.B) {
	allowed, err := egress.ParseAllowed([]string{"127.0.0.0/8", "10.0.0.0/8", "sink.internal"})
	if err != nil {
		b.Fatal(err)
	}
	g := egress.NewGuard(egress.Options{Allowed: allowed})
	for name, address := range map[string]string{"public": "93.184.215.14:443", "public6": "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:443", "allowed": "127.0.0.1:8080"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := g.Check(address, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
