// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// writeCertificate makes a certificate that is its own authority.
func writeCertificate(certPath, keyPath string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(certPath, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// A renewed certificate is taken over without a restart, and one that is written
// halfway leaves the old one in use.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	certPath, keyPath := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(cert, key string) {
		t.Helper()
		if err := writeCertificate(cert, key); err != nil {
			t.Fatal(err)
		}
	}
	write(certPath, keyPath)
	c := &certificate{cert: certPath, key: keyPath, logger: slog.New(slog.DiscardHandler)}
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	serial := func() *big.Int {
		t.Helper()
		c.checked = time.Time{}
		pair, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber
	}
	first := serial()
	touch := func(path string, after time.Duration) { // two writes within one tick of the file system's clock
		t.Helper()
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	write(certPath, filepath.Join(dir, "later.pem"))
	touch(certPath, time.Second)
	if got := serial(); got.Cmp(first) != 0 {
		t.Error("a certificate was taken over without its key")
	}
	if err := os.Rename(filepath.Join(dir, "later.pem"), keyPath); err != nil {
		t.Fatal(err)
	}
	touch(keyPath, 2*time.Second)
	second := serial()
	if second.Cmp(first) == 0 {
		t.Error("the renewed certificate is not used")
	}
	if err := os.Remove(certPath); err != nil {
		t.Fatal(err)
	}
	if serial().Cmp(second) != 0 {
		t.Error("without the file the certificate changed")
	}
}
