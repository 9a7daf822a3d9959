// SPDX-License-Identifier: Apache-2.0

// Package signalbox_test holds the rules of this repository that no compiler
// checks: who may import whom, what the deterministic core must not touch, how
// long a file and a function may get, and what every file says about itself.
// The tables come first and are the rules, each with its reason; what enforces
// them follows. It imports the standard library only.
package signalbox_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "signalbox"

// Limits on size. A file or a function over its limit is split, not excused.
const (
	codeLinesMax     = 500
	testLinesMax     = 800
	functionLinesMax = 70
)

// layer says what one package may import. Packages of this module are named by
// their folder; a name with a dot in its first element is another module's and
// stands for the packages below it too.
type layer struct {
	dir   string
	may   []string // what the package may import beside the standard library
	tests []string // what its tests may import beside that and testLibraries
	why   string
}

// layers has every package of the module, lowest first: a row names only rows
// above it. The folders of other modules (bench, tools) are not judged.
var layers = []layer{
	{dir: "api", why: "contracts, embedded as they are: there is no code to depend on"},
	{dir: "internal/signature", why: "signs and checks alike for the broker and for receivers, which may be other people's"},
	{dir: "event", may: []string{"github.com/go-json-experiment/json", "internal/signature"},
		why: "programs of other people import it, and whatever it needs they need too"},
	{dir: "internal/validjson", may: []string{"github.com/go-json-experiment/json"},
		why: "reads text that somebody else has checked, whatever it says"},
	{dir: "ticket", may: []string{"api", "event", "internal/validjson", "github.com/go-json-experiment/json"},
		why: "the language of the ticket protocol, which agents of other people speak too; what depends on other messages is the broker's"},
	{dir: "internal/audit", may: []string{"event", "golang.org/x/mod/sumdb"},
		why: "what an auditor computes again without the broker, and so nothing of the broker"},
	{dir: "docs", tests: []string{"event", "internal/metrics"}, why: "pages, embedded as they are, and held against the tables they show"},
	{dir: "internal/egress", may: []string{"event"},
		why: "says where connections may lead, whatever they are for"},
	{dir: "internal/porttest", why: "an address that nobody takes away, for tests; nothing that is shipped imports it"},
	{dir: "client", may: []string{"event", "internal/signature"},
		tests: []string{"internal/porttest"},
		why:   "the public SDK knows the wire and nothing of the broker behind it"},
	{dir: "client/ticket", may: []string{"event", "ticket", "client", "github.com/go-json-experiment/json"},
		tests: []string{"internal/tickettest"},
		why:   "the ticket protocol made pleasant for agents of other people; like client it knows the wire only"},
	{dir: "internal/orchestrator", may: []string{"event", "ticket", "client/ticket", "github.com/goccy/go-yaml"},
		tests: []string{"api", "client", "internal/tickettest"},
		why:   "what an orchestrator of other people would be: it decides from messages and knows nothing of the broker"},
	{dir: "internal/metrics", may: []string{"event", "github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common"},
		why: "what the stages count, and the one place that knows Prometheus"},
	{dir: "internal/cesql", tests: []string{"go.yaml.in/yaml/v4"},
		why: "a language by itself, which other programs could use; the yaml is that of its compatibility kit"},
	{dir: "internal/filter", may: []string{"event", "internal/cesql", "github.com/go-json-experiment/json"},
		why: "says which events concern somebody, and not who that is nor where events come from"},
	{dir: "internal/tracing", may: []string{"event", "go.opentelemetry.io/otel"},
		why: "the one place that knows OpenTelemetry"},
	{dir: "internal/identity", may: []string{"event", "github.com/go-jose/go-jose/v4"},
		tests: []string{"ticket"},
		why:   "turns a credential into a principal, alike for every transport; the one place that knows JOSE"},
	{dir: "internal/eventlog", may: []string{"event"},
		why: "orders proposals without judging them, so that another log can take its place"},
	{dir: "internal/store", may: []string{"event", "internal/metrics", "internal/eventlog", "github.com/cockroachdb/pebble/v2", "golang.org/x/sys/unix"},
		why: "the one place that knows Pebble: keys, checksums and durability have one author"},
	{dir: "internal/backup", may: []string{"event", "internal/store", "github.com/cockroachdb/pebble/v2/vfs"},
		why: "copies the files of a log and checks them; what they mean is no concern of it"},
	{dir: "internal/projector", may: []string{"event", "ticket", "internal/audit", "internal/eventlog", "internal/store"},
		tests: []string{"github.com/cockroachdb/pebble/v2"},
		why:   "a function of log and state: anything else it could ask would break replay"},
	{dir: "internal/crashtest", may: []string{"event", "internal/eventlog", "internal/store", "internal/projector", "github.com/cockroachdb/pebble/v2"},
		why: "what tests of several packages judge crashes by; nothing that is shipped imports it"},
	{dir: "internal/dispatch", may: []string{"event", "internal/eventlog", "internal/filter", "internal/metrics", "internal/store", "internal/projector"},
		tests: []string{"internal/eventlog", "github.com/cockroachdb/pebble/v2"},
		why:   "reads what the projector made durable and holds only what may be lost; it proposes nothing"},
	{dir: "internal/admission", may: []string{"api", "event", "ticket", "internal/identity", "internal/eventlog", "internal/validjson",
		"filippo.io/edwards25519", "github.com/go-json-experiment/json", "github.com/santhosh-tekuri/jsonschema/v6"},
		why: "refuses early on what needs no order; what depends on state is decided in apply"},
	{dir: "internal/outside",
		why: "brings bytes to places that others run, whatever they are"},
	{dir: "internal/broker", may: []string{"api", "event", "ticket", "internal/audit", "internal/outside", "internal/filter", "internal/metrics", "internal/identity", "internal/eventlog", "internal/store",
		"internal/signature", "internal/projector", "internal/dispatch", "internal/admission", "internal/backup", "github.com/cockroachdb/pebble/v2/vfs", "golang.org/x/sys/unix"},
		tests: []string{"internal/crashtest", "github.com/cockroachdb/pebble/v2", "github.com/prometheus/client_model"},
		why:   "joins the stages, sees all of them, and hands them the outside: the file system (vfs) and the clocks (unix)"},
	{dir: "internal/doctor", may: []string{"event", "internal/store", "internal/broker", "golang.org/x/sys/unix"},
		tests: []string{"internal/identity"},
		why:   "what is known of damage is broker's and store's; it looks at the machine itself (unix)"},
	{dir: "internal/transport/web", may: []string{"event", "ticket", "internal/filter", "internal/metrics", "internal/tracing", "internal/audit", "api", "docs", "internal/identity", "internal/dispatch", "internal/broker",
		"github.com/go-json-experiment/json", "golang.org/x/sys/unix"},
		tests: []string{"client", "internal/porttest", "internal/backup", "internal/eventlog", "github.com/cockroachdb/pebble/v2/vfs", "github.com/getkin/kin-openapi", "github.com/prometheus/client_model", "github.com/prometheus/common",
			"go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf", "github.com/coder/websocket"},
		why: "a transport holds no rule: it sees the broker's surface and its own connections (unix), never a stage, never another transport"},
	{dir: "internal/transport/webhook", may: []string{"event", "internal/egress", "internal/metrics", "internal/signature", "internal/broker"},
		tests: []string{"client", "internal/identity", "github.com/cockroachdb/pebble/v2/vfs"},
		why:   "a transport as the others, on which the broker is the one that calls"},
	{dir: "internal/tickettest", may: []string{"api", "ticket", "client", "client/ticket", "internal/orchestrator", "internal/egress", "internal/broker", "internal/transport/web", "internal/transport/webhook"},
		tests: []string{"event", "internal/identity"},
		why:   "a broker with agents, for tests of what speaks the ticket protocol; nothing that is shipped imports it"},
	{dir: "internal/sim", tests: []string{"api", "event", "ticket", "internal/identity", "internal/eventlog", "internal/store", "internal/filter", "internal/dispatch", "internal/crashtest", "internal/broker", "internal/transport/web",
		"github.com/cockroachdb/pebble/v2"},
		why: "nothing but tests: it looks at a broker from outside, and at the log to know what was proposed"},
	{dir: "cmd/signalbox", may: []string{"api", "event", "ticket", "client", "client/ticket", "internal/orchestrator", "internal/outside", "internal/egress", "internal/transport/webhook", "internal/audit", "internal/filter", "internal/identity", "internal/store", "internal/dispatch", "internal/backup", "internal/doctor",
		"internal/tracing", "internal/broker", "internal/transport/web", "github.com/spf13/cobra", "golang.org/x/term", "github.com/goccy/go-yaml"},
		tests: []string{"internal/porttest", "internal/tickettest"},
		why:   "wires everything in the order of the flow and holds nothing that others could want"},
	{dir: "examples/ticket/soc", may: []string{"event", "ticket", "client", "client/ticket"}, tests: []string{"internal/tickettest"},
		why: "an example to copy: it has what an agent of other people has"},
	{dir: "examples/ticket/desk", may: []string{"event", "ticket", "client", "client/ticket"}, tests: []string{"internal/tickettest"},
		why: "an example to copy, as above"},
	{dir: "examples/ticket/leases", may: []string{"event", "ticket", "client", "client/ticket"}, tests: []string{"internal/tickettest"},
		why: "an example to copy, as above"},
	{dir: "internal/scale", tests: []string{"event", "internal/porttest"}, why: "nothing but tests of the built program, which it knows by its doors only"},
	{dir: ".", why: "these rules only: the module has no package at its root"},
}

