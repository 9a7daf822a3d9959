// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"crypto/ed25519"
	"time"

	"signalbox/internal/identity"
	"signalbox/ticket"
)

// Authenticate returns the agent that a token is of, and until when it counts. It
// fails with code token_invalid.
func (b *Broker) Authenticate(token string) (identity.Principal, time.Time, error) {
	r := b.registry.Load()
	t := identity.Token{Text: token, Audience: r.Space, LifeMax: ticket.TokenLife, Now: b.options.Clock.Wall(), Key: func(name string) (ed25519.PublicKey, string) {
		agent, err := r.Agent(name)
		if err != nil || agent.InUse() == nil {
			return nil, ""
		}
		key, err := ticket.DecodeKey(agent.InUse().Key)
		if err != nil {
			return nil, "" // the registry takes no such key
		}
		return key, agent.InUse().Key
	}}
	return t.Verify()
}
