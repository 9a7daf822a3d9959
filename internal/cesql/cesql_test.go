// SPDX-License-Identifier: Apache-2.0

package cesql_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/cesql"
)

// TestSDKDefects has what the official Go engine, 2.16.2, gets wrong.
func TestSDKDefects(t *testing.T) {
	checkAll(t, newEvent(attrs{"a": "x"}, ""), []evaluation{
		{`1+1`, "2"}, // it panics
		{`4-1`, "3"},
		{`'%abc' LIKE '%'`, "true"}, // it says false
		{`'ä' LIKE '_'`, "true"},    // it counts bytes
		{`'日本語' LIKE '日_語'`, "true"},
		{`'ab' LIKE '_'`, "false"},
		{`LENGTH('äöü')`, "3"},
		{`LEFT('äöü', 2)`, "'äö'"},
		{`RIGHT('äöü', 2)`, "'öü'"},
		{`SUBSTRING('äöü', 2, 1)`, "'ö'"},
		{`SUBSTRING('äöü', -1)`, "'ü'"},
		{`SUBSTRING('abc', 2, -1)`, "'', FunctionEvaluation"}, // it panics
		{`TRUE OR TRUE AND FALSE`, "false"},                   // it is right-associative
		{`FALSE AND FALSE OR TRUE`, "true"},
		{`TRUE XOR TRUE OR TRUE`, "true"},
		{`FALSE AND TRUE XOR TRUE`, "true"},
		{`INT('3000000000')`, "0, Cast"}, // it saturates
		{`INT('-3000000000')`, "0, Cast"},
	})
	for _, text := range []string{
		`a AND`, `a =`, `'a' = `, `NOT`, `EXISTS`, `a IN ()`, `ABS(1,)`, `a LIKE 123`, // it panics
		`a = 'it''s'`, `a = "say ""hi"""`, // it takes them
		`a = 'x' #`, `a & 'x'`, `a = 'x`, // it ignores errors of its lexer
	} {
		if _, err := cesql.Parse(text, cesql.Options{}); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

// 3.6: the precedences, and left to right where they are equal.
func TestPrecedence(t *testing.T) {
	checkAll(t, newEvent(attrs{"type": "a", "n": 3, "yes": true}, ""), []evaluation{
		{`2 + 3 * 4 - 6 / 2`, "11"},
		{`10 - 4 - 3`, "3"},
		{`100 / 10 / 5`, "2"},
		{`7 % 4 * 2`, "6"},
		{`-2 + 5`, "3"},
		{`- n + 5`, "2"},
		{`--n`, "3"},
		{`1 + 1 = 2 AND 2 * 3 > 5`, "true"},
		{`NOT yes = FALSE`, "true"},
		{`NOT type = 'x'`, "false, Cast"}, // (NOT type) = 'x': type is no Boolean
		{`NOT (type = 'x')`, "true"},
		{`type LIKE 'a%' = TRUE`, "true"},
		{`1 + n IN (3)`, "2"}, // IN binds tighter than +
		{`(1 + n) IN (4)`, "true"},
		{`-n IN (-3)`, "true"},
		{`NOT EXISTS type`, "false"},
		{`NOT EXISTS nothing = TRUE`, "true"},
		{`1 < 2 = TRUE`, "true"},
		{`TRUE OR FALSE AND FALSE`, "false"},
		{`TRUE OR (FALSE AND FALSE)`, "true"},
		{`(TRUE OR FALSE) AND FALSE XOR TRUE`, "true"},
	})
}

// 3.4.2: the right operand must not be evaluated where the left one decides.
func TestShortCircuit(t *testing.T) {
	checkAll(t, newEvent(nil, ""), []evaluation{
		{`FALSE AND nothing`, "false"},
		{`TRUE OR nothing`, "true"},
		{`FALSE AND 1 / 0 = 1`, "false"},
		{`TRUE AND 1 / 0 = 1`, "false, Math"},
		{`FALSE OR 1 / 0 = 0`, "false, Math"},
		{`TRUE XOR 1 / 0 = 0`, "false, Math"},
		{`TRUE OR nothing OR nothing`, "true"},
		{`FALSE AND nothing OR TRUE`, "true"},
		{`TRUE OR nothing AND TRUE`, "true"},
	})
}

// 3.2: an operator on an absent attribute yields the zero value of its type.
func TestMissingAttributes(t *testing.T) {
	checkAll(t, newEvent(attrs{"a": 5}, ""), []evaluation{
		{`x`, "false, MissingAttribute"},
		{`(x)`, "false, MissingAttribute"},
		{`x = ''`, "false, MissingAttribute"},
		{`x != ''`, "false, MissingAttribute"},
		{`'' = x`, "false, MissingAttribute"},
		{`x = x`, "false, MissingAttribute"},
		{`x < 1`, "false, MissingAttribute"},
		{`1 >= x`, "false, MissingAttribute"},
		{`x + 1`, "0, MissingAttribute"},
		{`1 / x`, "0, MissingAttribute"},
		{`(x + 1) + 2`, "0, MissingAttribute"},
		{`-x`, "0, MissingAttribute"},
		{`NOT x`, "false, MissingAttribute"},
		{`x AND TRUE`, "false, MissingAttribute"},
		{`x OR TRUE`, "false, MissingAttribute"},
		{`x OR TRUE OR TRUE`, "false, MissingAttribute"},
		{`FALSE OR x`, "false, MissingAttribute"},
		{`TRUE XOR x`, "false, MissingAttribute"},
		{`x = 'a' OR TRUE`, "false, MissingAttribute"},
		{`TRUE OR x = 'a'`, "true"},
		{`x LIKE '%'`, "false, MissingAttribute"},
		{`x NOT LIKE '%'`, "false, MissingAttribute"},
		{`x IN (1)`, "false, MissingAttribute"},
		{`x NOT IN (1)`, "false, MissingAttribute"},
		{`a IN (1, x)`, "false, MissingAttribute"},
		{`a NOT IN (1, x)`, "false, MissingAttribute"},
		{`a IN (5, x)`, "true"},
		{`a IN (x IN (1), 5)`, "false, MissingAttribute"},
		{`LENGTH(x)`, "0, MissingAttribute"},
		{`LOWER(x)`, "'', MissingAttribute"},
		{`CONCAT('a', x)`, "'', MissingAttribute"},
		{`BOOL(x)`, "false, MissingAttribute"},
		{`EXISTS x`, "false"},
		{`NOT EXISTS x AND EXISTS A`, "true"},
	})
}

// 3.7: all pairs of types, and which operand is cast to which.
func TestCasts(t *testing.T) {
	checkAll(t, newEvent(attrs{"seq": "10", "n": 5, "flag": false, "zero": 0}, ""), []evaluation{
		{`seq = 10`, "true"},
		{`10 = seq`, "true"}, // the Integer becomes a String
		{`'010' = 10`, "true"},
		{`10 = '010'`, "false"},
		{`n = '5'`, "true"},
		{`flag = 'false'`, "true"},
		{`'FALSE' = flag`, "true"},
		{`TRUE = "true" AND FALSE = "false"`, "true"},
		{`TRUE = "TRUE" OR FALSE = "FALSE"`, "false"},
		{`1 = TRUE`, "true"},
		{`2 = TRUE`, "true"}, // not 0 is true
		{`TRUE = 2`, "false"},
		{`NOT 10`, "false"}, // Integer to Boolean is a MUST; the TCK's case is excluded
		{`NOT zero`, "true"},
		{`zero = FALSE`, "true"},
		{`-TRUE`, "-1"},
		{`INT('+7')`, "7"},
		{`INT('-0')`, "0"},
		{`INT('')`, "0, Cast"},
		{`INT('-')`, "0, Cast"},
		{`INT(' 7')`, "0, Cast"},
		{`INT('7.0')`, "0, Cast"},
		{`INT('2147483647')`, "2147483647"},
		{`INT('2147483648')`, "0, Cast"},
		{`INT('-2147483648')`, "-2147483648"},
		{`INT('-2147483649')`, "0, Cast"},
		{`INT('99999999999999999999999')`, "0, Cast"},
		{`BOOL('tRuE')`, "true"},
		{`BOOL('')`, "false, Cast"},
		{`STRING(-5)`, "'-5'"},
		{`STRING(FALSE)`, "'false'"},
		{`'abc' = 1`, "false, Cast"},
		{`'abc' = 0`, "false, Cast"},
		{`'x' + 1`, "0, Cast"},
		{`'1' IN (1, 2)`, "true"},
		{`1 IN ('1')`, "true"},
		{`'1' IN ('01')`, "false"},
		{`1 IN ('01')`, "true"},
		{`TRUE IN ('nonsense', 'true')`, "false, Cast"},
		{`TRUE IN ('true', 'nonsense')`, "true"}, // up to one that is equal
		{`FALSE IN (0)`, "true"},
		{`n IN (9, '7', 5, 'x')`, "true"},
		{`n IN (9, 'x', 5)`, "false, Cast"},
		{`n NOT IN (9, '7')`, "true"},
		{`seq IN (9, 10, TRUE)`, "true"},
		{`'true' IN (1, TRUE)`, "true"},
		{`n IN (seq, 5)`, "true"},
		{`n IN (flag, 'x')`, "false, Cast"},
	})
}

// The standard leaves overflow open; it is a MathError here.
func TestArithmeticOverflow(t *testing.T) {
	checkAll(t, newEvent(nil, ""), []evaluation{
		{`2147483647 + 1`, "0, Math"},
		{`-2147483648 - 1`, "0, Math"},
		{`65536 * 65536`, "0, Math"},
		{`- -2147483648`, "0, Math"},
		{`-2147483648 / -1`, "0, Math"},
		{`-2147483648 % -1`, "0"},
		{`-7 / 2`, "-3"},
		{`-7 % 2`, "-1"},
		{`7 % -2`, "1"},
		{`1 % 0`, "0, Math"},
	})
}

func TestFunctions(t *testing.T) {
	checkAll(t, newEvent(attrs{"n": 12}, ""), []evaluation{
		{`LOWER('ÀÉ')`, "'àé'"},
		{`UPPER('straße')`, "'STRAßE'"}, // character by character
		{"TRIM('\u00a0\u2003a\u200b\u3000')", "'a\u200b'"},
		{`concat_ws('-', n, TRUE, 'x')`, "'12-true-x'"},
		{`CONCAT_WS('-')`, "''"},
		{`LENGTH(n)`, "2"},
		{`LEFT('abc', '2')`, "'ab'"},
		{`LEFT('abc', 2147483647)`, "'abc'"},
		{`RIGHT('abc', 2147483647)`, "'abc'"},
		{`RIGHT('abc', 0)`, "''"},
		{`SUBSTRING('abc', 3)`, "'c'"},
		{`SUBSTRING('abc', 4)`, "'', FunctionEvaluation"},
		{`SUBSTRING('abc', -3, 2)`, "'ab'"},
		{`SUBSTRING('', 0)`, "''"},
		{`SUBSTRING('', 1)`, "'', FunctionEvaluation"},
		{`SUBSTRING('abc', 0, -1)`, "'', FunctionEvaluation"},
		{`SUBSTRING('abc', 2, 2147483647)`, "'bc'"},
		{`ABS('-3')`, "3"},
		{`NOSUCH(1)`, "false, MissingFunction"},
		{`ABS()`, "false, MissingFunction"},
		{`ABS(1, 2)`, "false, MissingFunction"},
		{`LOWER(UPPER(CONCAT('a', LOWER('B'))))`, "'ab'"},
		{`ABS(-2147483648)`, "2147483647, Math"},
		{`ABS(-2147483648) = 2147483647`, "false, Math"},
		{`LEFT('abc', -1)`, "'abc', FunctionEvaluation"},
		{`RIGHT('abc', -1)`, "'abc', FunctionEvaluation"},
		{`SUBSTRING('abc', -4)`, "'', FunctionEvaluation"},
		{`SUBSTRING('abc', -2147483648)`, "'', FunctionEvaluation"},
		{`SUBSTRING('🐻ä', 2)`, "'ä'"},
		{`CONCAT()`, "''"},
	})
}

func TestLike(t *testing.T) {
	long := strings.Repeat("a", 500)
	checkAll(t, newEvent(attrs{"s": "a\nb", "n": 234, "long": long}, ""), []evaluation{
		{`'' LIKE ''`, "true"},
		{`'' LIKE '%'`, "true"},
		{`'' LIKE '_'`, "false"},
		{`'abc' LIKE '%%'`, "true"},
		{`'abc' LIKE '_%_'`, "true"},
		{`'a' LIKE '_%_'`, "false"},
		{`'ab' LIKE 'ab%b'`, "false"}, // the b is not used twice
		{`'abcabd' LIKE '%ab_'`, "true"},
		{`'xabcabdx' LIKE '%ab_d%'`, "false"},
		{`'xababdx' LIKE '%ab_d%'`, "false"},
		{`'xabababdx' LIKE '%ab_bd%'`, "true"},
		{`'aXbXc' LIKE '%a_b%_c'`, "true"},
		{`'日本語テキスト' LIKE '%語_キ%'`, "true"},
		{`'日本語テキスト' LIKE '%語キ%'`, "false"},
		{`'🐻🐻' LIKE '__'`, "true"},
		{`'50%' LIKE '50\%'`, "true"},
		{`'50x' LIKE '50\%'`, "false"},
		{`'a\b' LIKE 'a\b'`, "true"},
		{`'a.c' LIKE 'a.c'`, "true"},
		{`'abc' LIKE 'a.c'`, "false"},
		{`'ABC' LIKE 'abc'`, "false"},
		{`s LIKE 'a_b'`, "true"},
		{`n LIKE '2_4'`, "true"},
		{`TRUE LIKE 't%'`, "true"},
		{`long LIKE '%a%a%a%a%a%a%a%a%a%a%a%b'`, "false"},
		{`long LIKE '%a_a%a_a%'`, "true"},
		{`CONCAT(long, 'b') LIKE '%` + long[:70] + `b%'`, "true"}, // the beginning occurs many times
		{`CONCAT(long, 'b') LIKE '%` + long[:70] + `b%b'`, "false"},
		{`CONCAT('x', long) LIKE '%` + long[:70] + `%` + long[:70] + `b%'`, "false"},
		{`'xαxβγx' LIKE '%β_%γ%'`, "false"},
		{`'xαxβδγx' LIKE '%γ_%' AND 'xαxβδγx' LIKE '%_γ%' AND 'xαxβδγx' LIKE '%β_γ_%'`, "true"},
		{`'xζηx' LIKE '%ζ_%' AND 'xζηx' LIKE '%_ζ_%' AND 'xζηx' NOT LIKE '%η_ζ%'`, "true"},
	})
}

// TestLikeIsThePlainDefinition compares matches with the definition of 3.4.3, on
// texts and patterns that almost match, with parts of all lengths.
func TestLikeIsThePlainDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"a", "b", "aa", "ab", "ä", "日", strings.Repeat("ab", 20), strings.Repeat("a", 33) + "b", strings.Repeat("a", 70)})
		subject := strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "subject"), "")
		pattern := ""
		for _, p := range rapid.SliceOfN(rapid.OneOf(piece, rapid.SampledFrom([]string{"%", "%", "_"})), 0, 8).Draw(t, "pattern") {
			pattern += p
		}
		x, err := cesql.Parse("s LIKE '"+pattern+"'", cesql.Options{})
		switch {
		case err == nil:
		case strings.Contains(pattern, "_"):
			t.Skip("too long a part with _:", err)
		default:
			t.Fatal(pattern, err)
		}
		var m cesql.Machine
		if got, want := m.Match(x, newEvent(attrs{"s": subject}, "")), like([]rune(subject), []rune(pattern)); got != want {
			t.Fatalf("'%s' LIKE '%s' is %t", subject, pattern, got)
		}
	})
}

