// SPDX-License-Identifier: Apache-2.0

package cesql_test

import (
	"testing"

	"signalbox/internal/cesql"
)

const payload = ` {"severity": 4, "error_code": "E7", "none": null, "empty": "", "flag": true,
	"price": 10.50, "whole": 5.0, "thousand": 1e3, "big": 9007199254740993, "tiny": -0.000000000000000000001,
	"long": 123456789012345678901234567890.10, "text": "10", "max": 2147483648,
	"nested": {"a": {"b": [10, 20, {"c": "deep"}]}}, "esc\u0061ped": "tab\tquote\"\ud83d\udc3b",
	"error-code": "dash", "it's": 1, "": "no name", "a.b": "dot",
	"tags": ["red", "urgent"], "numbers": [1, 5.5, "x"], "nothing": [],
	"items": [{"code": "A", "n": 1}, {"n": 2}, {"code": "B", "n": 3, "parts": [{"id": 7}]}, null],
	"severity": 99}`

// TestDataPaths has the superset: values in data by their paths.
func TestDataPaths(t *testing.T) {
	e := newEvent(attrs{"source": "spiffe://domain/fleet/drones/7", "type": "system.alert", "code": "E7"}, payload)
	checkAll(t, e, []evaluation{
		{`EXISTS data.error_code AND source LIKE 'spiffe://domain/fleet/drones/%'`, "true"},
		{`type = 'system.alert' AND data.severity >= 4`, "true"}, // of two members of a name the first counts
		{`data.error_code = code`, "true"},
		{`DATA.severity`, "4"}, // the word folds, names of members do not
		{`data.Severity`, "false, MissingAttribute"},
		{`data.nested.a.b[1]`, "20"},
		{`data.nested.a.b[2].c`, "'deep'"},
		{`data.nested.a.b[3]`, "false, MissingAttribute"},
		{`data.nested[0]`, "false, MissingAttribute"},
		{`data.tags.red`, "false, MissingAttribute"},
		{`data.severity.more`, "false, MissingAttribute"},
		{`data.escaped`, "'tab\tquote\"🐻'"},
		{`LENGTH(data.escaped)`, "11"},
		{`data.'error-code'`, "'dash'"},
		{`data."it's"`, "1"},
		{`data.''`, "'no name'"},
		{`data.'a.b'`, "'dot'"},
		{`data.severity-1`, "3"},
		{`data.severity - 1 = 3 AND data.severity * 2 = 8`, "true"},
		{`data.none = ''`, "false, MissingAttribute"}, // null is the same as nothing
		{`EXISTS data.none`, "false"},
		{`EXISTS data.empty`, "true"},
		{`EXISTS data.nested.a`, "true"},
		{`EXISTS data`, "true"},
		{`NOT EXISTS data.nested.x AND NOT EXISTS data.tags[2]`, "true"},
		{`data.nested = 'x'`, "false, Cast"},
		{`'x' = data.tags`, "false, Cast"},
		{`data.nested IN ('x')`, "false, Cast"},
		{`data.flag`, "true"},
		{`data.flag AND TRUE`, "true"},
		{`data.text = 10`, "true"},
		{`data.text > 9`, "true"},
	})
}

// Numbers that are no Integers are compared exactly.
func TestDataNumbers(t *testing.T) {
	checkAll(t, newEvent(attrs{"temp": "10.5", "n": 5}, payload), []evaluation{
		{`data.whole`, "5"},
		{`data.thousand = 1000`, "true"},
		{`data.price`, "10.50"},
		{`data.price > 10 AND data.price < 11`, "true"},
		{`data.price = 10.5`, "true"},
		{`data.price = 10`, "false"},
		{`10 != data.price`, "true"},
		{`data.price >= 10.51`, "false"},
		{`data.price < 10.5000000000000000000000001`, "true"},
		{`-0.5 < data.tiny AND data.tiny < 0`, "true"},
		{`data.big > 2147483647 AND data.max > 2147483647`, "true"},
		{`data.big = '9007199254740993'`, "true"},
		{`data.big = '9007199254740992'`, "false"},
		{`'9007199254740993' = data.big`, "true"},
		{`'x' = data.big`, "false, Cast"},
		{`data.long > data.big`, "true"},
		{`data.long = data.long`, "true"},
		{`data.price + 1`, "0, Cast"},
		{`INT(data.price)`, "0, Cast"},
		{`STRING(data.price)`, "'10.50'"},
		{`data.price LIKE '10._0'`, "true"},
		{`NOT data.price`, "false"},
		{`temp = data.price`, "true"},
		{`temp > data.whole`, "false, Cast"}, // two Integers, as in the standard
		{`temp >= data.price`, "true"},
		{`data.price IN (10, 10.5)`, "true"},
		{`n IN (data.price, 5)`, "true"},
		{`data.price IN (9.5, '10.500', 11)`, "true"},
		{`data.price IN ('x', 10.5)`, "false, Cast"},
		{`data.whole IN (5.5, 5)`, "true"}, // 5.0 is an Integer, and 5.5 is none
		{`data.whole LIKE '5'`, "true"},    // whose text is that of the Integer
		{`data.price IN (TRUE)`, "false"},
		{`data.flag IN (0.5)`, "true"},
		{`data.severity < 4.5`, "true"},
		{`2.0`, "2"},
		{`-0.0`, "0"},
		{`+1.5 = 1.50`, "true"},
		{`00.5 < 1`, "true"},
	})
}

