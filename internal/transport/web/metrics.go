// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"signalbox/event"
	"signalbox/internal/metrics"
)

// exposition answers with all metrics in the text format of Prometheus.
func (s *Server) exposition(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	body, err := s.metrics.AppendText(nil)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return s.whole(w, http.StatusOK, metrics.ContentType, body)
}

// laggardsMax bounds the answer: who needs more than the worst looks at metrics.
const laggardsMax = 20

// listReaders names the topics of the readers that are furthest behind, which no
// label of a metric may.
func (s *Server) listReaders(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	type behind struct {
		Topics string       `json:"topics"`
		Lag    uint64       `json:"lag"`
		Cursor event.Cursor `json:"cursor"`
	}
	worst, open := s.broker.Laggards(laggardsMax)
	list := make([]behind, len(worst))
	for i, l := range worst {
		list[i] = behind{l.Topics, l.Lag, event.Cursor{Position: l.At, Incarnation: s.broker.Head().Incarnation}}
	}
	return s.json(w, http.StatusOK, map[string]any{"open": open, "behind": list})
}

// sample tells the metrics of this door that are looked up.
func (s *Server) sample(to metrics.Sample) {
	to.Set("signalbox_http_connections", float64(s.conns.Load()))
	to.Set("signalbox_http_held_bytes", float64(s.held.used.Load()))
}

// noteCut counts a reader that was cut because it took nothing, if that is what
// err says, and reports whether it is. The kernel may be the first to find out,
// see endUnacknowledged.
func (s *Server) noteCut(door *metrics.Door, remote string, patterns []event.Pattern, err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, syscall.ETIMEDOUT) {
		return false
	}
	door.Cut.Inc()
	names := make([]string, len(patterns))
	for i, p := range patterns {
		names[i] = p.String()
	}
	s.log.Info("reader cut", "door", door.Name, "remote", remote, "topics", strings.Join(names, ","), "stall", s.opt.StallTimeout,
		"todo", "nothing if it comes back; if it is cut again and again, look at that agent or its network")
	return true
}

// presence counts one open reader at its door, by what it does.
type presence struct {
	door  *metrics.Door
	state metrics.Gauge // the one that it is counted in; nil: not counted
}

// be moves the reader to a state; nil takes it out.
func (p *presence) be(state metrics.Gauge) {
	if p.state == state {
		return
	}
	if p.state != nil {
		p.state.Dec()
	}
	if p.state = state; state != nil {
		state.Inc()
	}
}
