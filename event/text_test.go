// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"testing"
	"time"

	"signalbox/event"
)

// accepts reports whether a structured event may have the attribute.
func accepts(name, value string) bool {
	_, err := event.Draft{ID: "1", Source: "/t", Type: "t.x", Extensions: map[string]any{name: value}}.Event()
	return err == nil
}

// TestTimestamps follows the grammar of RFC 3339 section 5.6.
func TestTimestamps(t *testing.T) {
	for in, want := range map[string]time.Time{
		"2026-01-31T12:34:56Z":                time.Date(2026, 1, 31, 12, 34, 56, 0, time.UTC),
		"2026-01-31t12:34:56z":                time.Date(2026, 1, 31, 12, 34, 56, 0, time.UTC),
		"2026-01-31T12:34:56.5Z":              time.Date(2026, 1, 31, 12, 34, 56, 500_000_000, time.UTC),
		"2026-01-31T12:34:56.1234567891234Z":  time.Date(2026, 1, 31, 12, 34, 56, 123_456_789, time.UTC),
		"2026-01-31T12:34:56+01:30":           time.Date(2026, 1, 31, 11, 4, 56, 0, time.UTC),
		"2026-01-31T12:34:56-23:59":           time.Date(2026, 2, 1, 12, 33, 56, 0, time.UTC),
		"2026-01-31T12:34:56-00:00":           time.Date(2026, 1, 31, 12, 34, 56, 0, time.UTC),
		"2024-02-29T00:00:00Z":                time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
		"2000-02-29T00:00:00Z":                time.Date(2000, 2, 29, 0, 0, 0, 0, time.UTC),
		"0000-01-01T00:00:00Z":                time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		"9999-12-31T23:59:59.999999999-23:59": time.Date(10000, 1, 1, 23, 58, 59, 999_999_999, time.UTC),
		"1990-12-31T23:59:60Z":                time.Date(1991, 1, 1, 0, 0, 0, 0, time.UTC),
		"1990-12-31T15:59:60-08:00":           time.Date(1991, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		e, err := event.DecodeJSON(structured(`"time":"` + in + `"`))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got, ok := e.Time(); !ok || !got.Equal(want) {
			t.Errorf("%s is %v, want %v", in, got, want)
		}
		wantAttribute(t, e, "time", in)
	}
	for _, in := range []string{
		"2026-01-31", "2026-01-31T12:34Z", "2026-01-31T12:34:56", "2026-01-31 12:34:56Z", "2026-1-31T12:34:56Z", "2026-01-31T1:34:56Z0",
		"2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-32T00:00:00Z", "2026-04-31T00:00:00Z",
		"2026-02-29T00:00:00Z", "2100-02-29T00:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T12:60:00Z", "2026-01-31T12:34:61Z",
		"2026-01-31T12:34:60Z", "2026-01-30T23:59:60Z", "2026-01-31T12:34:56.Z", "2026-01-31T12:34:56,5Z", "2026-01-31T12:34:56+01",
		"2026-01-31T12:34:56+0100", "2026-01-31T12:34:56+24:00", "2026-01-31T12:34:56+01:60", "2026-01-31T12:34:56ZZ", "2026-01-31T12:34:56 Z",
		"+026-01-31T12:34:56Z", "2026-01-31T-1:34:56Z", "20260131T123456Z", "1769862896", "2026-01-31T12:34:56.5",
	} {
		if accepts("recordedtime", in) {
			t.Errorf("%q is accepted", in)
		}
	}
	if _, ok := decode(t, structured("")).Time(); ok {
		t.Error("there is a time")
	}
	e := decode(t, structured(`"expirytime":"2026-01-31T12:34:56Z"`))
	if got, ok := e.ExpiryTime(); !ok || got.Unix() != 1769862896 {
		t.Errorf("expirytime is %v", got)
	}
}

// TestURIReferences follows the grammar of RFC 3986 appendix A.
func TestURIReferences(t *testing.T) {
	for _, in := range []string{
		"https://github.com/cloudevents", "mailto:cncf-wg-serverless@lists.cncf.io", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
		"cloudevents/spec/pull/123", "/sensors/tn-1234567/alerts", "1-555-123-4567", "//host/x", "//host:80", "//host:", "//u:p@host", "?q", "#f",
		"a?b?c/d#e?f/g", "http://[::1]:8080/x", "http://[v1.a:b]/", "./a:b", "/a:b", "agent:beta", "%C3%A4", "a;b=c,d!$&'()*+@~_", "//", "a//b", "x:", "x+y-z.1:",
	} {
		if !accepts("dataref", in) {
			t.Errorf("%q is refused", in)
		}
	}
	for _, in := range []string{
		"a b", "a\"b", "<a>", "a{b}", "a|b", "a\\b", "a^b", "a`b", "ä", "%", "%4", "%zz", "a#b#c", "1a:b", ":a", "127.0.0.1:8080/x", "a[b]",
		"http://[::1", "http://::1]", "http://[]/", "http://[::1]x/", "http://[g/]", "http://h:8o/", "http://a@b@c/", "http://a:b:c/", "http://u[@h/",
	} {
		if accepts("dataref", in) {
			t.Errorf("%q is accepted", in)
		}
	}
}

// TestMediaTypes follows RFC 9110 section 8.3.1.
func TestMediaTypes(t *testing.T) {
	for _, in := range []string{
		"text/plain", "a/b;", "a/b; ;c=d", "a/b ; c=d", `a/b;c="d \" ;e"`, "multipart/form-data; boundary=x", "application/vnd.x-y.z+json", "a/*",
	} {
		if _, err := event.DecodeJSON(structured(`"datacontenttype":` + quote(in))); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	}
	for _, in := range []string{
		"text", "/", "a/", "/b", "a/b/c", "a b/c", "a/b c", "a/b,c/d", "a/b; c", "a/b; c=", "a/b; =d", `a/b; c="d`, `a/b; c="d"e`, "a/b; c=d e", "ä/b",
		"text/plain; charset=utf-8; charset=utf-16",
	} {
		if _, err := event.DecodeJSON(structured(`"datacontenttype":` + quote(in))); err == nil {
			t.Errorf("%q is accepted", in)
		}
	}
}
