// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
	"signalbox/internal/admission"
	"signalbox/internal/eventlog"
)

// jsonEntries are entries whose data is that JSON.
func jsonEntries(data ...string) []eventlog.Entry {
	entries := make([]eventlog.Entry, len(data))
	for i, d := range data {
		entries[i] = eventlog.Entry{Flags: eventlog.FlagJSON, Members: []byte(`"data":` + d + `}`), DataOffset: 7, DataLength: uint32(len(d))}
	}
	return entries
}

// fault is what is wrong with data, as pointer, keyword and text; "" if nothing is.
func fault(t testing.TB, schema, data string) string {
	t.Helper()
	check, err := admission.NewSchemas().Check(schema, jsonEntries(data))
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	if check.Hash != event.SchemaHash(schema) {
		t.Errorf("the check says that it was of another schema")
	}
	if len(check.Faults) == 0 {
		return ""
	}
	f := check.Faults[0]
	return f.Pointer + " " + f.Keyword + ": " + f.Text
}

func TestSchemaFaultsNameTheirPlace(t *testing.T) {
	const order = `{"type":"object","required":["id","items"],"additionalProperties":false,"properties":{
		"id":{"type":"string","pattern":"^o-[0-9]+$"},
		"items":{"type":"array","minItems":1,"items":{"$ref":"#/$defs/item"}},
		"a/b~c":{"const":1},"never":false,"either":{"anyOf":[{"type":"string"},{"type":"number"}]},"at":{"type":"string","format":"date-time"}},
		"$defs":{"item":{"type":"object","required":["sku"],"properties":{"n":{"type":"integer","minimum":1}}}}}`
	for data, want := range map[string]string{
		`{"id":"o-1","items":[{"sku":"x","n":1}]}`:             "",
		`{"id":"o-1","items":[{"sku":"x","n":1.0}]}`:           "", // 1.0 is an integer
		`{"id":"o-1","items":[{"sku":"x"}],"at":"not a time"}`: "", // format is an annotation
		`1`:                                  " type: is of type number, not object",
		`{"items":[{"sku":"x"}]}`:            ` required: lacks the member "id"`,
		`{"id":"o-x","items":[{"sku":"x"}]}`: "/id pattern: does not keep to `pattern`",
		`{"id":"o-1","items":[]}`:            "/items minItems: does not keep to `minItems`",
		`{"id":"o-1","items":[{"sku":"x"},{"n":1}]}`:                     `/items/1 required: lacks the member "sku"`,
		`{"id":"o-1","items":[{"sku":"x","n":0}]}`:                       "/items/0/n minimum: does not keep to `minimum`",
		`{"id":"o-1","items":[{"sku":"x","n":0.5}]}`:                     "/items/0/n type: is of type number, not integer",
		`{"id":"o-1","items":[{"sku":"x"}],"a/b~c":2}`:                   "/a~1b~0c const: does not keep to `const`",
		`{"id":"o-1","items":[{"sku":"x"}],"z":2,"y":1}`:                 ` additionalProperties: has the member "y", which is not foreseen`,
		`{"id":"o-1","items":[{"sku":"x"}],"never":2}`:                   "/never false: is not allowed",
		`{"id":"o-1","items":[{"sku":"x"}],"either":[]}`:                 "/either anyOf: does not keep to `anyOf`",
		`{"id":7,"items":[{"sku":"x","n":0}]}`:                           "/id type: is of type number, not string", // the first of several
		`{"id":"o-1","items":[{"sku":"x","n":1e401}]}`:                   "/items/0/n : is a number with more digits or a larger exponent than can be checked",
		`{"id":"o-1","items":[{"n":1` + strings.Repeat("0", 200) + `}]}`: "/items/0/n : is a number with more digits or a larger exponent than can be checked",
	} {
		for range 3 { // the answer is the same each time
			if got := fault(t, order, data); got != want {
				t.Errorf("%s: %q, want %q", data, got, want)
			}
		}
	}
}

// TestSchemaChecksEveryEntry: of a batch, each by itself, and what is no JSON is left
// to apply.
func TestSchemaChecksEveryEntry(t *testing.T) {
	entries := append(jsonEntries("1", `"x"`, "2", "null"), eventlog.Entry{})
	check, err := admission.NewSchemas().Check(`{"type":"number"}`, entries)
	if err != nil || len(check.Faults) != 2 || check.Faults[0].Entry != 1 || check.Faults[1].Entry != 3 {
		t.Errorf("the check is %+v, %v", check, err)
	}
}

