// SPDX-License-Identifier: Apache-2.0

package ticket

import "strings"

// The forms of the members of an envelope. The schema in package api has the same
// ones as patterns, and a test holds them against each other. They are looked at a
// dozen times in each message, and an engine for patterns takes twenty times as long.

// charset is a set of ASCII characters.
type charset [128]bool

// charsOf is the set of the characters in texts; "a-z" are those from a to z.
func charsOf(texts ...string) *charset {
	var s charset
	for _, text := range texts {
		if len(text) == 3 && text[1] == '-' {
			for c := text[0]; c <= text[2]; c++ {
				s[c] = true
			}
			continue
		}
		for i := range len(text) {
			s[text[i]] = true
		}
	}
	return &s
}

func (s *charset) has(c byte) bool { return c < byte(len(s)) && s[c] }

// all reports whether a text has only characters of the set.
func (s *charset) all(text string) bool {
	for i := range len(text) {
		if !s.has(text[i]) {
			return false
		}
	}
	return true
}

var (
	digits      = charsOf("0-9")
	octal       = charsOf("0-7")
	ulidChars   = charsOf("0-9", "A-H", "JK", "MN", "P-T", "V-Z")
	alnum       = charsOf("A-Z", "a-z", "0-9")
	tokenChars  = charsOf("A-Z", "a-z", "0-9", "._:-")
	lowerAlnum  = charsOf("a-z", "0-9")
	nameChars   = charsOf("a-z", "0-9", "_-")
	lowerChars  = charsOf("a-z")
	typeChars   = charsOf("a-z", "0-9", "_.-")
	base64Chars = charsOf("A-Z", "a-z", "0-9", "_-")
	visible     = charsOf("!-~")
)

// idForm is msg_ and a ULID, whose first character has three bits.
func idForm(text string) bool {
	ulid, ok := strings.CutPrefix(text, "msg_")
	return ok && len(ulid) == 26 && octal.has(ulid[0]) && ulidChars.all(ulid[1:])
}

// versionForm is three numbers of at most six digits without zeros before them.
func versionForm(text string) bool {
	for range 2 {
		number, rest, ok := strings.Cut(text, ".")
		if !ok || !numberForm(number) {
			return false
		}
		text = rest
	}
	return numberForm(text)
}

func numberForm(text string) bool {
	return text == "0" || len(text) >= 1 && len(text) <= 6 && text[0] != '0' && digits.all(text)
}

func tokenForm(text string) bool {
	return len(text) >= 1 && len(text) <= 128 && alnum.has(text[0]) && tokenChars.all(text)
}

func nameForm(text string) bool {
	return len(text) >= 1 && len(text) <= 63 && lowerAlnum.has(text[0]) && nameChars.all(text) && lowerAlnum.has(text[len(text)-1])
}

func nonceForm(text string) bool { return len(text) >= 16 && len(text) <= 64 && base64Chars.all(text) }

func typeForm(text string) bool {
	return len(text) >= 1 && len(text) <= 64 && lowerChars.has(text[0]) && typeChars.all(text)
}

func keyForm(text string) bool { return len(text) >= 1 && len(text) <= 128 && visible.all(text) }

// timeForm is a time of RFC 3339 in UTC with at most nine digits of a second. Whether
// the calendar has it is another question.
func timeForm(text string) bool {
	const form = "0000-00-00T00:00:00"
	if len(text) <= len(form) || text[len(text)-1] != 'Z' {
		return false
	}
	for i := range len(form) {
		if form[i] == '0' && !digits.has(text[i]) || form[i] != '0' && form[i] != text[i] {
			return false
		}
	}
	fraction := text[len(form) : len(text)-1]
	return fraction == "" || fraction[0] == '.' && len(fraction) >= 2 && len(fraction) <= 10 && digits.all(fraction[1:])
}
