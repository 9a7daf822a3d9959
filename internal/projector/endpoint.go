// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"slices"

	"signalbox/event"
	"signalbox/internal/eventlog"
)

// The circuit breaker of an endpoint. It opens when so many attempts in a row
// have failed, for a time that doubles with each probe that fails, too. While it
// is open the cursor waits, and no event spends an attempt.
const (
	breakerFailures       = 5
	breakerOpen     int64 = 30_000  // ms
	breakerOpenMax  int64 = 600_000 // ms
)

// isOf reports whether a proposal is about the endpoint that the webhook has. What
// is still under way to one that was replaced says nothing of the new one.
func (s *subscription) isOf(op *eventlog.Subscription) bool {
	return op.Sink == "" || op.Sink == s.config.Document.Sink
}

// probing reports whether the circuit was open, and one attempt has to tell whether to
// go on.
func (s *subscription) probing() bool { return s.Webhook && s.Endpoint.Trips > 0 }

// endpointFailed counts a failed attempt to deliver. Hold is for how long the
// endpoint wants to be left alone.
func (p *Projector) endpointFailed(s *subscription, now, hold int64) {
	if !s.Webhook {
		return
	}
	e := &s.Endpoint
	if e.FailingSince == 0 {
		e.FailingSince = now
	}
	e.Failures++
	// What was under way when the circuit opened fails, too, and says nothing new.
	if e.Failures >= breakerFailures && now >= e.HoldMillis {
		open := min(breakerOpen<<min(e.Trips, 16), breakerOpenMax)
		e.Trips++
		// Endpoints that died together come back one after the other.
		e.HoldMillis = now + open + open/64*int64(s.number%16)
	}
	if hold > 0 {
		e.HoldMillis = max(e.HoldMillis, now+hold)
	}
	if p.failsTooLong(s, now) {
		p.subscribed.stirred = append(p.subscribed.stirred, Stirred{Number: s.number, ID: s.id(), Webhook: true, Failing: true})
	}
}

// failsTooLong reports whether an endpoint has done nothing but fail for as long
// as its subscriber allows, and often enough: to one that gets an event a week, two
// failures may be days apart.
func (p *Projector) failsTooLong(s *subscription, now int64) bool {
	after := s.settings().DisableAfter.Std().Milliseconds()
	return after > 0 && !s.Disabled && s.Endpoint.Failures >= breakerFailures && now-s.Endpoint.FailingSince >= after
}

// disable has nothing more sent to an endpoint until somebody resumes the
// subscription. Its place stays, and retention is held back as before.
func (p *Projector) disable(s *subscription, proposal *eventlog.Proposal) *event.Error {
	op, now := proposal.Subscription, max(proposal.AdmittedMillis, p.space.LogMillis)
	if s.Disabled || !s.Webhook || !s.isOf(op) || op.IfFailing && !p.failsTooLong(s, now) {
		return event.Errorf(event.CodeSubscriptionConflict, "The subscription is not one whose endpoint is to be disabled.")
	}
	s.Disabled = true
	p.fail(s, op.Reason)
	p.touchSubscription(s)
	p.notice(proposal, 0)
	return nil
}

// enable begins anew with an endpoint.
func (p *Projector) enable(s *subscription) {
	s.Disabled = false
	s.Endpoint.Recovered()
	s.Endpoint.HoldMillis = 0
}

// replaceSink forgets what was known of another endpoint.
func (p *Projector) replaceSink(s *subscription, d *event.Subscription) {
	if d.Sink != s.config.Document.Sink {
		p.enable(s)
		s.Endpoint.Consented, s.Endpoint.Rate = false, 0
	}
}

// consentOf notes what became of the handshake with an endpoint. Nobody consents
// for another one.
func (p *Projector) consentOf(s *subscription, proposal *eventlog.Proposal) *event.Error {
	if !s.isOf(proposal.Subscription) {
		return event.Errorf(event.CodeSubscriptionConflict, "The subscription has another sink by now.")
	}
	a, now := proposal.Subscription.Endpoint, max(proposal.AdmittedMillis, p.space.LogMillis)
	p.touchSubscription(s)
	if a.Consented {
		// It may consent by the callback, long before it would be asked again.
		s.Endpoint.Recovered()
		s.Endpoint.HoldMillis = 0
		s.Endpoint.Consented, s.Endpoint.Rate = true, uint64(a.Rate)
		return nil
	}
	p.fail(s, a.Error)
	p.endpointFailed(s, now, a.Hold)
	return nil
}

// setTerms replaces the rows under which events for a webhook are found.
func (p *Projector) setTerms(s *subscription, terms [][]byte) {
	for _, old := range s.config.Terms {
		if !slices.ContainsFunc(terms, func(t []byte) bool { return string(t) == string(old) }) {
			p.batch.DeleteTerm(old, s.number)
		}
	}
	for _, term := range terms {
		p.batch.SetTerm(term, s.number)
	}
	s.config.Terms = terms
}
