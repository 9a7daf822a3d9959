// SPDX-License-Identifier: Apache-2.0

package cesql_test

import (
	"strings"
	"testing"

	"signalbox/internal/cesql"
)

// hostile are the costliest expressions of each kind that are accepted, each with the
// data for it.
func hostile(size int) map[string][2]string {
	repeat := func(text, join string, n int) string {
		return strings.TrimSuffix(strings.Repeat(text+join, n), join)
	}
	tiny := "[" + strings.Repeat("1,", size/2) + "1]"
	fractions := "[" + strings.Repeat("1.5,", size/4) + "1]"
	deep := strings.Repeat("[", 16) + strings.Repeat("1,", size/2) + "1" + strings.Repeat("]", 16)
	text := func(character string) string { return `{"a":"` + strings.Repeat(character, size/len(character)) + `"}` }
	nines := strings.Repeat("9", 450)
	return map[string][2]string{
		"elements with a long number":    {`data[*] > 1.` + strings.Repeat("0", 15_000) + `1`, tiny},
		"elements with a number in data": {repeat(`data.a[*] > data.b`, ` OR `, 32), `{"b":7.` + strings.Repeat("9", 1000) + `,"a":` + tiny + `}`},
		"elements with a text that is one": {repeat(`data.a[*] < data.b`, ` OR `, 32),
			`{"b":"-7.` + strings.Repeat("9", 1000) + `","a":` + fractions + `}`},
		"elements in a list of numbers": {`data[*] IN (` + repeat(`7.`+nines, `,`, 32) + `)`, fractions},
		"elements of elements":          {repeat(`data`+strings.Repeat(`[*]`, 16)+` = 'x'`, ` OR `, 32), deep},
		"patterns":                      {repeat(`data.a LIKE '%ä_日%'`, ` OR `, 64), text("日")},
		"patterns on elements":          {repeat(`data[*] LIKE '%a_b%c_d%e_f%'`, ` OR `, 32), tiny},
		"white space":                   {repeat(`TRIM(data.a) = 'x'`, ` OR `, 64), text("\u2003")},
		"characters":                    {repeat(`LENGTH(data.a) = 1`, ` OR `, 64), text("日")},
		"the same text":                 {repeat(`data.a IN (`+repeat(`data.b`, `,`, 500)+`)`, ` OR `, 4), strings.Replace(text("a"), `"a"`, `"b":"`+strings.Repeat("a", size-1)+`b","a"`, 1)},
		"escapes":                       {repeat(`data[*] = 'x'`, ` OR `, 32), `["` + strings.Repeat(`\u00e4`, size/6) + `"]`},
		"names":                         {repeat(`EXISTS data[*].a`, ` OR `, 32), "[" + repeat("{"+repeat(`"b":1`, ",", 1000)+"}", ",", size/6000+1) + "]"},
	}
}

// TestNoExpressionStarves: whatever is asked, an evaluation ends when it has done as
// much as the size of the data allows, and says so. Without that, the first of these
// takes 20 s on a topic of default policy.
func TestNoExpressionStarves(t *testing.T) {
	for name, c := range hostile(1 << 18) {
		x, err := cesql.ParseFilter(c[0], cesql.Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		e, m := newEvent(nil, c[1]), cesql.Machine{}
		passes := m.Match(x, e)
		may := 64*len(c[1]) + 8<<20
		work := m.Work()
		if most := may + 8*len(c[1]); passes || work > most { // what is begun is finished
			t.Errorf("%s: %v after %d of work, %d for each byte", name, passes, work, work/len(c[1]))
		}
		if (work > may) != m.Errors().Has(cesql.GenericError) {
			t.Errorf("%s: %v after %d of work", name, m.Errors(), work)
		}
		if step := m.Explain(x, e); step.Passes || step.Errors != m.Errors() {
			t.Errorf("%s: explained as %v, %v", name, step.Passes, step.Errors)
		}
	}
}

// TestUsualExpressionsHaveRoom: what people ask of large data is far below the limit.
func TestUsualExpressionsHaveRoom(t *testing.T) {
	items := strings.TrimSuffix(strings.Repeat(`{"id":"a-17","qty":1,"name":"a rotor, \"big\""},`, 20_000), ",")
	e := newEvent(nil, `{"note":"`+strings.Repeat("Grüße ", 20_000)+`","items":[`+items+`],"severity":4}`)
	for _, text := range []string{
		`data.severity = 4 AND data.items[*].qty = 1 AND NOT (data.items[*].qty > 10 OR data.items[*].id LIKE '%-18') AND data.note LIKE '%ü_e%'`,
		`data.items[19999].qty = 1 AND data.items[*].name NOT IN ('a', 'b', 'c') AND LENGTH(data.note) > 1 AND data.items[*].id NOT LIKE 'b%_x'`,
	} {
		var m cesql.Machine
		if !m.Match(mustParse(t, text), e) {
			t.Errorf("%s: %v", text, m.Errors())
		}
	}
}

// TestPartsShareTheWork: of expressions that belong together.
func TestPartsShareTheWork(t *testing.T) {
	c := hostile(1 << 16)["elements of elements"]
	x, cheap, e, m := mustParse(t, c[0]), mustParse(t, `data[0] = 7`), newEvent(nil, c[1]), cesql.Machine{}
	m.Match(x, e)
	done := m.Work()
	m.Continue()
	if m.Match(x, e); m.Work() < done || m.Work() > done+done/8 {
		t.Errorf("%d of work, and then %d", done, m.Work())
	}
	m.Continue()
	if m.Match(cheap, e) || !m.Errors().Has(cesql.GenericError) {
		t.Errorf("%v after all the work was done", m.Errors())
	}
	if m.Match(cheap, e) || m.Errors().Has(cesql.GenericError) {
		t.Errorf("%v of an evaluation by itself", m.Errors())
	}
}