// A path with [*] asks whether there is an element.
func TestDataAnyElement(t *testing.T) {
	e := newEvent(attrs{"want": "urgent"}, payload)
	checkAll(t, e, []evaluation{
		{`data.tags[*] = 'urgent'`, "true"},
		{`'urgent' = data.tags[*]`, "true"},
		{`data.tags[*] = want`, "true"},
		{`data.tags[*] = 'blue'`, "false"},
		{`data.tags[*] != 'urgent'`, "false"}, // the same as NOT (… = …)
		{`data.tags[*] != 'blue'`, "true"},
		{`data.tags[*] LIKE 'u%'`, "true"},
		{`data.tags[*] NOT LIKE 'u%'`, "false"},
		{`data.tags[*] IN ('blue', 'red')`, "true"},
		{`data.tags[*] NOT IN ('blue', 'green')`, "true"},
		{`data.numbers[*] IN (5.50)`, "true"},
		{`data.numbers[*] IN (7, 6)`, "false"}, // as texts, for "x"
		{`data.items[*] IN (1)`, "false, Cast"},
		{`data.numbers[*] > 5`, "true"}, // an error counts only if none passes
		{`data.numbers[*] > 6`, "false, Cast"},
		{`data.numbers[*] < 1`, "false, Cast"},
		{`5 < data.numbers[*]`, "true"},
		{`data.items[*].code = 'B'`, "true"},
		{`data.items[*].code = 'C'`, "false"}, // elements without it are passed over
		{`data.items[*].parts[*].id = 7`, "true"},
		{`data.items[*].parts[0].id = 7`, "true"},
		{`EXISTS data.items[*].code`, "true"},
		{`EXISTS data.items[*].x`, "false"},
		{`EXISTS data.nothing[*]`, "false"},
		{`data.nothing[*] = 'x'`, "false"}, // no element, and no error
		{`data.nothing[*] != 'x'`, "true"},
		{`data.absent[*] = 'x'`, "false, MissingAttribute"},
		{`data.absent[*] != 'x'`, "false, MissingAttribute"},
		{`data.severity[*] = 4`, "false, MissingAttribute"}, // no array
		{`data.tags[*] = nothing`, "false, MissingAttribute"},
		{`NOT (data.tags[*] = 'blue') AND data.tags[*] = 'red'`, "true"},
	})
	checkAll(t, newEvent(nil, `[[1,2],[3]]`), []evaluation{
		{`data[*][*] = 3`, "true"},
		{`data[*][1] = 2`, "true"},
		{`data[1][0]`, "3"},
		{`data[*] = 3`, "false, Cast"},
	})
	checkAll(t, newEvent(nil, `"text"`), []evaluation{{`data`, "'text'"}, {`data = 'text'`, "true"}})
}

// Data that is no JSON has no paths; malformed JSON is found out where it is met.
func TestDataThatIsNoJSON(t *testing.T) {
	e := newEvent(nil, "")
	checkAll(t, e, []evaluation{
		{`EXISTS data`, "false"},
		{`EXISTS data.a`, "false"},
		{`EXISTS data[*]`, "false"},
		{`data.a = 1`, "false, MissingAttribute"},
		{`data[*] = 1`, "false, MissingAttribute"},
	})
	e.SetData(cesql.OtherData, []byte(`{"a":1}`))
	checkAll(t, e, []evaluation{
		{`EXISTS data`, "true"},
		{`EXISTS data.a`, "false"},
		{`data.a = 1`, "false, MissingAttribute"},
	})
	for _, bad := range []string{` `, `{`, `{"a"`, `{"a":`, `{"a" 1}`, `{"b":1,`, `{"b":1 "a":1}`, `{"b":"x\"}`, `{"b":[}`, `{"a":tru}`,
		`{"a":-}`, `{"a":01e}`, `{"a":"`, `{b:1}`, `{"b":}`, `{"b":[1,{"x":"]"}`} {
		if got := evaluate(t, `data.a = 1`, newEvent(nil, bad)); got != "false, Generic" {
			t.Errorf("%s: %s", bad, got)
		}
	}
	for _, bad := range []string{`[`, `[1`, `[1,`, `[1 2]`, `[tru]`, `[1,]`} {
		if got := evaluate(t, `data[*] = 7`, newEvent(nil, bad)); got != "false, Generic" {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

// A tombstone passes a filter whose evaluation touched data.
func TestTouchedData(t *testing.T) {
	var m cesql.Machine
	for text, want := range map[string]bool{
		`type = 'test' AND data.a = 1`:  true,
		`type = 'other' AND data.a = 1`: false,
		`type = 'test' OR data.a = 1`:   false,
		`EXISTS data`:                   true,
		`EXISTS data.a`:                 true,
		`EXISTS data[*].a`:              true,
		`data[*] = 1`:                   true,
		`type = 'test'`:                 false,
	} {
		m.Match(mustParse(t, text), newEvent(nil, ""))
		if m.TouchedData() != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
	if mustParse(t, `type = 'a'`).UsesData() || !mustParse(t, `EXISTS data`).UsesData() {
		t.Error("UsesData is wrong")
	}
}

func TestStrictRefusesTheSuperset(t *testing.T) {
	for _, text := range []string{`data.a = 1`, `EXISTS data.a`, `EXISTS data`, `data`, `Data[0] = 1`, `n > 1.5`} {
		if _, err := cesql.ParseFilter(text, cesql.Options{Strict: true}); err == nil {
			t.Errorf("%s: no error", text)
		}
		if _, err := cesql.Parse(text, cesql.Options{}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
