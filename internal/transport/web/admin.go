// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"signalbox/internal/broker"
)

// backupStall is how long a reader of a backup may take nothing: what it
// writes to may be slow, and beginning again costs more than waiting.
const backupStall = 2 * time.Minute

// backup streams a backup as a tar archive. It is complete only if the answer
// ends in good order; its last file, the manifest, shows that.
func (s *Server) backup(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := s.fields(r, nil); err != nil {
		return err
	}
	s.streams.enter()
	defer s.streams.leave(nil)
	k, err := s.broker.Backup()
	if err != nil {
		return err
	}
	// Before the answer ends, so that the next backup need not wait for it.
	end := sync.OnceFunc(func() {
		if err := k.Close(); err != nil {
			s.log.Error("the checkpoint of a backup was not removed, and keeps room on disk until the next backup or start", "err", err)
		}
	})
	defer end()
	h := w.Header()
	h.Set("Content-Type", "application/x-tar")
	h.Set("Cache-Control", "no-store")
	h.Set("Signalbox-Cursor", k.Cursor())
	h.Set("Signalbox-Backup-Bytes", strconv.FormatInt(k.Bytes(), 10))
	lift(w)
	out := backupWriter{w, http.NewResponseController(w)}
	if err := k.WriteTar(r.Context(), out); err != nil {
		s.log.Warn("a backup was broken off", "cursor", k.Cursor(), "err", err)
		// Without the last chunk, so that it is not taken for complete.
		panic(http.ErrAbortHandler)
	}
	end()
	return gone(out.end())
}

// backupWriter gives each piece of a backup its time.
type backupWriter struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (o backupWriter) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		if err = o.rc.SetWriteDeadline(time.Now().Add(backupStall)); err == nil {
			var m int
			m, err = o.w.Write(b[n:min(n+pieceBytes, len(b))])
			n += m
		}
	}
	return n, err
}

// end sends what is buffered and takes the deadline off, which would else still be
// there for the next request on the connection.
func (o backupWriter) end() error {
	err := o.rc.Flush()
	_ = o.rc.SetWriteDeadline(time.Time{})
	return err
}

// compactLine is one line of the answer to a compaction.
type compactLine struct {
	Step   int    `json:"step,omitempty"`
	Steps  int    `json:"steps,omitempty"`
	Bytes  uint64 `json:"bytes,omitempty"`
	Done   bool   `json:"done,omitempty"`
	Before uint64 `json:"before_bytes,omitempty"`
	After  uint64 `json:"after_bytes,omitempty"`
}

// compact reclaims disk at once, and says after each step how far it is. It
// ends with its caller.
func (s *Server) compact(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	if err := s.fields(r, nil); err != nil {
		return err
	}
	s.streams.enter()
	defer s.streams.leave(nil)
	lift(w)
	begun := false
	line := func(l compactLine) {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Cache-Control", "no-store")
		}
		b, err := json.Marshal(l)
		if err == nil {
			_, err = w.Write(append(b, '\n'))
		}
		if err == nil {
			_ = flush(w)
		}
	}
	before, after, err := s.broker.Compact(r.Context(), func(p broker.CompactProgress) {
		line(compactLine{Step: p.Step, Steps: p.Steps, Bytes: p.Bytes})
	})
	switch {
	case err == nil:
		line(compactLine{Done: true, Before: before, After: after})
	case !begun:
		return err
	default:
		s.log.Warn("a compaction was broken off", "err", err)
		panic(http.ErrAbortHandler)
	}
	return gone(flush(w))
}
