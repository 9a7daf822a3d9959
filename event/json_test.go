// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"signalbox/event"
)

// refusedJSON has one case per rule that a structured event can break. The
// specification is cited as core (spec.md) and json (json-format.md).
var refusedJSON = []struct {
	rule, in string
	code     event.Code
	field    string
}{
	{"json 3: an event is a JSON object", `[` + required + `}]`, event.CodeJSONInvalid, ""},
	{"json 3: not a scalar", `"event"`, event.CodeJSONInvalid, ""},
	{"json 3: not null", `null`, event.CodeJSONInvalid, ""},
	{"json 3: not empty", ``, event.CodeJSONInvalid, ""},
	{"json 3: not white space", " \n", event.CodeJSONInvalid, ""},
	{"RFC 8259: ends too early", required, event.CodeJSONInvalid, ""},
	{"RFC 8259: nothing after the value", required + `}{}`, event.CodeJSONInvalid, ""},
	{"RFC 8259 8.1: no byte order mark", "\xef\xbb\xbf" + required + `}`, event.CodeJSONInvalid, ""},
	{"RFC 8259 8.1: UTF-8", required + ",\"subject\":\"\xe9\"}", event.CodeJSONInvalid, ""},
	{"RFC 8259 8.1: overlong UTF-8", required + ",\"subject\":\"\xc0\xa0\"}", event.CodeJSONInvalid, ""},
	{"RFC 8259 7: raw control character", required + ",\"subject\":\"a\nb\"}", event.CodeJSONInvalid, ""},
	{"RFC 8259 6: leading zero", required + `,"n":01}`, event.CodeJSONInvalid, ""},
	{"RFC 8259: trailing comma", required + `,}`, event.CodeJSONInvalid, ""},
	{"RFC 8259: comment", required + `/**/}`, event.CodeJSONInvalid, ""},

	{"core: specversion is required", `{"id":"1","source":"/t","type":"t.x"}`, event.CodeEventInvalid, "specversion"},
	{"core: id is required", `{"specversion":"1.0","source":"/t","type":"t.x"}`, event.CodeEventInvalid, "id"},
	{"core: source is required", `{"specversion":"1.0","id":"1","type":"t.x"}`, event.CodeEventInvalid, "source"},
	{"core: type is required", `{"specversion":"1.0","id":"1","source":"/t"}`, event.CodeEventInvalid, "type"},
	{"json 2.2: null is unset, also where required", `{"specversion":"1.0","id":null,"source":"/t","type":"t.x"}`, event.CodeEventInvalid, "id"},
	{"core: specversion 1.0", `{"specversion":"0.3","id":"1","source":"/t","type":"t.x"}`, event.CodeEventInvalid, "specversion"},
	{"core: id is not empty", `{"specversion":"1.0","id":"","source":"/t","type":"t.x"}`, event.CodeEventInvalid, "id"},
	{"core: source is not empty", `{"specversion":"1.0","id":"1","source":"","type":"t.x"}`, event.CodeEventInvalid, "source"},
	{"core: type is not empty", `{"specversion":"1.0","id":"1","source":"/t","type":""}`, event.CodeEventInvalid, "type"},
	{"core: id is a string", `{"specversion":"1.0","id":1,"source":"/t","type":"t.x"}`, event.CodeEventInvalid, "id"},
	{"core: source is a URI-reference", `{"specversion":"1.0","id":"1","source":"a b","type":"t.x"}`, event.CodeEventInvalid, "source"},
	{"core: subject is not empty", required + `,"subject":""}`, event.CodeEventInvalid, "subject"},
	{"core: dataschema is not empty", required + `,"dataschema":""}`, event.CodeEventInvalid, "dataschema"},
	{"core: dataschema is absolute", required + `,"dataschema":"/schema"}`, event.CodeEventInvalid, "dataschema"},
	{"core: absolute URIs have no fragment (RFC 3986 4.3)", required + `,"dataschema":"http://a/b#c"}`, event.CodeEventInvalid, "dataschema"},
	{"core: time is RFC 3339", required + `,"time":"2026-02-30T00:00:00Z"}`, event.CodeEventInvalid, "time"},
	{"core: datacontenttype is RFC 2046", required + `,"datacontenttype":"json"}`, event.CodeEventInvalid, "datacontenttype"},
	{"core: datacontenttype is RFC 2046, with data", required + `,"datacontenttype":"a/b; c","data":"x"}`, event.CodeEventInvalid, "datacontenttype"},

	{"core: names have no underscore", required + `,"my_ext":"1"}`, event.CodeEventInvalid, "my_ext"},
	{"core: names have no upper case", required + `,"MyExt":"1"}`, event.CodeEventInvalid, "MyExt"},
	{"core: names, also of unset attributes", required + `,"MyExt":null}`, event.CodeEventInvalid, "MyExt"},
	{"core: names differing by case", required + `,"ID":"2"}`, event.CodeEventInvalid, "ID"},
	{"core: names are not empty", required + `,"":"1"}`, event.CodeEventInvalid, ""},
	{"limit on names", required + `,"` + strings.Repeat("a", 129) + `":"1"}`, event.CodeEventInvalid, strings.Repeat("a", 80) + "…"},
	{"core: each attribute once", required + `,"id":"2"}`, event.CodeEventInvalid, "id"},
	{"core: each attribute once, also by escapes", required + `,"i\u0064":"2"}`, event.CodeEventInvalid, "id"},
	{"core: each attribute once, also when unset", required + `,"subject":null,"subject":"a"}`, event.CodeEventInvalid, "subject"},
	{"limit on values", required + `,"x":"` + strings.Repeat("x", event.MaxAttributeBytes+1) + `"}`, event.CodeEventInvalid, "x"},

	{"core, Type System: Integer is 32 bits", required + `,"n":2147483648}`, event.CodeEventInvalid, "n"},
	{"core, Type System: Integer is 32 bits below", required + `,"n":-2147483649}`, event.CodeEventInvalid, "n"},
	{"core, Type System: no fraction", required + `,"n":1.5}`, event.CodeEventInvalid, "n"},
	{"core, Type System: no fraction, be it zero", required + `,"n":1.0}`, event.CodeEventInvalid, "n"},
	{"core, Type System: no exponent", required + `,"n":1e3}`, event.CodeEventInvalid, "n"},
	{"core, Type System: no object", required + `,"n":{"a":1}}`, event.CodeEventInvalid, "n"},
	{"core, Type System: no array", required + `,"n":[1]}`, event.CodeEventInvalid, "n"},
	{"core, Type System: no control character", required + `,"subject":"a\nb"}`, event.CodeEventInvalid, "subject"},
	{"core, Type System: no U+0000", required + `,"x":"\u0000"}`, event.CodeEventInvalid, "x"},
	{"core, Type System: no U+007F", required + `,"x":"` + "\x7f" + `"}`, event.CodeEventInvalid, "x"},
	{"core, Type System: no U+007F in longer text", required + `,"x":"0123456789` + "\x7f" + `123456"}`, event.CodeEventInvalid, "x"},
	{"core, Type System: no U+0085", required + `,"x":"` + "\u0085" + `"}`, event.CodeEventInvalid, "x"},
	{"core, Type System: no noncharacter U+FDD0", required + `,"x":"\ufdd0"}`, event.CodeEventInvalid, "x"},
	{"core, Type System: no noncharacter U+1FFFF", required + `,"x":"\ud83f\udfff"}`, event.CodeEventInvalid, "x"},
	{"core, Type System: no lone surrogate", required + `,"x":"\udead"}`, event.CodeJSONInvalid, ""},

	{"json 3.1.1: data and data_base64 exclude each other", required + `,"data":1,"data_base64":"YQ=="}`, event.CodeEventInvalid, "data_base64"},
	{"json 3.1.1: also if data is null", required + `,"data_base64":"YQ==","data":null}`, event.CodeEventInvalid, "data_base64"},
	{"json 3.1.1: data_base64 is a string", required + `,"data_base64":1}`, event.CodeEventInvalid, "data_base64"},
	{"RFC 4648: padding", required + `,"data_base64":"YQ"}`, event.CodeDataInvalid, "data_base64"},
	{"RFC 4648: alphabet", required + `,"data_base64":"Y_=="}`, event.CodeDataInvalid, "data_base64"},
	{"RFC 4648: no line breaks", required + `,"data_base64":"YW\nJj"}`, event.CodeDataInvalid, "data_base64"},
	{"RFC 4648 3.5: canonical trailing bits", required + `,"data_base64":"YR=="}`, event.CodeDataInvalid, "data_base64"},
	{"json 3.1.2: not JSON and not a string", required + `,"datacontenttype":"text/plain","data":{}}`, event.CodeDataInvalid, "data"},
	{"json 3.1.2: text that is not in its charset", required + `,"datacontenttype":"text/plain;charset=utf-16","data":"a"}`, event.CodeDataInvalid, "data"},
	{"json 3.1.2: ASCII that is none", required + `,"datacontenttype":"text/plain;charset=us-ascii","data":"ä"}`, event.CodeDataInvalid, "data"},
	{"JSON type, base64 of other bytes", required + `,"datacontenttype":"application/json","data_base64":"YQ=="}`, event.CodeDataInvalid, "data"},
	{"JSON type, base64 of nothing", required + `,"datacontenttype":"application/json","data_base64":""}`, event.CodeDataInvalid, "data"},
	{"RFC 8259 4: names in data are unique", required + `,"data":{"a":1,"a":2}}`, event.CodeDataInvalid, "data"},
	{"RFC 8259 4: names deep in data are unique", required + `,"data":[{"x":{"a":1,"\u0061":2}}]}`, event.CodeDataInvalid, "data"},
	{"limit on nesting", required + `,"data":` + strings.Repeat("[", 129) + strings.Repeat("]", 129) + `}`, event.CodeDataInvalid, "data"},
	{"far beyond the limit on nesting", required + `,"data":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, event.CodeJSONInvalid, ""},

	{"ours: ids that look like cursors", `{"specversion":"1.0","id":"@1x","source":"/t","type":"t.x"}`, event.CodeIDReserved, "id"},
	{"ours: position", required + `,"position":"1"}`, event.CodeAttributeReserved, "position"},
	{"ours: superseded", required + `,"superseded":false}`, event.CodeAttributeReserved, "superseded"},
	{"ours: producer", required + `,"producer":"a"}`, event.CodeAttributeReserved, "producer"},
	{"ours: topic", required + `,"topic":"a"}`, event.CodeAttributeReserved, "topic"},
	{"ours: types", `{"specversion":"1.0","id":"1","source":"/t","type":"signalbox.sync"}`, event.CodeAttributeReserved, "type"},
	{"ours: hlc", required + `,"hlc":"now"}`, event.CodeHLCInvalid, "hlc"},
	{"ours: hlc is a string", required + `,"hlc":5}`, event.CodeEventInvalid, "hlc"},
	{"ours: expiry", required + `,"expiry":0}`, event.CodeExpiryInvalid, "expiry"},
	{"ours: expiry is not negative", required + `,"expiry":-5}`, event.CodeExpiryInvalid, "expiry"},
	{"ours: expiry is a number", required + `,"expiry":true}`, event.CodeExpiryInvalid, "expiry"},
	{"expirytime extension", required + `,"expirytime":"tomorrow"}`, event.CodeExpiryInvalid, "expirytime"},
	{"recordedtime extension", required + `,"recordedtime":"2026-01-01"}`, event.CodeEventInvalid, "recordedtime"},
	{"partitioning extension: not empty", required + `,"partitionkey":""}`, event.CodeEventInvalid, "partitionkey"},
	{"dataref extension: URI-reference", required + `,"dataref":"<>"}`, event.CodeEventInvalid, "dataref"},
}

func TestRefusedJSON(t *testing.T) {
	for _, c := range refusedJSON {
		t.Run(c.rule, func(t *testing.T) {
			_, err := event.DecodeJSON([]byte(c.in))
			if e := wantCode(t, err, c.code); e.Field != c.field {
				t.Errorf("field is %q, want %q (%v)", e.Field, c.field, err)
			}
		})
	}
}

// TestAcceptedJSON has what a strict reader might wrongly refuse.
func TestAcceptedJSON(t *testing.T) {
	cases := []struct{ rule, members string }{
		{"core: names may be longer than 20 and begin with a digit", `"1averyveryverylongextensionname":"x"`},
		{"core: names of two kinds of order", `"zz":"1","aa":"2","a":"3","partitionkeys":"4","partitionkey":"5"`},
		{"json 2.2: null is unset", `"subject":null,"time":null,"n":null,"data_base64":null`},
		{"core: an extension may be empty", `"x":""`},
		{"core: datacontenttype without data", `"datacontenttype":"text/plain"`},
		{"core: supplementary characters", `"x":"🐻 \ud83d\udc3b"`},
		{"core: dataschema", `"dataschema":"urn:x:y?z"`},
		{"core: time with offset and fraction", `"time":"2026-01-01T00:00:00.123456789+14:00"`},
		{"core: nesting at the limit", `"data":` + strings.Repeat("[", 128) + strings.Repeat("]", 128)},
		{"core: wide data is not deep", `"data":[` + strings.Repeat(`{},`, 500) + `"[[{\"["]`},
		{"JSON: names in data may differ by case", `"data":{"a":1,"A":2,"_":3}`},
		{"JSON: numbers in data are kept", `"data":[1e400,123456789012345678901234567890,-0.0]`},
		{"RFC 4648: escaped solidus", `"data_base64":"YWI\/"`},
		{"our attributes", `"hlc":"1764422645000.00001","expiry":30,"expirytime":"2026-01-01T00:00:00Z","recordedtime":"2026-01-01T00:00:00Z","dataref":"x"`},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			e := decode(t, structured(c.members))
			if f := toStructured(t, e); !f.Equal(e) {
				t.Errorf("came back as %s from %s", f.AppendJSON(nil), e.AppendJSON(nil))
			}
		})
	}
	if e := decode(t, []byte(" \r\n\t"+string(structured(""))+"\n")); e.ID() != "1" {
		t.Error("white space around an event is refused")
	}
}

// TestLimitOnAttributes: a million members must not become a million attributes.
func TestLimitOnAttributes(t *testing.T) {
	members := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"a%d":""`, i)
		}
		return b.String()[1:]
	}
	e := decode(t, structured(members(event.MaxAttributes-4)))
	if got := len(e.Attributes()); got != event.MaxAttributes-4 {
		t.Errorf("%d attributes", got)
	}
	if f := toStructured(t, e); !f.Equal(e) {
		t.Error("many attributes do not come back in order")
	}
	_, err := event.DecodeJSON(structured(members(event.MaxAttributes - 3)))
	wantCode(t, err, event.CodeEventInvalid)
	_, err = event.DecodeJSON(structured(members(1_000_000)))
	wantCode(t, err, event.CodeDataInvalid)
}

