// SPDX-License-Identifier: Apache-2.0

package event

import (
	"strings"
	"unicode/utf8"
)

// mediaType is a parsed content type (RFC 9110 8.3.1, which RFC 2046 shares).
type mediaType struct {
	main, sub, charset string
}

// parseMediaType is not mime.ParseMediaType because that one allocates a map,
// folds RFC 2231 continuations and forgives what the grammar does not.
func parseMediaType(s string) (m mediaType, ok bool) {
	if s == contentTypeJSON {
		return mediaType{main: "application", sub: "json"}, true
	}
	essence, rest, more := strings.Cut(s, ";")
	m.main, m.sub, ok = strings.Cut(strings.TrimRight(essence, " \t"), "/")
	if !ok || !isToken(m.main) || !isToken(m.sub) {
		return mediaType{}, false
	}
	for more {
		rest = strings.TrimLeft(rest, " \t")
		var name, value string
		name, value, rest, ok = cutParameter(rest)
		if !ok {
			return mediaType{}, false
		}
		if strings.EqualFold(name, "charset") {
			if m.charset != "" {
				return mediaType{}, false // which one would count?
			}
			m.charset = value
		}
		rest = strings.TrimLeft(rest, " \t")
		rest, more = strings.CutPrefix(rest, ";")
		if !more && rest != "" {
			return mediaType{}, false
		}
	}
	return m, true
}

// cutParameter takes one parameter off the front of s; an empty one is allowed.
func cutParameter(s string) (name, value, rest string, ok bool) {
	n := tokenLen(s)
	name, rest = s[:n], s[n:]
	if n == 0 {
		return "", "", rest, rest == "" || rest[0] == ';'
	}
	rest, ok = strings.CutPrefix(rest, "=")
	if !ok {
		return "", "", "", false
	}
	if strings.HasPrefix(rest, `"`) {
		for i := 1; i < len(rest); i++ {
			switch c := rest[i]; {
			case c >= utf8.RuneSelf:
				// RFC 2045 5.1 has ASCII only, and so have headers (HTTP binding 3.1.3.2),
				// where a media type is not percent-encoded.
				return "", "", "", false
			case c == '\\':
				i++
			case c == '"':
				// Escapes stay in: no charset that is understood needs one.
				return name, rest[1:i], rest[i+1:], true
			}
		}
		return "", "", "", false
	}
	n = tokenLen(rest)
	return name, rest[:n], rest[n:], n > 0
}

func isToken(s string) bool { return s != "" && tokenLen(s) == len(s) }

// tokenLen counts the token characters (RFC 9110 5.6.2) that s begins with.
func tokenLen(s string) int {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return i
		}
	}
	return len(s)
}

// IsJSON reports whether data of a content type is JSON.
func IsJSON(contentType string) bool {
	m, ok := parseMediaType(contentType)
	return ok && m.isJSON()
}

// isJSON: the media type, stripped of parameters, is */json or */*+json (JSON format 3.1.1).
func (m mediaType) isJSON() bool {
	const suffix = "+json"
	return strings.EqualFold(m.sub, "json") ||
		len(m.sub) > len(suffix) && strings.EqualFold(m.sub[len(m.sub)-len(suffix):], suffix)
}

// readable reports whether the charset, if one is declared, is one whose text is
// UTF-8 as it stands.
func (m mediaType) readable() bool {
	return m.charset == "" || strings.EqualFold(m.charset, "utf-8") || m.ascii()
}

func (m mediaType) ascii() bool { return strings.EqualFold(m.charset, "us-ascii") }

// fits reports whether b, as UTF-8, is text in the declared charset.
func (m mediaType) fits(b []byte) bool {
	if !m.readable() || !utf8.Valid(b) {
		return false
	}
	if m.ascii() {
		for _, c := range b {
			if c >= utf8.RuneSelf {
				return false
			}
		}
	}
	return true
}

// isText reports whether b, the data of this type, is carried as a JSON string.
// Text with control characters is not: escaped it would grow sixfold.
func (m mediaType) isText(b []byte) bool {
	if !strings.EqualFold(m.main, "text") || !m.fits(b) {
		return false
	}
	for _, c := range b {
		if c < 0x20 && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}
