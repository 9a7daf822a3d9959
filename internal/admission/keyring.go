// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/ed25519"
	"sync"
	"sync/atomic"

	"signalbox/ticket"
)

const (
	// keysMax bounds the memory of keys that are kept ready, 8 MiB.
	keysMax = 64
	// combAfter is after how many signatures a key is made ready, which takes as
	// long as a few of them.
	combAfter = 16
)

// keyring keeps keys that are in use ready to verify with. Which key counts is the
// registry's affair; here a key is its text, and means the same for ever. It is safe
// for concurrent use.
type keyring struct {
	mu   sync.Mutex
	keys map[string]*readyKey // guarded by mu
}

type readyKey struct {
	public ed25519.PublicKey
	used   atomic.Int32
	comb   atomic.Pointer[combKey] // nil: not used often enough yet
}

// verify reports whether a message was signed with a key, as the registry has it. Only
// the standard library refuses.
func (r *keyring) verify(m *ticket.Message, text string) error {
	k, err := r.key(text)
	if err != nil {
		return err
	}
	if c := k.comb.Load(); c != nil && m.VerifyBy(c.verify) {
		return nil
	}
	if err := m.Verify(k.public); err != nil {
		return err
	}
	if k.used.Add(1) == combAfter {
		if c, err := newCombKey(k.public); err == nil {
			k.comb.Store(c)
		}
	}
	return nil
}

func (r *keyring) key(text string) (*readyKey, error) {
	r.mu.Lock()
	k := r.keys[text]
	r.mu.Unlock()
	if k != nil {
		return k, nil
	}
	public, err := ticket.DecodeKey(text)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.keys[text]; k != nil {
		return k, nil
	}
	for old := range r.keys { // whichever: what is in use comes back
		if len(r.keys) < keysMax {
			break
		}
		delete(r.keys, old)
	}
	k = &readyKey{public: public}
	r.keys[text] = k
	return k, nil
}
