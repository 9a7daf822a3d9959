// SPDX-License-Identifier: Apache-2.0

package filter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"signalbox/event"
	"signalbox/internal/cesql"
	"signalbox/internal/filter"
)

// newRecord decodes an event as it is published and reads it as it is stored.
func newRecord(t testing.TB, object string) *filter.Record {
	t.Helper()
	e, err := event.DecodeJSON([]byte(object))
	if err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	members, _, _ := e.AppendMembers(nil)
	r := &filter.Record{}
	r.Fill(filter.Delivered{Topic: "fleet.tasks", Position: 105, HLC: e.HLC()}, members)
	return r
}

func required(more string) string {
	return `{"specversion":"1.0","id":"1","source":"/s","type":"a.b"` + more + `}`
}

func mustDocument(t testing.TB, document string) *filter.Filter {
	t.Helper()
	f, err := filter.ParseDocument([]byte(document))
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return f
}

func mustText(t testing.TB, text string) *filter.Filter {
	t.Helper()
	f, err := filter.ParseText(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return f
}

// TestDialects has each dialect of Subscriptions API 3.2.4.1 with an event that
// passes and one that does not.
func TestDialects(t *testing.T) {
	with := newRecord(t, required(`,"subject":"orders/7","n":5,"flag":true,"data":{"total":12.5}`))
	without := newRecord(t, `{"specversion":"1.0","id":"2","source":"/other","type":"c"}`)
	for _, c := range []struct {
		document      string
		with, without bool
	}{
		{`[]`, true, true},
		{`[{"exact":{"type":"a.b"}}]`, true, false},
		{`[{"exact":{"type":"A.B"}}]`, false, false},
		{`[{"exact":{"type":"a.b","subject":"orders/8"}}]`, false, false},
		{`[{"exact":{"n":"5","flag":"true"}}]`, true, false}, // canonical strings, as a header would have them
		{`[{"prefix":{"type":"a.","subject":"orders/"}}]`, true, false},
		{`[{"prefix":{"n":"5"}},{"suffix":{"flag":"ue"}}]`, true, false},
		{`[{"suffix":{"subject":"/7"}}]`, true, false},
		{`[{"exact":{"type":"a.b"}},{"exact":{"source":"/other"}}]`, false, false},
		{`[{"all":[{"exact":{"type":"a.b"}},{"prefix":{"source":"/"}}]}]`, true, false},
		{`[{"any":[{"exact":{"type":"c"}},{"prefix":{"subject":"orders"}}]}]`, true, true},
		{`[{"not":{"exact":{"type":"a.b"}}}]`, false, true},
		{`[{"not":{"exact":{"subject":"orders/7"}}}]`, false, true}, // also where there is no subject
		{`[{"not":{"not":{"exact":{"type":"a.b"}}}}]`, true, false},
		{`[{"sql":"type LIKE 'a%' AND n > 4"}]`, true, false},
		{`[{"cesql":"data.total >= 12"}]`, true, false}, // as Knative spells it
		{`[{"sql":"n > 4"}]`, true, false},
		{`[{"not":{"sql":"n > 4"}}]`, false, true}, // an error is false, and not inverts that
		{`[{"sql":"topic = 'fleet.tasks' AND EXISTS position AND EXISTS hlc"}]`, true, true},
		{` [ { "exact" : { "type" : "a\u002eb" } } ] `, true, false},
	} {
		f := mustDocument(t, c.document)
		var m filter.Machine
		for r, want := range map[*filter.Record]bool{with: c.with, without: c.without} {
			if m.Match(f, r.Event()) != want {
				t.Errorf("%s: %v", c.document, !want)
			}
			if x := m.Explain(f, r.Event()); x.Passes != want {
				t.Errorf("%s: explained as %v", c.document, x)
			}
		}
	}
}

// TestInvalidFiltersAreRefused: none of them panics, matches everything or is
// taken for something else, and the place at fault is named.
func TestInvalidFiltersAreRefused(t *testing.T) {
	deep := func(n int) string {
		return `[` + strings.Repeat(`{"all":[`, n) + `{"exact":{"a":"b"}}` + strings.Repeat(`]}`, n) + `]`
	}
	for _, c := range []struct{ document, code, field string }{
		{`[{"exact":{"subject":""}}]`, "filter_invalid", "filters/0/exact/subject"},
		{`[{"exact":{"":"a"}}]`, "filter_invalid", "filters/0/exact/"},
		{`[{"exact":{"Type":"a"}}]`, "filter_invalid", "filters/0/exact/Type"},
		{`[{"exact":{"data":"a"}}]`, "filter_invalid", "filters/0/exact/data"},
		{`[{"exact":{"n":5}}]`, "filter_invalid", "filters/0/exact/n"},
		{`[{"prefix":{}}]`, "filter_invalid", "filters/0/prefix"},
		{`[{"all":[]}]`, "filter_invalid", "filters/0/all"},
		{`[{"any":[]}]`, "filter_invalid", "filters/0/any"},
		{`[{"any":[{"exact":{"a":"b"}},{"not":{}}]}]`, "filter_invalid", "filters/0/any/1/not"},
		{`[{"not":[]}]`, "filter_invalid", "filters/0/not"},
		{`[{}]`, "filter_invalid", "filters/0"},
		{`[null]`, "filter_invalid", "filters/0"},
		{`{"exact":{"type":"a"}}`, "filter_invalid", "filters"},
		{`null`, "filter_invalid", "filters"},
		{``, "filter_invalid", "filters"},
		{`[`, "filter_invalid", "filters"},
		{`[{"exact":{"a":"b","a":"c"}}]`, "filter_invalid", "filters/0/exact/a"},
		{`[{"exact":{"a":"b"},"exact":{"a":"c"}}]`, "filter_invalid", "filters/0/exact"},
		{`[{"exact":{"a":"b"},"prefix":{"a":"c"}}]`, "filter_invalid", "filters/0/prefix"},
		{`[] []`, "filter_invalid", "filters"},
		{"[{\"exact\":{\"a\":\"\xff\"}}]", "filter_invalid", "filters/0/exact/a"},
		{`[{"regex":{"type":".*"}}]`, "filter_unsupported", "filters/0/regex"},
		{`[{"all":[{"EXACT":{"type":"a"}}]}]`, "filter_unsupported", "filters/0/all/0/EXACT"},
		{`[{"sql":5}]`, "filter_invalid", "filters/0/sql"},
		{`[{"sql":""}]`, "filter_invalid", "filters/0/sql"},
		{`[{"sql":"x LIKE 123"}]`, "filter_invalid", "filters/0/sql"},
		{`[{"sql":"ABC("}]`, "filter_invalid", "filters/0/sql"},
		{`[{"cesql":"2147483648 = 1"}]`, "filter_invalid", "filters/0/cesql"},
		{`[{"sql":"type = 'a"}]`, "filter_invalid", "filters/0/sql"},
		{`[{"sql":"NOSUCHFN(1)"}]`, "filter_invalid", "filters/0/sql"},
		{`[{"sql":"` + strings.Repeat("(", 10000) + `"}]`, "filter_invalid", "filters/0/sql"},
		{`[{"sql":"` + strings.Repeat("x", 1<<20) + `"}]`, "filter_invalid", "filters"},
		{deep(10_000), "filter_invalid", "filters"},
		{deep(16), "filter_invalid", "filters" + strings.Repeat("/0/all", 16)},
		{`[{"exact":{` + strings.TrimSuffix(strings.Repeat(`"a":"b",`, 1), ",") + `}}` + strings.Repeat(`,{"exact":{"a":"b"}}`, filter.MaxParts) + `]`, "filter_invalid", "filters/256/exact/a"},
	} {
		_, err := filter.ParseDocument([]byte(c.document))
		var e *event.Error
		if !errors.As(err, &e) || string(e.Code) != c.code || e.Field != c.field {
			t.Errorf("%.80s: %v, field %q; want %s, field %q", c.document, err, fieldOf(err), c.code, c.field)
		}
	}
	if _, err := filter.ParseDocument([]byte(deep(15))); err != nil {
		t.Error(err)
	}
}

func fieldOf(err error) string {
	if e := event.AsError(err); e != nil {
		return e.Field
	}
	return ""
}

// A fault in an expression is told with its place, and the line with a caret.
func TestFaultsInExpressionsHaveAPlace(t *testing.T) {
	_, err := filter.ParseText("type = 'a' AND\nsubject LIKE 5")
	e := event.AsError(err)
	if e == nil || e.Field != "filter" || e.Facts["offset"] != 28 || e.Facts["line"] != 2 || e.Facts["column"] != 14 ||
		e.Facts["caret"] != "subject LIKE 5\n             ^" {
		t.Errorf("%v, %+v", err, e.Facts)
	}
}

// TestCanonicalForms: what means the same by the rules has the same form, and
// what does not has another.
func TestCanonicalForms(t *testing.T) {
	for _, same := range [][]string{
		{`[]`, `[]`},
		{`[{"exact":{"a":"1","b":"2"}}]`, `[{"exact":{"b":"2"}},{"exact":{"a":"1"}}]`, `[{"all":[{"exact":{"a":"1"}},{"all":[{"exact":{"b":"2"}},{"exact":{"a":"1"}}]}]}]`},
		{`[{"exact":{"a":"1"}}]`, `[{"any":[{"exact":{"a":"1"}}]}]`, `[{"not":{"not":{"exact":{"a":"1"}}}}]`},
		{`[{"any":[{"exact":{"a":"1"}},{"any":[{"suffix":{"b":"2"}},{"exact":{"c":"3"}}]}]}]`, `[{"any":[{"exact":{"c":"3"}},{"exact":{"a":"1"}},{"suffix":{"b":"2"}}]}]`},
		{`[{"sql":"type='a'  and (n) > 5"}]`, `[{"cesql":"Type = \"a\" AND n > 5"}]`},
	} {
		first := mustDocument(t, same[0]).Canonical()
		for _, other := range same[1:] {
			if got := mustDocument(t, other).Canonical(); got != first {
				t.Errorf("%s is %s, and %s is %s", same[0], first, other, got)
			}
		}
	}
	seen := map[string]string{}
	for _, different := range []string{
		`[]`, `[{"exact":{"a":"1"}}]`, `[{"prefix":{"a":"1"}}]`, `[{"not":{"exact":{"a":"1"}}}]`,
		`[{"exact":{"a":"1\", exact b \"2"}}]`, `[{"exact":{"a":"1","b":"2"}}]`, `[{"any":[{"exact":{"a":"1"}},{"exact":{"b":"2"}}]}]`,
		`[{"sql":"a = '1'"}]`, `[{"sql":"a = '1' AND b = '2'"}]`, `[{"sql":"b = '2' AND a = '1'"}]`,
	} {
		c := mustDocument(t, different).Canonical()
		if other, has := seen[c]; has {
			t.Errorf("%s and %s are both %s", different, other, c)
		}
		seen[c] = different
	}
}

// TestRecordsAreTheEventsAsDelivered: filters see every attribute, whatever its
// form in JSON.
func TestRecordsAreTheEventsAsDelivered(t *testing.T) {
	r := newRecord(t, required(`,"subject":"say \"hi\" \\ 🐻","time":"2026-11-29T12:00:00Z","n":-7,"flag":false,"hlc":"1764422645000.00001","datacontenttype":"application/json","data":{"a":"}"}`))
	for text, want := range map[string]bool{
		`specversion = '1.0' AND id = '1' AND source = '/s' AND type = 'a.b'`:     true,
		`subject = 'say "hi" \ 🐻'`:                                                true,
		`n = -7 AND flag = FALSE AND time = '2026-11-29T12:00:00Z'`:               true,
		`topic = 'fleet.tasks' AND position = 105 AND hlc LIKE '1764422645000.%'`: true,
		`EXISTS superseded`: false,
		`datacontenttype = 'application/json' AND EXISTS data AND data.a = '}'`: true,
	} {
		var m filter.Machine
		if got := m.Match(mustText(t, text), r.Event()); got != want {
			t.Errorf("%s: %v (%v)", text, got, m.Errors())
		}
	}
	for _, c := range []struct {
		members    string
		some, path bool
	}{
		{``, false, false},
		{`,"data":{"a":1}`, true, true},
		{`,"datacontenttype":"application/vnd.x+json; charset=utf-8","data":{"a":1}`, true, true},
		{`,"datacontenttype":"application/json","data_base64":"eyJhIjoxfQ=="`, true, true}, // {"a":1}
		{`,"datacontenttype":"text/plain","data":"{\"a\":1}"`, true, false},
		{`,"data_base64":"eyJhIjoxfQ=="`, true, false},
		{`,"data":null`, true, false},
	} {
		var m filter.Machine
		e := newRecord(t, required(c.members)).Event()
		if m.Match(mustText(t, `EXISTS data`), e) != c.some || m.Match(mustText(t, `data.a = 1`), e) != c.path {
			t.Errorf("%s: data is not what it should be", c.members)
		}
	}
}

// A record reads whatever bytes it is given without panicking.
func TestRecordsOfDamagedMembers(t *testing.T) {
	whole := `"specversion":"1.0","id":"1","n":5,"flag":true,"s":"a\"b","datacontenttype":"application/json","data":{"a":[1,2]}}`
	var r filter.Record
	var m filter.Machine
	f := mustText(t, `EXISTS s OR data.a[1] = 2`)
	for i := range whole {
		r.Fill(filter.Delivered{}, []byte(whole[:i]))
		m.Match(f, r.Event())
		r.Fill(filter.Delivered{}, []byte(whole[i:]))
		m.Match(f, r.Event())
	}
}

// A tombstone passes a filter whose evaluation touched data; otherwise its own
// attributes decide.
func TestTombstones(t *testing.T) {
	r := newRecord(t, required(`,"subject":"k"`))
	for document, want := range map[string]bool{
		`[{"sql":"data.status = 'open'"}]`:                                                                         true,
		`[{"sql":"type = 'a.b' AND data.status = 'open'"}]`:                                                        true,
		`[{"sql":"type = 'c' AND data.status = 'open'"}]`:                                                          false,
		`[{"sql":"type = 'c'"}]`:                                                                                   false,
		`[{"sql":"type = 'a.b'"}]`:                                                                                 true,
		`[{"exact":{"type":"c"}},{"sql":"data.status = 'open'"}]`:                                                  false,
		`[{"any":[{"exact":{"type":"c"}},{"sql":"data.s = 'open'"}]}]`:                                             true,
		`[{"not":{"sql":"EXISTS data.x"}}]`:                                                                        true,
		`[{"sql":"EXISTS data"},{"exact":{"subject":"some other thing"}}]`:                                         false, // what looks into data comes last, wherever it stands
		`[{"sql":"EXISTS data"},{"suffix":{"type":".c"}}]`:                                                         false,
		`[{"sql":"data.s = 'open'"},{"sql":"type = 'c'"}]`:                                                         false,
		`[{"any":[{"sql":"data.s = 'open'"},{"sql":"data.s = 'new'"}]},{"exact":{"type":"c"}}]`:                    false,
		`[{"any":[{"all":[{"not":{"sql":"EXISTS data.x"}},{"suffix":{"type":".c"}}]},{"exact":{"source":"/x"}}]}]`: false,
	} {
		var m filter.Machine
		if got := m.Selects(mustDocument(t, document), r.Event(), true); got != want {
			t.Errorf("%s: %v", document, got)
		}
		if m.Selects(mustDocument(t, document), r.Event(), false) && strings.Contains(document, "open") {
			t.Errorf("%s: passes as no tombstone", document)
		}
	}
}

func TestMatchingDoesNotAllocate(t *testing.T) {
	e, err := event.DecodeJSON([]byte(required(`,"subject":"say \"hi\"","n":7,"data":{"a":[1,2,{"b":"x"}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	members, _, _ := e.AppendMembers(nil)
	f := mustDocument(t, `[{"exact":{"n":"7"}},{"any":[{"prefix":{"source":"/x"}},{"sql":"data.a[2].b = 'x' AND subject LIKE '%hi%'"}]}]`)
	var m filter.Machine
	var r filter.Record
	if n := testing.AllocsPerRun(100, func() {
		r.Fill(filter.Delivered{Topic: "a.b", Position: 1 << 40}, members)
		if !m.Match(f, r.Event()) {
			panic("it does not match")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestDeciders: the clause that kept an event from passing is the smallest of
// which that can be said.
func TestDeciders(t *testing.T) {
	r := newRecord(t, required(`,"subject":"orders/7","n":5,"flag":"true","data":{"total":12}`))
	for text, want := range map[string]string{
		`type = 'x'`:                           `type = 'x' []`,
		`n = 5 AND (type = 'x') AND n = 6`:     `type = 'x' []`,
		`n = 5 AND (n = 5 AND n = 6)`:          `n = 6 []`,
		`flag AND n = 6`:                       `n = 6 []`,
		`type = 'x' OR n = 6`:                  `type = 'x' OR n = 6 []`,
		`n = 5 AND (type = 'x' OR n = 6)`:      `type = 'x' OR n = 6 []`,
		`prio = 'x' OR n = 5`:                  `prio = 'x' [MissingAttributeError]`,
		`n = 5 AND prio = 'x'`:                 `prio = 'x' [MissingAttributeError]`,
		`NOT (n = 5)`:                          `NOT (n = 5) []`,
		`NOT (n = 5 AND subject > 5)`:          `subject > 5 [CastError]`,
		`n = 5 XOR n < 6`:                      `n = 5 XOR n < 6 []`,
		`EXISTS data.total AND data.total < 3`: `data.total < 3 []`,
		`FALSE AND n = 5`:                      `FALSE AND n = 5 []`,
	} {
		var m filter.Machine
		f := mustText(t, text)
		if m.Match(f, r.Event()) {
			t.Errorf("%s passes", text)
		}
		clause, errs := m.Decider(f, r.Event())
		if got := fmt.Sprint(clause, " ", errs.Names()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for document, want := range map[string]string{
		`[{"exact":{"type":"a.b"}},{"sql":"n = 5 AND n = 6"}]`: `n = 6 []`,
		`[{"exact":{"type":"a.b"}},{"prefix":{"n":"6"}}]`:      `prefix n "6" []`,
		`[{"any":[{"exact":{"n":"6"}},{"sql":"prio = 'x'"}]}]`: `any(exact n "6", sql "prio = 'x'") [MissingAttributeError]`,
		`[{"not":{"sql":"n = 5"}}]`:                            `not(sql "n = 5") []`,
	} {
		var m filter.Machine
		clause, errs := m.Decider(mustDocument(t, document), r.Event())
		if got := fmt.Sprint(clause, " ", errs.Names()); got != want {
			t.Errorf("%s: %s, want %s", document, got, want)
		}
	}
}

// TestExplanationsAreShort, however long the texts of the event are that each part
// of a filter looks at.
func TestExplanationsAreShort(t *testing.T) {
	r := newRecord(t, required(`,"ext":"`+strings.Repeat("ä", 1000)+`","data":{"blob":"`+strings.Repeat("日", 100_000)+`"}`))
	var prefixes []string
	for n := range 200 {
		prefixes = append(prefixes, fmt.Sprintf(`{"prefix":{"ext":"x%d"}}`, n))
	}
	for _, f := range []*filter.Filter{
		mustText(t, "data.blob != 'x'"+strings.Repeat(" AND data.blob != 'x'", 700)),
		mustDocument(t, `[{"any":[`+strings.Join(prefixes, ",")+`]}]`),
	} {
		var m filter.Machine
		if x := fmt.Sprintf("%+v", m.Explain(f, r.Event())); len(x) > 1<<20 || !utf8.ValidString(x) || !strings.Contains(x, "…") {
			t.Errorf("%d bytes", len(x))
		}
	}
}

// TestStrict: what is not in the standard is refused on request, in documents, too.
func TestStrict(t *testing.T) {
	strict := filter.Options{Strict: true}
	for _, text := range []string{`data.n = 1`, `1.5 = 1`} {
		if _, err := strict.ParseText(text); event.AsError(err) == nil || event.AsError(err).Code != event.CodeFilterInvalid {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := strict.ParseDocument([]byte(`[{"sql":"` + text + `"}]`)); err == nil {
			t.Errorf("a document with %s is accepted", text)
		}
	}
	if f, err := strict.ParseText(`type='x'`); err != nil || f.Text() != `type = 'x'` {
		t.Errorf("%v, %v", f, err)
	}
}

func ExampleMachine_Explain() {
	f, _ := filter.ParseDocument([]byte(`[{"exact":{"type":"system.alert"}},{"sql":"data.severity >= 4 AND EXISTS subject"}]`))
	e, _ := event.DecodeJSON([]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"system.alert","data":{"severity":3}}`))
	var r filter.Record
	r.FillFrom(e)
	var m filter.Machine
	fmt.Print(m.Explain(f, r.Event()))
	// Output:
	// no  all
	// yes   exact type "system.alert"
	//         type is 'system.alert'
	// no    data.severity >= 4 AND EXISTS subject
	// no      data.severity >= 4
	//           data.severity is 3
	// -       EXISTS subject (not reached)
}

// TestConditionsShareTheWork: a document may have many expressions, of which each by
// itself may do much.
func TestConditionsShareTheWork(t *testing.T) {
	costly := func(n int) string {
		return fmt.Sprintf(`{"sql":"data.a%s > %d.%s"}`, strings.Repeat("[*]", 12), n, strings.Repeat("0", 1000))
	}
	data := strings.Repeat("[", 12) + strings.Repeat("1,", 8000) + "1" + strings.Repeat("]", 12)
	e := newRecord(t, required(`,"data":{"a":`+data+`,"b":1}`)).Event()
	var m filter.Machine
	if m.Match(mustDocument(t, `[`+costly(1)+`]`), e); m.Errors() != 0 {
		t.Fatalf("one condition: %v", m.Errors())
	}
	many := make([]string, 40)
	for i := range many {
		many[i] = costly(i + 1)
	}
	f := mustDocument(t, `[{"any":[`+strings.Join(many, ",")+`,{"sql":"data.b = 1 AND 2 = 2"}]}]`)
	if m.Match(f, e) || !m.Errors().Has(cesql.GenericError) {
		t.Errorf("many conditions: %v", m.Errors())
	}
	if x := m.Explain(f, e); x.Passes {
		t.Error("explained as if it passed")
	}
	if clause, errors := m.Decider(f, e); clause != f.Text() || !errors.Has(cesql.GenericError) {
		t.Errorf("decided by %.40s with %v", clause, errors)
	}
	// One that would hold by itself is no reason without the error that ended it.
	starved := 0
	for n := range many {
		none := make([]string, n)
		for i := range none {
			none[i] = `{"not":` + many[i] + `}`
		}
		f := mustDocument(t, `[{"all":[`+strings.Join(append(none, `{"sql":"data.b = 1"}`), ",")+`]}]`)
		if m.Match(f, e) {
			continue
		}
		starved++
		if clause, errors := m.Decider(f, e); !errors.Has(cesql.GenericError) {
			t.Errorf("behind %d costly ones decided by %.40s with %v", n, clause, errors)
		}
	}
	if starved == 0 {
		t.Error("no number of conditions has used up the work")
	}
}