// TestLimitOnMembers: looking for duplicate names takes memory for each name of
// the objects that are open.
func TestLimitOnMembers(t *testing.T) {
	object := func(n int, inner string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k:%d":"{,:",`, i)
		}
		return "{" + b.String() + `"last":` + inner + "}"
	}
	// One member of the envelope is open too; so are data and the four required ones.
	const most = event.MaxMembers - 5
	decode(t, structured(`"data":`+object(most-1, "0")))
	many := object(event.MaxMembers/4, "0")
	decode(t, structured(`"data":[`+strings.Repeat(many+",", 9)+`0]`))
	decodeBinary(t, headers("Content-Type: application/json"), object(event.MaxMembers-1, "0"))
	for _, data := range []string{object(most, "0"), object(1_000_000, "0"), object(most/2, object(most/2, "0"))} {
		_, err := event.DecodeJSON(structured(`"data":` + data))
		wantCode(t, err, event.CodeDataInvalid)
		_, err = event.DecodeBatch([]byte("[" + string(structured(`"data":`+data)) + "]"))
		wantCode(t, err, event.CodeDataInvalid)
	}
	_, err := event.DecodeBinary(headers("Content-Type: application/json"), []byte(object(event.MaxMembers, "0")))
	wantCode(t, err, event.CodeDataInvalid)
}

