// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeCertificate makes a certificate that is its own authority, good on this machine but for the changes.
func writeCertificate(certPath, keyPath string, changes ...func(*x509.Certificate)) error {
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
	for _, change := range changes {
		change(template)
	}
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

// A machine without authorities of its own trusts nobody, and --ca helps there, too.
func TestCertificateOnAMachineWithoutAuthorities(t *testing.T) {
	text, code := explain(&tls.CertificateVerificationError{Err: x509.SystemRootsError{}}, "signalbox health")
	if code != exitFailure || !strings.HasSuffix(text, "; name who vouches for the broker's certificate with --ca") {
		t.Errorf("the status is %d and it says %s", code, text)
	}
}

// What is wrong with a certificate decides what helps, and only for a stranger's it is
// --ca. Waiting helps with none of them, so the status is not that of a broker that is
// not ready yet.
func TestCertificateFaultsAreToldApart(t *testing.T) {
	dir := t.TempDir()
	stranger := filepath.Join(dir, "stranger.pem")
	if err := writeCertificate(stranger, filepath.Join(dir, "stranger-key.pem")); err != nil {
		t.Fatal(err)
	}
	certPath, keyPath := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for _, c := range []struct {
		name, ca, advice string
		change           func(*x509.Certificate)
	}{
		{"a stranger's", stranger, "; name who vouches for the broker's certificate with --ca", func(*x509.Certificate) {}},
		{"one of another host", certPath, "; give the broker in --url a name that its certificate is for", func(c *x509.Certificate) { c.IPAddresses = nil }},
		{"an old one", certPath, "; renew the broker's certificate, or set this machine's clock if that is wrong", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }},
		{"one for something else", certPath, "incompatible key usage", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }},
	} {
		if err := writeCertificate(certPath, keyPath, c.change); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(certPath, keyPath)
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewUnstartedServer(http.NotFoundHandler())
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.StartTLS()
		var failed bytes.Buffer
		code := run(t.Context(), []string{"health", "--url", srv.URL, "--ca", c.ca}, stdio{in: strings.NewReader(""), out: io.Discard, err: &failed})
		srv.Close()
		if code != exitFailure || !strings.HasSuffix(failed.String(), c.advice+"\n") {
			t.Errorf("for %s the status is %d and it says %s", c.name, code, failed.String())
		}
	}
}
