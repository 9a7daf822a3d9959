// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"signalbox/event"
)

// Metrics are the broker's metrics (docs/metrics.md), by series as Prometheus writes them, for example
// `signalbox_readers{door="sse",state="live"}`.
type Metrics map[string]float64

// Metrics returns the broker's metrics as they are now.
func (c *Client) Metrics(ctx context.Context) (Metrics, error) {
	_, _, body, err := c.roundTrip(ctx, call{method: http.MethodGet, url: c.base + "/metrics"})
	if err != nil {
		return nil, err
	}
	return parseMetrics(string(body)), nil
}

// parseMetrics passes over lines that it does not know, for a later broker may write others.
func parseMetrics(text string) Metrics {
	m := Metrics{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			m[line[:at]] = v
		}
	}
	return m
}

// Readers are the open readers of a broker.
type Readers struct {
	Open   int            `json:"open"`
	Behind []ReaderBehind `json:"behind"` // those that are furthest behind, at most 20
}

// ReaderBehind is an open reader that has not got everything on its topics yet.
type ReaderBehind struct {
	Topics string       `json:"topics"` // as it asked for them
	Lag    uint64       `json:"lag"`    // positions behind the last event on them
	Cursor event.Cursor `json:"cursor"`
}

// Readers returns how many readers are open, and which of them are behind.
func (c *Client) Readers(ctx context.Context) (Readers, error) {
	var r Readers
	_, _, err := c.do(ctx, call{method: http.MethodGet, url: c.base + "/v1/readers"}, &r)
	return r, err
}