// testLibraries may be imported by every test and by nothing that is shipped:
// their licences and their size are no business of a user's.
var testLibraries = []string{
	"github.com/cockroachdb/datadriven",
	"github.com/rogpeppe/go-internal",
	"go.uber.org/goleak",
	"pgregory.net/rapid",
}

// ban forbids imports, names of other packages and constructs in the shipped
// code of some folders. Tests are free.
type ban struct {
	dirs    []string // folders; empty for the whole module
	except  []string // folders left out
	imports []string // import paths; "net/..." stands for what is below, too
	names   []string // "import/path.Name"
	gos     bool     // forbids go statements
	ranges  bool     // forbids walking a map in its own order
	why     string
}

var bans = []ban{
	{dirs: []string{"internal/projector"}, gos: true, ranges: true,
		imports: []string{"net/...", "os/...", "syscall", "math/rand/...", "crypto/rand", "runtime/...", "unsafe"},
		why:     "two projectors that apply the same log end with the same bytes"},
	{dirs: []string{"internal/projector", "internal/store", "internal/eventlog"},
		names: []string{"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc",
			"time.Tick", "time.NewTicker", "time.NewTimer"},
		why: "time arrives inside the proposal, stamped at admission, and moves only by logged ticks"},
	{dirs: []string{"event", "ticket", "internal/admission", "internal/transport"},
		names: []string{"encoding/json.Unmarshal", "encoding/json.NewDecoder"},
		why:   "it takes duplicate and case-folded members and repairs invalid UTF-8; strict decoding is jsontext's"},
	{except: []string{"cmd", "examples"},
		names: []string{"os.Exit", "os.Stdin", "os.Stdout", "os.Stderr", "os.Args", "fmt.Print", "fmt.Printf", "fmt.Println"},
		why:   "only a command decides how the process ends and what it prints"},
	{imports: []string{"log"}, why: "diagnostics are structured and go to the slog.Logger that was handed in"},
	{imports: []string{"unsafe"}, why: "nothing here is worth memory corruption"},
}

