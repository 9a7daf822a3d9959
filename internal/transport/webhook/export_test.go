// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"net/http"
	"strconv"
	"time"

	"signalbox/internal/metrics"
)

// Hold is for how long an answer has its endpoint left alone.
func Hold(answer *http.Response, now time.Time) time.Duration { return classify(answer, now).hold }

// AbandonedHosts uses so many hosts one after the other, each by webhooks of which one has
// a slot, and two wait until it is given back and do not come then. It returns how many hosts
// are remembered.
func AbandonedHosts(all, hosts int) int {
	s := newSlots(load{all, 1 << 20}, 1, &metrics.New().Webhooks)
	for i := range hosts {
		name := strconv.Itoa(i)
		l, _ := s.take(1, name, true, 1)
		s.take(2, name, true, 1)
		s.take(3, name, true, 1)
		s.give(l, load{attempts: 1}, 0, func(uint32) {})
	}
	return len(s.hosts)
}

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
