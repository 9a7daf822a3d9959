// SPDX-License-Identifier: Apache-2.0

package ticket_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"flag"
	"os"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"signalbox/api"
	"signalbox/ticket"
)

var update = flag.Bool("update", false, "write api/ticket/vectors.json anew")

// vectors is api/ticket/vectors.json. Texts of JSON are JSON strings in it, so
// that reading the file does not change them.
type vectors struct {
	About    string          `json:"about"`
	Keys     []keyVector     `json:"keys"`
	Values   []valueVector   `json:"values"`
	Messages []messageVector `json:"messages"`
	Slices   []hashVector    `json:"slices"`
	Plans    []hashVector    `json:"plans"`
}

type keyVector struct {
	Agent  string `json:"agent"`
	Seed   string `json:"seed"`   // hex
	Public string `json:"public"` // hex
}

type valueVector struct {
	Name      string `json:"name"`
	Input     string `json:"input"`
	Canonical string `json:"canonical"`
}

type messageVector struct {
	Name     string `json:"name"`
	Key      string `json:"key"` // the agent whose key verifies it, or does not
	Envelope string `json:"envelope"`
	Signed   string `json:"signed"` // canonical form without sig
	Valid    bool   `json:"valid"`
}

type hashVector struct {
	Name      string `json:"name"`
	Input     string `json:"input"`
	Canonical string `json:"canonical"`
	Hash      string `json:"hash"`
}

const aboutVectors = "Ed25519 (RFC 8032) over canonical JSON (RFC 8785). values: input and its canonical form. messages: envelope is what is sent, signed what its " +
	"signature is over. slices and plans: what slice_hash and plan_hash are over, and the hash."