// like has rows of a table: which beginnings of the text a beginning of the pattern
// matches.
func like(text, pattern []rune) bool {
	row := make([]bool, len(text)+1)
	row[0] = true
	for _, p := range pattern {
		next := make([]bool, len(text)+1)
		for i := range next {
			if p == '%' {
				next[i] = row[i] || i > 0 && next[i-1]
			} else {
				next[i] = i > 0 && row[i-1] && (p == '_' || p == text[i-1])
			}
		}
		row = next
	}
	return row[len(text)]
}

// 2.2: how values are written.
func TestLiterals(t *testing.T) {
	checkAll(t, newEvent(attrs{"myext": "v", "1st": "w"}, ""), []evaluation{
		{`'it\'s'`, "'it's'"},
		{`"it's"`, "'it's'"},
		{`'say "hi"'`, `'say "hi"'`},
		{`"say \"hi\""`, `'say "hi"'`},
		{`'a\nb'`, `'a\nb'`}, // no other escapes
		{`'\\'`, `'\\'`},
		{`"\'"`, `'\''`},
		{`''`, "''"},
		{"'line\nbreak'", "'line\nbreak'"},
		{`+5`, "5"},
		{`007`, "7"},
		{`-2147483648`, "-2147483648"},
		{`MyExt`, "'v'"},
		{`1st`, "'w'"},
		{" \t\r\n1 ", "1"},
		{`int ( '5' )`, "5"},
	})
}

