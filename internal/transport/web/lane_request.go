// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// laneVerdict is what the bytes at the beginning of a lane's buffer are.
type laneVerdict uint8

const (
	laneMore    laneVerdict = iota // not yet a whole request
	lanePublish                    // a publish
	laneMessage                    // a ticket message
	laneOther                      // anything else, or anything that is not plain
)

// laneRequest parses publishes and ticket messages, one after the other. What it makes of one is
// valid until end: a handler may keep strings of a request, and nothing else.
//
// It takes what every client of HTTP/1.1 sends, and only that: one line
// `POST /v1/topics/NAME/events HTTP/1.1` or `POST /v1/messages HTTP/1.1`, fields of visible ASCII, one
// Content-Length, and no field that changes how the message is framed or what
// becomes of the connection. Whatever differs in any way it leaves to net/http,
// so that there is nothing for the two to disagree about (RFC 9112, section 11).
type laneRequest struct {
	searched int         // bytes that are known not to end the head
	size     int         // of the request; 0 until its head was parsed
	head     int         // bytes before the body
	what     laneVerdict // once its head was parsed

	host, path, topic string
	length            int
	header            http.Header
	values            [laneFieldsMax]string // what header points into
	fields            int                   // how many of them are used
	names             map[string]string     // as they came → canonical
	url               url.URL
	body              laneBody
	request           http.Request
	address           string
}

const (
	lanePrefix = "POST /v1/topics/"
	laneSuffix = "/events HTTP/1.1"
	laneLine   = "POST " + messagesPath + " HTTP/1.1"
	// laneFieldsMax is the most fields that a lane's request has, and laneNamesMax
	// the most different names that it remembers.
	laneFieldsMax = 48
	laneNamesMax  = 64
)

// laneBody is a body that is there already.
type laneBody struct{ bytes.Reader }

func (*laneBody) Close() error { return nil }

// parse looks at the beginning of b, which has grown since the last call.
func (q *laneRequest) parse(b []byte) laneVerdict {
	if q.size == 0 {
		if verdict := q.parseHead(b); verdict == laneMore || verdict == laneOther {
			return verdict
		}
	}
	if len(b) < q.size {
		return laneMore
	}
	q.body.Reset(b[q.head:q.size])
	return q.what
}

func (q *laneRequest) parseHead(b []byte) laneVerdict {
	if !begins(b, lanePrefix) && !begins(b, laneLine) {
		return laneOther
	}
	from := max(q.searched-3, 0)
	end := bytes.Index(b[from:], []byte("\r\n\r\n"))
	if end < 0 {
		if bareLineFeed(b[from:], from == 0) {
			return laneOther // it may end without a CR, and is not to be waited for
		}
		q.searched = len(b)
		return laneMore
	}
	end += from
	line, fields, _ := strings.Cut(string(b[:end]), "\r\n")
	what := q.parseLine(line)
	if what == laneOther || !q.parseFields(fields) || end+4+q.length > laneBytes {
		return laneOther
	}
	q.head = end + 4
	q.size, q.what = q.head+q.length, what
	return what
}

// begins reports whether b is the beginning of a text, or has it at its own.
func begins(b []byte, text string) bool {
	n := min(len(b), len(text))
	return string(b[:n]) == text[:n]
}

// end forgets the request, and returns how long it was.
func (q *laneRequest) end() (size int) {
	size = q.size
	clear(q.header)
	clear(q.values[:q.fields]) // they hold the whole head
	q.searched, q.size, q.fields = 0, 0, 0
	q.host, q.path, q.topic = "", "", ""
	q.url, q.request = url.URL{}, http.Request{}
	q.body.Reset(nil)
	return size
}

// bareLineFeed reports whether a line of b ends without a CR. The first byte
// counts only if it is the first of all.
func bareLineFeed(b []byte, first bool) bool {
	for i, c := range b {
		if c == '\n' && (i > 0 && b[i-1] != '\r' || i == 0 && first) {
			return true
		}
	}
	return false
}

// parseLine takes the path from the request line, if it is that of a topic's
// events or of messages and needs no decoding.
func (q *laneRequest) parseLine(line string) laneVerdict {
	if line == laneLine {
		q.path = messagesPath
		return laneMessage
	}
	if !strings.HasPrefix(line, lanePrefix) || !strings.HasSuffix(line, laneSuffix) || len(line) < len(lanePrefix)+len(laneSuffix) {
		return laneOther
	}
	topic := line[len(lanePrefix) : len(line)-len(laneSuffix)]
	for i := range len(topic) {
		if c := topic[i]; !wordByte(c) && (c != '.' || i == 0) {
			return laneOther
		}
	}
	if topic == "" {
		return laneOther
	}
	q.topic, q.path = topic, line[len("POST "):len(line)-len(" HTTP/1.1")]
	return lanePublish
}

// wordByte reports whether c is a letter, a digit, a hyphen or an underscore.
func wordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// parseFields reads the fields, and the host and the length among them.
func (q *laneRequest) parseFields(fields string) bool {
	if q.header == nil {
		q.header, q.names = make(http.Header, 16), make(map[string]string, 16)
	}
	q.length = -1
	for fields != "" {
		var line string
		line, fields, _ = strings.Cut(fields, "\r\n")
		colon := strings.IndexByte(line, ':')
		if q.fields == laneFieldsMax || colon <= 0 {
			return false
		}
		value := strings.Trim(line[colon+1:], " ")
		name, ok := q.canonical(line[:colon])
		if !ok || !visible(value) || !q.take(name, value) {
			return false
		}
	}
	return q.length >= 0 && q.host != ""
}