// textBan forbids a pattern in every text file of the repository. The patterns
// are written so that they do not match themselves.
type textBan struct {
	pattern *regexp.Regexp
	why     string
}

var textBans = []textBan{
	{regexp.MustCompile(`(?:^|[^\w./-])/(?:work|root)/`),
		"a path of the machine it was written on: nobody else has it"},
	{regexp.MustCompile(`\b(?:TO[D]O|FIX[M]E|XX[X]|HAC[K])\b`),
		"a note to oneself: finish it, or document the gap as BUG(name)"},
	{regexp.MustCompile(`(?i)\bissues? #?[0-9]|\.\./share[d]\b`),
		"the repository is read without its tracker and without folders beside it"},
}

// exception lets one finding stand. The list only shrinks: an entry that
// excuses nothing any more fails the test.
type exception struct {
	rule, file, subject string
	why                 string
}

var exceptions = []exception{
	{rule: "ban", file: "event/receipt.go", subject: "encoding/json.Unmarshal",
		why: "reads what a broker wrote, and has to pass over the members that a newer one adds"},
}

func TestArchitecture(t *testing.T) {
	found, err := check(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	used := make([]bool, len(exceptions))
	for _, f := range found {
		i := slices.IndexFunc(exceptions, func(e exception) bool {
			return e.rule == f.rule && e.file == f.file && e.subject == f.subject
		})
		if i >= 0 {
			used[i] = true
			continue
		}
		t.Errorf("%s:%d: %s [rule %q, subject %q]", f.file, f.line, f.message, f.rule, f.subject)
	}
	for i, e := range exceptions {
		if e.why == "" {
			t.Errorf("arch_test.go:1: the exception for %s %q gives no reason", e.file, e.subject)
		}
		if !used[i] {
			t.Errorf("arch_test.go:1: the exception for %s %q [rule %q] excuses nothing any more: remove it", e.file, e.subject, e.rule)
		}
	}
}

// TestLayersAreOrdered keeps the table itself free of cycles.
func TestLayersAreOrdered(t *testing.T) {
	lower := map[string]bool{}
	for _, l := range layers {
		if l.why == "" {
			t.Errorf("layer %s gives no reason", l.dir)
		}
		for _, m := range l.may {
			if !external(m) && !lower[m] {
				t.Errorf("layer %s may import %s, which is no row above it", l.dir, m)
			}
		}
		lower[l.dir] = true
	}
}

// TestRulesBite breaks every rule once, so that a checker that sees nothing is
// noticed.
func TestRulesBite(t *testing.T) {
	const spdx = "// SPDX-License-Identifier: Apache-2.0\n\n"
	const doc = spdx + "// Package p does p.\npackage p\n"
	for _, c := range []struct{ rule, subject, file, text string }{
		{"spdx", "script.sh", "script.sh", "#!/bin/sh\nexit 0\n"},
		{"text", "/wo" + "rk/", "README.md", "see /wo" + "rk/main"},
		{"text", "issu" + "e 7", "a/testdata/b.txt", "as in issu" + "e 7"},
		{"text", "TO" + "DO", "README.md", "TO" + "DO: write"},
		{"file size", "event/a.go", "event/a.go", doc + strings.Repeat("\n", codeLinesMax)},
		{"file size", "event/a_test.go", "event/a_test.go", doc + strings.Repeat("\n", testLinesMax)},
		{"function size", "event.T.f", "event/a.go", doc + "type T int\nfunc (*T) f() {" + strings.Repeat("\n", functionLinesMax) + "}\n"},
		{"package doc", "event", "event/a.go", spdx + "package p\n"},
		{"layer", "internal/other", "internal/other/a.go", doc},
		{"layer", "client", "event/a.go", doc + `import _ "signalbox/client"`},
		{"layer", "github.com/spf13/cobra", "event/a.go", doc + `import _ "github.com/spf13/cobra"`},
		{"layer", "pgregory.net/rapid", "event/a.go", doc + `import _ "pgregory.net/rapid"`},
		{"layer", "github.com/spf13/cobra", "event/a_test.go", doc + `import _ "github.com/spf13/cobra"`},
		{"layer", "internal/store", "client/a_test.go", doc + `import _ "signalbox/internal/store"`},
		{"ban", "net/http", "internal/projector/a.go", doc + `import _ "net/http"`},
		{"ban", "time.Now", "internal/store/a.go", doc + "import clock \"time\"\nvar now = clock.Now\n"},
		{"ban", "go", "internal/projector/a.go", doc + "func f() { go f() }\n"},
		{"ban", "range", "internal/projector/a.go", doc + "type T struct{ m map[int]int }\nfunc f(t *T) { for range t.m {} }\n"},
		{"ban", "maps.Keys", "internal/projector/a.go", doc + "import \"maps\"\nvar m map[int]int\nfunc f() { for range maps.Keys(m) {} }\n"},
		{"panic", "event.f", "event/a.go", doc + "func f() { panic(1) }\n"},
		{"init", "init", "event/a.go", doc + "func init() {}\n"},
		{"variable", "v", "event/a.go", doc + "var v int\n"},
		{"go.mod", "toolchain", "go.mod", "module signalbox\n\ngo 1.26\n\ntoolchain go1.26.8\n"},
	} {
		found, err := check(fstest.MapFS{c.file: {Data: []byte(c.text)}})
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		if !slices.ContainsFunc(found, func(f finding) bool {
			return f.rule == c.rule && f.subject == c.subject && f.file == c.file && f.line > 0
		}) {
			t.Errorf("no finding of rule %q about %q in:\n%.200s\nfound: %+v", c.rule, c.subject, c.text, found)
		}
	}
}

// TestRulesAllow has what looks forbidden and is not.
func TestRulesAllow(t *testing.T) {
	tree := fstest.MapFS{
		".gitignore":     {Data: []byte("# trial runs\n/data\n*.out\n")},
		"data/x.sh":      {Data: []byte("ignored\n")},
		"trace.out":      {Data: []byte("TO" + "DO ignored\n")},
		"event/t.bin":    {Data: []byte("TO" + "DO \x00 binary\n")},
		"bench/go.mod":   {Data: []byte("module bench\n")},
		"bench/bench.go": {Data: []byte("// SPDX-License-Identifier: Apache-2.0\npackage bench\n\nimport _ \"github.com/spf13/cobra\"\n")},
		"internal/projector/a.go": {Data: []byte("// SPDX-License-Identifier: Apache-2.0\n\n// Package projector is one.\npackage projector\n" +
			"import (\n\"errors\"\n\"maps\"\n\"slices\"\n)\nvar errA = errors.New(\"a\")\nvar _ error = errA\n" +
			"// f panics on a broken invariant.\nfunc f(m map[int]int) {\nfor range slices.Sorted(maps.Keys(m)) { panic(errA) }\n}\n")},
	}
	found, err := check(tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.rule != "layer" || !strings.Contains(f.message, "has no package") {
			t.Errorf("%s:%d: %s", f.file, f.line, f.message)
		}
	}
}

// finding is one broken rule; subject names the function, import or word.
type finding struct {
	rule, file, subject string
	line                int
	message             string
}

// source is one parsed Go file of this module.
type source struct {
	file    string
	test    bool
	syntax  *ast.File
	imports map[string]string // local name to import path
}

// checker collects the findings about one tree.
type checker struct {
	tree     fs.FS
	ignored  []string
	fset     *token.FileSet
	packages map[string][]source // by folder
	found    []finding
}

func check(tree fs.FS) ([]finding, error) {
	c := &checker{tree: tree, fset: token.NewFileSet(), packages: map[string][]source{}}
	if b, err := fs.ReadFile(tree, ".gitignore"); err == nil {
		c.ignored = strings.Fields(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(string(b), ""))
	}
	if err := fs.WalkDir(tree, ".", c.visit); err != nil {
		return nil, err
	}
	for dir, sources := range c.packages {
		c.checkPackage(dir, sources)
	}
	for _, l := range layers {
		if c.packages[l.dir] == nil {
			c.report("layer", "arch_test.go", 1, l.dir, "the layer %s has no package: remove its row", l.dir)
		}
	}
	slices.SortStableFunc(c.found, func(a, b finding) int {
		return strings.Compare(fmt.Sprintf("%s:%06d", a.file, a.line), fmt.Sprintf("%s:%06d", b.file, b.line))
	})
	return c.found, nil
}

func (c *checker) report(rule, file string, line int, subject, format string, args ...any) {
	c.found = append(c.found, finding{rule, file, subject, line, fmt.Sprintf(format, args...)})
}

func (c *checker) reportAt(rule string, pos token.Pos, subject, format string, args ...any) {
	p := c.fset.Position(pos)
	c.report(rule, p.Filename, p.Line, subject, format, args...)
}

// skip says whether git ignores a path; it knows plain names, "*.ext" and
// "/anchored" paths, which is all that .gitignore uses here.
func (c *checker) skip(file string) bool {
	return path.Base(file) == ".git" || slices.ContainsFunc(c.ignored, func(pattern string) bool {
		anchored, isAnchored := strings.CutPrefix(pattern, "/")
		if isAnchored {
			return file == anchored
		}
		ok, err := path.Match(pattern, path.Base(file))
		return err == nil && ok
	})
}

func (c *checker) visit(file string, entry fs.DirEntry, err error) error {
	switch {
	case err != nil:
		return err
	case file != "." && c.skip(file):
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	case entry.IsDir() || !entry.Type().IsRegular():
		return nil
	}
	text, err := fs.ReadFile(c.tree, file)
	if err != nil {
		return err
	}
	// Fuzz seeds say whatever broke something; a NUL byte is git's sign of a binary file.
	if bytes.IndexByte(text, 0) >= 0 || strings.Contains(file, "testdata/fuzz/") {
		return nil
	}
	testdata := strings.Contains("/"+file, "/testdata/")
	if !testdata {
		c.checkLicence(file, text)
	}
	c.checkText(file, text)
	if file == "go.mod" {
		c.checkGoMod(text)
	}
	if path.Ext(file) == ".go" && !testdata && !c.otherModule(file) {
		return c.parse(file, text)
	}
	return nil
}

// otherModule says whether a folder above the file, below the root, has a go.mod.
func (c *checker) otherModule(file string) bool {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if _, err := fs.Stat(c.tree, dir+"/go.mod"); err == nil {
			return true
		}
	}
	return false
}

