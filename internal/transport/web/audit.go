// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"strconv"

	"signalbox/event"
	"signalbox/internal/audit"
)

// auditKey shows with what checkpoints are checked. Whoever relies on them gets it
// once, by a way that they trust, and keeps it.
func (s *Server) auditKey(w http.ResponseWriter, _ *http.Request, _ url.Values) error {
	return writeText(w, s.broker.AuditKey()+"\n")
}

func writeText(w http.ResponseWriter, text string) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, err := w.Write([]byte(text))
	return gone(err)
}

// auditCheckpoint answers with a signed note: the newest one, a fresh one, or the one
// over so many entries.
func (s *Server) auditCheckpoint(w http.ResponseWriter, r *http.Request, q url.Values) error {
	if q.Has("size") {
		size, err := count(q, "size")
		if err != nil {
			return err
		}
		signed, err := s.broker.StoredCheckpoint(size)
		if err == nil && signed == nil {
			err = event.Errorf(event.CodeNotFound, "No checkpoint was signed over %d entries.", size).With("size")
		}
		if err != nil {
			return err
		}
		return writeText(w, string(signed))
	}
	fresh, err := flag(q, "fresh")
	if err != nil {
		return err
	}
	c, err := s.broker.Checkpoint(r.Context(), fresh)
	if err != nil {
		return err
	}
	return writeText(w, string(c.Note))
}

// auditProof proves that an entry is in the trail, or that the trail of an earlier
// checkpoint is the beginning of a later one.
func (s *Server) auditProof(w http.ResponseWriter, r *http.Request, q url.Values) error {
	var proof any
	switch {
	case q.Has("leaf") && len(q) == 1:
		index, err := count(q, "leaf")
		if err != nil {
			return err
		}
		if proof, err = s.broker.ProveEntry(r.Context(), principalOf(r), index); err != nil {
			return err
		}
	case q.Has("position") && len(q) == 1:
		position, err := count(q, "position")
		if err != nil {
			return err
		}
		if proof, err = s.broker.ProvePosition(r.Context(), principalOf(r), position); err != nil {
			return err
		}
	case q.Has("from") && !q.Has("leaf") && !q.Has("position"):
		from, err := count(q, "from")
		if err != nil {
			return err
		}
		to := uint64(0)
		if q.Has("to") {
			if to, err = count(q, "to"); err != nil {
				return err
			}
		}
		if proof, err = s.broker.ProveConsistency(r.Context(), from, to); err != nil {
			return err
		}
	default:
		return event.Errorf(event.CodeParameterInvalid, "Say what to prove: `leaf` or `position`, or `from` and perhaps `to`.").With("leaf")
	}
	w.Header()["Content-Type"] = contentTypeJSON
	w.Header().Set("Cache-Control", "no-store")
	_, err := w.Write(appendJSONLine(nil, proof))
	return gone(err)
}

func appendJSONLine(dst []byte, v any) []byte { return append(appendJSON(dst, v), '\n') }

// exportsMax bounds the exports at one time, each of which reads the whole log.
const exportsMax = 4

// auditExport streams the trail with what its entries are made of, and the signed
// checkpoints behind the entries that they are over, see audit.Verify. It ends with
// a checkpoint that is over all of it, unless `to` says where to end.
func (s *Server) auditExport(w http.ResponseWriter, r *http.Request, q url.Values) (err error) {
	if s.exports.Add(1) > exportsMax { // before a checkpoint is signed for it
		s.exports.Add(-1)
		return event.Errorf(event.CodeOverloaded, "%d exports are under way: retry later.", exportsMax)
	}
	defer s.exports.Add(-1)
	var from, to uint64
	if q.Has("from") {
		if from, err = count(q, "from"); err != nil {
			return err
		}
	}
	c, err := s.broker.Checkpoint(r.Context(), !q.Has("to"))
	if err != nil {
		return err
	}
	to = c.Size
	if q.Has("to") {
		if to, err = count(q, "to"); err != nil {
			return err
		}
	}
	if size := s.broker.AuditSize(); from > to || to > size {
		return event.Errorf(event.CodeParameterInvalid, "There is no range from %d to %d: the audit trail has %d entries.", from, to, size).With("to")
	}
	s.streams.enter()
	defer s.streams.leave(nil)
	start, chain, err := s.broker.AuditStart(r.Context(), from)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	h.Set("Signalbox-Audit-Size", strconv.FormatUint(to, 10))
	if r.Method == http.MethodHead {
		return nil
	}
	lift(w)
	x := exportWriter{s: s, out: bufio.NewWriterSize(w, pieceBytes), chain: chain}
	if err := x.write(r, start, from, to); err != nil {
		s.log.Warn("an export of the audit trail was broken off", "at", x.next, "err", err)
		// Without the last chunk, so that it is not taken for complete.
		panic(http.ErrAbortHandler)
	}
	return gone(flush(w))
}