// take notes one field, unless it is one that a lane leaves to net/http.
func (q *laneRequest) take(name, value string) bool {
	switch name {
	case "Host":
		if q.host != "" || !plainHost(value) {
			return false
		}
		q.host = value
		return true
	case "Content-Length":
		if q.length >= 0 || value == "" || len(value) > 5 || strings.Trim(value, "0123456789") != "" {
			return false
		}
		q.length, _ = strconv.Atoi(value)
	case "Connection":
		return strings.EqualFold(value, "keep-alive")
	case "Transfer-Encoding", "Trailer", "Te", "Expect", "Upgrade", "Http2-Settings", "Keep-Alive", "Proxy-Connection", "Pragma":
		return false
	}
	n := q.fields
	q.values[n], q.fields = value, n+1
	if earlier := q.header[name]; earlier != nil {
		q.header[name] = append(earlier, value)
	} else {
		q.header[name] = q.values[n : n+1 : n+1]
	}
	return true
}

// canonical is the name in the form that http.Header has it in.
func (q *laneRequest) canonical(name string) (string, bool) {
	if c, ok := q.names[name]; ok {
		return c, true
	}
	for i := range len(name) {
		if !tokenByte(name[i]) {
			return "", false
		}
	}
	if len(q.names) == laneNamesMax {
		clear(q.names)
	}
	name = strings.Clone(name) // or the whole head would stay
	c := textproto.CanonicalMIMEHeaderKey(name)
	q.names[name] = c
	return c, true
}

// tokenByte reports whether a field name may have the character (RFC 9110,
// section 5.6.2).
func tokenByte(c byte) bool {
	return wordByte(c) || strings.IndexByte("!#$%&'*+.^`|~", c) >= 0
}

func visible(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return false
		}
	}
	return true
}

// plainHost reports whether it is letters, digits and what stands between them
// in a name, an address and a port.
func plainHost(host string) bool {
	for i := range len(host) {
		if c := host[i]; !wordByte(c) && strings.IndexByte(".:[]", c) < 0 {
			return false
		}
	}
	return host != ""
}

// http is the request as handlers know it.
func (q *laneRequest) http(remote net.Addr) *http.Request {
	if q.address == "" && remote != nil {
		q.address = remote.String()
	}
	q.url.Path = q.path
	q.request = http.Request{
		Method: http.MethodPost, URL: &q.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: q.header, Body: &q.body, ContentLength: int64(q.length), Host: q.host,
		RemoteAddr: q.address, RequestURI: q.path,
	}
	if q.length == 0 {
		q.request.Body = http.NoBody
	}
	if q.what == lanePublish {
		q.request.SetPathValue("topic", q.topic)
	}
	return &q.request
}

// laneAnswer collects an answer that has a body, and is sent with its length.
type laneAnswer struct {
	header http.Header
	status int
	body   []byte
	out    []byte
}

// laneAnswerBytes is the most that an idle lane keeps for its next answer.
const laneAnswerBytes = 4 << 10

func (a *laneAnswer) begin() {
	if a.header == nil {
		a.header = make(http.Header, 8)
	}
}

// end forgets the answer.
func (a *laneAnswer) end() {
	clear(a.header)
	a.status, a.body, a.out = 0, a.body[:0], a.out[:0]
	if cap(a.body) > laneAnswerBytes {
		a.body = nil
	}
	if cap(a.out) > laneAnswerBytes {
		a.out = nil
	}
}

// Header implements http.ResponseWriter.
func (a *laneAnswer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *laneAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter. It cannot fail.
func (a *laneAnswer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, b...)
	return len(b), nil
}

// finish renders the answer; last says that the connection ends with it.
func (a *laneAnswer) finish(last bool, date string) []byte {
	a.WriteHeader(http.StatusOK)
	out := append(a.out[:0], "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(a.status), 10)
	out = append(append(out, ' '), http.StatusText(a.status)...)
	for name, values := range a.header {
		if name == "Content-Length" {
			continue
		}
		for _, value := range values {
			out = append(append(append(append(out, "\r\n"...), name...), ": "...), value...)
		}
	}
	if last {
		out = append(out, "\r\nConnection: close"...)
	}
	out = append(append(out, "\r\nDate: "...), date...)
	out = append(out, "\r\nContent-Length: "...)
	out = strconv.AppendInt(out, int64(len(a.body)), 10)
	out = append(append(out, "\r\n\r\n"...), a.body...)
	a.out = out
	return out
}

// dateField is the Date of answers (RFC 9110, section 6.6.1), rendered once a
// second.
type dateField struct{ last atomic.Pointer[renderedDate] }

type renderedDate struct {
	second int64
	text   string
}

func (d *dateField) now() string {
	now := time.Now()
	if last := d.last.Load(); last != nil && last.second == now.Unix() {
		return last.text
	}
	fresh := &renderedDate{now.Unix(), now.UTC().Format(http.TimeFormat)}
	d.last.Store(fresh)
	return fresh.text
}