// commented has the files that can carry a comment with the licence.
var commented = []string{".go", ".sh", ".py", ".js", ".mjs", ".ts", ".yml", ".yaml", ".proto", ".css"}

func (c *checker) checkLicence(file string, text []byte) {
	lines := bytes.SplitN(text, []byte("\n"), 4)
	carries := slices.Contains(commented, path.Ext(file)) || path.Base(file) == "Makefile" || bytes.HasPrefix(text, []byte("#!"))
	head := bytes.Join(lines[:min(3, len(lines))], []byte("\n"))
	if carries && !bytes.Contains(head, []byte("SPDX-License-Identifier: Apache-2.0")) {
		c.report("spdx", file, 1, file, "the first three lines have no SPDX-License-Identifier: Apache-2.0")
	}
}

func (c *checker) checkText(file string, text []byte) {
	for i, line := range strings.Split(string(text), "\n") {
		for _, b := range textBans {
			if m := b.pattern.FindString(line); m != "" {
				m = strings.TrimSpace(m)
				c.report("text", file, i+1, m, "%q: %s", m, b.why)
			}
		}
	}
}

// checkGoMod keeps the module buildable by whoever has just that Go release.
func (c *checker) checkGoMod(text []byte) {
	for i, line := range strings.Split(string(text), "\n") {
		word, _, _ := strings.Cut(line, " ")
		if word == "toolchain" || word == "replace" {
			c.report("go.mod", "go.mod", i+1, word, "no %s line: a user has neither our toolchain nor our folders", word)
		}
	}
}

