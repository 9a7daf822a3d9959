// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// TestGateAsksWhereThereAreAnswers: programs are given a list, a line for each, and people
// are asked for as long as somebody answers. Who says nothing decides nothing.
func TestGateAsksWhereThereAreAnswers(t *testing.T) {
	url, stop, err := tickettest.Serve(t.TempDir(), tickettest.Staff())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	orchestrate, _ := tickettest.Orchestrator(t, url, `{"rules":[{"name":"other","source_ref":"siem:*","slices":[{"id":"a","domain":"network","objective":"x","targets":["fw/1"]}]}]}`)
	end := tickettest.Run(t.Context(), orchestrate)
	for _, id := range []string{"INC-1", "INC-2"} { // no rule is for them, so the gate is asked
		tickettest.Open(t.Context(), t, url, id, "desk:"+id)
	}
	gate := ticketclient.NewGate(tickettest.Client(t, url, "alice"), "alice", tickettest.Key("alice"))
	for deadline := time.Now().Add(tickettest.Patience); ; time.Sleep(20 * time.Millisecond) {
		if waiting, err := gate.Waiting(t.Context()); err == nil && len(waiting) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the gate is not asked")
		}
	}
	end()
	key := filepath.Join(t.TempDir(), "alice.key")
	if err := os.WriteFile(key, ticket.EncodePrivateKey(tickettest.Key("alice")), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(answers string, args ...string) string {
		t.Helper()
		var out, failed bytes.Buffer
		args = append([]string{"gate", "--url", url, "--as", "alice", "--agent-key", key}, args...)
		if code := run(t.Context(), args, stdio{in: strings.NewReader(answers), out: &out, err: &failed}); code != 0 {
			t.Fatalf("%q exited with %d: %s", args, code, failed.String())
		}
		return out.String()
	}
	for _, format := range []string{"--json", "--format=auto"} {
		lines := strings.Split(strings.TrimSpace(at("approve\nclose\n", format)), "\n")
		for _, line := range lines {
			var of gateDocument
			if err := json.Unmarshal([]byte(line), &of); err != nil || of.Kind != "escalation" {
				t.Errorf("with %s it prints %q: %v", format, line, err)
			}
		}
		if len(lines) != 2 {
			t.Errorf("with %s it prints %d lines", format, len(lines))
		}
	}
	if text := at("", "--format=text"); !strings.Contains(text, "--- 1 of 2") || strings.Contains(text, "--- 2 of 2") {
		t.Errorf("where nobody answers it prints %s", text)
	}
	if text := at("approve\nclose\n", "--format=text"); !strings.Contains(text, "approved msg_") || !strings.Contains(text, "--- 2 of 2") {
		t.Errorf("with one answer it prints %s", text)
	}
	if text := at("deny\n\n", "--format=text"); !strings.Contains(text, "--- 1 of 1") || !strings.HasSuffix(text, "why: ") {
		t.Errorf("with no reason it prints %s", text)
	}
	if text := at("later\n", "--format=text"); !strings.Contains(text, "--- 1 of 1") || !strings.HasSuffix(text, "to leave it: ") {
		t.Errorf("where it is left for later it prints %s", text)
	}
}