// TestVectors reproduces every vector; so do the tests in Python and JavaScript
// below interop, with libraries of their own.
func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	var v vectors
	text := api.TicketVectors
	if *update {
		text, _ = os.ReadFile("../api/ticket/vectors.json")
	}
	if err := json.Unmarshal(text, &v, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	keys := map[string]ed25519.PublicKey{}
	for _, k := range v.Keys {
		seed, _ := hex.DecodeString(k.Seed)
		keys[k.Agent] = ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
		if hex.EncodeToString(keys[k.Agent]) != k.Public {
			t.Errorf("the key of %s is %x", k.Agent, keys[k.Agent])
		}
	}
	for _, c := range v.Values {
		if got, err := ticket.Canonical([]byte(c.Input)); err != nil || string(got) != c.Canonical {
			t.Errorf("%s: %s, %v", c.Name, got, err)
		}
	}
	for _, c := range v.Messages {
		m, err := ticket.Parse([]byte(c.Envelope))
		if err != nil || string(m.Signed()) != c.Signed || string(m.Bytes()) != c.Envelope {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		if err := m.Verify(keys[c.Key]); (err == nil) != c.Valid {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	for _, c := range v.Slices {
		s, err := ticket.SliceOf([]byte(c.Input))
		if hash, _ := s.Hash(); err != nil || hash != c.Hash {
			t.Errorf("%s: %s, %v", c.Name, hash, err)
		}
	}
	for _, c := range v.Plans {
		var p ticket.Plan
		err := json.Unmarshal([]byte(c.Input), &p)
		if hash, _ := p.Hash(); err != nil || hash != c.Hash {
			t.Errorf("%s: %s, %v", c.Name, hash, err)
		}
	}
	if len(v.Keys) < 2 || len(v.Values) < 10 || len(v.Messages) < 5 || len(v.Slices) < 2 || len(v.Plans) < 1 {
		t.Error("vectors are missing")
	}
}

func writeVectors(t *testing.T) {
	v := vectors{About: aboutVectors}
	for _, agent := range []string{"desk", "net"} {
		k := keyOf(agent)
		v.Keys = append(v.Keys, keyVector{agent, hex.EncodeToString(k.Seed()), hex.EncodeToString(publicOf(agent))})
	}
	for _, c := range [][2]string{
		{"escapes that only pages need", `"\u003ca\u0026b\u003e"`}, {"line separators", `"\u2028\u2029"`}, {"solidus, accent and tab", `"\/\u00e9\t\u0009"`},
		{"control characters", `"\u0000\u001f\b\f\n\r\u007f"`}, {"a character beyond the basic plane", `"\ud83d\ude00"`}, {"a letter that is not composed", `"e\u0301"`},
		{"names in the order of UTF-16", `{"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3,"\r":4,"1":5,"":6}`}, {"white space", " { \"b\" : [ ] ,\n \"a\" : { } } "},
		{"literals", `[null,true,false]`}, {"zeros", `[0,-0,0.0,-0.0,0e9]`}, {"whole numbers", `[1.0,10e-1,1E3,1e+3,9007199254740991,-9007199254740991]`},
		{"fractions", `[4.50,2e-3,0.1,0.000001,1e-7,0.0000001,1e-27,5e-324,123456789.125]`}, {"nested", `{"b":{"d":[{"y":1,"x":2}],"c":null},"a":""}`},
	} {
		out, err := ticket.Canonical([]byte(c[1]))
		if err != nil {
			t.Fatal(c[0], err)
		}
		v.Values = append(v.Values, valueVector{c[0], c[1], string(out)})
	}
	v.messages(t)
	v.hashes(t)
	text, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("../api/ticket/vectors.json", append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (v *vectors) messages(t *testing.T) {
	add := func(name, key string, valid bool, m *ticket.Message) {
		v.Messages = append(v.Messages, messageVector{name, key, string(m.Bytes()), string(m.Signed()), valid})
	}
	plain := sign(t, open(somePayload))
	add("an ordinary message", "desk", true, plain)
	add("the key of another agent", "net", false, plain)
	odd := sign(t, open(`{"text":"<a&b> \u2028\u2029 é e\u0301 / \t \u0000 😀","n":[4.50,-0,1e-7],"empty":{},"none":null}`))
	add("text that encoders escape", "desk", true, odd)
	respelt := []byte("\n" + string(odd.Bytes()[:1]) + "\t" + string(odd.Bytes()[1:]) + " ")
	m, err := ticket.Parse(respelt)
	if err != nil {
		t.Fatal(err)
	}
	add("other white space", "desk", true, m)
	m, err = ticket.Parse([]byte(spelt(t, "trace_id", `"trace-2"`)))
	if err != nil {
		t.Fatal(err)
	}
	add("a member that was changed", "desk", false, m)
	d := open(`{"agent":"net","accepts":">=1.0.0 <2.0.0","domains":["network"],"capabilities":["acl.block"],"inflight":[],"capacity":4,"seq":9007199254740991}`)
	d.Type, d.TicketID, d.From, d.To = ticket.TypeHeartbeat, ticket.None, "net", "platform-ops"
	add("a heartbeat", "net", true, sign(t, d))
}

func (v *vectors) hashes(t *testing.T) {
	steps := `{"rollback":[{"action":"acl.unblock","params":{"address":"192.0.2.1"},"target":"fw/1"}],"steps":[{"action":"acl.block","params":{"minutes":5,"address":"192.0.2.1"},"target":"fw/1"}]}`
	var hashes []string
	for _, c := range [][2]string{{"a step and its rollback", steps}, {"nothing", `{"steps":[],"rollback":[]}`}} {
		s, err := ticket.SliceOf([]byte(c[1]))
		if err != nil {
			t.Fatal(err)
		}
		hash, err := s.Hash()
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := ticket.Canonical([]byte(c[1]))
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, hash)
		v.Slices = append(v.Slices, hashVector{c[0], c[1], string(canonical), hash})
	}
	p := ticket.Plan{TicketID: "INC-1", PlanID: "plan-1", Revision: 1, Tier: 2, PolicyVersion: "1.0.0",
		Slices: []ticket.PlanSlice{{ID: "network", Hash: hashes[0]}, {ID: "storage", Hash: hashes[1]}}}
	hash, err := p.Hash()
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	canonical, err := ticket.Canonical(input)
	if err != nil {
		t.Fatal(err)
	}
	v.Plans = append(v.Plans, hashVector{"two slices", string(input), string(canonical), hash})
}

// TestHashIsOfWhatIsDone: text, numbers and checks of a step are not in it.
func TestHashIsOfWhatIsDone(t *testing.T) {
	hash := func(payload string) string {
		s, err := ticket.SliceOf([]byte(payload))
		if err != nil {
			t.Fatal(err)
		}
		h, err := s.Hash()
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	bare := hash(`{"steps":[{"action":"a.b","target":"t","params":{"x":1,"y":"z"}}],"rollback":[]}`)
	for _, same := range []string{
		`{"steps":[{"n":1,"action":"a.b","target":"t","params":{"y":"\u007a","x":1.0},"reversible":true,"precheck":"p","postcheck":"q"}],"rollback":[],"risk":{}}`,
		`{"steps":[{"action":"a.b","target":"t","params":{"x":1,"y":"z"}}]}`,
	} {
		if hash(same) != bare {
			t.Errorf("%s has another hash", same)
		}
	}
	for _, other := range []string{
		`{"steps":[{"action":"a.c","target":"t","params":{"x":1,"y":"z"}}],"rollback":[]}`, `{"steps":[{"action":"a.b","target":"u","params":{"x":1,"y":"z"}}],"rollback":[]}`,
		`{"steps":[{"action":"a.b","target":"t","params":{"x":2,"y":"z"}}],"rollback":[]}`, `{"rollback":[{"action":"a.b","target":"t","params":{"x":1,"y":"z"}}],"steps":[]}`,
	} {
		if hash(other) == bare {
			t.Errorf("%s has the same hash", other)
		}
	}
}
