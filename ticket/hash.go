// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"crypto/sha256"
	"encoding/hex"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
)

// Action is what is done to a target: the part of a step that decides what it
// does, and that hashes are over.
type Action struct {
	Verb   string         `json:"action"`
	Target string         `json:"target"`
	Params jsontext.Value `json:"params"` // a JSON object
}

// Slice is what one domain carries out, and how it takes that back.
type Slice struct {
	Steps    []Action `json:"steps"`
	Rollback []Action `json:"rollback"`
}

// SliceOf reads the steps and the rollback of a payload, or of the slice of one.
// What else a step says of itself is left out.
func SliceOf(payload []byte) (s Slice, err error) {
	if err := json.Unmarshal(payload, &s); err != nil {
		return s, event.Errorf(event.CodePayloadInvalid, "The steps cannot be read: each is an object with action, target and params.").With("steps")
	}
	return s, nil
}

// hashPrefix names the hash, so that another one can be told apart.
const hashPrefix = "sha256:"

// Hash returns slice_hash: the SHA-256 of the canonical form of
// {"rollback":[…],"steps":[…]} with action, target and params of each. No
// presentational text, number or check is in it.
func (s Slice) Hash() (string, error) {
	for _, list := range []*[]Action{&s.Steps, &s.Rollback} {
		copied := append([]Action{}, *list...) // [] where it is nil, and not the caller's
		for i := range copied {
			if len(copied[i].Params) == 0 {
				copied[i].Params = jsontext.Value("{}")
			}
		}
		*list = copied
	}
	return hash(s)
}

// PlanSlice names a slice of a plan.
type PlanSlice struct {
	ID   string `json:"slice_id"`
	Hash string `json:"slice_hash"`
}

// Plan is what plan_hash is over.
type Plan struct {
	TicketID      string      `json:"ticket_id"`
	PlanID        string      `json:"plan_id"`
	Revision      int         `json:"revision"`
	Tier          int         `json:"tier"`
	Slices        []PlanSlice `json:"slices"` // in the order of the plan
	PolicyVersion string      `json:"policy_version"`
}

// Hash returns plan_hash: the SHA-256 of the plan's canonical form.
func (p Plan) Hash() (string, error) {
	if p.Slices == nil {
		p.Slices = []PlanSlice{}
	}
	return hash(p)
}

func hash(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", event.Errorf(event.CodePayloadInvalid, "What is to be hashed has no JSON form.")
	}
	if err := checkValue(text, "payload"); err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical(text))
	return hashPrefix + hex.EncodeToString(sum[:]), nil
}

// whole returns a parameter that is a whole number.
func whole(v any) (int64, bool) {
	f, ok := v.(float64)
	return int64(f), ok && f == math.Trunc(f)
}
