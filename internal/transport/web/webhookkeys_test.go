// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/eventlog"
)

// textLog is a log that tests read.
type textLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *textLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *textLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestSigningKeysAreToldToNobody: the private keys of webhooks, the first one and
// those that it is replaced by, are in the log alone: in no answer, in nothing of the
// audit trail, in no line that is logged.
func TestSigningKeysAreToldToNobody(t *testing.T) {
	var logged textLog
	logger := slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var mu sync.Mutex
	private := map[string]bool{} // every one that was proposed
	d := openDoor(t, func(o *doorOptions) {
		o.broker.Logger, o.web.Logger = logger, logger
		o.broker.Tap = func(p *eventlog.Proposal) {
			if s := p.Control.Settings; s != nil {
				mu.Lock()
				defer mu.Unlock()
				for key := range strings.FieldsSeq(s.WebhookKeys) {
					key, _, _ = strings.Cut(key, "@")
					private[key] = true
				}
			}
		}
	})
	said := map[string]string{}
	rotate := request{method: "POST", path: "/v1/admin/webhook-keys", body: `{"overlap":"1h"}`, header: []string{"Content-Type: application/json"}}
	for range 2 {
		said[rotate.path] += string(d.do(rotate).want(t, 200).body)
	}
	rotate.body = `{"overlap":"-1h"}`
	said["a refusal"] = string(d.do(rotate).body)
	for _, path := range []string{
		"/.well-known/webhook-keys", "/v1/audit/entries", "/v1/audit/export", "/v1/audit/checkpoint?fresh=true", "/v1/topics", "/v1/subscriptions", "/metrics", "/readyz",
	} {
		said[path] = string(d.get(path).want(t, 200).body)
	}
	d.stop()
	said["the log"] = logged.String()
	mu.Lock()
	defer mu.Unlock()
	if len(private) != 3 || !strings.Contains(said["the log"], "signed with a new key") || strings.Count(said["/.well-known/webhook-keys"], "whpk_") < 3 {
		t.Fatalf("%d keys were drawn, and the broker says %v", len(private), said)
	}
	// The trail holds a change of settings for each of them.
	if n := strings.Count(said["/v1/audit/entries"], `"configure"`); n < 3 {
		t.Fatalf("%d changes of the settings are in the audit trail: %s", n, said["/v1/audit/entries"])
	}
	for where, text := range said {
		text = withDetails(text)
		for key := range private {
			raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whsk_"))
			if err != nil || len(raw) != 64 {
				t.Fatal("what was proposed is no key")
			}
			// Its second half is the public key.
			seed := base64.StdEncoding.EncodeToString(raw[:30])
			if strings.Contains(text, "whsk_") || strings.Contains(text, seed) || strings.Contains(text, string(raw[:32])) {
				t.Errorf("a private key is in %s", where)
			}
		}
	}
}

// withDetails adds what is in base64 in lines of JSON, such as the details of
// audit entries.
func withDetails(text string) string {
	var more strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, member := range v {
				walk(member)
			}
		case []any:
			for _, member := range v {
				walk(member)
			}
		case string:
			if raw, err := base64.StdEncoding.DecodeString(v); err == nil {
				_, _ = more.Write(raw) // it does not fail
			}
		}
	}
	for line := range strings.Lines(text) {
		var v any
		if json.Unmarshal([]byte(line), &v) == nil {
			walk(v)
		}
	}
	return text + more.String()
}