func (c *checker) parse(file string, text []byte) error {
	syntax, err := parser.ParseFile(c.fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	s := source{file: file, test: strings.HasSuffix(file, "_test.go"), syntax: syntax, imports: map[string]string{}}
	for _, i := range syntax.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		name := path.Base(imported)
		if regexp.MustCompile(`^v[0-9]+$`).MatchString(name) {
			name = path.Base(path.Dir(imported))
		}
		if i.Name != nil {
			name = i.Name.Name
		}
		s.imports[name] = imported
	}
	c.packages[path.Dir(file)] = append(c.packages[path.Dir(file)], s)
	if !ast.IsGenerated(syntax) {
		c.checkSize(s, bytes.Count(text, []byte("\n")))
	}
	c.checkDeclarations(s)
	return nil
}

func (c *checker) checkSize(s source, lines int) {
	limit := codeLinesMax
	if s.test {
		limit = testLinesMax
	}
	if lines > limit {
		c.report("file size", s.file, limit+1, s.file, "%d lines, the limit is %d: split it by what it does", lines, limit)
	}
	for _, d := range s.syntax.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := c.fset.Position(f.End()).Line - c.fset.Position(f.Pos()).Line + 1; n > functionLinesMax {
			c.reportAt("function size", f.Pos(), qualified(s, f), "%d lines, the limit is %d", n, functionLinesMax)
		}
	}
}

