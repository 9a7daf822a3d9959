// SPDX-License-Identifier: Apache-2.0

package porttest_test

import (
	"net"
	"testing"

	"signalbox/internal/porttest"
)

// TestHeldAddressIsListenedAtAgainAndAgain, and answers nobody in between.
func TestHeldAddressIsListenedAtAgainAndAgain(t *testing.T) {
	address, release, err := porttest.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for range 3 {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			t.Fatalf("%s answers, and nobody listens", address)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
}
