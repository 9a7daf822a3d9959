// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"signalbox/internal/broker"
)

// try sends a dry run and decodes its report.
func (d *door) try(body string) broker.DryRunReport {
	d.t.Helper()
	var report broker.DryRunReport
	if err := json.Unmarshal(d.dryRun(body).want(d.t, 200).body, &report); err != nil {
		d.t.Fatal(err)
	}
	return report
}

func (d *door) dryRun(body string) answer {
	d.t.Helper()
	return d.do(request{method: "POST", path: "/v1/filters/dry-run", body: body, header: []string{"Content-Type: application/json"}})
}

func TestDryRun(t *testing.T) {
	d := openDoor(t)
	for i := 1; i <= 30; i++ {
		d.structured("fleet.a", ev(strconv.Itoa(i), "", fmt.Sprintf(`"data":{"n":%d}`, i))).want(t, 200)
	}
	d.structured("other", ev("x", "", `"prio":5`)).want(t, 200)

	r := d.try(`{"filter":"(data.n) > 15","topics":["fleet.>"],"last":20}`)
	if r.Canonical != "data.n > 15" || r.Events != 20 || r.Matched != 15 || len(r.Matches) != 10 || !r.Complete || r.Errors != 0 {
		t.Errorf("%+v", r)
	}
	if m := r.Matches[0]; m.Topic != "fleet.a" || m.ID != "30" || m.Cursor.Position != 30 || r.Cursor.Position != 31 {
		t.Errorf("the latest match is %+v at %s", m, r.Cursor)
	}

	if a := d.dryRun(`{"filter":"data.n > 15"}`); !strings.Contains(string(a.body), `"canonical":"data.n > 15"`) {
		t.Errorf("the answer is hard to read: %s", clip(a.body))
	}
	r = d.try(`{"filter":"prio > 3"}`)
	if r.Events != 31 || r.Matched != 1 || r.Errors != 30 || !maps.Equal(r.ErrorKinds, map[string]int{"MissingAttributeError": 30}) {
		t.Errorf("%+v", r)
	}
	if len(r.Failures) != 1 || r.Failures[0].Clause != "prio > 3" || r.Failures[0].Events != 30 || r.Failures[0].Errors[0] != "MissingAttributeError" {
		t.Errorf("%+v", r.Failures)
	}
	r = d.try(`{"filters":[{"exact":{"type":"no.such"}},{"sql":"data.n > 3"}],"topics":["fleet.a"]}`)
	if r.Matched != 0 || len(r.Failures) != 1 || r.Failures[0].Clause != `exact type "no.such"` || r.Failures[0].Events != 30 {
		t.Errorf("%+v", r)
	}
}

func TestDryRunExplains(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	d.structured("a", ev("1", "", `"data":{"n":7}`)).want(t, 200)
	d.structured("a", ev("2", "", `"data":{"n":1}`)).want(t, 200)
	d.structured("s", ev("gone", "k")).want(t, 200)
	for event, want := range map[string]string{
		`"latest"`:             `2 data.n > 3 no`,
		`"@1"`:                 `1 data.n > 3 yes`,
		ev("new", "", `"n":1`): `new data.n > 3 no`,
		strings.Replace(ev("seen", "", `"data":{"n":9}`), "{", `{"position":"7","topic":"b","hlc":"1.00000",`, 1): `seen data.n > 3 yes`,
	} {
		v := d.try(`{"filter":"data.n > 3","topics":["a"],"event":` + event + `}`).Explained
		verdict := map[bool]string{true: "yes", false: "no"}[v.Passes]
		if got := v.ID + " " + v.Explanation.Clause + " " + verdict; got != want || v.Explanation.Passes != v.Passes {
			t.Errorf("%s: %q, want %q", event, got, want)
		}
		if inLog := strings.HasPrefix(event, `"`); inLog != (v.Cursor != nil) {
			t.Errorf("%s: the cursor is %v", event, v.Cursor)
		}
	}
	// A tombstone passes a filter that looks into data, and one that does not decides.
	if v := d.try(`{"filter":"data.n > 3","event":"latest"}`).Explained; !v.Passes || !v.Tombstone || v.Explanation.Passes {
		t.Errorf("%+v", v)
	}
	if v := d.try(`{"filter":"type = 'none'","event":"@3"}`).Explained; v.Passes || !v.Tombstone {
		t.Errorf("%+v", v)
	}
	if r := d.try(`{"filter":"n = 1","topics":["nothing.here"],"event":"latest"}`); r.Explained != nil || r.Events != 0 || !r.Complete {
		t.Errorf("%+v", r)
	}
}

