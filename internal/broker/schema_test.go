// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
)

func schema(text string) with { return func(p *event.Policy) { p.Schema = text } }

// TestSchemaIsKeptTo: what breaks a topic's schema is refused with its place, a batch
// as a whole, and a repetition of what was taken before is a repetition.
func TestSchemaIsKeptTo(t *testing.T) {
	x := newBox(t, broker.Options{})
	defer func() { x.close() }()
	one := x.draft("1", "", nil, []byte(`{"n":1}`)...)
	x.mustSend("a", one)
	x.put("a", schema(`{"type": "object", "properties": {"n": {"minimum": 2}}}`))
	if result, err := x.send(broker.PublishRequest{Topic: "a", Events: []*event.Event{one}}); err != nil || result.Receipts[0].Outcome != event.OutcomeDuplicate {
		t.Errorf("the repetition got %+v, %v", result, err)
	}
	x.restart()
	good := x.draft("2", "", nil, []byte(`{"n":2}`)...)
	bad := x.draft("3", "", nil, []byte(`{"n":0}`)...)
	_, err := x.send(broker.PublishRequest{Topic: "a", Events: []*event.Event{bad}})
	wantCode(t, "too small", err, event.CodeSchemaViolation)
	if e := event.AsError(err); e.Field != "data" || e.Facts["pointer"] != "/n" || e.Facts["keyword"] != "minimum" {
		t.Errorf("the refusal is %+v", e)
	}
	_, err = x.send(broker.PublishRequest{Topic: "a", Batch: true, Events: []*event.Event{good, bad}})
	wantCode(t, "a batch", err, event.CodeBatchAborted)
	if e := event.AsError(err); fmt.Sprintf("%v %v %v", e.Facts["index"], e.Facts["cause"], e.Facts["pointer"]) != "1 schema_violation /n" {
		t.Errorf("the refusal is %+v", e)
	}
	x.mustSend("a", good)
	_, _, err = x.PutTopic(context.Background(), identity.Anonymous(), "a", func() event.Policy {
		p := event.DefaultPolicy()
		p.Schema = `{"$ref":"https://example.com/"}`
		return p
	}())
	wantCode(t, "a remote reference", err, event.CodePolicyInvalid)
	if got := x.readIDs("a", oldest()); fmt.Sprint(got) != "[1 2]" {
		t.Errorf("the topic has %v", got)
	}
}

// TestSchemaChangesUnderWay: while a schema changes from one thing to its opposite,
// every event that is taken keeps to the one in force at its place in the log, and
// what was checked against another is told to come again.
func TestSchemaChangesUnderWay(t *testing.T) {
	force := "" // the schema, as the log goes by
	kinds := map[string]string{}
	x := newBox(t, broker.Options{Tap: func(p *eventlog.Proposal) {
		switch p.Kind {
		case eventlog.KindControl:
			if p.Control.Policy != nil {
				force = p.Control.Policy.Schema
			}
		case eventlog.KindEvents:
			kinds[p.Entries[0].ID] = force
		}
	}})
	defer x.close()
	accepts := [2]string{`{"type":"number"}`, `{"type":"string"}`}
	x.put("a", schema(accepts[0]))
	taken := make(chan string, 1000)
	var publishing sync.WaitGroup
	for publisher := range 4 {
		publishing.Go(func() {
			for i := range 100 {
				id := fmt.Sprint(i%2, "-", publisher, "-", i)
				_, err := x.send(broker.PublishRequest{Topic: "a", Events: []*event.Event{x.draft(id, "", nil, []byte([]string{"1", `"x"`}[i%2])...)}})
				switch e := event.AsError(err); {
				case e == nil:
					taken <- id
				case e.Code != event.CodeSchemaViolation && e.Code != event.CodePolicyChanged:
					t.Error(err)
				}
			}
		})
	}
	for i := range 60 {
		x.put("a", schema(accepts[i%2]))
	}
	publishing.Wait()
	close(taken)
	x.put("a", schema(`{}`)) // after which the tap has told all
	for id := range taken {
		if want := accepts[id[0]-'0']; kinds[id] != want {
			t.Errorf("event %s was taken under %s", id, kinds[id])
		}
	}
}
