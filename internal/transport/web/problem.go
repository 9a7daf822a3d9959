// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"signalbox/event"
)

// problem answers with an error: a problem document (RFC 9457) whose further
// members are the code, the field at fault, whether to retry, and the facts.
func (s *Server) problem(w http.ResponseWriter, r *http.Request, err error) {
	e := event.AsError(err)
	status := statusOf(e)
	s.metrics.HTTP.Refused(e.Code)
	if status == http.StatusInternalServerError {
		s.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err, "todo", "this is a defect: report it")
	} else {
		s.log.Debug("request refused", "method", r.Method, "path", r.URL.Path, "remote", r.RemoteAddr, "code", e.Code, "field", e.Field)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if etag, ok := e.Facts["etag"].(string); ok {
		h.Set("ETag", etag)
	}
	if status == http.StatusUnauthorized { // RFC 6750, section 3
		h.Set("WWW-Authenticate", `Bearer realm="signalbox"`)
	}
	if wait := retryAfter(e.Code); wait > 0 {
		h.Set("Retry-After", strconv.Itoa(wait))
	}
	s.unwanted(w, r)
	body := appendProblem(nil, e, status)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller has gone, and there is nobody else to tell
}

// statusOf is the status of the code; of an aborted batch that of its cause.
func statusOf(e *event.Error) int {
	if e.Code == event.CodeBatchAborted {
		if cause, ok := e.Facts["cause"].(string); ok {
			return event.Code(cause).Class().HTTP
		}
	}
	return e.Code.Class().HTTP
}

// retryAfter is in seconds. It is short where the cause passes by itself.
func retryAfter(c event.Code) int {
	switch c {
	case event.CodeOverloaded, event.CodePolicyChanged, event.CodeValuesReset:
		return 1
	case event.CodeShuttingDown, event.CodeTopicFull, event.CodeAuditWaiting:
		return 5
	case event.CodeDiskFull:
		return 30
	}
	return 0
}

func appendProblem(dst []byte, e *event.Error, status int) []byte {
	class := e.Code.Class()
	dst = append(dst, `{"type":"/errors#`...)
	dst = append(dst, e.Code...)
	dst = append(dst, `","title":`...)
	dst = appendJSON(dst, class.Title)
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, `,"detail":`...)
	dst = appendJSON(dst, e.Message)
	dst = append(dst, `,"code":"`...)
	dst = append(append(dst, e.Code...), '"')
	if e.Field != "" {
		dst = append(dst, `,"field":`...)
		dst = appendJSON(dst, e.Field)
	}
	dst = append(dst, `,"retryable":`...)
	dst = strconv.AppendBool(dst, class.Retryable)
	for _, name := range slices.Sorted(maps.Keys(e.Facts)) {
		dst = append(dst, ',')
		dst = appendJSON(dst, name)
		dst = append(dst, ':')
		dst = appendJSON(dst, e.Facts[name])
	}
	return append(dst, '}', '\n')
}

// appendJSON appends v as JSON, without the escapes that only HTML would need.
// Values without a JSON form of their own are given as text, so that a fact
// can be any value that people can read.
func appendJSON(dst []byte, v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		b.Reset()
		_ = enc.Encode(fmt.Sprint(v)) // a string always has a JSON form
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})...)
}
