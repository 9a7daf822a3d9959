// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"fmt"
	"testing"

	"signalbox/event"
)

// TestDigest: the buckets do not depend on the order, an entry that is taken out
// leaves no trace, and the values are those of an independent computation.
func TestDigest(t *testing.T) {
	var a, b, zero event.Digest
	h := event.NewHLC(1764422645000, 7)
	a.Toggle("T-998", h, "/agents/beta", "1")
	a.Toggle("T-999", h, "/agents/beta", "2")
	b.Toggle("T-999", h, "/agents/beta", "2")
	b.Toggle("T-998", h, "/agents/beta", "1")
	if a != b {
		t.Error("the order matters")
	}
	b.Toggle("T-999", h, "/agents/beta", "2")
	if got := fmt.Sprintf("%x", b[digestBucket]); got != digestOfSample {
		t.Errorf("bucket is %s", got)
	}
	for _, other := range []func(){
		func() { b.Toggle("T-998", h+1, "/agents/beta", "1") },
		func() { b.Toggle("T-998", h, "/agents/bet", "a1") },
		func() { b.Toggle("T-998", h, "/agents/beta1", "") },
	} {
		before := b
		other()
		if b == before || b[digestBucket] == before[digestBucket] {
			t.Error("a different winner has the same digest")
		}
		b = before
	}
	b.Toggle("T-998", h, "/agents/beta", "1")
	if b != zero {
		t.Error("an entry that was taken out leaves a trace")
	}
}

func TestIdentityHashes(t *testing.T) {
	// The beginning of SHA-256("abc"), FIPS 180-4.
	if got := fmt.Sprintf("%x %x", event.HashID("abc"), event.HashSource("abc")); got != "ba7816bf8f01cfea414140de5dae2223 ba7816bf8f01cfea" {
		t.Errorf("got %s", got)
	}
}

// The digest of one winner, computed independently by a script from the definition.
const (
	digestBucket   = 52
	digestOfSample = "ab5495a9073b04537e34d4bbabe4994ab41ed2b6e7676a6632b4aebd9733f0c9"
)