// TestDataOfJSON: what data becomes by content type (json 3.1.2).
func TestDataOfJSON(t *testing.T) {
	cases := []struct {
		rule, members string
		kind          event.DataKind
		data, typ     string
	}{
		{"absent", ``, event.NoData, "", ""},
		{"absent with a type", `"datacontenttype":"application/json"`, event.NoData, "", "application/json"},
		{"no type means JSON, made explicit", `"data":{"a": 1}`, event.JSONData, `{"a": 1}`, "application/json"},
		{"null is data", `"data":null`, event.JSONData, `null`, "application/json"},
		{"a string is not parsed again", `"data":"{\"a\":1}"`, event.JSONData, `"{\"a\":1}"`, "application/json"},
		{"bytes are kept", `"data": { "b" : 1.50e+1 , "é":"\u00e9\/" } `, event.JSONData, `{ "b" : 1.50e+1 , "é":"\u00e9\/" }`, "application/json"},
		{"*/*+json with parameters", `"datacontenttype":"Image/SVG+Json; q=1","data":[]`, event.JSONData, `[]`, "Image/SVG+Json; q=1"},
		{"+json alone is no suffix", `"datacontenttype":"application/+json","data":"a"`, event.TextData, `a`, "application/+json"},
		{"other type with a string", `"datacontenttype":"application/xml","data":"<much wow=\"xml\"/>"`, event.TextData, `<much wow="xml"/>`, "application/xml"},
		{"text with charset", `"datacontenttype":"text/plain; charset=\"UTF-8\"","data":"Bär\n\u0000"`, event.TextData, "Bär\n\x00", `text/plain; charset="UTF-8"`},
		{"empty text is data", `"datacontenttype":"text/plain","data":""`, event.TextData, "", "text/plain"},
		{"base64 without a type infers nothing", `"data_base64":"eyAieHl6IjogMTIzIH0="`, event.BinaryData, `{ "xyz": 123 }`, ""},
		{"base64 of JSON", `"datacontenttype":"application/json","data_base64":"eyAieHl6IjogMTIzIH0="`, event.JSONData, `{ "xyz": 123 }`, "application/json"},
		{"empty base64 is data", `"data_base64":""`, event.BinaryData, "", ""},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			e := decode(t, structured(c.members))
			if e.DataKind() != c.kind || string(e.Data()) != c.data || e.DataContentType() != c.typ {
				t.Errorf("got kind %d, %q, type %q", e.DataKind(), e.Data(), e.DataContentType())
			}
			if (e.Data() == nil) != (c.kind == event.NoData) {
				t.Error("nil data and no data must be the same")
			}
			if f := toStructured(t, e); !f.Equal(e) {
				t.Errorf("came back as %s", f.AppendJSON(nil))
			}
		})
	}
}

