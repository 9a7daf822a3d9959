// SPDX-License-Identifier: Apache-2.0

package event

import "bytes"

// The checks follow the grammar of RFC 3986. url.Parse is not used because it
// accepts spaces, quotes and bytes above ASCII, which the grammar does not, and
// allocates.

// CheckSource reports whether text can be the source of an event: a
// URI-reference that is not empty.
func CheckSource(text string) error {
	if text == "" || !isURIReference([]byte(text)) {
		return invalid(nameSource, "is not a URI-reference (RFC 3986)")
	}
	return nil
}

// uriClass marks the characters of RFC 3986 appendix A.
type uriClass uint8

const (
	uriPath   uriClass = 1 << iota // pchar without "%", and "/"
	uriQuery                       // the above and "?"
	uriAuth                        // reg-name, userinfo and port without "%"
	uriScheme                      // after the first letter
	uriLiteral
)

// uriClasses is indexed by the character.
var uriClasses = makeURIClasses()

func makeURIClasses() (t [256]uriClass) {
	mark := func(chars string, c uriClass) {
		for i := 0; i < len(chars); i++ {
			t[chars[i]] |= c
		}
	}
	const (
		alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		unreserved   = alphanumeric + "-._~"
		subDelims    = "!$&'()*+,;="
	)
	mark(unreserved+subDelims, uriPath|uriQuery|uriAuth|uriLiteral)
	mark(":@/", uriPath|uriQuery)
	mark("?", uriQuery)
	mark(":", uriAuth|uriLiteral)
	mark(alphanumeric+"+-.", uriScheme)
	return t
}

// isURIReference reports whether b is a URI-reference (RFC 3986 4.1).
func isURIReference(b []byte) bool {
	b, fragment, _ := bytes.Cut(b, []byte("#"))
	return uriChars(fragment, uriQuery) && isRelativeOrAbsolute(b, false)
}

// isAbsoluteURI reports whether b is an absolute-URI (RFC 3986 4.3), which has a
// scheme and no fragment.
func isAbsoluteURI(b []byte) bool { return isRelativeOrAbsolute(b, true) }

func isRelativeOrAbsolute(b []byte, needScheme bool) bool {
	b, query, _ := bytes.Cut(b, []byte("?"))
	if !uriChars(query, uriQuery) {
		return false
	}
	// A colon in the first segment ends a scheme; without a scheme it may not be
	// there (RFC 3986 4.2: path-noscheme).
	segment := b
	if i := bytes.IndexByte(b, '/'); i >= 0 {
		segment = b[:i]
	}
	if i := bytes.IndexByte(segment, ':'); i >= 0 {
		if !isScheme(b[:i]) {
			return false
		}
		b = b[i+1:]
	} else if needScheme {
		return false
	}
	if bytes.HasPrefix(b, []byte("//")) {
		authority := b[2:]
		b = nil
		if i := bytes.IndexByte(authority, '/'); i >= 0 {
			authority, b = authority[:i], authority[i:]
		}
		if !isAuthority(authority) {
			return false
		}
	}
	return uriChars(b, uriPath)
}

func isScheme(b []byte) bool {
	if len(b) == 0 || (b[0]|0x20) < 'a' || (b[0]|0x20) > 'z' {
		return false
	}
	for _, c := range b {
		if uriClasses[c]&uriScheme == 0 {
			return false
		}
	}
	return true
}

// isAuthority checks [ userinfo "@" ] host [ ":" port ].
func isAuthority(b []byte) bool {
	if i := bytes.IndexByte(b, '@'); i >= 0 {
		if !uriChars(b[:i], uriAuth) {
			return false
		}
		b = b[i+1:]
	}
	if len(b) > 0 && b[0] == '[' {
		end := bytes.IndexByte(b, ']')
		if end < 2 {
			return false
		}
		for _, c := range b[1:end] {
			if uriClasses[c]&uriLiteral == 0 {
				return false
			}
		}
		b = b[end+1:]
		if len(b) > 0 && b[0] != ':' {
			return false
		}
	}
	host, port, _ := bytes.Cut(b, []byte(":"))
	for _, c := range port {
		if c < '0' || c > '9' {
			return false
		}
	}
	return uriChars(host, uriAuth)
}

// uriChars reports whether all of b is of the class or percent-encoded.
func uriChars(b []byte, class uriClass) bool {
	for i := 0; i < len(b); i++ {
		if uriClasses[b[i]]&class != 0 {
			continue
		}
		if b[i] != '%' || i+2 >= len(b) || unhex(b[i+1]) < 0 || unhex(b[i+2]) < 0 {
			return false
		}
		i += 2
	}
	return true
}

// unhex gives the value of a hexadecimal digit, or -1.
func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
