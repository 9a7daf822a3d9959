// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/ed25519"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"signalbox/event"
)

const (
	// tokenBytesMax stops what is no token before anything of it is decoded.
	tokenBytesMax = 4 << 10
	// TokenLeeway is how far the clocks of agents and of the broker may differ.
	TokenLeeway = 30 * time.Second
)

// Token is what a token is held against.
type Token struct {
	Text     string
	Audience string // that must be among those the token is for
	LifeMax  time.Duration
	Now      time.Time
	// Key returns the key in use of an agent and its name; nil if there is none.
	Key func(agent string) (key ed25519.PublicKey, name string)
}

// Verify returns the agent that signed a token (a JWT in compact form, RFC 7519), and
// until when it counts. It takes EdDSA only, whatever the token says of itself, and
// exactly one issuer, who is its subject. It fails with code token_invalid.
func (t *Token) Verify() (p Principal, until time.Time, err error) {
	if len(t.Text) > tokenBytesMax {
		return p, until, invalidToken("has more than %d bytes", tokenBytesMax)
	}
	token, err := jwt.ParseSigned(t.Text, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return p, until, invalidToken("is no JWT in compact form that is signed by EdDSA")
	}
	var claims jwt.Claims
	if err := token.UnsafeClaimsWithoutVerification(&claims); err != nil {
		return p, until, invalidToken("has claims that cannot be read")
	}
	key, name := t.Key(claims.Issuer)
	if key == nil {
		return p, until, invalidToken("has in iss %.80q, which is no agent whose key is in use", claims.Issuer)
	}
	if err := token.Claims(key, &claims); err != nil {
		return p, until, invalidToken("is not signed with the key in use of the agent %q", claims.Issuer)
	}
	switch {
	case claims.IssuedAt == nil || claims.Expiry == nil:
		return p, until, invalidToken("has no iat or no exp")
	case claims.Expiry.Time().Sub(claims.IssuedAt.Time()) > t.LifeMax:
		return p, until, invalidToken("is valid for longer than %s", t.LifeMax)
	}
	err = claims.ValidateWithLeeway(jwt.Expected{Issuer: claims.Issuer, Subject: claims.Issuer, AnyAudience: jwt.Audience{t.Audience}, Time: t.Now}, TokenLeeway)
	if err != nil {
		return p, until, invalidToken("does not count: it needs sub as iss, %q in aud, and a time between iat and exp by the broker's clock", t.Audience)
	}
	return Principal{subject: claims.Issuer, credential: name}, claims.Expiry.Time().Add(TokenLeeway), nil
}

func invalidToken(format string, args ...any) error {
	return event.Errorf(event.CodeTokenInvalid, "The token "+format+".", args...).With("Authorization")
}
