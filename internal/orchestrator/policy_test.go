// SPDX-License-Identifier: Apache-2.0

package orchestrator_test

import (
	"strings"
	"testing"

	"signalbox/internal/orchestrator"
)

// TestPolicyIsStrict: what is misspelt or contradicts itself is refused, for its
// default would hold in silence.
func TestPolicyIsStrict(t *testing.T) {
	const valid = `{"rules":[{"name":"a","source_ref":"desk:*","slices":[{"id":"x","domain":"network","objective":"o","targets":["t"]}]}]}`
	if _, err := orchestrator.ParsePolicy([]byte(valid)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"an unknown key":            {`"name"`, `"on_partail":"replan","name"`},
		"no rules":                  {`"rules":[`, `"rules":[],"x":[`},
		"two stars":                 {"desk:*", "desk:*:*"},
		"no source":                 {"desk:*", ""},
		"an unknown act":            {`"name"`, `"on_partial":"hope","name"`},
		"three approvers":           {`"name"`, `"approvers":3,"name"`},
		"a priority of 9":           {`"name"`, `"priorities":[9],"name"`},
		"a window without end":      {`"name"`, `"window":{"start":"22:00"},"name"`},
		"no targets":                {`["t"]`, `[]`},
		"a domain in upper case":    {`"network"`, `"Network"`},
		"a dependency on itself":    {`"id":"x"`, `"id":"x","depends_on":["x"]`},
		"a duration without a unit": {`"name"`, `"plan_within":"5","name"`},
	} {
		text := strings.Replace(valid, change[0], change[1], 1)
		if text == valid {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, err := orchestrator.ParsePolicy([]byte(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestPolicyFitsTheVerbs: a policy that asks a domain for what nobody can do there is
// told of before a ticket comes.
func TestPolicyFitsTheVerbs(t *testing.T) {
	for text, fits := range map[string]bool{
		`"domain":"network","verbs":["acl.block"]`:    true,
		`"domain":"network"`:                          true,
		`"domain":"network","verbs":["shell.run"]`:    false,
		`"domain":"network","verbs":["account.lock"]`: false,
		`"domain":"kitchen"`:                          false,
	} {
		p := policy(t, `{"rules":[{"name":"a","source_ref":"desk:*","slices":[{"id":"x","objective":"o","targets":["t"],`+text+`}]}]}`)
		if err := p.Fits(verbs(t)); (err == nil) != fits {
			t.Errorf("%s: %v", text, err)
		}
	}
}
