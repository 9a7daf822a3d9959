// SPDX-License-Identifier: Apache-2.0

package event

import "strings"

// CheckTopic reports whether name is a topic name: tokens of letters, digits,
// '_' and '-' joined by dots, where the first may begin with '$'.
func CheckTopic(name string) error {
	if len(name) > MaxTopicBytes {
		return Errorf(CodeTopicInvalid, "The topic name has %d bytes; use at most %d.", len(name), MaxTopicBytes).With("topic")
	}
	rest := strings.TrimPrefix(name, "$")
	for {
		token, more, dot := strings.Cut(rest, ".")
		if !validToken(token) {
			return Errorf(CodeTopicInvalid,
				"%q is not a topic name: use tokens of letters, digits, _ and - joined by dots, such as fleet.tasks.", clip(name)).With("topic")
		}
		if !dot {
			return nil
		}
		rest = more
	}
}

// ReservedTopic reports whether a topic belongs to the broker.
func ReservedTopic(name string) bool { return strings.HasPrefix(name, "$") }

func validToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return s != ""
}

// Pattern selects topics. The zero value matches none.
type Pattern struct {
	text   string
	wild   bool   // has * or >
	except string // topics that begin with it are not selected; "": none
}

// ParsePattern reads a topic name in which a token may be '*' (any one token)
// and the last may be '>' (one or more tokens).
func ParsePattern(s string) (Pattern, error) {
	p := Pattern{text: s}
	if len(s) > MaxTopicBytes {
		return Pattern{}, Errorf(CodeTopicInvalid, "The topic pattern has %d bytes; use at most %d.", len(s), MaxTopicBytes).With("topics")
	}
	rest := strings.TrimPrefix(s, "$")
	first := len(rest) == len(s) // only a plain first token may be a wildcard: "$*" is none
	for {
		token, more, dot := strings.Cut(rest, ".")
		switch {
		case validToken(token):
		case first && (token == "*" || token == ">" && !dot):
			p.wild = true
		default:
			return Pattern{}, Errorf(CodeTopicInvalid,
				"%q is not a topic pattern: use a topic name in which a token may be * and the last may be >, such as fleet.*.tasks or fleet.>.", clip(s)).With("topics")
		}
		if !dot {
			return p, nil
		}
		rest, first = more, true
	}
}

// ParsePatterns reads a comma separated list of 1 to [MaxPatterns] patterns.
func ParsePatterns(list string) ([]Pattern, error) {
	n := strings.Count(list, ",") + 1
	if n > MaxPatterns {
		return nil, Errorf(CodeTopicInvalid, "The list has %d topic patterns; use at most %d.", n, MaxPatterns).With("topics")
	}
	patterns := make([]Pattern, 0, n)
	for s := range strings.SplitSeq(list, ",") {
		p, err := ParsePattern(s)
		if err != nil {
			return nil, err
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// Match reports whether the pattern selects topic. A wildcard in the first
// place does not select topics of the broker: who asks for everything means
// everybody's events, not the broker's own.
func (p Pattern) Match(topic string) bool { return match(p, topic) }

// MatchBytes is [Pattern.Match] for a topic in somebody's buffer.
func (p Pattern) MatchBytes(topic []byte) bool { return match(p, topic) }

func match[T string | []byte](p Pattern, topic T) bool {
	if !p.wild {
		return p.text == string(topic) && len(topic) > 0
	}
	if len(topic) == 0 || topic[0] == '$' && !ReservedTopic(p.text) {
		return false
	}
	if n := len(p.except); n > 0 && len(topic) >= n && string(topic[:n]) == p.except {
		return false
	}
	pattern := p.text
	for {
		want, patternRest, patternMore := strings.Cut(pattern, ".")
		if want == ">" {
			return len(topic) > 0
		}
		end := 0
		for end < len(topic) && topic[end] != '.' {
			end++
		}
		topicMore := end < len(topic)
		if want != string(topic[:end]) && (want != "*" || end == 0) || patternMore != topicMore {
			return false
		}
		if !patternMore {
			return true
		}
		pattern, topic = patternRest, topic[end+1:]
	}
}

// Beginning returns what every topic that the pattern selects begins with: the
// tokens before the first wildcard, with the dot behind them.
func (p Pattern) Beginning() string {
	if !p.wild {
		return p.text
	}
	at := strings.IndexAny(p.text, "*>")
	return p.text[:at]
}

// Exact returns the one topic that a pattern without wildcards selects.
func (p Pattern) Exact() (string, bool) { return p.text, !p.wild && p.text != "" }

// String returns the pattern as it was written, and what was taken out of it.
func (p Pattern) String() string {
	if p.except != "" {
		return p.text + " except " + p.except + ">"
	}
	return p.text
}

// Except returns a pattern with wildcards without the topics that begin with a
// text, in place of what was taken out of it before.
func (p Pattern) Except(beginning string) Pattern {
	if p.wild {
		p.except = beginning
	}
	return p
}

// Both returns the pattern of the topics that two patterns select, of which nothing
// was taken out. There is none if no topic is selected by both.
func (p Pattern) Both(q Pattern) (both Pattern, ok bool) {
	if ReservedTopic(p.text) != ReservedTopic(q.text) || p.text == "" || q.text == "" {
		return Pattern{}, false
	}
	var tokens []string
	a, b := strings.Split(p.text, "."), strings.Split(q.text, ".")
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == ">":
			tokens, a, b = append(tokens, b...), nil, nil
			continue
		case b[0] == ">":
			tokens, a, b = append(tokens, a...), nil, nil
			continue
		case a[0] == "*":
			tokens = append(tokens, b[0])
		case b[0] == "*" || a[0] == b[0]:
			tokens = append(tokens, a[0])
		default:
			return Pattern{}, false
		}
		a, b = a[1:], b[1:]
	}
	if len(a)+len(b) > 0 {
		return Pattern{}, false
	}
	text := strings.Join(tokens, ".")
	return Pattern{text: text, wild: strings.ContainsAny(text, "*>")}, true
}