// qualified names a function by its folder, its receiver's type and itself.
func qualified(s source, f *ast.FuncDecl) string {
	name := f.Name.Name
	if f.Recv != nil && len(f.Recv.List) == 1 {
		name = strings.TrimLeft(types.ExprString(f.Recv.List[0].Type), "*") + "." + name
	}
	return path.Dir(s.file) + "." + name
}

// checkDeclarations forbids what makes a package have state or stop the
// process behind its caller's back.
func (c *checker) checkDeclarations(s source) {
	for _, d := range s.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				c.reportAt("init", d.Pos(), "init", "an init function runs before anybody could configure or refuse it")
			}
			if !s.test {
				c.checkPanics(s, d)
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR && !s.test {
				c.checkVariables(d)
			}
		}
	}
}

// checkPanics allows a panic only where the function's comment tells of it or
// its name does (must and Must are Go's convention), and net/http's way to break
// off a response.
func (c *checker) checkPanics(s source, f *ast.FuncDecl) {
	if strings.HasPrefix(strings.ToLower(f.Name.Name), "must") || strings.Contains(strings.ToLower(f.Doc.Text()), "panic") || f.Body == nil {
		return
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if ok && types.ExprString(call.Fun) == "panic" && types.ExprString(call.Args[0]) != "http.ErrAbortHandler" {
			c.reportAt("panic", n.Pos(), qualified(s, f), "a panic that the comment of %s does not mention", f.Name.Name)
		}
		return true
	})
}

