// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// sub-consent id=A [rate=60] or refused=E [hold=1m]: what became of a handshake.
func (s *script) subConsent() string {
	op := s.subOp(eventlog.SubscriptionEndpoint)
	refused := s.text("refused")
	op.Endpoint = &eventlog.Endpoint{Consented: refused == "", Rate: uint32(s.number("rate", 0)), Error: refused, Hold: s.duration("hold", 0)}
	return s.proposeOp(op)
}

// sub-endpoint id=A: how it stands with the endpoint, without what is zero.
func (s *script) subEndpoint() string {
	_, state, _ := s.subscription(s.text("id"))
	e := &state.Endpoint
	parts := []string{}
	if e.FailingSince != 0 {
		parts = append(parts, fmt.Sprintf("failures=%d since %s", e.Failures, moment(e.FailingSince)))
	}
	if e.Trips != 0 {
		parts = append(parts, fmt.Sprintf("trips=%d", e.Trips))
	}
	if e.HoldMillis != 0 {
		parts = append(parts, "held until "+moment(e.HoldMillis))
	}
	if e.Consented {
		parts = append(parts, fmt.Sprintf("consented rate=%d", e.Rate))
	}
	if state.Disabled {
		parts = append(parts, "disabled")
	}
	if len(parts) == 0 {
		return "well"
	}
	return strings.Join(parts, " ")
}

// TestVerifyFindsTermsThatDoNotAgree: a webhook that its events would not find is
// reported, and so is one that others would.
func TestVerifyFindsTermsThatDoNotAgree(t *testing.T) {
	d := event.Subscription{ID: "A", Protocol: event.ProtocolHTTP, Sink: "https://sink.example/", Config: event.DefaultSubscriptionConfig()}
	d.Config.Kind = event.KindWebhook
	term := []byte("t=x")
	for name, c := range map[string]struct {
		says  string
		write func(b *store.Batch, number uint32)
	}{
		"sound":    {"", func(*store.Batch, uint32) {}},
		"lost":     {"would not be woken", func(b *store.Batch, number uint32) { b.DeleteTerm(term, number) }},
		"another":  {"not what it asks for", func(b *store.Batch, number uint32) { b.SetTerm([]byte("t=y"), number) }},
		"nobody's": {"not what it asks for", func(b *store.Batch, number uint32) { b.SetTerm(term, number+7) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, defaultSettings())
			defer r.close()
			document := d
			op := &eventlog.Subscription{Op: eventlog.SubscriptionCreate, ID: "A", Document: &document, Terms: [][]byte{term}, Now: true}
			if result := r.do(&eventlog.Proposal{Kind: eventlog.KindSubscription, AdmittedMillis: epoch, Subscription: op}); result.Err != nil {
				t.Fatal(result.Err)
			}
			number, _, _, _, err := r.store.Subscription("A")
			if err != nil {
				t.Fatal(err)
			}
			b := r.store.NewBatch()
			c.write(b, number)
			if err := r.store.Commit(b, func() {}); err != nil {
				t.Fatal(err)
			}
			found := inspect(t, r)
			if c.says == "" && len(found) != 0 || c.says != "" && !slices.ContainsFunc(found, func(f projector.Finding) bool {
				return f.What == "subscription" && strings.Contains(f.Explanation, c.says)
			}) {
				t.Errorf("found %+v", found)
			}
		})
	}
}
