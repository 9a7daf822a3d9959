// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a pair of files that is read again when it changes, so that a renewed certificate needs neither a
// restart nor a signal.
type certificate struct {
	cert, key string
	logger    *slog.Logger

	mu      sync.Mutex
	loaded  *tls.Certificate // guarded by mu
	stamp   [2]fileStamp     // of what was tried last; guarded by mu
	checked time.Time        // guarded by mu
}

// fileStamp tells whether a file is still the same.
type fileStamp struct {
	modified time.Time
	size     int64
}

// checkEvery spares most handshakes the look at the files.
const checkEvery = time.Second

// serverTLS returns how the broker speaks https; nil if no certificate is configured. A pair that cannot be read or does
// not fit is refused at the start.
func serverTLS(cert, key string, logger *slog.Logger) (*tls.Config, error) {
	if cert == "" {
		return nil, nil
	}
	c := &certificate{cert: cert, key: key, logger: logger}
	if err := c.load(); err != nil {
		return nil, usagef("the certificate cannot be used: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// load reads the files. It is called with mu held, or before there is anybody else.
func (c *certificate) load() error {
	c.checked = time.Now()
	stamp, err := c.look()
	if err != nil || stamp == c.stamp {
		return err
	}
	c.stamp = stamp
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.loaded = &pair
	return nil
}

func (c *certificate) look() (stamp [2]fileStamp, err error) {
	for i, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			return stamp, err
		}
		stamp[i] = fileStamp{info.ModTime(), info.Size()}
	}
	return stamp, nil
}

// get returns the certificate for a handshake.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) >= checkEvery {
		before := c.loaded
		if err := c.load(); err != nil {
			c.logger.Error("the certificate was not read again, and the old one stays", "err", err)
		} else if c.loaded != before {
			c.logger.Info("the certificate was read again", "expires", c.loaded.Leaf.NotAfter)
		}
	}
	return c.loaded, nil
}
