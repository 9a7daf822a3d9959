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

// drawKey writes a new private key into a file that is not there yet, and makes
// it durable: what it signs will be in the log.
func drawKey(path string) (key ed25519.PrivateKey, err error) {
	_, key, err = ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, usagef("%s is there already, and a key is not written over", path)
	}
	if err != nil {
		return nil, err
	}
	_, err = f.Write(ticket.EncodePrivateKey(key))
	return key, errors.Join(err, f.Sync(), f.Close())
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
		if err != nil {
			return "", nil, fmt.Errorf("the administrator key of the space: %w", err)
		}
		return space, publicKey(key), nil
	}
}
