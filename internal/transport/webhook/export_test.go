// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"time"

	"signalbox/internal/metrics"
)

// Hold is for how long an answer has its endpoint left alone.
func Hold(answer *http.Response, now time.Time) time.Duration { return classify(answer, now).hold }

// HostSlots are those of one host: take is how many of n are had, and give gives n back, of
// which so many were quick.
func HostSlots(all, ofHost int) (take func(n int) int, give func(n, quick int)) {
	s := newSlots(load{all, 1 << 20}, ofHost, &metrics.New().Webhooks)
	return func(n int) int {
			l, _ := s.take(1, "host", true, n)
			return l.n
		}, func(n, quick int) {
			s.give(lot{host: "host", proven: true}, load{attempts: n}, quick, func(uint32) {})
		}
}
