// SPDX-License-Identifier: Apache-2.0

package cesql

import (
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenDigits
	tokenString
	tokenSymbol
)

// token is a piece of the text. A keyword is a word.
type token struct {
	kind       tokenKind
	start, end int
	text       string // as it stands; of symbols the symbol, "<>" as "!="
}

// is reports whether the token is a symbol, or a keyword in whatever case.
func (t token) is(what string) bool {
	switch t.kind {
	case tokenSymbol:
		return t.text == what
	case tokenWord:
		return foldsTo(t.text, what)
	}
	return false
}

// describe names the token in a message.
func (t token) describe() string {
	switch {
	case t.kind == tokenEnd:
		return "the end"
	case t.kind == tokenString && len(t.text) > 20:
		return "a string"
	case len(t.text) > 40:
		return "a long word"
	}
	return t.text
}

// lexer cuts the text into tokens, one at a time.
type lexer struct {
	text string
	at   int
}

func (l *lexer) next() (token, *SyntaxError) {
	for l.at < len(l.text) && strings.IndexByte(" \t\r\n", l.text[l.at]) >= 0 {
		l.at++
	}
	start := l.at
	if start == len(l.text) {
		return token{kind: tokenEnd, start: start, end: start}, nil
	}
	switch c := l.text[start]; {
	case isWord(c):
		return l.word(), nil
	case c == '\'' || c == '"':
		return l.quoted()
	case strings.HasPrefix(l.text[start:], "=="):
		return token{}, newSyntaxError(l.text, start, "equality is written =")
	case strings.IndexByte("()+-*/%=,", c) >= 0:
		return l.symbol(1), nil
	case c == '<' || c == '>' || c == '!':
		if two := l.text[start:min(start+2, len(l.text))]; two == "<=" || two == ">=" || two == "!=" {
			return l.symbol(2), nil
		} else if two == "<>" {
			t := l.symbol(2)
			t.text = "!="
			return t, nil
		}
		if c != '!' {
			return l.symbol(1), nil
		}
	}
	r, _ := utf8.DecodeRuneInString(l.text[start:])
	switch r {
	case '!':
		return token{}, newSyntaxError(l.text, start, "the operator is written != or NOT")
	case '&', '|':
		return token{}, newSyntaxError(l.text, start, "the operators are written AND and OR")
	case '.', '[':
		return token{}, newSyntaxError(l.text, start, "only data has members, as in data.order.id")
	case '‘', '’', '“', '”', '`':
		return token{}, newSyntaxError(l.text, start, "strings stand between ' and ' or between \" and \"")
	}
	return token{}, newSyntaxError(l.text, start, "%q has no meaning here", r)
}

func (l *lexer) symbol(n int) token {
	t := token{tokenSymbol, l.at, l.at + n, l.text[l.at : l.at+n]}
	l.at = t.end
	return t
}

// word reads letters, digits and _, of which names and keywords are made.
func (l *lexer) word() token {
	t := token{kind: tokenDigits, start: l.at}
	for l.at < len(l.text) && isWord(l.text[l.at]) {
		if !isDigit(l.text[l.at]) {
			t.kind = tokenWord
		}
		l.at++
	}
	t.end = l.at
	t.text = l.text[t.start:t.end]
	return t
}

// quoted reads a string. A backslash takes the next character with it, so that
// a quotation mark after it does not end the string (2.2).
func (l *lexer) quoted() (token, *SyntaxError) {
	start, quote := l.at, l.text[l.at]
	for i := start + 1; i < len(l.text); i++ {
		switch l.text[i] {
		case '\\':
			i++
		case quote:
			l.at = i + 1
			t := token{tokenString, start, l.at, l.text[start:l.at]}
			if l.at < len(l.text) && l.text[l.at] == quote {
				return t, newSyntaxError(l.text, l.at, "a quotation mark inside a string is written \\%c", quote)
			}
			return t, nil
		}
	}
	return token{}, newSyntaxError(l.text, start, "the string that begins here has no closing %c", quote)
}

// unquote returns the characters of a string token. Other backslashes than
// those before the token's own quotation mark stand for themselves (2.2).
func unquote(raw string) string {
	quote, inner := raw[0], raw[1:len(raw)-1]
	if strings.IndexByte(inner, '\\') < 0 {
		return inner
	}
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); i++ {
		if inner[i] == '\\' && i+1 < len(inner) {
			if inner[i+1] != quote {
				out = append(out, '\\')
			}
			i++
		}
		out = append(out, inner[i])
	}
	return string(out)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return isDigit(c) || c == '_' || lower(c) >= 'a' && lower(c) <= 'z'
}
