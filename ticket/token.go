// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"crypto/ed25519"
	"fmt"
	"sync"
	"time"
)

// TokenLife is the longest time that a token may be valid for. Whoever sees one can
// read as its agent until then.
const TokenLife = 5 * time.Minute

// Token says who reads: a JSON Web Token (RFC 7519) in which an agent names itself
// as issuer and subject and a space as audience, for a short time.
type Token struct {
	Agent, Space    string
	Issued, Expires time.Time
}

// Sign makes the token in its compact form, with the key of the agent and the
// algorithm EdDSA (RFC 8037).
func (t Token) Sign(key ed25519.PrivateKey) string {
	text := encoding.EncodeToString([]byte(`{"alg":"EdDSA","typ":"JWT"}`)) + "." + encoding.EncodeToString(fmt.Appendf(nil,
		`{"iss":%[1]q,"sub":%[1]q,"aud":%[2]q,"iat":%[3]d,"exp":%[4]d}`, t.Agent, t.Space, t.Issued.Unix(), t.Expires.Unix()))
	return text + "." + encoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}

// Tokens makes the tokens of one agent, as they are needed. It is safe for
// concurrent use.
type Tokens struct {
	agent, space string
	key          ed25519.PrivateKey

	mu    sync.Mutex
	until time.Time // when the next one is due; guarded by mu
	text  string    // guarded by mu
}

// NewTokens returns what makes the tokens of an agent for a space.
func NewTokens(agent, space string, key ed25519.PrivateKey) (*Tokens, error) {
	if err := CheckName(agent); err != nil {
		return nil, err
	}
	if err := CheckName(space); err != nil {
		return nil, err
	}
	return &Tokens{agent: agent, space: space, key: key}, nil
}

// Token returns a token that is valid at a time, and for a while after it.
func (t *Tokens) Token(now time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if issued := t.until.Add(-TokenLife / 2); now.Before(issued) || !now.Before(t.until) {
		t.text = Token{Agent: t.agent, Space: t.space, Issued: now, Expires: now.Add(TokenLife)}.Sign(t.key)
		t.until = now.Add(TokenLife / 2)
	}
	return t.text
}