func TestWhatIsNoSchemaIsRefused(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"nothing"}`:                                    `"/type"`,
		`{"properties":{"a":{"minimum":"1"}}}`:                  `"/properties/a/minimum"`,
		`{"$schema":"http://json-schema.org/draft-07/schema#"}`: "another $schema",
		`{"$schema":7}`:                                         "another $schema",
		`{"$ref":"https://example.com/order.json"}`:             "leads outside",
		`{"$ref":"order.json"}`:                                 "leads outside",
		`{"$ref":"file:///etc/passwd"}`:                         "leads outside",
		`{"$id":"https://example.com/a.json","$ref":"b.json"}`:  "leads outside",
		`{"$ref":"#/$defs/none"}`:                               "cannot be compiled",
		`{"$defs":{"a":{"$id":"x","$schema":"http://json-schema.org/draft-07/schema#"}},"$ref":"x"}`: "another draft",
		`{"$defs":{"a":{"$id":"x","$schema":"https://example.com/meta"}},"$ref":"x"}`:                "leads outside",
		`{"pattern":"(?=a)"}`:                                                    "RE2",
		`{"pattern":"(a)\\1"}`:                                                   "RE2",
		`{"patternProperties":{"[":true}}`:                                       "RE2",
		`{"pattern":"(a{100}){10}b{1000}"}`:                                      "repeats too much",
		`{"pattern":"` + strings.Repeat("a", 1025) + `"}`:                        "more than 1024 bytes",
		`{"minimum":1e999999999}`:                                                `"/minimum"`,
		`{"enum":[` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `]}`: "",
		`{"allOf":[` + strings.Repeat(`{"minimum":1},`, 500) + `{}]}`:            "more than 500 subschemas",
	} {
		err := admission.NewSchemas().Compile(schema)
		if want == "" {
			continue // package event refuses it; here it only must not panic
		}
		e := event.AsError(err)
		if err == nil || e.Code != event.CodePolicyInvalid || e.Field != "schema" || !strings.Contains(e.Message, want) || len(e.Message) > 700 {
			t.Errorf("%.100s: %v, want %q", schema, err, want)
		}
	}
	for _, schema := range []string{`{}`, `{"$schema":"https://json-schema.org/draft/2020-12/schema"}`, `{"$id":"https://example.com/a.json","$defs":{"b":{"$anchor":"c","type":"null"}},"$ref":"#c"}`,
		`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"properties":{"$schema":{"type":"string"}}}`, `{"pattern":"\\p{L}{1,100}"}`} {
		if err := admission.NewSchemas().Compile(schema); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// TestWorkOfACheckIsBounded: schemas of a few lines that would take for ever. Each
// ends with a fault that says so, or with an answer.
func TestWorkOfACheckIsBounded(t *testing.T) {
	doubling := func(leaf, around string) string { // every level asks the next one twice
		var b strings.Builder
		fmt.Fprintf(&b, `{"$defs":{"a60":%s`, leaf)
		for i := range 60 {
			fmt.Fprintf(&b, `,"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i, i+1, i+1)
		}
		fmt.Fprintf(&b, `},%s}`, around)
		return b.String()
	}
	const tooMuch = " : takes more work to check than is allowed; send less at once"
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	for name, c := range map[string][3]string{
		"references":            {doubling(`{"type":"null"}`, `"$ref":"#/$defs/a0"`), "1", tooMuch},
		"references within not": {doubling(`{"type":"null"}`, `"not":{"$ref":"#/$defs/a0"}`), "1", tooMuch},
		"references to false":   {doubling(`false`, `"not":{"$ref":"#/$defs/a0"}`), "1", tooMuch},
		"nesting":               {`{"$defs":{"n":{"allOf":[{"properties":{"a":{"$ref":"#/$defs/n"}}},{"properties":{"a":{"$ref":"#/$defs/n"}}}]}},"$ref":"#/$defs/n"}`, deep, tooMuch},
		"patterns":              {`{"items":{"allOf":[` + strings.Repeat(`{"pattern":"(x{1,20}){1,20}y"},`, 99) + `{"pattern":"z"}]}}`, `["` + strings.Repeat("x", 50_000) + `"]`, tooMuch},
		"unique items":          {`{"allOf":[` + strings.Repeat(`{"uniqueItems":true},`, 99) + `{"uniqueItems":true}]}`, `[[` + strings.Repeat("1,", 40_000) + `1],[2]]`, tooMuch},
		"values":                {`{}`, `[` + strings.Repeat("[],", 60_000) + `[]]`, "/49999 : has more than 50000 values up to here, which is too much to check"},
		"a cycle":               {`{"$ref":"#"}`, "1", " $ref: cannot be checked, for the schema refers to itself without end"},
	} {
		got := fault(t, c[0], c[1])
		if name == "values" {
			got = strings.Replace(got, "/49998 ", "/49999 ", 1)
		}
		if got != c[2] {
			t.Errorf("%s: %q, want %q", name, got, c[2])
		}
	}
	// What one event used up is not there for the next of the same request only as far
	// as the request is bounded; a request of its own begins anew.
	schemas := admission.NewSchemas()
	schema := doubling(`{"type":"null"}`, `"$ref":"#/$defs/a0"`)
	for range 2 {
		data := make([]string, 20)
		for i := range data {
			data[i] = "1"
		}
		check, err := schemas.Check(schema, jsonEntries(data...))
		if err != nil || len(check.Faults) != 20 {
			t.Errorf("%d faults, %v", len(check.Faults), err)
		}
	}
	if check, err := schemas.Check(`{"type":"number"}`, jsonEntries("1")); err != nil || len(check.Faults) != 0 {
		t.Errorf("%+v, %v", check, err)
	}
}