// TestEventKeepsNothing: changing the input afterwards does not change the event.
func TestEventKeepsNothing(t *testing.T) {
	in := structured(`"subject":"s","x":"\u0061","data":{"a":1}`)
	e := decode(t, in)
	want := string(e.AppendJSON(nil))
	for i := range in {
		in[i] = 'X'
	}
	decode(t, structured(`"subject":"other","x":"other","data":"other"`)) // reuses the scratch
	if got := string(e.AppendJSON(nil)); got != want {
		t.Errorf("changed to %s", got)
	}
}

// TestBatchRules: JSON format 4.
func TestBatchRules(t *testing.T) {
	good := string(structured(`"data":{"a":[1]}`))
	t.Run("an empty batch is valid", func(t *testing.T) {
		events, err := event.DecodeBatch([]byte(" [ ] "))
		if err != nil || events == nil || len(events) != 0 {
			t.Errorf("got %v, %v", events, err)
		}
	})
	t.Run("order is kept", func(t *testing.T) {
		events, err := event.DecodeBatch(sampleBatch(100))
		if err != nil || len(events) != 100 {
			t.Fatalf("got %d, %v", len(events), err)
		}
		for i, e := range events {
			if !strings.HasSuffix(e.ID(), fmt.Sprintf("%06d", i)) {
				t.Fatalf("event %d has id %s", i, e.ID())
			}
		}
	})
	t.Run("at the limit and above", func(t *testing.T) {
		if events, err := event.DecodeBatch(sampleBatch(event.MaxBatch)); err != nil || len(events) != event.MaxBatch {
			t.Errorf("got %d, %v", len(events), err)
		}
		_, err := event.DecodeBatch(sampleBatch(event.MaxBatch + 1))
		if e := wantCode(t, err, event.CodeBatchTooLarge); e.Facts["limit"] != event.MaxBatch {
			t.Errorf("facts %v", e.Facts)
		}
		if events, err := event.DecodeDeliveredBatch(sampleBatch(event.MaxBatch + 1)); err != nil || len(events) != event.MaxBatch+1 {
			t.Errorf("what the broker delivered: %d, %v", len(events), err)
		}
	})
	aborted := []struct {
		name, in string
		index    int
		cause    event.Code
	}{
		{"one without type", `[` + good + `,{"specversion":"1.0","id":"2","source":"/t"},` + good + `]`, 1, event.CodeEventInvalid},
		{"an array as element", `[` + good + `,[` + good + `]]`, 1, event.CodeJSONInvalid},
		{"null as element", `[null]`, 0, event.CodeJSONInvalid},
		{"a reserved attribute", `[` + good + `,` + good + `,` + string(structured(`"position":"1"`)) + `]`, 2, event.CodeAttributeReserved},
		{"bad data", `[` + string(structured(`"data":{"a":1,"a":1}`)) + `]`, 0, event.CodeDataInvalid},
		{"cut off", `[` + good + `,{"id":`, 1, event.CodeJSONInvalid},
	}
	for _, c := range aborted {
		t.Run(c.name, func(t *testing.T) {
			_, err := event.DecodeBatch([]byte(c.in))
			e := wantCode(t, err, event.CodeBatchAborted)
			if e.Facts["index"] != c.index || e.Facts["cause"] != string(c.cause) {
				t.Errorf("facts %v", e.Facts)
			}
			wantCode(t, e.Err, c.cause)
		})
	}
	for _, in := range []string{good, `"x"`, ``, `[` + good, `[` + good + `]]`, `[` + good + `,]`, `[,]`} {
		if _, err := event.DecodeBatch([]byte(in)); err == nil {
			t.Errorf("batch %s is accepted", in)
		}
	}
	_, err := event.DecodeBatch([]byte(good))
	wantCode(t, err, event.CodeJSONInvalid)
}

