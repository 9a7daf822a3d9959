// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/configuration.md and signalbox.yaml anew")

// TestConfigPagesAreTheComments keeps the reference page and the example file in agreement with the fields of Config.
func TestConfigPagesAreTheComments(t *testing.T) {
	comments := fieldComments(t)
	for file, want := range map[string]string{
		"../../docs/configuration.md": configPage(t, comments),
		"signalbox.yaml":              configExample(t, comments),
	} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != want {
			t.Errorf("%s differs from the comments of Config (%v); run: go test ./cmd/signalbox -run Config -update", file, err)
		}
	}
}

// fieldComments returns the comment of each setting, by key, as lines.
func fieldComments(t *testing.T) map[string][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		f, ok := n.(*ast.Field)
		if !ok || f.Tag == nil {
			return true
		}
		key := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("key")
		comments[key] = strings.Split(strings.TrimSpace(f.Doc.Text()), "\n")
		if f.Doc.Text() == "" {
			t.Errorf("the setting %s has no comment", key)
		}
		return true
	})
	return comments
}

func configPage(t *testing.T, comments map[string][]string) string {
	var b strings.Builder
	b.WriteString(`# Configuration

Each setting has one name. In the file it is a line ` + "`key: value`" + `, on the command line a flag, in the
environment a variable. What decides is, in this order: the flag, the variable, the file, the default.

` + "```" + `
signalbox serve --config signalbox.yaml     # or SIGNALBOX_CONFIG=signalbox.yaml
signalbox config example                    # a file with every setting
signalbox config check --config FILE        # every fault, with its line
signalbox config show --config FILE         # the effective values, and where each came from
` + "```" + `

The file is YAML: one mapping from keys to single values. A key that does not exist is refused, and so is a key that
is given twice. Sizes are bytes, or have KiB, MiB, GiB or TiB behind them; durations are written as 500ms, 10s, 24h.
An empty variable counts as absent. The settings apply from the next start, except those that say otherwise.

This page is made from the comments in cmd/signalbox/config.go.

| key | flag | variable | default |
|---|---|---|---|
`)
	settings := settingsOf(&Config{})
	for _, s := range settings {
		fmt.Fprintf(&b, "| [`%s`](#%s) | `--%s` | `%s` | `%s` |\n", s.key, s.key, s.flag(), s.variable(), written(s))
	}
	for _, s := range settings {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", s.key, strings.Join(comments[s.key], "\n"))
		if slices.Contains(reloadable(), s.key) {
			b.WriteString("\nA running broker takes it over from the file on SIGHUP (`systemctl reload signalbox`).\n")
		}
	}
	return b.String()
}

func reloadable() (keys []string) {
	typ := reflect.TypeFor[Reloadable]()
	for i := range typ.NumField() {
		keys = append(keys, typ.Field(i).Tag.Get("key"))
	}
	return keys
}

func configExample(t *testing.T, comments map[string][]string) string {
	var b strings.Builder
	b.WriteString("# SPDX-License-Identifier: Apache-2.0\n" +
		"# Every setting of Signalbox with its default. Keep the lines to change; \"signalbox config check\" checks the file.\n")
	for _, s := range settingsOf(&Config{}) {
		fmt.Fprintf(&b, "\n# %s\n%s: %s\n", strings.Join(comments[s.key], "\n# "), s.key, written(s))
	}
	return b.String()
}

// written is a setting's value as it stands in a file.
func written(s *setting) string {
	if s.text() == "" {
		return `""`
	}
	return s.text()
}

// TestConfigExampleIsTheDefaults parses the file that is shipped.
func TestConfigExampleIsTheDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signalbox.yaml")
	if err := os.WriteFile(path, exampleConfig, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := (&configFlags{path: path}).resolve()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.settings {
		if s.origin != fromFile {
			t.Errorf("%s is not set by the example", s.key)
		}
	}
	defaults := &Config{}
	settingsOf(defaults)
	if r.Config != *defaults {
		t.Errorf("the example gives %+v, the defaults are %+v", r.Config, *defaults)
	}
}

// TestConfigFileIsStrict: what cannot be meant is refused with its line.
func TestConfigFileIsStrict(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"listn: 127.0.0.1:1\n", `f.yaml:1: there is no setting "listn"; did you mean listen?`},
		{"\n\nmin-free: 1GiB\n", `f.yaml:3: there is no setting "min-free"; did you mean min_free?`},
		{"brokers: many\n", `there is no setting "brokers"; "signalbox config example" lists all`},
		{"data: a\ndata: b\n", `f.yaml:2: `},
		{"min_free: 1MB\n", `f.yaml:1: min_free cannot be "1MB": write a size`},
		{"hlc_max_drift: 5\n", `hlc_max_drift cannot be "5": write a duration`},
		{"webhook_allow: 127.0.0.1:80\n", `webhook_allow cannot be "127.0.0.1:80": write hosts`},
		{"data: [a, b]\n", `f.yaml:1: data must have a single value`},
		{"data:\n", `f.yaml:1: data must have a single value`},
		{"- a\n", `f.yaml:1: it must be lines of the form key: value`},
		{"data: a\n---\ndata: b\n", `several documents`},
		{"data: \"a\n", `f.yaml:1: `},
		{"log_format: xml\nlog_level: loud\n", `f.yaml:2: log_level cannot be "loud"`},
		{"hlc_max_drift: 0s\n", `hlc_max_drift is 0s and must be at least 1ms`},
		{"data: ''\n", `data names no directory`},
	} {
		t.Chdir(t.TempDir())
		if err := os.WriteFile("f.yaml", []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := (&configFlags{path: "f.yaml"}).resolve()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q gives %v, want %q in it", c.text, err, c.want)
		}
	}
	for _, text := range []string{"", "# nothing\n", "data: a # here\n", "data: 010\nmin_free: 0\n"} {
		if err := os.WriteFile("f.yaml", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := (&configFlags{path: "f.yaml"}).resolve(); err != nil {
			t.Errorf("%q gives %v", text, err)
		}
	}
}

// TestHangupTakesOverTheReloadable: on SIGHUP the level of the logs changes, and a file with faults changes nothing.
func TestHangupTakesOverTheReloadable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("log_level: info\n")
	p := serveIn(t, dir, "signalbox serve --config f.yaml")
	for _, c := range []struct{ text, want string }{
		{"log_level: debug\n", "was read again\" log_level=DEBUG"},
		{"log_levle: error\n", "the old one stays"},
	} {
		write(c.text)
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(patience); !strings.Contains(string(p.printed()), c.want); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%q is not in:\n%s", c.want, p.printed())
			}
		}
	}
	p.stop(syscall.SIGTERM)
}

func FuzzConfigFile(f *testing.F) {
	f.Add(exampleConfig)
	f.Add([]byte("data: &a x\nlisten: *a\n"))
	f.Add([]byte("? data\n: - x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &resolved{}
		r.settings = settingsOf(&r.Config)
		for _, fault := range r.read("f", text) {
			if !strings.HasPrefix(fault, "f:") {
				t.Errorf("%q does not say where", fault)
			}
		}
	})
}
