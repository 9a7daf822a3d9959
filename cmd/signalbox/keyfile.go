// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"signalbox/event"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// administratorFile is where the first start of a broker writes the key that
// changes of the registry of agents are signed with, in the data directory.
const administratorFile = "administrator.key"

func publicKey(key ed25519.PrivateKey) ed25519.PublicKey {
	return ed25519.PublicKey(key[ed25519.PrivateKeySize-ed25519.PublicKeySize:]) // RFC 8032: the seed and the public key
}

// readKey reads a private key from a file.
func readKey(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := ticket.DecodePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// drawKey writes a new private key into a file that is not there yet.
func drawKey(path string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	err = store.WriteKeyFile(nil, path, ticket.EncodePrivateKey(key))
	if errors.Is(err, fs.ErrExist) {
		return nil, usagef("%s is there already, and a key is not written over", path)
	}
	return key, err
}

// publicKeyOf reads a public key from its text, or from the file of the private
// one.
func publicKeyOf(text string) (string, error) {
	if text == "" || strings.HasPrefix(text, "ed25519:") {
		return text, nil
	}
	key, err := readKey(text)
	if err != nil {
		return "", usageError{err}
	}
	return ticket.EncodeKey(publicKey(key)), nil
}

// founder returns what a broker asks for when its log has no space yet: the name,
// and the administrator key, which is drawn unless a start before this one has done
// so.
func founder(space, dir string) func() (string, ed25519.PublicKey, error) {
	return func() (string, ed25519.PublicKey, error) {
		path := filepath.Join(dir, administratorFile)
		key, err := readKey(path)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(dir, 0o755); err == nil {
				key, err = drawKey(path)
			}
		}
		if errors.As(err, new(*event.Error)) {
			// Nothing was signed with it yet: the space has no administrator.
			return "", nil, event.Errorf(event.CodeStoreDamaged, "The administrator key of the new space, %s, cannot be used: it is not an Ed25519 private key in PEM form (PKCS #8). Put a key there, or remove the file, and the next start draws one.", path)
		}
		if err != nil {
			return "", nil, fmt.Errorf("the administrator key of the space: %w", err)
		}
		return space, publicKey(key), nil
	}
}