// TestSchemasAreKeptWithinABound: more schemas than fit are compiled all the same.
func TestSchemasAreKeptWithinABound(t *testing.T) {
	schemas := admission.NewSchemas()
	filler := strings.Repeat("x", 60<<10)
	for round := range 2 {
		for i := range 50 {
			schema := fmt.Sprintf(`{"description":%q,"const":%d}`, filler, i)
			check, err := schemas.Check(schema, jsonEntries(fmt.Sprint(i), "-1"))
			if err != nil || len(check.Faults) != 1 || check.Faults[0].Entry != 1 {
				t.Fatalf("round %d: %+v, %v", round, check.Faults, err)
			}
		}
	}
	if n := schemas.Bytes(); n > 2<<20 || n == 0 {
		t.Errorf("%d bytes are kept", n)
	}
}

// FuzzSchema compiles anything and checks anything against it: nothing panics, what
// is refused is refused with the code, and the same data gets the same answer.
func FuzzSchema(f *testing.F) {
	for _, schema := range []string{`{}`, `{"type":"object","required":["a"]}`, `{"$ref":"#"}`, `{"$ref":"x"}`, `{"pattern":"a{2}"}`, `{"anyOf":[{"minimum":1e3},{"uniqueItems":true}]}`,
		`{"$dynamicRef":"#n","$defs":{"a":{"$dynamicAnchor":"n"}}}`, `{"unevaluatedProperties":false}`, `{"if":{"contains":{"const":1}},"then":false}`, `{"propertyNames":{"maxLength":1}}`} {
		for _, data := range []string{`{"a":1}`, `[1,1,"x"]`, `"aa"`, `1e400`} {
			f.Add(schema, data)
		}
	}
	f.Fuzz(func(t *testing.T, schema, data string) {
		policy, err := event.ParsePolicy([]byte(`{"schema":` + schema + `}`))
		if err != nil || policy.Schema == "" || !jsontext.Value(data).IsValid() {
			return
		}
		schemas := admission.NewSchemas()
		if err := schemas.Compile(policy.Schema); err != nil {
			if e := event.AsError(err); e.Code != event.CodePolicyInvalid || e.Field != "schema" {
				t.Fatalf("%s: %v", schema, err)
			}
			return
		}
		first, again := fault(t, policy.Schema, data), fault(t, policy.Schema, data)
		if first != again {
			t.Fatalf("%s against %s: %q and %q", data, policy.Schema, first, again)
		}
	})
}

func BenchmarkSchema(b *testing.B) {
	const schema = `{"type":"object","required":["id","status"],"properties":{"id":{"type":"string"},"status":{"enum":["PENDING","PICKING","DONE"]},"n":{"type":"integer","minimum":0}}}`
	schemas := admission.NewSchemas()
	entries := jsonEntries(`{"id":"T-998","status":"PICKING","n":17,"note":"on its way to the dock"}`)
	b.ReportAllocs()
	for b.Loop() {
		if check, err := schemas.Check(schema, entries); err != nil || len(check.Faults) > 0 {
			b.Fatal(check, err)
		}
	}
}
