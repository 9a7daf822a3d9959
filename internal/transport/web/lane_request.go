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
	"sync"
	"time"
)

// laneVerdict is what the bytes at the beginning of a lane's buffer are.
type laneVerdict uint8

const (
	laneMore    laneVerdict = iota // not yet a whole request
	lanePublish                    // a publish
	laneOther                      // anything else, or anything that is not plain
)

// laneRequest parses publishes. Its fields are reused, as handlers keep nothing
// of a request.
//
// It takes what every client of HTTP/1.1 sends, and only that: one line
// `POST /v1/topics/NAME/events HTTP/1.1`, fields of visible ASCII, one
// Content-Length, and no field that changes how the message is framed or what
// becomes of the connection. Whatever differs in any way it leaves to net/http,
// so that there is nothing for the two to disagree about (RFC 9112, section 11).
type laneRequest struct {
	request http.Request
	url     url.URL
	header  http.Header
	names   map[string]string     // as they came → canonical
	values  [laneFieldsMax]string // what header points into
	body    laneBody
	address string
}

const (
	lanePrefix = "POST /v1/topics/"
	laneSuffix = "/events HTTP/1.1"
	// laneFieldsMax is the most fields that a lane's request has, and laneNamesMax
	// the most different names that it remembers.
	laneFieldsMax = 48
	laneNamesMax  = 64
)

// laneBody is a body that is there already.
type laneBody struct{ bytes.Reader }

func (*laneBody) Close() error { return nil }

// parse looks at the beginning of b. Of a publish it also says how long it is.
func (q *laneRequest) parse(b []byte) (size int, verdict laneVerdict) {
	if n := min(len(b), len(lanePrefix)); string(b[:n]) != lanePrefix[:n] {
		return 0, laneOther
	}
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		if bareLineFeed(b) {
			return 0, laneOther // it may end without a CR, and is not to be waited for
		}
		return 0, laneMore
	}
	line, fields, _ := strings.Cut(string(b[:end]), "\r\n")
	path, ok := lanePath(line)
	if !ok {
		return 0, laneOther
	}
	length, ok := q.parseFields(fields)
	if !ok || end+4+length > laneBytes {
		return 0, laneOther
	}
	size = end + 4 + length
	if len(b) < size {
		return 0, laneMore
	}
	q.url = url.URL{Path: path}
	q.body.Reset(b[end+4 : size])
	q.request.ContentLength = int64(length)
	return size, lanePublish
}

func bareLineFeed(b []byte) bool {
	for i := bytes.IndexByte(b, '\n'); i >= 0; {
		if i == 0 || b[i-1] != '\r' {
			return true
		}
		next := bytes.IndexByte(b[i+1:], '\n')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	return false
}

// lanePath takes the path from the request line, if it is that of a topic's
// events and needs no decoding.
func lanePath(line string) (path string, ok bool) {
	if !strings.HasSuffix(line, laneSuffix) || len(line) < len(lanePrefix)+len(laneSuffix) {
		return "", false
	}
	name := line[len(lanePrefix) : len(line)-len(laneSuffix)]
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.' && i > 0, c == '-', c == '_':
		default:
			return "", false
		}
	}
	return line[len("POST ") : len(line)-len(" HTTP/1.1")], name != ""
}

// parseFields reads the fields into q.header, and the host into the request.
func (q *laneRequest) parseFields(fields string) (length int, ok bool) {
	if q.header == nil {
		q.header, q.names = make(http.Header, 16), make(map[string]string, 16)
	}
	clear(q.header)
	length, q.request.Host = -1, ""
	for n := 0; fields != ""; n++ {
		var line string
		line, fields, _ = strings.Cut(fields, "\r\n")
		colon := strings.IndexByte(line, ':')
		if n == laneFieldsMax || colon <= 0 {
			return 0, false
		}
		value := strings.Trim(line[colon+1:], " ")
		name, ok := q.canonical(line[:colon])
		if !ok || !visible(value) || !q.take(n, name, value, &length) {
			return 0, false
		}
	}
	return length, length >= 0 && q.request.Host != ""
}

// take notes one field, unless it is one that a lane leaves to net/http.
func (q *laneRequest) take(n int, name, value string, length *int) bool {
	switch name {
	case "Host":
		if q.request.Host != "" || !plainHost(value) {
			return false
		}
		q.request.Host = value
		return true
	case "Content-Length":
		if *length >= 0 || value == "" || len(value) > 5 || strings.Trim(value, "0123456789") != "" {
			return false
		}
		*length, _ = strconv.Atoi(value)
	case "Connection":
		return strings.EqualFold(value, "keep-alive")
	case "Transfer-Encoding", "Trailer", "Te", "Expect", "Upgrade", "Http2-Settings", "Keep-Alive", "Proxy-Connection":
		return false
	}
	q.values[n] = value
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
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
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
		if c := host[i]; !tokenByte(c) && c != ':' && c != '[' && c != ']' {
			return false
		}
	}
	return host != ""
}

// http is the request as handlers know it. It is valid until the next parse.
func (q *laneRequest) http(remote net.Addr) *http.Request {
	if q.address == "" && remote != nil {
		q.address = remote.String()
	}
	host, length := q.request.Host, q.request.ContentLength
	q.request = http.Request{
		Method: http.MethodPost, URL: &q.url, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: q.header, Body: &q.body, ContentLength: length, Host: host,
		RemoteAddr: q.address, RequestURI: q.url.Path,
	}
	if length == 0 {
		q.request.Body = http.NoBody
	}
	name := q.url.Path[len(lanePrefix)-len("POST ") : len(q.url.Path)-len("/events")]
	q.request.SetPathValue("topic", name)
	return &q.request
}

// laneAnswer collects an answer, which is sent with a Content-Length.
type laneAnswer struct {
	header http.Header
	status int
	body   []byte
	out    []byte
}

func (a *laneAnswer) reset() {
	if a.header == nil {
		a.header = make(http.Header, 8)
	}
	clear(a.header)
	a.status, a.body = 0, a.body[:0]
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
func (a *laneAnswer) finish(last bool, date []byte) []byte {
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
type dateField struct {
	mu     sync.RWMutex
	second int64
	text   []byte
}

func (d *dateField) now() []byte {
	now := time.Now()
	d.mu.RLock()
	second, text := d.second, d.text
	d.mu.RUnlock()
	if second == now.Unix() {
		return text
	}
	text = now.UTC().AppendFormat(nil, http.TimeFormat)
	d.mu.Lock()
	d.second, d.text = now.Unix(), text
	d.mu.Unlock()
	return text
}
