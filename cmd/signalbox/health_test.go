// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A broker that takes connections and says nothing is not ready, like one that is not
// there: both may be well in a moment.
func TestHealthOfASilentBroker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody ever answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	a := &app{stdio: stdio{out: io.Discard, err: io.Discard}, url: "http://" + l.Addr().String(), format: "text"}
	for _, live := range []bool{false, true} {
		err := a.health(t.Context(), live, 50*time.Millisecond)
		if err == nil {
			t.Fatal("a silent broker is well")
		}
		if line, code := explain(err, "signalbox health"); code != exitUnavailable || !strings.Contains(line, "no answer within 50ms") {
			t.Errorf("with live %t the status is %d: %s", live, code, line)
		}
	}
}