// checkVariables finds the package variables that are state for certain: those
// that start out as nothing. Sentinels, tables and regular expressions have a
// value, an embedded file has its directive.
func (c *checker) checkVariables(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		embedded := slices.ContainsFunc([]*ast.CommentGroup{d.Doc, v.Doc}, func(g *ast.CommentGroup) bool {
			return g != nil && slices.ContainsFunc(g.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
		})
		if len(v.Values) == 0 && !embedded && v.Names[0].Name != "_" {
			c.reportAt("variable", v.Pos(), v.Names[0].Name, "a package variable without a value is global state")
		}
	}
}

func (c *checker) checkPackage(dir string, sources []source) {
	i := slices.IndexFunc(layers, func(l layer) bool { return l.dir == dir })
	if i < 0 {
		c.reportAt("layer", sources[0].syntax.Pos(), dir, "the package %s has no row in the layers of arch_test.go", dir)
		i = slices.IndexFunc(layers, func(l layer) bool { return l.dir == "." })
	}
	documented := slices.ContainsFunc(sources, func(s source) bool {
		text := s.syntax.Doc.Text()
		return strings.HasPrefix(text, "Package "+s.syntax.Name.Name+" ") || s.syntax.Name.Name == "main" && text != ""
	})
	if !documented {
		c.reportAt("package doc", sources[0].syntax.Name.Pos(), dir, "no file says what package %s is for", sources[0].syntax.Name.Name)
	}
	for _, s := range sources {
		c.checkImports(s, dir, layers[i])
		for _, b := range bans {
			if !s.test && b.covers(dir) {
				c.checkBan(s, b)
			}
		}
	}
	for _, b := range bans {
		if b.ranges && b.covers(dir) {
			c.checkRanges(sources, b)
		}
	}
}

