// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"signalbox/client"
	"signalbox/ticket"
)

// keyring has the keys of those whose messages an agent acts on, so that it need not
// take the word of whatever stands between it and the signer.
type keyring struct {
	c *client.Client

	mu     sync.Mutex
	agents map[string]client.Agent // guarded by mu; as they were when they were last asked for
}

func newKeyring(c *client.Client) *keyring { return &keyring{c: c, agents: map[string]client.Agent{}} }

// check verifies that a message was signed by an agent that has, or had, a role. The
// registry is asked again when what is known of it does not fit.
func (k *keyring) check(ctx context.Context, m *Message, role string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if a, ok := k.agents[m.From]; ok && fits(&a, m, role) {
		return nil
	}
	a, err := k.c.Agent(ctx, m.From)
	if err != nil {
		return err
	}
	k.agents[m.From] = a
	if !fits(&a, m, role) {
		return &client.RejectError{Reason: fmt.Sprintf("the message %s is not signed by an agent with the role %s", m.ID, role)}
	}
	return nil
}

// fits accepts every key that the agent ever had: which one counted when the message
// came was the broker's to judge.
func fits(a *client.Agent, m *Message, role string) bool {
	return slices.Contains(a.Roles, role) && slices.ContainsFunc(a.Keys, func(k client.AgentKey) bool {
		key, err := ticket.DecodeKey(k.Key)
		return err == nil && m.Envelope.Verify(key) == nil
	})
}
