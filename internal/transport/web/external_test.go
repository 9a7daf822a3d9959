// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"os"
	"path/filepath"
	"testing"

	"signalbox/event"
)

// TestReadinessSaysThatMessagesWait: the place outside being down keeps no load balancer
// from sending others here, and a message that waited too long is answered with a code
// that says to send it again.
func TestReadinessSaysThatMessagesWait(t *testing.T) {
	place := filepath.Join(t.TempDir(), "outside")
	d := openDoor(t, founded, func(o *doorOptions) {
		o.broker.AuditFile, o.broker.AuditSync = filepath.Join(place, "checkpoints"), true
	})
	staffed(d)
	answers := make(chan answer, 1)
	beat := envelope(t, "alice", "heartbeat", "platform-ops", "", `{"agent":"alice","accepts":">=1.0.0 <2.0.0","domains":[],"capabilities":[],"inflight":[],"capacity":1,"seq":1}`)
	go func() { answers <- d.message(beat) }()
	eventually(t, "the message waits", func() bool { return d.broker.External().Messages == 1 })
	ready := d.get("/readyz").want(t, 200).object(t)
	state, _ := ready["audit_external"].(map[string]any)
	if ready["status"] != "ready" || state["waiting"] != true || state["messages_held"] != 1.0 || state["entries"] != "0" {
		t.Errorf("readiness is %v", ready)
	}
	d.publishOne("/v1/topics/log/events", "1").want(t, 200)
	d.broker.Drain()
	a := <-answers
	a.refused(t, 503, string(event.CodeAuditWaiting))
	eq(t, "Retry-After", a.header.Get("Retry-After"), "5")
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	d.restart()
	eq(t, "outcome", d.message(beat).want(t, 200).object(t)["outcome"].(string), "duplicate")
	state, _ = d.get("/readyz").want(t, 200).object(t)["audit_external"].(map[string]any)
	if state["waiting"] != false || state["messages_held"] != 0.0 {
		t.Errorf("readiness is %v", state)
	}
}
