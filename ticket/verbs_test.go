// SPDX-License-Identifier: Apache-2.0

package ticket_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/api"
	"signalbox/event"
	"signalbox/ticket"
)

func catalogue(t testing.TB) *ticket.Catalogue {
	t.Helper()
	c, err := ticket.ParseCatalogue(api.Verbs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func action(verb, target, params string) ticket.Action {
	return ticket.Action{Verb: verb, Target: target, Params: jsontext.Value(params)}
}

// TestDeniedWhereverItStands: what would disable multi-factor authentication,
// delete backups, delete accounts in numbers or wipe firmware is refused among the
// steps and in the rollback.
func TestDeniedWhereverItStands(t *testing.T) {
	c := catalogue(t)
	for _, denied := range [][]ticket.Action{
		{action("mfa.disable", "user/u1", "{}")},
		{action("account.update", "user/u1", `{"attribute":"MFA_enabled","value":false}`)},
		{action("account.update", "user/u1", `{"attribute":"multi_factor","value":"off"}`)},
		{action("config.set", "host/1", `{"key":"auth.mfa.required","value":"no"}`)},
		{action("backup.delete", "backup/1", "{}")},
		{action("backup.retention", "backup/1", `{"days":0}`)},
		{action("backup.retention", "backup/1", `{"days":-1}`)},
		{action("volume.delete", "Backup/1", "{}")},
		{action("volume.delete", "vol/snapshot-7", "{}")},
		{action("account.delete", "user/u1", "{}"), action("account.delete", "user/u2", "{}")},
		{action("firmware.wipe", "switch/1", "{}")},
		{action("firmware.install", "switch/1", `{"version":"1","wipe":true}`)},
	} {
		for _, s := range []ticket.Slice{{Steps: denied}, {Rollback: denied}, {Steps: append([]ticket.Action{action("host.inspect", "h", "{}")}, denied...)}} {
			if err := c.Check("", s); code(err) != event.CodeVerbDenied {
				t.Errorf("%v: %v", s, err)
			}
		}
	}
	if err := c.Check("", ticket.Slice{Steps: []ticket.Action{action("account.delete", "user/u1", "{}")}, Rollback: []ticket.Action{action("account.delete", "user/u2", "{}")}}); code(err) != event.CodeVerbDenied {
		t.Errorf("one among the steps and one in the rollback: %v", err)
	}
}

func TestOnlyTheCatalogueIsDone(t *testing.T) {
	c := catalogue(t)
	for _, ok := range []ticket.Action{
		action("acl.block", "fw/1", `{"address":"192.0.2.1"}`), action("acl.block", "fw/1", `{"address":"192.0.2.1","minutes":5}`), action("host.inspect", "h", ""),
		action("backup.retention", "backup/1", `{"days":30}`),
	} {
		if err := c.Check("", ticket.Slice{Steps: []ticket.Action{ok}}); err != nil {
			t.Errorf("%v: %v", ok, err)
		}
	}
	for _, test := range []struct {
		action ticket.Action
		domain string
		want   event.Code
	}{
		{action("please restart it", "h", "{}"), "", event.CodeVerbUnknown},
		{action("ACL.block", "h", `{"address":"192.0.2.1"}`), "", event.CodeVerbUnknown},
		{action("", "h", "{}"), "", event.CodeVerbUnknown},
		{action("acl.block", "fw/1", `{"address":"192.0.2.1"}`), "identity", event.CodeVerbUnknown},
		{action("acl.block", "fw/1", `{"address":"192.0.2.1","then":"rm -rf /"}`), "network", event.CodeVerbUnknown},
		{action("acl.block", "fw/1", "{}"), "network", event.CodePayloadInvalid},
		{action("acl.block", "fw/1", `{"address":7}`), "network", event.CodePayloadInvalid},
		{action("acl.block", "fw/1", `{"address":"192.0.2.1","minutes":1.5}`), "network", event.CodePayloadInvalid},
		{action("acl.block", "fw/1", `[]`), "network", event.CodePayloadInvalid},
	} {
		if err := c.Check(test.domain, ticket.Slice{Rollback: []ticket.Action{test.action}}); code(err) != test.want {
			t.Errorf("%v in %q: %v", test.action, test.domain, err)
		}
	}
	many := make([]ticket.Action, 501)
	for i := range many {
		many[i] = action("host.inspect", "h", "{}")
	}
	if err := c.Check("", ticket.Slice{Steps: many}); code(err) != event.CodePayloadInvalid {
		t.Error(err)
	}
}

func TestTierIsComputed(t *testing.T) {
	c := catalogue(t)
	block, unblock := []ticket.Action{action("acl.block", "fw/1", "{}")}, []ticket.Action{action("acl.unblock", "fw/1", "{}")}
	inspect := []ticket.Action{action("acl.inspect", "fw/1", "{}")}
	var many []ticket.Action
	for i := range 11 {
		many = append(many, action("acl.block", fmt.Sprint("fw/", i), "{}"))
	}
	slice := func(domain string, steps, rollback []ticket.Action) ticket.Proposed {
		return ticket.Proposed{Domain: domain, Slice: ticket.Slice{Steps: steps, Rollback: rollback}}
	}
	raised, lowered := slice("network", block, unblock), slice("network", many, unblock)
	raised.Suggested, lowered.Suggested = 3, 0
	irreversible := slice("network", block, unblock)
	irreversible.Irreversible = true
	for name, test := range map[string]struct {
		want     int
		proposed []ticket.Proposed
	}{
		"nothing":               {0, nil},
		"read-only":             {0, []ticket.Proposed{slice("network", inspect, nil)}},
		"reversible":            {1, []ticket.Proposed{slice("network", block, unblock)}},
		"no rollback":           {2, []ticket.Proposed{slice("network", block, nil)}},
		"read in two domains":   {0, []ticket.Proposed{slice("network", inspect, nil), slice("storage", inspect, nil)}},
		"written in two":        {2, []ticket.Proposed{slice("network", block, unblock), slice("storage", inspect, nil)}},
		"identity":              {3, []ticket.Proposed{slice("identity", []ticket.Action{action("account.lock", "u", "{}")}, unblock)}},
		"cannot be undone":      {3, []ticket.Proposed{slice("storage", []ticket.Action{action("volume.extend", "v", "{}")}, unblock)}},
		"ten targets":           {1, []ticket.Proposed{slice("network", many[:10], many[:1])}},
		"eleven targets":        {3, []ticket.Proposed{lowered}},
		"proposed irreversible": {3, []ticket.Proposed{irreversible}},
		"raised by the agent":   {3, []ticket.Proposed{raised}},
		"unknown":               {3, []ticket.Proposed{slice("network", []ticket.Action{action("no.such", "fw/1", "{}")}, unblock)}},
	} {
		got, reason := c.Tier(test.proposed)
		if got != test.want || !strings.HasSuffix(reason, ".") {
			t.Errorf("%s: tier %d, %s", name, got, reason)
		}
	}
}

func TestCatalogueIsStrict(t *testing.T) {
	for _, bad := range []string{
		"", "[]", `{"version":"1.0.0","targets_max":10,"verbs":[],"more":1}`, `{"version":"1","targets_max":10,"verbs":[]}`, `{"version":"1.0.0","targets_max":0,"verbs":[]}`,
		`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":[],"tier":0,"params":{}}]}`,
		`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":["d"],"tier":4,"params":{}}]}`,
		`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":["d"],"tier":0,"params":{}},{"verb":"a.b","domains":["d"],"tier":0,"params":{}}]}`,
		`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":["d"],"tier":0,"params":{"p":{"type":"date"}}}]}`,
		`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":["d"],"tier":0,"params":{},"deny":[{}]}]}`,
		`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":["d"],"tier":0,"params":{"p":{}},"deny":[{"why":"w","param":"p","contains":["-"]}]}]}`,
		`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":["d"],"tier":0,"params":{},"deny":[{"why":"w","param":"p","equals":[1]}]}]}`,
		`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":["d"],"tier":0,"params":{"p":{}},"deny":[{"why":"w","param":"p"}]}]}`,
		`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":["d"],"tier":0,"params":{"p":{}},"deny":[{"why":"w","param":"p","equals":[[]]}]}]}`,
		`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":["d"],"tier":0,"params":{"p":{}},"deny":[{"why":"w","below":1}]}]}`,
		`{"version":"1.0.0","targets_max":10,"breaker_failures":101,"verbs":[]}`, `{"version":"1.0.0","targets_max":10,"breaker_failures":-1,"verbs":[]}`,
		`{"version":"1.0.0","targets_max":10,"breaker_within":"soon","verbs":[]}`, `{"version":"1.0.0","targets_max":10,"breaker_within":"-1h","verbs":[]}`,
		strings.Repeat(" ", 1<<20) + `{"version":"1.0.0","targets_max":10,"verbs":[]}`,
	} {
		if _, err := ticket.ParseCatalogue([]byte(bad)); code(err) != event.CodePolicyInvalid {
			t.Errorf("%.120s: %v", bad, err)
		}
	}
}

// TestBreakerIsPolicy: the figures of the catalogue count, and there are some without.
func TestBreakerIsPolicy(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":"1.0.0","targets_max":10,"verbs":[]}`:                                             "3 within 24h0m0s",
		`{"version":"1.0.0","targets_max":10,"breaker_failures":5,"breaker_within":"90m","verbs":[]}`: "5 within 1h30m0s",
		string(api.Verbs): "3 within 24h0m0s",
	} {
		c, err := ticket.ParseCatalogue([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if failures, within := c.Breaker(); fmt.Sprintf("%d within %v", failures, within) != want {
			t.Errorf("%d within %v, want %s", failures, within, want)
		}
	}
}

// TestApproversOfEachTier is the rule of two people.
func TestApproversOfEachTier(t *testing.T) {
	for tier, want := range []int{0, 0, 1, 2} {
		if got := ticket.Approvers(tier); got != want {
			t.Errorf("tier %d: %d", tier, got)
		}
	}
}

// TestSecretsAreRefused: those that are easily sent by mistake.
func TestSecretsAreRefused(t *testing.T) {
	for _, payload := range []string{
		`{"password":"x"}`, `{"a":[{"db_password":"x"}]}`, `{"API-Key":"x"}`, `{"client_secret":{"value":"x"}}`, `{"accessToken":"x"}`, `{"tokens":["x"]}`, `{"Authorization":"x"}`,
		`{"text":"-----BEGIN RSA PRIVATE KEY-----"}`, `{"text":"key AKIAIOSFODNN7EXAMPLE"}`, `{"text":"eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl"}`,
		`{"text":"Bearer abcdefghijklmnop"}`, `{"text":"postgres://user:hunter2@db/x"}`, `{"a":{"b":["ghp_0123456789abcdefghijklmnopqrstuvwxyz"]}}`,
	} {
		if err := sign(t, open(payload)).CheckSecrets(); code(err) != event.CodeSecretRefused {
			t.Errorf("%s: %v", payload, err)
		}
	}
	for _, payload := range []string{
		somePayload, `{"lease_id":"lease-1","lease_scope":{"plan":"p","target":"t"}}`, `{"secret_ref":"vault:kv/x"}`, `{"token_id":"t-1"}`, `{"password":""}`, `{"token_count":7}`,
		`{"text":"reset the password of u1"}`, `{"url":"https://example.com/a:b@c"}`, `{"text":"basic check"}`,
	} {
		if err := sign(t, open(payload)).CheckSecrets(); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

// TestDeniedNamesAreFoundHoweverTheyAreWritten: the names of what a verb sets are the
// caller's to write.
func TestDeniedNamesAreFoundHoweverTheyAreWritten(t *testing.T) {
	c := catalogue(t)
	set := func(key, value string) ticket.Action {
		return action("config.set", "h", `{"key":"`+key+`","value":`+value+`}`)
	}
	for _, denied := range []ticket.Action{
		set("multi-factor.enabled", "false"), set("2fa", "false"), set("auth.2FA", "false"), set("enablemfa", "1"), set("M.F.A", "1"), set("requireMulti-Factor", "0"),
		set("auth.totp.required", "false"), set("WebAuthn", "false"), set("two factor", "false"), set("login.one-time-password", "0"), set("\u017fecond_factor", "0"),
		set("auth", `{"mfa":false}`), set("auth", `[{"login":{"Multi_Factor":{"on":false}}}]`),
		action("account.update", "u", `{"attribute":"login","value":{"passkeys":[]}}`),
	} {
		if err := c.Check("", ticket.Slice{Steps: []ticket.Action{denied}}); code(err) != event.CodeVerbDenied {
			t.Errorf("%s: %v", denied.Params, err)
		}
	}
	for _, harmless := range []ticket.Action{
		set("vm_failover", "true"), set("platform.family", `"x"`), set("auth", `{"realm":"mfa-team"}`), set("checksum", `"12fa8"`), set("hotplug", "true"),
	} {
		if err := c.Check("", ticket.Slice{Steps: []ticket.Action{harmless}}); err != nil {
			t.Errorf("%s: %v", harmless.Params, err)
		}
	}
}

func TestDeniedValuesAreComparedWithoutCase(t *testing.T) {
	c, err := ticket.ParseCatalogue([]byte(`{"version":"1.0.0","targets_max":10,"verbs":[{"verb":"a.b","domains":["d"],"tier":0,"params":{"p":{}},
		"deny":[{"why":"w","target":"back-up","param":"p","equals":["Off",false],"below":0}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for params, want := range map[string]event.Code{
		`{"p":"OFF"}`: event.CodeVerbDenied, `{"p":false}`: event.CodeVerbDenied, `{"p":-1}`: event.CodeVerbDenied,
		`{"p":"offline"}`: "", `{"p":{"off":1}}`: "", `{"p":[]}`: "", `{}`: "", `{"p":0}`: "",
	} {
		if err := c.Check("", ticket.Slice{Steps: []ticket.Action{action("a.b", "the BACKUP", params)}}); code(err) != want {
			t.Errorf("%s: %v", params, err)
		}
		if err := c.Check("", ticket.Slice{Steps: []ticket.Action{action("a.b", "else", params)}}); err != nil {
			t.Errorf("%s on another target: %v", params, err)
		}
	}
}
