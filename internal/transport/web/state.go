// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/metrics"
)

// statesMax bounds the downloads of state at one time, each of which pins a
// snapshot of the store.
const statesMax = 64

func (s *Server) topicState(w http.ResponseWriter, r *http.Request, q url.Values) error {
	patterns, err := onePattern(r.PathValue("topic"))
	if err != nil {
		return err
	}
	return s.state(w, r, q, patterns)
}

func (s *Server) topicsState(w http.ResponseWriter, r *http.Request, q url.Values) error {
	patterns, err := listedPatterns(q)
	if err != nil {
		return err
	}
	return s.state(w, r, q, patterns)
}

// state streams the winners of one or several topics, exact at one cursor, as
// NDJSON in position order. That order lets a download be cut anywhere: what
// is missing comes to whoever follows from the last position that was sent.
func (s *Server) state(w http.ResponseWriter, r *http.Request, q url.Values, patterns []event.Pattern) error {
	f, err := parseFilter(q)
	if err != nil {
		return err
	}
	selection, err := parseSelect(q)
	if err != nil {
		return err
	}
	if s.states.Add(1) > statesMax {
		s.states.Add(-1)
		return event.Errorf(event.CodeOverloaded, "%d downloads of state are under way: retry in a second.", statesMax)
	}
	defer s.states.Add(-1)
	s.streams.enter()
	defer s.streams.leave(nil)
	state, err := s.broker.OpenState(patterns, f)
	if err != nil {
		return err
	}
	defer state.Close()
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	h.Set("Signalbox-Cursor", state.Cursor().String())
	h.Set("Signalbox-Log-Ms", strconv.FormatInt(state.LogMillis(), 10))
	if r.Method == http.MethodHead {
		return nil
	}
	lift(w)
	door := s.metrics.Reading.Door(metrics.State)
	present := presence{door: door}
	present.be(door.CatchingUp)
	defer present.be(nil)
	if err := s.writeState(w, state, &selection, time.Now().Add(s.opt.StateTime)); err != nil {
		var broken *net.OpError
		switch {
		case s.noteCut(door, r.RemoteAddr, patterns, err):
		case r.Context().Err() != nil || errors.As(err, &broken): // the caller has left, as callers do
			s.log.Debug("download of state was left", "path", r.URL.Path, "remote", r.RemoteAddr)
		default:
			s.log.Error("download of state failed", "path", r.URL.Path, "err", err, "todo", "if the store is damaged, stop the broker and run signalbox verify; else report it")
		}
		// Without the last chunk, so that it is not taken for complete.
		panic(http.ErrAbortHandler)
	}
	return gone(flush(w))
}

func (s *Server) writeState(w io.Writer, state *dispatch.State, selection *event.Selection, until time.Time) error {
	out := bufio.NewWriterSize(w, pieceBytes/2)
	events, bytes := 0, 0
	var room []byte
	defer func() {
		door := s.metrics.Reading.Door(metrics.State)
		door.Deliveries.Add(float64(events))
		door.Bytes.Add(float64(bytes))
	}()
	// Whoever goes on from a cut has the state as of the snapshot up to there:
	// removals before the snapshot took nothing from them.
	at := event.Cursor{Incarnation: state.Cursor().Incarnation, Began: state.Cursor().Position}
	for n := 0; ; n++ {
		d, more, err := state.Next()
		if err != nil {
			return err
		}
		if !more {
			return out.Flush()
		}
		if (n&255 == 255 || d.Frame == nil) && time.Now().After(until) {
			return writeCut(out, at)
		}
		at.Position = max(at.Position, d.Position) // held values of ephemeral topics have none
		if d.Frame == nil {
			continue
		}
		line := d.Line()
		if !selection.All() {
			room = selection.AppendSelected(room[:0], line)
			line = room
		}
		_, _ = out.Write(line) // its error comes back from WriteByte
		if err := out.WriteByte('\n'); err != nil {
			return err
		}
		events, bytes = events+1, bytes+len(line)+1
	}
}

// writeCut ends a download that takes too long with the cursor to follow from.
func writeCut(out *bufio.Writer, at event.Cursor) error {
	line := append([]byte(`{"specversion":"1.0","id":"cut-`), at.String()[1:]...) // with the log's incarnation, for a restored log repeats positions
	line = append(line, `","source":"/v1/state","type":"signalbox.cut","datacontenttype":"application/json","data":{"cursor":"`...)
	line = append(at.AppendTo(line), "\"}}\n"...)
	if _, err := out.Write(line); err != nil {
		return err
	}
	return out.Flush()
}

// keyState answers with the event that is the state of one key.
func (s *Server) keyState(w http.ResponseWriter, r *http.Request, q url.Values) error {
	selection, err := parseSelect(q)
	if err != nil {
		return err
	}
	d, err := s.broker.StateKey(r.PathValue("topic"), r.PathValue("key"))
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("Signalbox-Cursor", d.Cursor.String())
	h.Set("Signalbox-Log-Ms", strconv.FormatInt(d.LogMillis, 10))
	if d.Position != 0 { // that of an ephemeral topic is no version that could be named
		tag := etag(d.Position)
		h.Set("ETag", tag)
		if held := strings.Join(r.Header["If-None-Match"], ","); held == "*" || strings.Contains(held, tag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	return s.whole(w, http.StatusOK, "application/cloudevents+json", append(selected(&selection, d.JSON()), '\n'))
}

// selected is what is selected of an event.
func selected(s *event.Selection, json []byte) []byte {
	if s.All() {
		return json
	}
	return s.AppendSelected(nil, json)
}

// digest answers with the digest of a topic's state.
func (s *Server) digest(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	s.streams.enter()
	defer s.streams.leave(nil)
	d, err := s.broker.Digest(r.Context(), r.PathValue("topic"))
	if err != nil {
		return err
	}
	b := make([]byte, 0, 20<<10)
	b = append(append(b, `{"topic":"`...), d.Topic...) // a topic name needs no escaping
	b = d.Cursor.AppendTo(append(b, `","cursor":"`...))
	b = strconv.AppendInt(append(b, `","log_ms":`...), d.LogMillis, 10)
	b = strconv.AppendInt(append(b, `,"keys":`...), int64(d.Keys), 10)
	b = append(b, `,"buckets":[`...)
	for i := range d.Buckets {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(hex.AppendEncode(append(b, '"'), d.Buckets[i][:]), '"')
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Signalbox-Cursor", d.Cursor.String())
	return s.whole(w, http.StatusOK, "application/json", append(b, "]}\n"...))
}

// whole answers with a body that is at hand as a whole.
func (s *Server) whole(w http.ResponseWriter, status int, contentType string, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	return gone(err)
}