// external says whether an import path is another module's.
func external(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return strings.Contains(first, ".")
}

func within(name, root string) bool { return name == root || strings.HasPrefix(name, root+"/") }

func (c *checker) checkImports(s source, dir string, l layer) {
	for _, spec := range s.syntax.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		own, isOwn := strings.CutPrefix(imported, module+"/")
		if !isOwn && !external(imported) {
			continue
		}
		allowed := slices.Clone(l.may)
		if s.test {
			allowed = slices.Concat(allowed, l.tests, testLibraries, []string{dir})
		}
		if !slices.ContainsFunc(allowed, func(a string) bool {
			return own == a || external(a) && within(imported, a)
		}) {
			c.reportAt("layer", spec.Pos(), own, "%s must not import %s: %s", dir, imported, l.why)
		}
	}
}

func (b ban) covers(dir string) bool {
	in := func(root string) bool { return within(dir, root) }
	return (len(b.dirs) == 0 || slices.ContainsFunc(b.dirs, in)) && !slices.ContainsFunc(b.except, in)
}

func (c *checker) checkBan(s source, b ban) {
	for _, spec := range s.syntax.Imports {
		imported := strings.Trim(spec.Path.Value, `"`)
		if slices.ContainsFunc(b.imports, func(p string) bool {
			root, below := strings.CutSuffix(p, "/...")
			return imported == root || below && within(imported, root)
		}) {
			c.reportAt("ban", spec.Pos(), imported, "import of %s: %s", imported, b.why)
		}
	}
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if name := s.name(n); slices.Contains(b.names, name) {
				c.reportAt("ban", n.Pos(), name, "%s: %s", name, b.why)
			}
		case *ast.GoStmt:
			if b.gos {
				c.reportAt("ban", n.Pos(), "go", "a goroutine: %s", b.why)
			}
		}
		return true
	})
}

// name resolves a selector on an imported package to "import/path.Name".
func (s source) name(n *ast.SelectorExpr) string {
	if x, ok := n.X.(*ast.Ident); ok && s.imports[x.Name] != "" {
		return s.imports[x.Name] + "." + n.Sel.Name
	}
	return ""
}

// checkRanges finds loops in map order. The package is type-checked alone, with
// its imports unknown, which takes a millisecond and still knows its own maps.
func (c *checker) checkRanges(sources []source, b ban) {
	var files []*ast.File
	for _, s := range sources {
		if !s.test {
			files = append(files, s.syntax)
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	lenient := types.Config{Error: func(error) {}, Importer: unknown{}}
	_, _ = lenient.Check("core", c.fset, files, info) // the unknown imports are its only errors in code that builds
	for _, s := range sources {
		if s.test {
			continue
		}
		sorted := map[ast.Expr]bool{}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.RangeStmt:
				if t := info.Types[n.X].Type; t != nil {
					if _, isMap := t.Underlying().(*types.Map); isMap {
						c.reportAt("ban", n.Pos(), "range", "a loop in map order (sort the keys first): %s", b.why)
					}
				}
			case *ast.CallExpr:
				f, _ := n.Fun.(*ast.SelectorExpr)
				if f == nil {
					break
				}
				switch name := s.name(f); {
				case strings.HasPrefix(name, "slices.Sorted") && len(n.Args) > 0:
					sorted[n.Args[0]] = true
				case slices.Contains([]string{"maps.Keys", "maps.Values", "maps.All"}, name) && !sorted[n]:
					c.reportAt("ban", n.Pos(), name, "a loop in map order (wrap it in slices.Sorted): %s", b.why)
				}
			}
			return true
		})
	}
}

// unknown is an importer that knows no package.
type unknown struct{}

func (unknown) Import(name string) (*types.Package, error) {
	return nil, fmt.Errorf("%s is not looked at", name)
}
