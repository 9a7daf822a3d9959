// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/event"
	"signalbox/ticket"
)

const (
	requestMax = 4 << 10
	// askMax is how old a request may be, and credentialLife how long what is given out
	// is good for: an agent whose work takes longer comes again.
	askMax         = time.Minute
	credentialLife = 5 * time.Minute
)

// ask is what an agent says, signed with the key that it is registered with.
type ask struct {
	Agent     string    `json:"agent"`
	ExecuteID string    `json:"execute_id"`
	LeaseID   string    `json:"lease_id"`
	Plan      string    `json:"plan"`
	Target    string    `json:"target"`
	At        time.Time `json:"at"`
}

// credential is what it gets.
type credential struct {
	User    string    `json:"user"`
	Value   string    `json:"value"`
	Expires time.Time `json:"expires"`
}

// vault stands for the secrets broker. It knows which executes are under way, as the
// bus has them, and nothing else makes it give anything out.
type vault struct {
	c *client.Client

	mu       sync.Mutex
	underWay map[string]*ticketclient.Message // guarded by mu; executes by id
}

func newVault(c *client.Client) *vault {
	return &vault{c: c, underWay: map[string]*ticketclient.Message{}}
}

// watch follows what is executed. A lease begins with its execute and ends with the
// result.
func (v *vault) watch(ctx context.Context) error {
	registry, err := v.c.Agents(ctx)
	if err != nil {
		return err
	}
	root := ticket.TopicRoot + "." + registry.Space + "."
	for item, err := range v.c.Follow(ctx, []string{root + "execute.>", root + "result.>"}, client.FollowOptions{}) {
		if err != nil {
			return err
		}
		if item.Kind != client.ItemEvent {
			continue
		}
		m, err := ticketclient.DecodeMessage(item.Event.Data())
		if err != nil {
			continue // of a later version: it gets nothing
		}
		v.mu.Lock()
		switch p := m.Payload.(type) {
		case *ticketclient.Execute:
			v.underWay[m.ID] = m
		case *ticketclient.Result:
			delete(v.underWay, p.ExecuteID)
		}
		v.mu.Unlock()
	}
	return context.Cause(ctx)
}

// ServeHTTP redeems a lease.
func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, requestMax))
	if err == nil && r.Method != http.MethodPost {
		err = errors.New("redeem with POST")
	}
	var given *credential
	if err == nil {
		given, err = v.redeem(r.Context(), body, r.Header.Get("Signature"), time.Now())
	}
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	_ = json.NewEncoder(w).Encode(given) // who asked has gone; what it stands for expires
}

// redeem checks that the agent is who it says, and that an execute for its domain
// names this lease, with this scope, and is under way.
func (v *vault) redeem(ctx context.Context, body []byte, signature string, now time.Time) (*credential, error) {
	var a ask
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, errors.New("it is no request for a lease")
	}
	if age := now.Sub(a.At); age > askMax || age < -askMax {
		return nil, errors.New("the request is too old")
	}
	agent, err := v.c.Agent(ctx, a.Agent)
	if err != nil {
		return nil, err
	}
	sig, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || !agent.Active || !signedBy(&agent, body, sig) {
		return nil, fmt.Errorf("it is not signed by %s", a.Agent)
	}
	v.mu.Lock()
	m := v.underWay[a.ExecuteID]
	v.mu.Unlock()
	if m == nil {
		return nil, errors.New("nothing of that name is under way")
	}
	x := m.Payload.(*ticketclient.Execute)
	due, err := m.Due(1)
	switch {
	case err != nil || !due.After(now):
		return nil, errors.New("its time is over")
	case !slices.Contains(agent.Domains, m.To):
		return nil, errors.New("it is for another domain")
	case x.LeaseID != a.LeaseID || x.LeaseScope != (ticketclient.LeaseScope{Plan: a.Plan, Target: a.Target}):
		return nil, errors.New("the execute has another lease, or one of another scope")
	}
	var secret [24]byte
	_, _ = rand.Read(secret[:]) // never fails; a real one asks what it guards for an account
	expires := now.Add(credentialLife)
	if due.Before(expires) {
		expires = due
	}
	return &credential{User: "jit-" + a.LeaseID, Value: base64.RawURLEncoding.EncodeToString(secret[:]), Expires: expires.UTC()}, nil
}

// signedBy takes the key in use only, the last one: what was revoked redeems nothing.
func signedBy(a *client.Agent, body, sig []byte) bool {
	if len(a.Keys) == 0 {
		return false
	}
	last := a.Keys[len(a.Keys)-1]
	key, err := ticket.DecodeKey(last.Key)
	return err == nil && last.Until == (event.Cursor{}) && ed25519.Verify(key, body, sig)
}
