// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/identity"
)

// FetchMax bounds the events of one fetch, which are in memory until they are
// sent.
const FetchMax = 1000

// FetchRequest says how many events a worker wants, and for how long.
type FetchRequest struct {
	Max        int           // at least 1
	Visibility time.Duration // 0: that of the subscription
	Wait       time.Duration // how long to wait for the first event
}

// HandedOut is an event that was given to a worker, who has to settle it with
// the token before the deadline.
type HandedOut struct {
	Token    string
	Attempt  int
	Deadline time.Time
	Event    []byte // in the CloudEvents JSON format
}

// Fetch hands out events of a pull subscription. It returns once they are
// counted durably; an empty answer means that nothing came within the wait.
func (b *Broker) Fetch(ctx context.Context, p identity.Principal, id string, req FetchRequest) ([]HandedOut, error) {
	if req.Visibility != 0 && (req.Visibility < time.Second || req.Visibility > event.MaxVisibility.Std()) {
		return nil, event.Errorf(event.CodeParameterInvalid, "The visibility must be from 1s to 12h.").With("visibility")
	}
	req.Max = min(max(req.Max, 1), FetchMax)
	s := b.deliveries.enter(id)
	defer b.deliveries.leave(id, s)
	over := time.NewTimer(req.Wait)
	defer over.Stop()
	waits := req.Wait > 0
	for {
		changed := b.deliveries.changes(s)
		if err := s.lock(ctx); err != nil {
			return nil, err
		}
		pl := plan{b: b, s: s, p: p, id: id, kind: event.KindPull, req: req, final: !waits}
		out, err := pl.run(ctx)
		arrived := pl.arrived
		s.unlock()
		if err != nil || len(out) > 0 || !waits {
			return out, err
		}
		due := time.NewTimer(pl.next)
		select {
		case <-changed:
		case <-arrived:
		case <-due.C:
		case <-over.C:
			waits = false
		case <-b.draining:
			waits = false
		case <-ctx.Done():
			waits = false
		}
		due.Stop()
	}
}

// formatToken names one hand-out of one event, so that what is said of an
// earlier one cannot be taken for it.
func formatToken(position, token uint64) string {
	return strconv.FormatUint(position, 10) + "." + strconv.FormatUint(token, 10)
}

func parseToken(s string) (position, token uint64, err error) {
	left, right, ok := strings.Cut(s, ".")
	position, err1 := strconv.ParseUint(left, 10, 64)
	token, err2 := strconv.ParseUint(right, 10, 64)
	if !ok || err1 != nil || err2 != nil || formatToken(position, token) != s {
		return 0, 0, event.Errorf(event.CodeParameterInvalid, "%.40q is not a token: send it as it came with the event.", s).With("tokens")
	}
	return position, token, nil
}
