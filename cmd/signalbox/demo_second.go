// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"signalbox/client"
	"signalbox/event"
)

const (
	shipmentTopic = "fleet.shipments"
	presenceTopic = "fleet.presence"
)

// secondStory is the second play: a shipper that was away must not ship what was cancelled or done meanwhile.
type secondStory struct {
	*story
	path string // of the shipper's ledger

	orders, gamma *client.Client

	mu      sync.Mutex
	shipped []string // guarded by mu; what left the house, in order
}

func (s *secondStory) scenes() []func(context.Context) error {
	return []func(context.Context) error{s.open, s.away, s.back, s.again}
}

// step publishes a step of a shipment; its key is in the data.
func (s *secondStory) step(ctx context.Context, c *client.Client, who, shipment, status string) error {
	r, err := c.Publish(ctx, shipmentTopic, shipmentDraft(who, shipment, status))
	if err == nil {
		s.says(who, "publishes %s %s → %s at %s", shipment, status, r.Outcome, r.Cursor)
	}
	return err
}

func shipmentDraft(who, shipment, status string) event.Draft {
	return event.Draft{
		Source: "/agents/" + who, Type: "shipment." + status,
		Data: fmt.Appendf(nil, `{"shipment_id":%q,"status":%q}`, shipment, status),
	}
}

// connected runs the shipper until enough says so, and returns its ledger. It is a process of its own: everything it
// knows from before is in its file.
func (s *secondStory) connected(ctx context.Context, settled func(*client.Ledger), enough func(*client.Ledger) bool) (*client.Ledger, error) {
	c, err := s.agent("shipper")
	if err != nil {
		return nil, err
	}
	file, err := client.OpenLedgerFile(s.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	ledger, err := client.OpenLedger(ctx, c, client.LedgerOptions{
		Topics: []string{shipmentTopic, presenceTopic},
		Store:  file,
		Needs:  func(e client.Entry) bool { return e.Event.Type() == "shipment.CREATED" },
		OnActive: func(_ context.Context, l *client.Ledger) error {
			settled(l)
			return nil
		},
		Act: func(ctx context.Context, e client.Effect) error { return s.ship(ctx, c, e) },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- ledger.Run(ctx) }()
	for {
		select {
		case err := <-ended:
			return ledger, err
		case <-time.After(5 * time.Millisecond):
		}
		if enough(ledger) {
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				return ledger, err
			}
			return ledger, nil
		}
	}
}

// ship is the side effect that must not happen for nothing, nor twice.
func (s *secondStory) ship(ctx context.Context, c *client.Client, e client.Effect) error {
	s.mu.Lock()
	s.shipped = append(s.shipped, e.Key)
	s.mu.Unlock()
	s.says("shipper", "ships %s, and says so", e.Key)
	_, err := c.Publish(ctx, shipmentTopic, e.Draft(shipmentDraft("shipper", e.Key, "SHIPPED")))
	return err
}

func (s *secondStory) left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shipped)
}

// open has the shipper do its work, and lose its link.
func (s *secondStory) open(ctx context.Context) (err error) {
	s.scene("The second story: a shipper ships what is ordered")
	if s.orders, err = s.agent("orders"); err != nil {
		return err
	}
	if s.gamma, err = s.agent("gamma"); err != nil {
		return err
	}
	policy := event.DefaultPolicy()
	policy.CleanupPolicy = event.CleanupCompact
	if _, _, err := s.orders.PutTopic(ctx, presenceTopic, policy); err != nil {
		return err
	}
	policy.KeyFrom = "shipment_id"
	if _, _, err := s.orders.PutTopic(ctx, shipmentTopic, policy); err != nil {
		return err
	}
	if err := s.step(ctx, s.orders, "orders", "W", "CREATED"); err != nil {
		return err
	}
	l, err := s.connected(ctx, func(l *client.Ledger) {
		s.says("shipper", "is %s at %s", l.State(), l.Cursor())
	}, func(l *client.Ledger) bool {
		e, _ := l.Get(shipmentTopic, "W")
		return e.Event != nil && e.Event.Type() == "shipment.SHIPPED"
	})
	if err != nil {
		return err
	}
	s.claim(slices.Equal(s.left(), []string{"W"}), "W is shipped")
	s.says("shipper", "loses its link; it has everything up to %s", l.Cursor())
	return nil
}

// away is what happens in the two hours.
func (s *secondStory) away(ctx context.Context) error {
	s.scene("Two hours pass without the shipper (time is simulated)")
	s.clock.pass(20 * time.Minute)
	if err := s.step(ctx, s.orders, "orders", "X", "CREATED"); err != nil {
		return err
	}
	r, err := s.gamma.Publish(ctx, presenceTopic, event.Draft{
		Source: "/agents/gamma", Type: "agent.present", Subject: "gamma", Data: []byte(`true`), Extensions: map[string]any{"expiry": 10},
	})
	if err != nil {
		return err
	}
	s.says("gamma", "signals that it is there, for 10 seconds → %s at %s", r.Outcome, r.Cursor)
	for _, step := range []struct {
		who, shipment, status string
		c                     *client.Client
	}{{"orders", "X", "CANCELLED", s.orders}, {"orders", "Y", "CREATED", s.orders}, {"gamma", "Y", "COMPLETED", s.gamma}} {
		s.clock.pass(20 * time.Minute)
		if err := s.step(ctx, step.c, step.who, step.shipment, step.status); err != nil {
			return err
		}
	}
	s.clock.pass(40 * time.Minute)
	return nil
}

// back has the shipper settle before it acts.
func (s *secondStory) back(ctx context.Context) error {
	s.scene("The shipper is back, with its ledger")
	l, err := s.connected(ctx, func(l *client.Ledger) {
		for e := range l.Entries() {
			s.says("shipper", "knows by now: %s is %s", e.Key, e.Event.Type())
		}
		s.says("shipper", "is %s at %s", l.State(), l.Cursor())
	}, func(l *client.Ledger) bool { return l.State() == client.LedgerActive })
	if err != nil {
		return err
	}
	f := l.Figures()
	_, seen := l.Get(presenceTopic, "gamma")
	s.claim(f.Taken == 2 && !seen, "it took in two events, X CANCELLED and Y COMPLETED, and never saw the presence signal")
	s.claim(f.Effects == 0 && len(slices.Collect(l.Open())) == 0, "it became ACTIVE with nothing left to do, and without one side effect")
	s.claim(slices.Equal(s.left(), []string{"W"}), "neither X, which was cancelled, nor Y, which is done, is shipped")
	return nil
}

// again has the shipper work on, and come back once more.
func (s *secondStory) again(ctx context.Context) error {
	s.scene("The shipper is itself again")
	if err := s.step(ctx, s.orders, "orders", "Z", "CREATED"); err != nil {
		return err
	}
	var v client.Verdict
	for range 2 { // the second time it has only just been here
		_, err := s.connected(ctx, func(*client.Ledger) {}, func(l *client.Ledger) bool {
			e, _ := l.Get(shipmentTopic, "Z")
			if l.State() != client.LedgerActive || e.Event == nil || e.Event.Type() != "shipment.SHIPPED" {
				return false
			}
			var err error
			v, err = l.Check(ctx, shipmentTopic)
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	s.claim(slices.Equal(s.left(), []string{"W", "Z"}), "Z is shipped; nothing is shipped twice, though the shipper restarted after it")
	s.claim(v.Agrees && v.Keys == 4, "the digest of its ledger equals the broker's at %s", v.Cursor)
	return nil
}
