// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"crypto/ed25519"
	"sync"
	"time"

	"signalbox/client"
	"signalbox/ticket"
)

// Tokens returns what says to a broker which agent is calling, for
// [client.WithToken]. For which space the tokens are is asked of the broker, once and
// without a token: one that does not count must not be what keeps this from being said.
func Tokens(c *client.Client, name string, key ed25519.PrivateKey) client.TokenSource {
	c = c.With(client.WithToken(nil))
	var mu sync.Mutex
	var tokens *ticket.Tokens // guarded by mu
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if tokens == nil {
			registry, err := c.Space(ctx)
			if err != nil {
				return "", err
			}
			if tokens, err = ticket.NewTokens(name, registry.Space, key); err != nil {
				return "", err
			}
		}
		return tokens.Token(time.Now()), nil
	}
}
