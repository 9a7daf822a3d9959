// SPDX-License-Identifier: Apache-2.0

package cesql_test

import (
	"errors"
	"strings"
	"testing"

	"signalbox/internal/cesql"
)

func TestSyntaxErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, `line 1, column 1: the expression is empty`},
		{" \n ", `line 2, column 2: the expression is empty`},
		{`type = `, `line 1, column 8: expected a value, found the end`},
		{`ABC(`, `line 1, column 5: expected a value, found the end`},
		{`x LIKE 123`, `line 1, column 8: expected a pattern as a string, found 123`},
		{`x LIKE y`, `line 1, column 8: expected a pattern as a string, found y`},
		{`x NOT y`, `line 1, column 3: expected an operator or the end, found NOT`},
		{`2147483648 = 1`, `line 1, column 1: 2147483648 is not in the range of an Integer, -2147483648 to 2147483647`},
		{`1 - 2147483649`, `line 1, column 5: 2147483649 is not in the range of an Integer, -2147483648 to 2147483647`},
		{`type = 'a`, `line 1, column 8: the string that begins here has no closing '`},
		{`type = 'a\'`, `line 1, column 8: the string that begins here has no closing '`},
		{`type = 'it''s'`, `line 1, column 12: a quotation mark inside a string is written \'`},
		{`type == 'a'`, `line 1, column 6: equality is written =`},
		{`a = 1 && b = 2`, `line 1, column 7: the operators are written AND and OR`},
		{`a = 1 || b = 2`, `line 1, column 7: the operators are written AND and OR`},
		{strings.Repeat("9", 50), `line 1, column 1: 9999999999999999999999999999999999999999… is not in the range of an Integer, -2147483648 to 2147483647`},
		{`type ! 'a'`, `line 1, column 6: the operator is written != or NOT`},
		{"ä = 'a'", `line 1, column 1: 'ä' has no meaning here`},
		{"type\n  = ‘a’", `line 2, column 5: strings stand between ' and ' or between " and "`},
		{`EXISTS 'a'`, `line 1, column 8: expected the name of an attribute after EXISTS, found 'a'`},
		{`EXISTS (a)`, `line 1, column 8: expected the name of an attribute after EXISTS, found (`},
		{`EXISTS and`, `line 1, column 8: expected the name of an attribute after EXISTS, found and`},
		{`my_ext = 1`, `line 1, column 1: the name of an attribute has letters and digits only`},
		{`order.id = 1`, `line 1, column 6: only data has members, as in data.order.id`},
		{`a1(2) = 1`, `line 1, column 1: the name of a function has letters and _ only, a letter first`},
		{`(a = 1`, `line 1, column 7: expected ), found the end`},
		{`a = 1)`, `line 1, column 6: expected an operator or the end, found )`},
		{`a IN ()`, `line 1, column 7: the list after IN is empty`},
		{`a IN (1,)`, `line 1, column 9: expected a value, found )`},
		{`a IN (1 2)`, `line 1, column 9: expected , or ), found 2`},
		{`a IN 1`, `line 1, column 6: expected ( and the values after IN, found 1`},
		{`+ 5`, `line 1, column 1: + can stand before digits, or between two values`},
		{`data. = 1`, `line 1, column 6: expected the name of a member; what is not of letters, digits and _ is quoted: data.'a-b'`},
		{`data[x] = 1`, `line 1, column 5: expected [*] or the number of an element, from 0, as in [2]`},
		{`data[-1] = 1`, `line 1, column 5: expected [*] or the number of an element, from 0, as in [2]`},
		{`data[1 = 1`, `line 1, column 5: expected [*] or the number of an element, from 0, as in [2]`},
		{`data[*]`, `line 1, column 1: a path with [*] can only be compared, or stand with LIKE, EXISTS or on the left of IN`},
		{`data[*] + 1 = 2`, `line 1, column 1: a path with [*] can only be compared, or stand with LIKE, EXISTS or on the left of IN`},
		{`LOWER(data.a[*]) = 'a'`, `line 1, column 7: a path with [*] can only be compared, or stand with LIKE, EXISTS or on the left of IN`},
		{`NOT data[*]`, `line 1, column 5: a path with [*] can only be compared, or stand with LIKE, EXISTS or on the left of IN`},
		{`1 IN (data[*])`, `line 1, column 7: a path with [*] can only be compared, or stand with LIKE, EXISTS or on the left of IN`},
		{`a = 1 AND data.a[*]`, `line 1, column 11: a path with [*] can only be compared, or stand with LIKE, EXISTS or on the left of IN`},
		{`data.a[*] IN ('x', type)`, `line 1, column 20: with [*] on its left, IN takes only literal values`},
		{`data.a[*] = data.b[*]`, `line 1, column 11: only one side of = may have [*]`},
		{"a = '\xff'", `line 1, column 6: the expression is not UTF-8`},
	} {
		_, err := cesql.Parse(c.text, cesql.Options{})
		var fault *cesql.SyntaxError
		if !errors.As(err, &fault) || err.Error() != c.want {
			t.Errorf("%s: %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestCaret(t *testing.T) {
	long := strings.Repeat("a = 'x' OR ", 20)
	for _, c := range []struct{ text, want string }{
		{`type = `, "type = \n       ^"},
		{"type = 'ä' AND\n\tsubject LIKE 5 OR x\n= 1", "\tsubject LIKE 5 OR x\n\t             ^"},
		{long + "? " + long, "…OR a = 'x' OR a = 'x' OR a = 'x' OR ? a = 'x' OR a = 'x' OR a = 'x' OR a…\n" + strings.Repeat(" ", 37) + "^"},
		{"a = 'x' \x1b[31m", "a = 'x' \ufffd[31m\n        ^"},
		{"a = '\u202ex' #", "a = '\ufffdx' #\n         ^"}, // it would be shown from right to left
		{"a = '日本語' #", "a = '日本語' #\n             ^"},     // two cells each
		{"a = '🐻e\u0301' #", "a = '🐻e\u0301' #\n          ^"},
		{"a = 1 AND\r\nb #\r\nc", "b #\n  ^"},
		{"a =\r\n", "\n^"},
	} {
		_, err := cesql.Parse(c.text, cesql.Options{})
		var fault *cesql.SyntaxError
		if !errors.As(err, &fault) {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got := fault.Caret(); got != c.want {
			t.Errorf("%q:\n%s\nwant\n%s", c.text, got, c.want)
		}
	}
}

// A filter that could never select anything, or that has a part which could only
// fail, is refused when it is made.
func TestFiltersThatCannotWork(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`'a'`, `line 1, column 1: a filter must be a Boolean, and this is always of type String`},
		{`1 + 1`, `line 1, column 1: a filter must be a Boolean, and this is always of type Integer`},
		{`LOWER(type)`, `line 1, column 1: a filter must be a Boolean, and this is always of type String`},
		{`NOSUCHFN(1)`, `line 1, column 1: there is no function NOSUCHFN; there are LENGTH, CONCAT, CONCAT_WS, LOWER, UPPER, TRIM, LEFT, RIGHT, SUBSTRING, ABS, INT, BOOL, STRING`},
		{`ABS(1, 2) = 1`, `line 1, column 1: ABS takes another number of arguments`},
		{`data.severity >= 'high'`, `line 1, column 18: >= needs a value of type Number here, and 'high' never is one`},
		{`data.price > '1.5'`, `line 1, column 14: > needs a value of type Number here, and '1.5' never is one`},
		{`n + 'x' = 1`, `line 1, column 5: + needs a value of type Integer here, and 'x' never is one`},
		{`type = 'a' OR 'b'`, `line 1, column 15: OR needs a value of type Boolean here, and 'b' never is one`},
		{`type = 'a' AND flag OR 'b'`, `line 1, column 24: OR needs a value of type Boolean here, and 'b' never is one`},
		{`'abc' = 1`, `line 1, column 1: = needs a value of type Integer here, and 'abc' never is one`},
		{`LEFT(type, 'x') = 'a'`, `line 1, column 12: LEFT needs a value of type Integer here, and 'x' never is one`},
	} {
		if _, err := cesql.ParseFilter(c.text, cesql.Options{}); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v\nwant %s", c.text, err, c.want)
		}
		if _, err := cesql.Parse(c.text, cesql.Options{}); err != nil {
			t.Errorf("%s: as an expression: %v", c.text, err)
		}
	}
	for _, text := range []string{`flag`, `data.flag`, `type = 'z' AND (1 != 1 / 0)`, `x > 3 AND flag = FALSE`, `'5' + 1 = 6`, `'TRUE' AND flag`} {
		if _, err := cesql.ParseFilter(text, cesql.Options{}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestLimits: each limit lets as much pass as it says and no more.
func TestLimits(t *testing.T) {
	list := func(n int, element string) string { return strings.TrimSuffix(strings.Repeat(element+",", n), ",") }
	paths := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = "EXISTS data[" + strings.Repeat("1", i%7+1) + "]." + strings.Repeat("a", i/7+1)
		}
		return strings.Join(all, " AND ")
	}
	for _, c := range []struct{ name, ok, over, message string }{
		{"length", "a='" + strings.Repeat("x", cesql.MaxBytes-4) + "'", "a='" + strings.Repeat("x", cesql.MaxBytes-3) + "'", "bytes, the limit is"},
		{"parentheses", strings.Repeat("(", cesql.MaxDepth-1) + "a" + strings.Repeat(")", cesql.MaxDepth-1), strings.Repeat("(", cesql.MaxDepth) + "a" + strings.Repeat(")", cesql.MaxDepth), "nested deeper"},
		{"operators", "1" + strings.Repeat("+1", cesql.MaxDepth), "1" + strings.Repeat("+1", cesql.MaxDepth+1), "nested deeper"},
		{"unary", strings.Repeat("NOT ", cesql.MaxDepth-1) + "a", strings.Repeat("NOT ", cesql.MaxDepth+1) + "a", "nested deeper"},
		{"list", "a IN (" + list(cesql.MaxList, "1") + ")", "a IN (" + list(cesql.MaxList+1, "1") + ")", "more than"},
		{"arguments", "CONCAT(" + list(cesql.MaxList, "a") + ")", "CONCAT(" + list(cesql.MaxList+1, "a") + ")", "more than"},
		{"patterns", "a LIKE ''" + strings.Repeat(" OR a LIKE ''", cesql.MaxLikes-1), "a LIKE ''" + strings.Repeat(" OR a LIKE ''", cesql.MaxLikes), "patterns"},
		{"pattern segment", "a LIKE '%_" + strings.Repeat("x", cesql.MaxLikeSegment-1) + "%'", "a LIKE '%_" + strings.Repeat("x", cesql.MaxLikeSegment) + "%'", "between two %"},
		{"pattern searches", "a LIKE '%" + strings.Repeat("a_%", cesql.MaxLikeSearches) + "'", "a LIKE '%" + strings.Repeat("a_%", cesql.MaxLikeSearches+1) + "'", "parts with _"},
		{"calls", "CONCAT(" + list(cesql.MaxCalls-1, "CONCAT()") + ")", "CONCAT(" + list(cesql.MaxCalls, "CONCAT()") + ")", "functions"},
		{"paths", paths(cesql.MaxPaths), paths(cesql.MaxPaths + 1), "different paths"},
		{"any elements", "EXISTS data[*]" + strings.Repeat(" OR EXISTS data[*]", cesql.MaxAnys-1), "EXISTS data[*]" + strings.Repeat(" OR EXISTS data[*]", cesql.MaxAnys), "uses [*] more than"},
		{"list for any element", "data[*] IN (" + list(cesql.MaxAnyList, "1") + ")", "data[*] IN (" + list(cesql.MaxAnyList+1, "1") + ")", "at most"},
		{"path steps", "EXISTS data" + strings.Repeat(".a", cesql.MaxPathSteps), "EXISTS data" + strings.Repeat(".a", cesql.MaxPathSteps+1), "steps"},
	} {
		if _, err := cesql.Parse(c.ok, cesql.Options{}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := cesql.Parse(c.over, cesql.Options{}); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: over the limit: %v", c.name, err)
		}
	}
	zeros := strings.Repeat("0", cesql.MaxInteger)
	for text, want := range map[string]string{
		`INT('` + zeros[1:] + `7')`: "7",
		`INT('` + zeros + `7')`:     "0, Cast",
		`data.a < data.b`:           "true",
		`data.c < data.b`:           "false, Generic",
	} {
		digits := strings.Repeat("9", cesql.MaxNumber)
		if got := evaluate(t, text, newEvent(nil, `{"a":`+digits[1:]+`,"b":`+digits+`,"c":`+digits+`9}`)); got != want {
			t.Errorf("%.80s: %s, want %s", text, got, want)
		}
	}
	long := newEvent(attrs{"a": strings.Repeat("x", cesql.MaxText), "b": "y"}, "")
	for text, want := range map[string]string{
		`LENGTH(CONCAT(a)) = LENGTH(UPPER(a))`: "true",
		`LENGTH(CONCAT(a, b))`:                 "0, FunctionEvaluation",
		`UPPER(CONCAT('ɐ', LEFT(a, 65534)))`:   "'', FunctionEvaluation", // Ɐ has one byte more
	} {
		if got := evaluate(t, text, long); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if _, err := cesql.Parse(strings.Repeat("(", 100_000)+"type='a'"+strings.Repeat(")", 100_000), cesql.Options{}); err == nil {
		t.Error("a hundred thousand parentheses were taken")
	}
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`((Type="a")) and not exists SUBJECT`, `type = 'a' AND NOT EXISTS subject`},
		{`a<>1 or(b>=2)xor c`, `a != 1 OR b >= 2 XOR c`},
		{`(a OR b) AND (c AND d)`, `(a OR b) AND (c AND d)`},
		{`((a + 1) * 2) - (3 - 4)`, `(a + 1) * 2 - (3 - 4)`},
		{`- 5 + -5 - -a`, `- 5 + -5 - - a`},
		{`NOT (a = 1)`, `NOT (a = 1)`},
		{`(NOT a) = 1`, `NOT a = 1`},
		{`a not  like "x'y" and b Not In(1,(2))`, `a NOT LIKE "x'y" AND b NOT IN (1, 2)`},
		{`concat_WS ( ',', a )`, `CONCAT_WS(',', a)`},
		{`data . a = 1`, ``},
		{`data.a.'b'.'c-d'[0][*] = 007`, `data.a.b.'c-d'[0][*] = 7`},
		{`true AND x > 1.50`, `TRUE AND x > 1.50`},
		{`data."a\'b\"c" = 1 AND data."d-e" = 2`, `data."a\'b\"c" = 1 AND data.'d-e' = 2`},
		{`(a IN (1)) LIKE 'x'`, `(a IN (1)) LIKE 'x'`},
	} {
		x, err := cesql.Parse(c.text, cesql.Options{})
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: no error", c.text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := x.Canonical(); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}
