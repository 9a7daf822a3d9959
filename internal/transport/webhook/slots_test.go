// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"testing"

	"signalbox/internal/transport/webhook"
)

// TestAheadGrowsWithWhatWasQuick: as many are handed out ahead as were quickly delivered
// since the last time, and no less where those were all that the host had.
func TestAheadGrowsWithWhatWasQuick(t *testing.T) {
	take, give := webhook.HostSlots(1000, 16)
	for _, step := range []struct{ given, quick, taken int }{
		{0, 0, 16},        // nothing is known of it
		{0, 0, 0},         //
		{5, 5, 10},        // 5 have left, and 5 more will
		{21, 21, 16 + 21}, // all that it had
		{37, 37, 16 + 37}, //
		{53, 53, 4 * 16},  // the most
		{1, 1, 0},         // 63 are out, and 17 may be
		{63, 0, 16},       // it was slow
		{16, 16, 16 + 16}, //
		{32, 0, 16},       // and forgotten with the last
		{10, 0, 10},       // given back unused: none ahead
	} {
		for i := range step.given {
			quick := 0
			if i < step.quick {
				quick = 1
			}
			give(1, quick)
		}
		if got := take(1000); got != step.taken {
			t.Fatalf("%+v: %d taken", step, got)
		}
	}
}

// TestHostsOfDeletedWebhooksAreForgotten, also where more of them waited than were woken.
func TestHostsOfDeletedWebhooksAreForgotten(t *testing.T) {
	if n := webhook.AbandonedHosts(16, 1000); n > 2*16 {
		t.Errorf("%d hosts are remembered", n)
	}
}