// exportWriter writes one export.
type exportWriter struct {
	s     *Server
	out   *bufio.Writer
	line  []byte
	chain [32]byte
	next  uint64
	// due are the sizes and texts of checkpoints that are still to come, of which
	// some are read at a time.
	due []note
}

type note struct {
	size uint64
	text []byte
}

func (x *exportWriter) write(r *http.Request, start audit.Start, from, to uint64) (err error) {
	x.next = from
	if x.line, err = audit.AppendStart(x.line[:0], start); err != nil {
		return err
	}
	_, _ = x.out.Write(x.line) // its error comes back from the next one, and from Flush
	if err := x.checkpoints(to); err != nil {
		return err
	}
	err = x.s.broker.AuditLines(r.Context(), from, to, x.s.broker.Bodies(principalOf(r)), func(l *audit.Line) (bool, error) {
		x.chain = audit.NextChain(x.chain, l.Leaf)
		l.Chain = x.chain
		x.next = l.Index + 1
		x.line = audit.AppendLine(x.line[:0], l)
		if _, err := x.out.Write(x.line); err != nil {
			return false, err
		}
		return true, x.checkpoints(to)
	})
	if err != nil {
		return err
	}
	return x.out.Flush()
}

// notesAhead is how many checkpoints are read at a time.
const notesAhead = 256

// checkpoints writes the checkpoint over the entries so far, if one was signed.
func (x *exportWriter) checkpoints(to uint64) (err error) {
	if len(x.due) == 0 {
		err := x.s.broker.StoredCheckpoints(x.next, to, notesAhead, func(size uint64, text []byte) {
			x.due = append(x.due, note{size, append([]byte(nil), text...)})
		})
		if err != nil {
			return err
		}
		if len(x.due) < notesAhead {
			x.due = append(x.due, note{size: to + 1}) // there are no more, so that they are not looked for again
		}
	}
	if x.due[0].size != x.next {
		return nil
	}
	if x.line, err = audit.AppendCheckpoint(x.line[:0], x.due[0].text); err != nil {
		return err
	}
	x.due = x.due[1:]
	_, err = x.out.Write(x.line)
	return err
}

// count reads a parameter that is a number of entries, an index or a position.
func count(q url.Values, name string) (uint64, error) {
	n, err := strconv.ParseUint(q.Get(name), 10, 63)
	if err != nil {
		return 0, event.Errorf(event.CodeParameterInvalid, "%s=%.30q is not a number from 0 on.", name, q.Get(name)).With(name)
	}
	return n, nil
}

func flag(q url.Values, name string) (bool, error) {
	switch v := q.Get(name); {
	case !q.Has(name) || v == "false":
		return false, nil
	case v == "true":
		return true, nil
	default:
		return false, event.Errorf(event.CodeParameterInvalid, "%s=%.20q is unknown: use true or false.", name, v).With(name)
	}
}

// writeProven answers a publish with receipts of which each carries the proof of its
// entry, once a checkpoint over them is signed and durable. What was published is
// durable before that, so a caller whom this takes too long may leave.
func (s *Server) writeProven(w http.ResponseWriter, r *http.Request, receipts []event.Receipt, batch bool) error {
	var b []byte
	if batch {
		b = append(b, '[')
	}
	for i := range receipts {
		if i > 0 {
			b = append(b, ',')
		}
		b = receipts[i].AppendJSON(b)
		if receipts[i].Position == 0 { // an ephemeral topic, of which nothing is kept
			continue
		}
		var err error
		if b, err = s.appendProof(r.Context(), b, receipts[i].Position); err != nil {
			return err
		}
	}
	if batch {
		b = append(b, ']')
	}
	_, err := w.Write(append(b, '\n'))
	return gone(err)
}

// appendProof adds the proof of an event's entry to the receipt at the end of b.
func (s *Server) appendProof(ctx context.Context, b []byte, position uint64) ([]byte, error) {
	proof, err := s.broker.ProveReceipt(ctx, position)
	if err != nil {
		return nil, err
	}
	return append(appendJSON(append(b[:len(b)-1], `,"proof":`...), proof), '}'), nil
}
