// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/api"
	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/identity"
	"signalbox/ticket"
)

// TestReadingATicketIsADelivery: its messages are not given to anybody before they are
// outside, and who was given them is in the trail.
func TestReadingATicketIsADelivery(t *testing.T) {
	place := placesOutside(t)["url"]
	r := newRig(t, vfs.NewMem(), func(o *broker.Options) { founding(o); place.set(o); o.ReadEntryEvery = 10 * time.Millisecond })
	defer func() { r.close() }()
	registered(r)
	desk := ticket.Change{
		Space: "main", Revision: 3, At: time.Now().UTC(), Op: ticket.ChangeAdd, Agent: "desk", Roles: []string{ticket.RoleIntake}, Key: ticket.EncodeKey(publicOf(4)),
	}
	signed, err := desk.Sign(seeded(1))
	if err == nil {
		_, _, err = r.b.ChangeAgents(context.Background(), anonymous(), signed.Bytes())
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := ticket.Draft{
		Header:  ticket.Header{Type: ticket.TypeOpen, TicketID: "INC-1", TraceID: "trace-1", From: "desk", To: ticket.RoleOrchestrator},
		Payload: []byte(`{"op":"open","source_ref":"desk:1","title":"Slow","body_ref":"desk:1","requester":"u1","priority":2}`),
	}.Sign(seeded(4))
	if err != nil {
		t.Fatal(err)
	}
	place.down()
	receipt := make(chan error, 1)
	go func() {
		_, err := r.b.PostMessage(context.Background(), identity.Anonymous(), m.Bytes())
		receipt <- err
	}()
	waitFor(t, "the message is held", func() bool { return r.b.External().Messages == 1 })
	read := func() broker.TicketView {
		view, err := r.b.ReadTicket(identity.Named("aud"), "INC-1", event.Cursor{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		return view
	}
	if held := read(); len(held.Messages) != 0 || held.Next != (event.Cursor{}) || held.State != ticket.StateOpen {
		t.Errorf("while it is held the ticket is %s with %d messages", held.State, len(held.Messages))
	}
	place.up()
	if err := <-receipt; err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it is shown", func() bool { return len(read().Messages) == 1 })
	waitFor(t, "the trail says who was given it", func() bool {
		for _, e := range readEntries(t, r.b) {
			if e["door"] == "ticket" && e["handed"] == "1" {
				return true
			}
		}
		return false
	})
}

// TestVerbsOfAnOperator are put in force in place of the built-in ones. What was changed
// has a version of its own, or plans could not say which they were made with.
func TestVerbsOfAnOperator(t *testing.T) {
	const verbs = `{"version":"%s","targets_max":%d,"verbs":[{"verb":"oven.light","domains":["kitchen"],"tier":1,"params":{},"deny":[]}]}`
	fs := vfs.NewMem()
	for _, c := range []struct {
		text    string
		refused bool
	}{
		{"", false}, {fmt.Sprintf(verbs, "2.0.0", 10), false}, {fmt.Sprintf(verbs, "2.0.0", 10), false},
		{fmt.Sprintf(verbs, "2.0.0", 11), true}, {fmt.Sprintf(verbs, "2.1.0", 11), false}, {"", false}, {"{", true},
		{strings.Replace(fmt.Sprintf(verbs, "3.0.0", 10), `,"deny":[]`, "", 1), true}, // it does not say what is denied
	} {
		o := broker.Options{Dir: "data", FS: fs, Logger: slog.New(slog.DiscardHandler)}
		founding(&o)
		o.AuditSync = false
		want := string(api.Verbs)
		if c.text != "" {
			o.Verbs, want = []byte(c.text), c.text
		}
		b, err := broker.Open(o)
		if c.refused {
			if e := (*event.Error)(nil); !errors.As(err, &e) || e.Code != event.CodePolicyInvalid {
				t.Fatalf("with %.60q it begins with %v", c.text, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.Verbs()
		if got != want || err != nil {
			t.Errorf("in force is %.60q, want %.60q, %v", got, want, err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadingWhatIsNotStoredIsNoDelivery: of a message that an operator's retention has
// removed nobody is given anything, and the trail says of nobody that they were.
func TestReadingWhatIsNotStoredIsNoDelivery(t *testing.T) {
	s := newStaff(t, func(x *box) { x.options.ReadEntryEvery = 10 * time.Millisecond })
	defer s.close()
	s.mustSay("desk", ticket.TypeOpen, "orchestrator", busOpen)
	s.put("bus.main.ticket.orchestrator", func(p *event.Policy) { p.Retention = new(event.Duration(time.Hour)) })
	s.pass(2 * time.Hour)
	s.mustSay("orch", ticket.TypePlanRequest, "network", busPlan)
	var view broker.TicketView
	waitFor(t, "retention has removed it", func() bool {
		err := s.Clean()
		if err == nil {
			view, err = s.ReadTicket(identity.Named("audit"), "INC-1", event.Cursor{}, 10)
		}
		if err != nil {
			t.Fatal(err)
		}
		return view.Messages[0].Message == nil
	})
	kept := fmt.Sprint(view.Messages[len(view.Messages)-1].Cursor.Position)
	s.restart() // what is not written yet is written at the end
	var last string
	for _, e := range readEntries(t, s.Broker) {
		last = e["handed"].(string)
	}
	if !strings.HasSuffix(last, kept) || strings.HasPrefix(last, "1-") {
		t.Errorf("the last entry says that it was given %q, and 1 is not stored", last)
	}
}
