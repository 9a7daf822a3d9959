// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonValue is JSON as it was received.
type jsonValue = jsontext.Value

// EncodeKey writes a public key as the registry has it: ed25519: and the key in
// base64url without padding.
func EncodeKey(key ed25519.PublicKey) string {
	return signaturePrefix + encoding.EncodeToString(key)
}

// DecodeKey reads a public key, with code agent_invalid if it cannot be used.
func DecodeKey(text string) (ed25519.PublicKey, error) {
	const length = len(signaturePrefix) + (ed25519.PublicKeySize*8+5)/6
	if len(text) != length || text[:len(signaturePrefix)] != signaturePrefix {
		return nil, agentInvalid("key", "A key is ed25519: and the public key in base64url without padding.")
	}
	key, err := encoding.DecodeString(text[len(signaturePrefix):])
	if err != nil {
		return nil, agentInvalid("key", "A key is ed25519: and the public key in base64url without padding.")
	}
	if slices.Contains(weak, hex.EncodeToString(append(slices.Clone(key[:31]), key[31]&0x7f))) {
		return nil, agentInvalid("key", "The key is a point of small order, under which one signature fits many messages.")
	}
	return key, nil
}

// weak are the points of small order of the curve, in all the forms that some
// library accepts, without the sign bit. Libraries disagree about signatures
// under them (RFC 8032 section 8.9), so nobody may have one.
var weak = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

// pemType is that of a private key in the form PKCS #8 (RFC 5208), which other
// tools read too.
const pemType = "PRIVATE KEY"

// EncodePrivateKey writes a private key in PEM form.
func EncodePrivateKey(key ed25519.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil // it knows this kind of key
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der})
}

// DecodePrivateKey reads a private key in PEM form, with code agent_invalid if it
// is none, or is not Ed25519.
func DecodePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block != nil && block.Type == pemType {
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if private, ok := key.(ed25519.PrivateKey); ok {
				return private, nil
			}
		}
	}
	return nil, agentInvalid("key", "It is not an Ed25519 private key in PEM form (PKCS #8).")
}
