// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"signalbox/event"
)

// testDirs has the packages whose tests conformance.md may name.
func testDirs() map[string]string {
	return map[string]string{
		"event":     "../event",
		"client":    "../client",
		"cesql":     "../internal/cesql",
		"filter":    "../internal/filter",
		"web":       "../internal/transport/web",
		"projector": "../internal/projector",
		"signature": "../internal/signature",
		"identity":  "../internal/identity",
		"egress":    "../internal/egress",
		"broker":    "../internal/broker",
		"ticket":    "../ticket",
		"webhook":   "../internal/transport/webhook",
	}
}

// row is one rule or deviation of the page.
type row struct {
	line               int
	rule, section      string
	tests              []string
	noTest             bool   // n/a stands in place of tests
	rest               string // what else stands in that cell
	remark, underTable string
}

// rows reads the tables, which all have four columns with the tests in the third.
func rows(t *testing.T, page string) (out []row) {
	t.Helper()
	span := regexp.MustCompile("`[^`]+`")
	head := ""
	for i, line := range strings.Split(page, "\n") {
		if !strings.HasPrefix(line, "|") {
			head = ""
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
		if len(cells) != 4 {
			t.Fatalf("conformance.md:%d: a row has %d cells", i+1, len(cells))
		}
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		switch {
		case head == "":
			if head = cells[0]; cells[2] != "test" {
				t.Fatalf("conformance.md:%d: the third column is %q", i+1, cells[2])
			}
			continue
		case strings.Trim(line, "|-") == "":
			continue
		}
		r := row{line: i + 1, rule: cells[0], section: cells[1], remark: cells[3], noTest: cells[2] == "n/a", underTable: head}
		for _, test := range span.FindAllString(cells[2], -1) {
			r.tests = append(r.tests, strings.Trim(test, "`"))
		}
		r.rest = strings.TrimSpace(span.ReplaceAllString(cells[2], ""))
		out = append(out, r)
	}
	return out
}

// tests has the test functions of a package, each with the strings that may name
// its subtests: those in its body, and those in the tables that it refers to.
type tests map[string]map[string]bool

func parseTests(t *testing.T, dir string) tests {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no test files: %v", dir, err)
	}
	functions, tables := map[string]*ast.FuncDecl{}, map[string]ast.Node{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && regexp.MustCompile(`^(Test|Fuzz)[A-Z]`).MatchString(d.Name.Name) {
					functions[d.Name.Name] = d
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						tables[v.Names[0].Name] = v
					}
				}
			}
		}
	}
	out := tests{}
	for name, f := range functions {
		texts := map[string]bool{}
		collect(f.Body, texts, func(ident string) {
			if table := tables[ident]; table != nil {
				collect(table, texts, func(string) {})
			}
		})
		out[name] = texts
	}
	return out
}

func collect(n ast.Node, texts map[string]bool, ident func(string)) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				texts[text] = true
			}
		case *ast.Ident:
			ident(n.Name)
		}
		return true
	})
}

