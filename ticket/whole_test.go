// SPDX-License-Identifier: Apache-2.0

package ticket_test

import (
	"strings"
	"testing"

	"signalbox/api"
	"signalbox/event"
	"signalbox/ticket"
)

// TestCatalogueIsWhole: what a verb leaves out is not taken for harmless, and what no
// ticket does cannot be left out.
func TestCatalogueIsWhole(t *testing.T) {
	one := func(verb string) string { return `{"version":"1.0.0","targets_max":10,"verbs":[` + verb + `]}` }
	for text, fault := range map[string]string{
		string(api.Verbs): "",
		`{"version":"1.0.0","targets_max":10,"verbs":[]}`:                                                                                                 "",
		`{"version":"1.0.0","targets_max":10}`:                                                                                                            "no verbs",
		one(`{"verb":"oven.light","domains":["k"],"tier":1,"params":{},"deny":[]}`):                                                                       "",
		one(`{"verb":"oven.light","domains":["k"],"params":{},"deny":[]}`):                                                                                `no "tier"`,
		one(`{"verb":"oven.light","domains":["k"],"tier":null,"params":{},"deny":[]}`):                                                                    `no "tier"`,
		one(`{"verb":"oven.light","domains":["k"],"tier":1,"deny":[]}`):                                                                                   `no "params"`,
		one(`{"verb":"oven.light","domains":["k"],"tier":1,"params":{}}`):                                                                                 `no "deny"`,
		one(`{"verb":"oven.light","domains":["k"],"tier":1,"params":{},"deny":null}`):                                                                     `no "deny"`,
		one(`{"verb":"backup.delete","domains":["b"],"tier":3,"params":{},"deny":[]}`):                                                                    "It would delete a backup.",
		one(`{"verb":"backup.delete","domains":["b"],"tier":3,"params":{},"deny":[{"why":"w","target":"prod"}]}`):                                         "It would delete a backup.",
		one(`{"verb":"backup.delete","domains":["b"],"tier":3,"params":{},"deny":[{"why":"w"}]}`):                                                         "",
		one(`{"verb":"account.delete","domains":["i"],"tier":3,"params":{},"deny":[{"why":"w","targets_over":2}]}`):                                       "several accounts",
		one(`{"verb":"account.delete","domains":["i"],"tier":3,"params":{},"deny":[{"why":"w","targets_over":1}]}`):                                       "",
		one(`{"verb":"volume.delete","domains":["s"],"tier":3,"params":{},"deny":[{"why":"w","target":"snapshot"}]}`):                                     "It would delete a backup.",
		one(`{"verb":"volume.delete","domains":["s"],"tier":3,"params":{},"deny":[{"why":"w","target":"back-up"},{"why":"w","target":"SNAP"}]}`):          "",
		one(`{"verb":"backup.retention","domains":["b"],"tier":3,"params":{"days":{"type":"integer"}},"deny":[{"why":"w","param":"days","below":0}]}`):    "It would delete backups.",
		one(`{"verb":"backup.retention","domains":["b"],"tier":3,"params":{"days":{"type":"integer"}},"deny":[{"why":"w","param":"days","below":7}]}`):    "",
		one(`{"verb":"backup.retention","domains":["b"],"tier":3,"params":{"d":{"type":"integer"}},"deny":[{"why":"w","param":"d","below":7}]}`):          "It would delete backups.",
		one(`{"verb":"firmware.install","domains":["n"],"tier":3,"params":{"wipe":{}},"deny":[{"why":"w","param":"wipe","equals":[false]}]}`):             "It would wipe firmware.",
		one(`{"verb":"firmware.install","domains":["n"],"tier":3,"params":{"wipe":{}},"deny":[{"why":"w","param":"wipe","equals":[true,"yes"]}]}`):        "",
		one(`{"verb":"firmware.install","domains":["n"],"tier":3,"params":{"wipe":{}},"deny":[{"why":"w","param":"wipe","target":"a","equals":[true]}]}`): "It would wipe firmware.",
		strings.Replace(strings.Replace(string(api.Verbs), `"passkey", `, "", 1), `"version": "1.0.0"`, `"version": "1.0.1"`, 1):                          "multi-factor",
		strings.Replace(string(api.Verbs), `"mfa", "2fa"`, `"MFA", "2fa", "otp"`, 1):                                                                      "",
	} {
		_, err := ticket.WholeCatalogue([]byte(text))
		if (fault == "") != (err == nil) || err != nil && (code(err) != event.CodePolicyInvalid || !strings.Contains(err.Error(), fault)) {
			t.Errorf("%.300s: %v", text, err)
		}
		if _, err := ticket.ParseCatalogue([]byte(text)); err != nil {
			t.Errorf("it cannot be read where it is in force: %v", err)
		}
	}
}
