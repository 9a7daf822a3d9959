// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"signalbox/event"
	"signalbox/internal/broker"
)

// publish is the write path: decode, hand to the broker, answer once what was
// decided is durable.
func (s *Server) publish(w http.ResponseWriter, r *http.Request, q url.Values) (err error) {
	caller := principalOf(r)
	topic := r.PathValue("topic")
	from := traceOf(r.Header)
	span := s.opt.Tracer.Publish(r.Context(), from, topic)
	defer func() { span.End(err) }()
	prove := q.Get("ack") == "proof"
	req, held, err := s.decodePublish(r, q)
	defer s.held.give(held)
	if err != nil {
		s.broker.Refused(caller, topic, event.AsError(err))
		return err
	}
	req.Topic, req.Trace, req.Prove = topic, from, prove
	span.Events(req.Events)
	// What has been queued takes effect whether its caller stays or leaves, so
	// there is nothing to cancel.
	res, err := s.broker.Publish(context.WithoutCancel(r.Context()), caller, req)
	if err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"] = contentTypeJSON
	if req.NoAck {
		w.WriteHeader(http.StatusAccepted)
		_, err = w.Write(noAck)
		return gone(err)
	}
	if res.Replayed {
		h.Set("Idempotency-Replayed", "true")
	}
	if prove {
		return s.writeProven(w, r, res.Receipts, req.Batch)
	}
	return writeReceipts(w, res.Receipts, req.Batch)
}

// Header values that are the same in every answer; net/http does not change
// them, and sharing them saves the hot path an allocation each.
var (
	contentTypeJSON = []string{"application/json"}
	noAck           = []byte(`{"ack":"none"}` + "\n")
)

// receiptBuffers are reused, as every publish needs one for a moment only.
var receiptBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// sniffedMax is the longest answer whose Content-Length net/http finds out by
// itself, and cheaper.
const sniffedMax = 2048

// receiptBufferMax keeps the buffer of one large batch from staying around.
const receiptBufferMax = 64 << 10

func writeReceipts(w http.ResponseWriter, receipts []event.Receipt, batch bool) error {
	buffer := receiptBuffers.Get().(*[]byte)
	b := append(appendReceipts((*buffer)[:0], receipts, batch), '\n')
	if len(b) > sniffedMax {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(b))}
	}
	_, err := w.Write(b)
	if cap(b) <= receiptBufferMax {
		*buffer = b
		receiptBuffers.Put(buffer)
	}
	return gone(err)
}

// appendReceipts appends a receipt, or the array of them that a batch is
// answered with.
func appendReceipts(dst []byte, receipts []event.Receipt, batch bool) []byte {
	if batch {
		dst = append(dst, '[')
	}
	for i := range receipts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = receipts[i].AppendJSON(dst)
	}
	if batch {
		dst = append(dst, ']')
	}
	return dst
}

// gone drops the error of a write: the caller has left, so there is nobody to
// answer, and the next write on the connection ends it.
func gone(error) error { return nil }

// decodePublish reads everything of a publish but the topic.
func (s *Server) decodePublish(r *http.Request, q url.Values) (req broker.PublishRequest, held int, err error) {
	switch ack := q.Get("ack"); {
	case !q.Has("ack") || ack == "durable" || ack == "proof":
	case ack == "none":
		req.NoAck = true
	default:
		return req, 0, event.Errorf(event.CodeParameterInvalid, "ack=%.20q is unknown: use durable, proof or none.", ack).With("ack")
	}
	if req.IdempotencyKey, err = idempotencyKey(r.Header); err != nil {
		return req, 0, err
	}
	if req.IfMatch, req.IfNoneMatch, err = preconditions(r.Header); err != nil {
		return req, 0, err
	}
	req.Events, req.Batch, held, err = s.decodeEvents(r)
	if err == nil && req.Batch && (req.IfMatch != nil || req.IfNoneMatch) {
		err = event.Errorf(event.CodePreconditionInvalid, "A batch takes no precondition: send the event that needs one by itself.").With("If-Match")
	}
	return req, held, err
}

// decodeEvents reads the body in the mode that its content type says (HTTP
// Protocol Binding for CloudEvents, section 3).
func (s *Server) decodeEvents(r *http.Request) (events []*event.Event, batch bool, held int, err error) {
	contentType := r.Header["Content-Type"]
	if len(contentType) > 1 {
		return nil, false, 0, event.Errorf(event.CodeHeaderInvalid, "There are %d Content-Type headers: send one.", len(contentType)).With("Content-Type")
	}
	mode, err := event.DetectMode(strings.Join(contentType, ""))
	if err != nil {
		return nil, false, 0, err
	}
	limit := singleBytesMax
	if mode == event.Batch {
		limit = batchBytesMax
	}
	body, held, err := s.readBody(r, limit)
	if err != nil {
		return nil, false, held, err
	}
	if mode == event.Batch {
		events, err = event.DecodeBatch(body)
		return events, true, held, err
	}
	var e *event.Event
	if mode == event.Structured {
		e, err = event.DecodeJSON(body)
	} else {
		e, err = event.DecodeBinary(r.Header, body)
	}
	return []*event.Event{e}, false, held, err
}