func TestDryRunsThatAreRefused(t *testing.T) {
	d := openDoor(t)
	d.structured("a", ev("1", "")).want(t, 200)
	p := d.dryRun(`{"filter":"type = 'a' AND\n  n >"}`).refused(t, 400, "filter_invalid")
	if p["field"] != "filter" || p["line"] != 2.0 || p["column"] != 6.0 || p["caret"] != "  n >\n     ^" {
		t.Errorf("%v", p)
	}
	p = d.dryRun(`{"filters":[{"exact":{"type":"a"}},{"sql":"n >"}]}`).refused(t, 400, "filter_invalid")
	if p["field"] != "filters/1/sql" || p["caret"] != "n >\n   ^" {
		t.Errorf("%v", p)
	}
	for _, c := range []struct{ body, code, field string }{
		{``, "json_invalid", ""},
		{`[]`, "json_invalid", ""},
		{`{"filter":"TRUE"} x`, "json_invalid", ""},
		{`{}`, "parameter_invalid", "filter"},
		{`{"filter":"TRUE","filters":[]}`, "parameter_invalid", "filter"},
		{`{"filter":1}`, "parameter_invalid", "filter"},
		{`{"filters":{}}`, "filter_invalid", "filters"},
		{`{"filters":[{"none":{}}]}`, "filter_unsupported", "filters/0/none"},
		{`{"filter":"data.n = 1","strict":true}`, "filter_invalid", "filter"},
		{`{"filters":[{"sql":"data.n = 1"}],"strict":true}`, "filter_invalid", "filters/0/sql"},
		{`{"filter":"TRUE","topic":["a"]}`, "parameter_invalid", "topic"},
		{`{"filter":"TRUE","topics":"a"}`, "parameter_invalid", "topics"},
		{`{"filter":"TRUE","topics":[]}`, "topic_invalid", "topics"},
		{`{"filter":"TRUE","topics":["a..b"]}`, "topic_invalid", "topics"},
		{`{"filter":"TRUE","topics":["a,b"]}`, "topic_invalid", "topics"},
		{`{"filter":"TRUE","topics":["a"` + strings.Repeat(`,"a"`, 64) + `]}`, "topic_invalid", "topics"},
		{`{"filter":"TRUE","last":0}`, "parameter_invalid", "last"},
		{`{"filter":"TRUE","last":10001}`, "parameter_invalid", "last"},
		{`{"filter":"TRUE","last":1.5}`, "parameter_invalid", "last"},
		{`{"filter":"TRUE","event":7}`, "parameter_invalid", "event"},
		{`{"filter":"TRUE","event":"newest"}`, "cursor_invalid", "event"},
		{`{"filter":"TRUE","event":"@99"}`, "parameter_invalid", "event"},
		{`{"filter":"TRUE","event":"@1","topics":["b"]}`, "parameter_invalid", "event"},
		{`{"filter":"TRUE","event":{"specversion":"1.0","id":"1","source":"/s"}}`, "event_invalid", "event/type"},
	} {
		p := d.dryRun(c.body).refused(t, 400, c.code)
		if field, _ := p["field"].(string); field != c.field {
			t.Errorf("%s: the field is %q, want %q", c.body, field, c.field)
		}
	}
	d.dryRun(`{"filter":"TRUE","event":"@1.zzzzzzzz"}`).refused(t, 410, "cursor_foreign")
	d.do(request{method: "POST", path: "/v1/filters/dry-run?filter=TRUE", body: `{"filter":"TRUE"}`}).refused(t, 400, "filter_unsupported")
}
