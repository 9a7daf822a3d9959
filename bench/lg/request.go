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
	seqDigits   = 12
	keyDigits   = 4 // at least
	topicDigits = 5
	stampWidth  = 23 // "@@", 19 digits of Unix nanoseconds, "@@"
)

// statusData is the default payload: the kind of JSON object that agents send.
const statusData = `{"task":"T-{key}","status":"PICKING","agent":"spiffe://fleet.example/agent/beta","attempt":3,"progress":0.62,` +
	`"pose":{"x":12.75,"y":-3.5,"heading":91.25},"battery":{"percent":83,"volts":25.4,"charging":false},` +
	`"steps":[{"name":"approach","ms":1840,"ok":true},{"name":"align","ms":412,"ok":true}],"note":"{pad}"}`

// ceHeaders and ceEnvelope carry the same event in the two modes.
const (
	ceHeaders = "ce-specversion: 1.0\r\nce-id: {run}-{seq}\r\nce-source: /bench\r\nce-type: bench.event\r\nce-subject: k{key}\r\n"
	ceBefore  = `{"specversion":"1.0",{expiry}"id":"{run}-{seq}","source":"/bench","type":"bench.event","subject":"k{key}","datacontenttype":"application/json","data":`
	ceAfter   = `}`
)

// requestSpec says what is posted.
type requestSpec struct {
	URL     string // {topic} in it is the number of a topic
	Mode    string // plain: the data alone; binary: with CloudEvents headers; batch: a JSON array of events
	Type    string // Content-Type of plain and binary
	Headers []string
	Data    string // template of the data
	Size    int    // bytes of data that {pad} fills up to
	Batch   int    // events in one request of mode batch
	Keys    int
	Topics  int      // that take turns, one request each
	Expiry  expiries // mode batch: how soon events expire
	Run     string   // makes ids unique between runs
}

// expiry says that of every hundred events so many expire after so many seconds.
type expiry struct{ events, seconds int }

type expiries []expiry

func (e *expiries) String() string { return fmt.Sprint(*e) }

func (e *expiries) Set(s string) error {
	for part := range strings.SplitSeq(s, ",") {
		var x expiry
		if _, err := fmt.Sscanf(part, "%d:%d", &x.events, &x.seconds); err != nil {
			return fmt.Errorf("%q is not events:seconds", part)
		}
		*e = append(*e, x)
	}
	return nil
}

// of is the member that gives the i-th event of a batch its expiry.
func (e expiries) of(i int) string {
	i %= 100
	for _, x := range e {
		if i < x.events {
			return `"expiry":` + strconv.Itoa(x.seconds) + ","
		}
		i -= x.events
	}
	return ""
}

type fieldKind uint8

const (
	seqField fieldKind = iota
	keyField
	stampField
	topicField
)

type field struct {
	offset int
	width  int
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
	topics int
}

func newRequest(s requestSpec) (*request, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	r := &request{host: u.Host, events: 1, keys: max(1, s.Keys), topics: max(1, s.Topics)}
	if s.Topics > 100_000 {
		return nil, fmt.Errorf("%d topics do not fit into %d digits", s.Topics, topicDigits)
	}
	data := strings.ReplaceAll(s.Data, "{pad}", strings.Repeat("p", max(0, s.Size-s.width(s.Data))))
	var extra string
	var bodies []string // of each event
	contentType := s.Type
	switch s.Mode {
	case "plain":
		bodies = []string{data}
	case "binary":
		bodies, extra = []string{data}, ceHeaders
	case "batch":
		r.events = max(1, s.Batch)
		contentType = "application/cloudevents-batch+json"
		for i := range r.events {
			bodies = append(bodies, strings.Replace(ceBefore, "{expiry}", s.Expiry.of(i), 1)+data+ceAfter)
		}
	default:
		return nil, fmt.Errorf("mode %q is not one of plain, binary, batch", s.Mode)
	}
	before, between, after := "", "", ""
	if s.Mode == "batch" {
		before, between, after = "[", ",", "]"
	}
	length := len(before) + (len(bodies)-1)*len(between) + len(after)
	for _, body := range bodies {
		length += s.width(body)
	}
	path := strings.ReplaceAll(u.RequestURI(), "%7Btopic%7D", "{topic}")
	head := "POST " + path + " HTTP/1.1\r\nHost: " + u.Host + "\r\nContent-Type: " + contentType + "\r\n"
	for _, h := range s.Headers {
		head += h + "\r\n"
	}
	r.expand(s, head+extra+"Content-Length: "+strconv.Itoa(length)+"\r\n\r\n"+before, 0)
	for i, body := range bodies {
		if i > 0 {
			body = between + body
		}
		r.expand(s, body, i)
	}
	r.buf = append(r.buf, after...)
	return r, nil
}

// keyDigits is the width of a key: small numbers of keys have the same, so that
// their requests are equally long.
func (s requestSpec) keyDigits() int { return max(keyDigits, len(strconv.Itoa(max(1, s.Keys)-1))) }

// fieldsOf are the fields that a template may have, with their widths.
func (s requestSpec) fieldsOf() []namedField {
	return []namedField{{"{seq}", seqDigits, seqField}, {"{key}", s.keyDigits(), keyField}, {"{ts}", stampWidth, stampField}, {"{topic}", topicDigits, topicField}}
}

type namedField struct {
	name  string
	width int
	kind  fieldKind
}

// width returns the length of an expanded template with an empty {pad}.
func (s requestSpec) width(template string) int {
	pairs := []string{"{pad}", "", "{run}", s.Run}
	for _, f := range s.fieldsOf() {
		pairs = append(pairs, f.name, strings.Repeat("0", f.width))
	}
	return len(strings.NewReplacer(pairs...).Replace(template))
}

// expand appends a template of one event and notes its fields.
func (r *request) expand(s requestSpec, template string, event int) {
	names := s.fieldsOf()
	t := strings.ReplaceAll(template, "{run}", s.Run)
next:
	for len(t) > 0 {
		for _, f := range names {
			if strings.HasPrefix(t, f.name) {
				r.fields = append(r.fields, field{len(r.buf), f.width, event, f.kind})
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
		place := r.buf[f.offset : f.offset+f.width]
		switch f.kind {
		case seqField:
			putDigits(place, seq)
		case keyField:
			putDigits(place, keyOf(seq, r.keys))
		case topicField:
			putDigits(place, post%r.topics)
		case stampField:
			copy(place, "@@")
			putDigits(place[2:stampWidth-2], int(stamp.UnixNano()))
			copy(place[stampWidth-2:], "@@")
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
