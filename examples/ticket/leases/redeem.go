// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	ticketclient "signalbox/client/ticket"
)

// redeem is what a domain agent does first in its function that executes. What it
// returns is for the work at hand: it is neither logged, nor put into a result.
func redeem(ctx context.Context, c *http.Client, url, agent string, key ed25519.PrivateKey, x *ticketclient.Execution) (*credential, error) {
	body, err := json.Marshal(ask{
		Agent: agent, ExecuteID: x.ID, LeaseID: x.LeaseID, Plan: x.LeaseScope.Plan, Target: x.LeaseScope.Target, At: time.Now().UTC(),
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Signature", base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, body)))
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, requestMax))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the lease is not redeemed: %s", strings.TrimSpace(string(text)))
	}
	given := &credential{}
	return given, json.Unmarshal(text, given)
}
