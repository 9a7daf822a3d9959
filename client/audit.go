// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
)

// auditWait is what the first checkpoint of a long log may take beside what a call does: its tree is built then.
const auditWait = time.Minute

// AuditKey returns the public key of the broker's checkpoints. Fetch it once, by a connection that you trust, and keep it.
func (c *Client) AuditKey(ctx context.Context) (string, error) {
	text, err := c.auditText(ctx, "/v1/audit/key")
	return strings.TrimSpace(text), err
}

// Checkpoint returns the newest signed checkpoint of the audit trail; a fresh one is over all that was durable when it
// was asked for. "signalbox audit verify" compares it with an export.
func (c *Client) Checkpoint(ctx context.Context, fresh bool) (string, error) {
	return c.auditText(ctx, "/v1/audit/checkpoint?fresh="+strconv.FormatBool(fresh))
}

// ProvePosition returns the proof, a JSON document, that the event at a position is in the audit trail.
func (c *Client) ProvePosition(ctx context.Context, position uint64) (string, error) {
	return c.auditText(ctx, "/v1/audit/proof?position="+strconv.FormatUint(position, 10))
}

// ProveEntry is ProvePosition for any entry of the trail.
func (c *Client) ProveEntry(ctx context.Context, index uint64) (string, error) {
	return c.auditText(ctx, "/v1/audit/proof?leaf="+strconv.FormatUint(index, 10))
}

// ProveConsistency returns the proof that the trail now begins with what it was at a size, that of an earlier checkpoint.
func (c *Client) ProveConsistency(ctx context.Context, size uint64) (string, error) {
	return c.auditText(ctx, "/v1/audit/proof?from="+strconv.FormatUint(size, 10))
}

func (c *Client) auditText(ctx context.Context, path string) (string, error) {
	_, _, body, err := c.roundTrip(ctx, call{method: http.MethodGet, url: c.base + path, wait: auditWait})
	return string(body), err
}

// AuditExport is an export on its way: lines of JSON. It must be closed.
type AuditExport struct {
	io.Reader        // it is complete when the end comes without an error
	Size      uint64 // entries of the trail up to its end
	close     func() error
}

// Close ends the download.
func (e *AuditExport) Close() error { return e.close() }

// AuditExport asks for the audit trail from an entry on, for "signalbox audit verify".
func (c *Client) AuditExport(ctx context.Context, from uint64) (*AuditExport, error) {
	query := url.Values{"from": {strconv.FormatUint(from, 10)}}
	res, dog, cancel, err := c.stream(ctx, "export", call{method: http.MethodGet, url: c.base + "/v1/audit/export?" + query.Encode()}) //nolint:bodyclose // The export owns the body from here on, and Close closes it.
	if err != nil {
		return nil, err
	}
	e := &AuditExport{Reader: dog.reader(res.Body), close: func() error {
		dog.stop()
		cancel(nil)
		return res.Body.Close()
	}}
	if e.Size, err = strconv.ParseUint(res.Header.Get("Signalbox-Audit-Size"), 10, 64); err != nil {
		_ = e.Close()
		return nil, fmt.Errorf("client: the export does not say how long it is; check that %s is a Signalbox broker: %w", c.base, err)
	}
	return e, nil
}

// AuditEntries is an answer to a query of the audit trail.
type AuditEntries struct {
	Entries []AuditEntry `json:"entries"`
	Next    uint64       `json:"next,string"` // index to go on from
	Size    uint64       `json:"size,string"` // the end is reached when Next is that
	// TicketsCut says that more tickets have the trace than one query reads: what is about the others is on no page.
	TicketsCut bool `json:"tickets_cut,omitempty"`
}

// AuditEntry is what was decided about an event or a request.
type AuditEntry struct {
	Index    uint64          `json:"index,string"`
	Time     time.Time       `json:"time"`
	Kind     string          `json:"kind"`
	Topic    string          `json:"topic"`
	Outcome  event.Outcome   `json:"outcome,omitempty"`
	Position uint64          `json:"position,omitempty,string"`
	HLC      event.HLC       `json:"hlc,omitempty"`
	Digest   string          `json:"digest,omitempty"`
	Leaf     string          `json:"leaf,omitempty"`
	Event    json.RawMessage `json:"event,omitempty"`  // while it is stored
	Detail   json.RawMessage `json:"detail,omitempty"` // of an entry of another kind
	Ticket   string          `json:"ticket,omitempty"` // that it was found by, if the query named one
}

// AuditEntries looks for entries of the audit trail. The query has the parameters of GET /v1/audit/entries; one answer
// may be without entries before the end is reached.
func (c *Client) AuditEntries(ctx context.Context, query url.Values) (*AuditEntries, error) {
	out := &AuditEntries{}
	_, _, err := c.do(ctx, call{method: http.MethodGet, url: c.base + "/v1/audit/entries?" + query.Encode()}, out)
	return out, err
}