// TestConformancePageNamesItsTests: every row has a test that exists, or says
// why there can be none, and every test of the files made for the page is there.
func TestConformancePageNamesItsTests(t *testing.T) {
	page, err := os.ReadFile("conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]tests{}
	for name, dir := range testDirs() {
		known[name] = parseTests(t, dir)
	}
	named := map[string]bool{}
	all := rows(t, string(page))
	if len(all) < 100 {
		t.Errorf("only %d rows were found", len(all))
	}
	for _, r := range all {
		fault := func(format string, args ...any) {
			t.Helper()
			t.Errorf("conformance.md:%d: %q: "+format, append([]any{r.line, r.rule}, args...)...)
		}
		if r.rule == "" || r.section == "" {
			fault("a cell is empty")
		}
		switch {
		case r.noTest && r.remark == "":
			fault("n/a without a reason")
		case !r.noTest && (len(r.tests) == 0 || r.rest != ""):
			fault("the test cell is to have tests as code, or n/a alone: %q", r.rest)
		}
		if r.underTable != "rule" && r.remark == "" {
			fault("a deviation without a reason")
		}
		for _, name := range r.tests {
			named[strings.SplitN(name, "/", 2)[0]] = true
			if why := missing(known, name); why != "" {
				fault("`%s`: %s", name, why)
			}
		}
	}
	for _, pkg := range []string{"event", "web"} {
		for name := range parseTestsOf(t, filepath.Join(testDirs()[pkg], "conformance_test.go")) {
			if !named[pkg+"."+name] {
				t.Errorf("conformance.md does not name %s.%s", pkg, name)
			}
		}
	}
}

// missing says what does not exist of a test, or "".
func missing(known map[string]tests, name string) string {
	function, subtest, hasSubtest := strings.Cut(name, "/")
	pkg, function, ok := strings.Cut(function, ".")
	if !ok || known[pkg] == nil {
		return "not in a package that may be named"
	}
	texts, ok := known[pkg][function]
	switch {
	case !ok:
		return "the package has no such test"
	case hasSubtest && !texts[subtest]:
		return "the test has no such subtest"
	}
	return ""
}

func parseTestsOf(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
			out[f.Name.Name] = true
		}
	}
	return out
}

// TestConformancePageStatesTheLimits: limits are said as "Name = number".
func TestConformancePageStatesTheLimits(t *testing.T) {
	want := map[string]int{
		"MaxAttributes": event.MaxAttributes, "MaxAttributeBytes": event.MaxAttributeBytes, "MaxNameBytes": event.MaxNameBytes,
		"MaxNesting": event.MaxNesting, "MaxMembers": event.MaxMembers, "MaxBatch": event.MaxBatch, "MaxKeyBytes": event.MaxKeyBytes,
		"DefaultMaxEventBytes": event.DefaultMaxEventBytes, "MinMaxEventBytes": event.MinMaxEventBytes, "MaxMaxEventBytes": event.MaxMaxEventBytes,
	}
	page, err := os.ReadFile("conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range regexp.MustCompile("`(\\w+) = (\\d+)`").FindAllStringSubmatch(string(page), -1) {
		limit, known := want[said[1]]
		if !known || said[2] != strconv.Itoa(limit) {
			t.Errorf("conformance.md says that %s is %s; it is %d", said[1], said[2], limit)
		}
		delete(want, said[1])
	}
	for name := range want {
		t.Errorf("conformance.md does not state %s", name)
	}
}

// TestConformanceChecksBite makes sure that the checks above see what they are for.
func TestConformanceChecksBite(t *testing.T) {
	known := map[string]tests{"event": parseTests(t, testDirs()["event"])}
	for name, want := range map[string]bool{
		"event.TestRefusedJSON":                         true,
		"event.TestRefusedJSON/core: id is required":    true, // in a table of its own
		"event.TestBatchRules/order is kept":            true, // in the body
		"event.FuzzDecodeJSON":                          true,
		"event.TestRefusedJSON/core: id is recommended": false,
		"event.TestBatchRules/core: id is required":     false, // of another test
		"event.TestNothing":                             false,
		"event.headers":                                 false,
		"web.TestRefusedJSON":                           false,
		"TestRefusedJSON":                               false,
	} {
		if got := missing(known, name) == ""; got != want {
			t.Errorf("%s exists: %v, want %v", name, got, want)
		}
	}
	found := rows(t, "text\n\n| rule | section | test | remark |\n|---|---|---|---|\n| a | 1 | `x.Y/z a` `x.Z` | |\n| b | 2 | n/a | why |\n| c | 3 | soon | |\n")
	if len(found) != 3 || len(found[0].tests) != 2 || found[0].tests[0] != "x.Y/z a" || !found[1].noTest || found[2].rest != "soon" {
		t.Errorf("rows %+v", found)
	}
}
