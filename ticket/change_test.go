// SPDX-License-Identifier: Apache-2.0

package ticket_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"signalbox/event"
	"signalbox/ticket"
)

func addNet() ticket.Change {
	return ticket.Change{
		Space: "main", Revision: 1, At: epoch, Op: ticket.ChangeAdd, Agent: "net", Roles: []string{ticket.RoleDomainAgent}, Domains: []string{"network"},
		Key: ticket.EncodeKey(publicOf("net")), Reason: "<first> & only",
	}
}

func TestChangeIsSignedByTheAdministrator(t *testing.T) {
	c, err := addNet().Sign(keyOf("admin"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := ticket.ParseChange(c.Bytes())
	if err != nil || !bytes.Equal(again.Bytes(), c.Bytes()) || !bytes.Equal(again.Key(), publicOf("net")) {
		t.Fatalf("%v: %s", err, c.Bytes())
	}
	if err := again.Verify(publicOf("admin")); err != nil {
		t.Error(err)
	}
	for _, key := range []ed25519.PublicKey{nil, publicOf("net")} {
		if err := again.Verify(key); code(err) != event.CodeSignatureInvalid {
			t.Error(err)
		}
	}
	tampered, err := ticket.ParseChange(bytes.Replace(c.Bytes(), []byte(`"network"`), []byte(`"storage"`), 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := tampered.Verify(publicOf("admin")); code(err) != event.CodeSignatureInvalid {
		t.Error(err)
	}
}

func TestChangeIsStrict(t *testing.T) {
	for name, spoil := range map[string]func(*ticket.Change){
		"no revision":           func(c *ticket.Change) { c.Revision = 0 },
		"an unknown op":         func(c *ticket.Change) { c.Op = "delete" },
		"a name with a capital": func(c *ticket.Change) { c.Agent = "Net" },
		"the broker's name":     func(c *ticket.Change) { c.Agent = ticket.RoleBus },
		"no role":               func(c *ticket.Change) { c.Roles = nil },
		"an unknown role":       func(c *ticket.Change) { c.Roles = []string{"admin"} },
		"the broker's role":     func(c *ticket.Change) { c.Roles = []string{ticket.RoleBus} },
		"a role twice":          func(c *ticket.Change) { c.Roles = []string{ticket.RoleIntake, ticket.RoleIntake} },
		"no domain":             func(c *ticket.Change) { c.Domains = nil },
		"a role as domain":      func(c *ticket.Change) { c.Domains = []string{"gate"} },
		"a domain twice":        func(c *ticket.Change) { c.Domains = []string{"network", "network"} },
		"domains of a gate":     func(c *ticket.Change) { c.Roles = []string{ticket.RoleGate} },
		"no key":                func(c *ticket.Change) { c.Key = "" },
		"a short key":           func(c *ticket.Change) { c.Key = c.Key[:40] },
		"a key of another kind": func(c *ticket.Change) { c.Key = "rsa-pss" + c.Key[7:] },
		"a long reason":         func(c *ticket.Change) { c.Reason = strings.Repeat("x", 1025) },
		"a key to be set":       func(c *ticket.Change) { c.Op = ticket.ChangeSet },
		"roles to be revoked":   func(c *ticket.Change) { c.Op, c.Key = ticket.ChangeRevoke, "" },
	} {
		c := addNet()
		spoil(&c)
		if _, err := c.Sign(keyOf("admin")); code(err) != event.CodeAgentInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := addNet().Sign(keyOf("admin"))
	if err != nil {
		t.Fatal(err)
	}
	valid := string(c.Bytes())
	for _, text := range []string{
		"", "{}", "null", "[]", valid + "x", strings.Replace(valid, "{", `{"more":1,`, 1), strings.Replace(valid, "{", `{"agent":"net",`, 1), strings.Replace(valid, "{", `{"Agent":"net",`, 1),
		strings.Replace(valid, `"sig":"ed25519:`, `"sig":"ed25519:A`, 1), strings.Replace(valid, `"sig"`, `"signature"`, 1), strings.Replace(valid, `"revision":1`, `"revision":1.5`, 1),
		strings.Repeat(" ", ticket.MaxMessageBytes) + valid,
	} {
		if _, err := ticket.ParseChange([]byte(text)); code(err) != event.CodeAgentInvalid && code(err) != event.CodeMessageInvalid {
			t.Errorf("%.200s: %v", text, err)
		}
	}
}

// TestWhoProposesDoesNotDecide: no agent is two of those that the protocol keeps
// apart.
func TestWhoProposesDoesNotDecide(t *testing.T) {
	apart := []string{ticket.RoleOrchestrator, ticket.RoleDomainAgent, ticket.RoleGate}
	for i, one := range apart {
		for _, other := range apart[i+1:] {
			c := addNet()
			c.Roles = []string{one, other}
			if one != ticket.RoleDomainAgent && other != ticket.RoleDomainAgent {
				c.Domains = nil
			}
			if _, err := c.Sign(keyOf("admin")); code(err) != event.CodeAgentInvalid {
				t.Errorf("%s and %s: %v", one, other, err)
			}
		}
	}
	c := addNet()
	c.Roles, c.Domains = []string{ticket.RoleOrchestrator, ticket.RolePlatformOps}, nil
	if _, err := c.Sign(keyOf("admin")); err != nil {
		t.Error(err)
	}
}

// TestWeakKeysAreRefused: under a point of small order libraries disagree about
// what is signed.
func TestWeakKeysAreRefused(t *testing.T) {
	for _, text := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000", "0100000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000080", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	} {
		key, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ticket.DecodeKey(ticket.EncodeKey(key)); code(err) != event.CodeAgentInvalid {
			t.Errorf("%s: %v", text, err)
		}
	}
	if key, err := ticket.DecodeKey(ticket.EncodeKey(publicOf("net"))); err != nil || !bytes.Equal(key, publicOf("net")) {
		t.Error(err)
	}
}

func TestPrivateKeysAreInPEMForm(t *testing.T) {
	text := ticket.EncodePrivateKey(keyOf("net"))
	if key, err := ticket.DecodePrivateKey(text); err != nil || !key.Equal(keyOf("net")) {
		t.Error(err)
	}
	const rsa = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VuBCIEIFqNnY7aN7TnDCWYGZ+3tvDDTKnCfTP7LPwX8cR8cqNx\n-----END PRIVATE KEY-----\n" // X25519
	for _, bad := range []string{"", "x", rsa, strings.Replace(string(text), "PRIVATE", "PUBLIC", 2), string(text[:60])} {
		if _, err := ticket.DecodePrivateKey([]byte(bad)); code(err) != event.CodeAgentInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestNetworkAgentCannotGrantOrReadAnotherDomain is the example of the protocol.
func TestNetworkAgentCannotGrantOrReadAnotherDomain(t *testing.T) {
	sends, reads := ticket.Rights("main", []string{ticket.RoleDomainAgent}, []string{"network"})
	var types []string
	for _, s := range sends {
		types = append(types, s.Type)
		if s.Type == ticket.TypeProposal && !slices.Equal(s.Topics, []string{"bus.main.plan.network"}) {
			t.Errorf("proposals go to %v", s.Topics)
		}
	}
	if !slices.Equal(types, []string{"proposal", "approval.request", "result", "escalation", "heartbeat"}) {
		t.Errorf("it may send %v", types)
	}
	if !slices.Equal(reads, []string{"bus.main.plan.network", "bus.main.execute.network"}) {
		t.Errorf("it may read %v", reads)
	}
	sends, reads = ticket.Rights("prod", []string{ticket.RoleOrchestrator}, nil)
	if !slices.Equal(reads, []string{"bus.prod.>"}) || !slices.Equal(sends[0].Topics, []string{"bus.prod.plan.*"}) {
		t.Errorf("an orchestrator: %v, %v", sends, reads)
	}
	if sends, reads := ticket.Rights("main", []string{ticket.RoleAuditor}, nil); sends != nil || !slices.Equal(reads, []string{"bus.main.>"}) {
		t.Errorf("an auditor: %v, %v", sends, reads)
	}
}

func FuzzParseChange(f *testing.F) {
	c, err := addNet().Sign(keyOf("admin"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(c.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ticket.ParseChange(b)
		if err != nil {
			if code(err) == event.CodeInternal {
				t.Fatalf("refused without a code: %v", err)
			}
			return
		}
		again, err := c.Change().Sign(keyOf("admin"))
		if err != nil || again.Verify(publicOf("admin")) != nil {
			t.Fatalf("%s cannot be signed: %v", b, err)
		}
	})
}
