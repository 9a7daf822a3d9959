// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"testing"

	"filippo.io/edwards25519"

	"signalbox/event"
	"signalbox/internal/admission"
	"signalbox/ticket"
)

// order is L, the order of the group (RFC 8032 section 5.1), little-endian.
var order = [32]byte{0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 31: 0x10}

// plusOrder is the same scalar, written as one that is too large.
func plusOrder(s []byte) []byte {
	out := append([]byte{}, s...)
	carry := 0
	for i := range 32 {
		carry += int(out[32+i]) + int(order[i])
		out[32+i] = byte(carry)
		carry >>= 8
	}
	return out
}

// sameAnswer holds a key that was made ready against the standard library.
func sameAnswer(t *testing.T, public ed25519.PublicKey, message, signature []byte) (valid bool) {
	t.Helper()
	got, want := admission.VerifyReady(public, message, signature), ed25519.Verify(public, message, signature)
	if got != want {
		t.Errorf("under %x, %x of %q is %v, and the standard library says %v", public, signature, message, got, want)
	}
	return want
}

// torsion is a point of order 8.
func torsion(t testing.TB) *edwards25519.Point {
	t.Helper()
	p, err := new(edwards25519.Point).SetBytes([]byte("\x26\xe8\x95\x8f\xc2\xb2\x27\xb0\x45\xc3\xf4\x89\xf2\xef\x98\xf0\xd5\xdf\xac\x05\xd3\xc6\x33\x39\xb1\x38\x02\x88\x6d\x53\xfc\x05"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestReadyKeysAnswerAsTheStandardLibrary: for signatures that are valid, changed in any
// bit, written in another way, or of keys and points that libraries disagree about.
func TestReadyKeysAnswerAsTheStandardLibrary(t *testing.T) {
	valid := 0
	for i := range 8 {
		seed := sha256.Sum256(fmt.Append(nil, i))
		key := ed25519.NewKeyFromSeed(seed[:])
		public, _ := key.Public().(ed25519.PublicKey)
		message := fmt.Appendf(nil, "message %d", i)
		signature := ed25519.Sign(key, message)
		if sameAnswer(t, public, message, signature) {
			valid++
		}
		for bit := i; bit < 8*ed25519.SignatureSize; bit += 8 {
			changed := append([]byte{}, signature...)
			changed[bit/8] ^= 1 << (bit % 8)
			sameAnswer(t, public, message, changed)
		}
		mixed, err := new(edwards25519.Point).SetBytes(public)
		if err != nil {
			t.Fatal(err)
		}
		mixed.Add(mixed, torsion(t))
		shifted, err := new(edwards25519.Point).SetBytes(signature[:32])
		if err != nil {
			t.Fatal(err)
		}
		shifted.Add(shifted, torsion(t))
		for _, c := range []struct{ public, signature []byte }{
			{public, plusOrder(signature)}, {public, make([]byte, 64)}, {public, append(append([]byte{}, shifted.Bytes()...), signature[32:]...)},
			{mixed.Bytes(), signature}, {mixed.Bytes(), append(append([]byte{}, shifted.Bytes()...), signature[32:]...)}, {public, signature[:63]}, {public, nil},
		} {
			for n := range 16 { // whether a point of small order vanishes depends on the message
				if sameAnswer(t, c.public, fmt.Append(message, n), c.signature) {
					valid++
				}
			}
		}
		small := torsion(t).Bytes()
		for n := range 16 { // under it one signature fits some messages
			if sameAnswer(t, small, fmt.Append(nil, n), append(torsion(t).Bytes(), make([]byte, 32)...)) {
				valid++
			}
		}
	}
	if valid <= 8 {
		t.Errorf("only %d signatures were valid, so none of those that libraries disagree about", valid)
	}
}

// FuzzReadyKeys: whatever is signed, and however the signature is changed.
func FuzzReadyKeys(f *testing.F) {
	f.Add([]byte("seed"), []byte("message"), uint16(0), uint8(0))
	f.Add([]byte{0xff}, []byte{}, uint16(300), uint8(1))
	f.Fuzz(func(t *testing.T, seed, message []byte, at uint16, change uint8) {
		sum := sha256.Sum256(seed)
		key := ed25519.NewKeyFromSeed(sum[:])
		public, _ := key.Public().(ed25519.PublicKey)
		signature := ed25519.Sign(key, message)
		signature[int(at)%len(signature)] ^= change
		if valid := sameAnswer(t, public, message, signature); !valid && change == 0 {
			t.Error("a signature is not valid")
		}
	})
}

// TestKeysAreMadeReadyWhenTheyAreUsed, and no more are kept than there may be.
func TestKeysAreMadeReadyWhenTheyAreUsed(t *testing.T) {
	check, catalogue := admission.NewMessages(), verbs(t)
	m := message(t, ticket.TypeOpen, payloads(t)[ticket.TypeOpen])
	key := ticket.EncodeKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey))
	other := ed25519.NewKeyFromSeed([]byte("another key of thirty-two bytes!")).Public().(ed25519.PublicKey)
	for range 100 {
		if _, _, err := check.Admit(m, key, catalogue, 0); err != nil {
			t.Fatal(err)
		}
		if _, _, err := check.Admit(m, ticket.EncodeKey(other), catalogue, 0); codeOf(err) != event.CodeSignatureInvalid {
			t.Fatal(err)
		}
	}
	if kept, ready := check.Keys(); kept != 2 || ready != 1 {
		t.Errorf("%d keys are kept, %d of them ready", kept, ready)
	}
	for i := range 2 * admission.KeysMax {
		seed := sha256.Sum256(fmt.Append(nil, i))
		public := ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)
		_, _, _ = check.Admit(m, ticket.EncodeKey(public), catalogue, 0)
	}
	if kept, _ := check.Keys(); kept > admission.KeysMax {
		t.Errorf("%d keys are kept", kept)
	}
}

func BenchmarkVerify(b *testing.B) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public, _ := key.Public().(ed25519.PublicKey)
	message := make([]byte, 1024)
	signature := ed25519.Sign(key, message)
	verify, err := admission.NewVerifier(public)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ready", func(b *testing.B) {
		for b.Loop() {
			if !verify(message, signature) {
				b.Fatal("not valid")
			}
		}
	})
	b.Run("standard", func(b *testing.B) {
		for b.Loop() {
			if !ed25519.Verify(public, message, signature) {
				b.Fatal("not valid")
			}
		}
	})
}