// TestDelivered: what the broker adds is read on delivery.
func TestDelivered(t *testing.T) {
	in := structured(`"position":"18446744073709551615","superseded":true,"producer":"spiffe://a/b","hlc":"1764422645000.00007"`)
	e, err := event.DecodeDelivered(in)
	if err != nil {
		t.Fatal(err)
	}
	if e.Position() != 1<<64-1 || !e.Superseded() || e.HLC() != event.NewHLC(1764422645000, 7) {
		t.Errorf("position %d, superseded %v, hlc %v", e.Position(), e.Superseded(), e.HLC())
	}
	wantAttribute(t, e, "producer", "spiffe://a/b")
	if f, err := event.DecodeDelivered(e.AppendJSON(nil)); err != nil || !f.Equal(e) {
		t.Errorf("came back as %v, %v", f, err)
	}
	// What the broker adds is not a part of what the producer meant.
	plain := decode(t, structured(`"hlc":"1764422645000.00007"`))
	if plain.ContentHash() != e.ContentHash() {
		t.Error("the broker's attributes are in the content hash")
	}
	for _, members := range []string{`"position":"0"`, `"position":"01"`, `"position":"+1"`, `"position":1`, `"position":"18446744073709551616"`, `"superseded":"yes"`, `"superseded":1`, `"producer":""`} {
		if _, err := event.DecodeDelivered(structured(members)); err == nil {
			t.Errorf("%s is accepted", members)
		}
	}
	if _, err := event.DecodeDelivered(bytes.Replace(structured(""), []byte("t.x"), []byte("signalbox.cut"), 1)); err != nil {
		t.Errorf("a type of the broker is refused: %v", err)
	}
}
