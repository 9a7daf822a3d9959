// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Fields of a template. All but {pad} and {run} have a fixed width, so that a
// request is rendered once and afterwards only patched: the generator shares
// the machine with the server and must cost the same whomever it talks to.
const (
	seqDigits  = 12
	keyDigits  = 4
	stampWidth = 23 // "@@", 19 digits of Unix nanoseconds, "@@"
)

// statusData is the default payload: the kind of JSON object that agents send.
const statusData = `{"task":"T-{key}","status":"PICKING","agent":"spiffe://fleet.example/agent/beta","attempt":3,"progress":0.62,` +
	`"pose":{"x":12.75,"y":-3.5,"heading":91.25},"battery":{"percent":83,"volts":25.4,"charging":false},` +
	`"steps":[{"name":"approach","ms":1840,"ok":true},{"name":"align","ms":412,"ok":true}],"note":"{pad}"}`

// ceHeaders and ceEnvelope carry the same event in the two modes.
const (
	ceHeaders = "ce-specversion: 1.0\r\nce-id: {run}-{seq}\r\nce-source: /bench\r\nce-type: bench.event\r\nce-subject: k{key}\r\n"
	ceBefore  = `{"specversion":"1.0","id":"{run}-{seq}","source":"/bench","type":"bench.event","subject":"k{key}","datacontenttype":"application/json","data":`
	ceAfter   = `}`
)

// requestSpec says what is posted.
type requestSpec struct {
	URL     string
	Mode    string // plain: the data alone; binary: with CloudEvents headers; batch: a JSON array of events
	Type    string // Content-Type of plain and binary
	Headers []string
	Data    string // template of the data
	Size    int    // bytes of data that {pad} fills up to
	Batch   int    // events in one request of mode batch
	Keys    int
	Run     string // makes ids unique between runs
}

type fieldKind uint8

const (
	seqField fieldKind = iota
	keyField
	stampField
)

type field struct {
	offset int
	event  int
	kind   fieldKind
}

// request is a rendered HTTP request with the places that change.
type request struct {
	host   string
	buf    []byte
	fields []field
	events int
	keys   int
}

func newRequest(s requestSpec) (*request, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	r := &request{host: u.Host, events: 1, keys: max(1, s.Keys)}
	if r.keys > 10000 {
		return nil, fmt.Errorf("%d keys do not fit into %d digits", r.keys, keyDigits)
	}
	pad := strings.Repeat("p", max(0, s.Size-s.width(s.Data)))
	data := strings.ReplaceAll(s.Data, "{pad}", pad)
	var extra, body string
	contentType := s.Type
	switch s.Mode {
	case "plain":
		body = data
	case "binary":
		body, extra = data, ceHeaders
	case "batch":
		r.events = max(1, s.Batch)
		contentType = "application/cloudevents-batch+json"
		body = ceBefore + data + ceAfter
	default:
		return nil, fmt.Errorf("mode %q is not one of plain, binary, batch", s.Mode)
	}
	length := s.width(body)
	if s.Mode == "batch" {
		length = (length+1)*r.events + 1 // Commas between the events and two brackets.
	}
	head := "POST " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\nContent-Type: " + contentType + "\r\n"
	for _, h := range s.Headers {
		head += h + "\r\n"
	}
	r.expand(s.Run, head+extra+"Content-Length: "+strconv.Itoa(length)+"\r\n\r\n", 0)
	r.expandBody(s, body)
	return r, nil
}

func (r *request) expandBody(s requestSpec, body string) {
	if s.Mode != "batch" {
		r.expand(s.Run, body, 0)
		return
	}
	r.buf = append(r.buf, '[')
	for i := range r.events {
		if i > 0 {
			r.buf = append(r.buf, ',')
		}
		r.expand(s.Run, body, i)
	}
	r.buf = append(r.buf, ']')
}

// width returns the length of an expanded template with an empty {pad}.
func (s requestSpec) width(template string) int {
	return len(strings.NewReplacer("{pad}", "", "{run}", s.Run, "{seq}", strings.Repeat("0", seqDigits),
		"{key}", strings.Repeat("0", keyDigits), "{ts}", strings.Repeat("0", stampWidth)).Replace(template))
}

// expand appends a template of one event and notes its fields.
func (r *request) expand(run, template string, event int) {
	names := []struct {
		name  string
		width int
		kind  fieldKind
	}{{"{seq}", seqDigits, seqField}, {"{key}", keyDigits, keyField}, {"{ts}", stampWidth, stampField}}
	t := strings.ReplaceAll(template, "{run}", run)
next:
	for len(t) > 0 {
		for _, f := range names {
			if strings.HasPrefix(t, f.name) {
				r.fields = append(r.fields, field{len(r.buf), event, f.kind})
				r.buf = append(r.buf, strings.Repeat("0", f.width)...)
				t = t[len(f.name):]
				continue next
			}
		}
		n := 1 + strings.IndexByte(t[1:], '{')
		if n == 0 {
			n = len(t)
		}
		r.buf = append(r.buf, t[:n]...)
		t = t[n:]
	}
}

// keyOf spreads consecutive events over all keys: 7919 is prime.
func keyOf(seq, keys int) int { return seq * 7919 % keys }

// fill patches the fields for the post-th request.
func (r *request) fill(post int, stamp time.Time) {
	for _, f := range r.fields {
		seq := post*r.events + f.event
		switch f.kind {
		case seqField:
			putDigits(r.buf[f.offset:f.offset+seqDigits], seq)
		case keyField:
			putDigits(r.buf[f.offset:f.offset+keyDigits], keyOf(seq, r.keys))
		case stampField:
			b := r.buf[f.offset : f.offset+stampWidth]
			copy(b, "@@")
			putDigits(b[2:stampWidth-2], int(stamp.UnixNano()))
			copy(b[stampWidth-2:], "@@")
		}
	}
}

func putDigits(b []byte, v int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
}

// newRun draws the prefix of this run's event ids. The time is enough: runs
// follow one another, and a broker that remembers ids must not see one twice.
func newRun() string { return strconv.FormatInt(time.Now().UnixNano(), 36) }

// lines is a repeatable flag.
type lines []string

func (l *lines) String() string { return strings.Join(*l, ",") }

func (l *lines) Set(s string) error {
	*l = append(*l, s)
	return nil
}