// 1.2: whatever is not the Boolean true, or has an error beside it, passes
// nothing.
func TestOnlyTrueWithoutErrorPasses(t *testing.T) {
	e := newEvent(attrs{"flag": true, "off": false, "one": 1, "word": "true"}, `{"flag":true,"word":"true"}`)
	var m cesql.Machine
	for text, want := range map[string]bool{
		`TRUE`: true, `flag`: true, `data.flag`: true, `BOOL(word)`: true, `flag AND one`: true,
		`FALSE`: false, `off`: false, `one`: false, `word`: false, `data.word`: false, `1`: false, `'true'`: false,
		`nothing`: false, `nothing = 1 OR TRUE`: false, `TRUE AND 1 / 0 = 0`: false,
	} {
		if m.Match(mustParse(t, text), e) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}

// 1: evaluation must not mutate the event.
func TestEvaluationLeavesTheEventAlone(t *testing.T) {
	name, data := []byte("a\\b"), []byte(`{"s":"a\u0062c","n":1.50,"l":["x"]}`)
	e := &cesql.Event{}
	e.Set([]byte("ext"), cesql.TextValue(name))
	e.SetData(cesql.JSONData, data)
	before := string(name) + string(data)
	var m cesql.Machine
	for _, text := range []string{`UPPER(ext) = CONCAT(ext, data.s, data.n)`, `data.l[*] = 'y' OR TRIM(data.s) LIKE '%c'`, `SUBSTRING(LOWER(data.s), 2) = 'BC'`} {
		m.Eval(mustParse(t, text), e)
		if string(name)+string(data) != before {
			t.Fatalf("%s changed the event", text)
		}
	}
}
