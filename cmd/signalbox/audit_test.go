// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"signalbox/client"
	"signalbox/event"
)

// steps are the commands of a page with what they print; "…" in that stands for anything.
func steps(t *testing.T, page string) [][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```sh\n(.*?)```\n```\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(found) != strings.Count(string(text), "```sh") {
		t.Fatalf("%s has commands without what they print", page)
	}
	return found
}

// TestAuditPageWorksWhenPasted runs the commands of docs/audit.md one after another.
func TestAuditPageWorksWhenPasted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SIGNALBOX_URL", serveForTest(t))
	for _, step := range steps(t, "../../docs/audit.md") {
		got := shell(t, dir, strings.TrimSpace(step[1]))
		want := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(step[2])), "…", ".*") + "$"
		if !regexp.MustCompile(want).MatchString(strings.TrimSpace(got)) {
			t.Errorf("%s\nprinted\n%s\nand the page says\n%s", step[1], got, step[2])
		}
	}
}

// auditScript writes one of the two scripts of docs/audit.md to a file, to be run.
func auditScript(t *testing.T, n int, file string) (script string) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed; .ci/run installs it and runs this test")
	}
	page, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```python\n")
	if len(blocks) != 3 {
		t.Fatalf("docs/audit.md has %d scripts", len(blocks)-1)
	}
	script, _, _ = strings.Cut(blocks[n+1], "```")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return script
}

// TestIndependentScriptAgrees runs the script of docs/audit.md over the trail of awkward
// events, live, after a restart and after backup and restore, and over damage of two kinds.
func TestIndependentScriptAgrees(t *testing.T) {
	dir := t.TempDir()
	script := auditScript(t, 0, filepath.Join(dir, "check.py"))
	if lines := strings.Count(script, "\n"); lines > 60 {
		t.Errorf("the script has %d lines", lines)
	}
	url, stop, err := startBroker(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SIGNALBOX_URL", url)
	shell(t, dir, `signalbox topic set fleet.tasks --cleanup-policy compact`)
	for _, data := range []string{`{"a":"é"}`, "{\"a\":\"é\"}", `"<&>\u2028"`, "\"\u2028\"", `12345678901234567890123`, `-0`, `null`, `""`, `{"b":1,"a":2}`} {
		shell(t, dir, `signalbox publish fleet.tasks --source /agents/a --type t --subject k --data '`+data+`'`)
	}
	shell(t, dir, `signalbox publish fleet.tasks --source /agents/a --type t --subject k --id 1 --data 1`)
	shell(t, dir, `signalbox publish fleet.tasks --source /agents/a --type t --subject k --id 1 --data 1`)
	shell(t, dir, `signalbox publish fleet.tasks --source /agents/a --type t --id 2 --data 1 || true`)
	shell(t, dir, `signalbox publish fleet.times --source /agents/a --type t --ext since=2026-11-29T10:00:00.123456789Z --ext zeta= --ext alpha=1 --no-data`)
	live := shell(t, dir, `signalbox audit export -o live.ndjson && python3 check.py live.ndjson`)
	if !strings.HasPrefix(live, "valid: ") {
		t.Fatalf("the script says of the live trail: %s", live)
	}
	shell(t, dir, `signalbox backup copy`)
	stop()
	shell(t, dir, `signalbox restore copy restored`)
	for _, data := range []string{"data", "restored"} {
		url, stop, err := startBroker(filepath.Join(dir, data))
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("SIGNALBOX_URL", url)
		got := shell(t, dir, `signalbox audit export -o `+data+`.ndjson && python3 check.py `+data+`.ndjson`)
		if !strings.HasPrefix(got, "valid: ") || data == "data" && got != live {
			t.Errorf("of %s the script says %s, and of the live trail it said %s", data, got, live)
		}
		stop()
	}
	changed := shell(t, dir, `sed 's/"position":"3"/"position":"4"/' live.ndjson > x.ndjson; python3 check.py x.ndjson || true`)
	if !strings.HasPrefix(changed, "entry 5: content changed\n") || strings.Contains(changed, "linkage") {
		t.Errorf("of a changed entry the script says %s", changed)
	}
	exchanged := shell(t, dir, `(head -n 4 live.ndjson; sed -n 6p live.ndjson; sed -n 5p live.ndjson; tail -n +7 live.ndjson) > x.ndjson; python3 check.py x.ndjson || true`)
	if !strings.HasPrefix(exchanged, "entry 4: linkage broken, 3 was expected\n") || strings.Contains(exchanged, "content") {
		t.Errorf("of exchanged entries the script says %s", exchanged)
	}
}

// TestProofsHoldByHand checks proofs of entries and of earlier checkpoints with the second
// script of docs/audit.md, and that it finds out what was changed.
func TestProofsHoldByHand(t *testing.T) {
	dir := t.TempDir()
	auditScript(t, 1, filepath.Join(dir, "proof.py"))
	t.Setenv("SIGNALBOX_URL", serveForTest(t))
	shell(t, dir, `signalbox audit key > key`)
	for _, events := range []string{"1", "1 2", "1 2 3", "1"} { // trees of several forms
		shell(t, dir, `for i in `+events+`; do signalbox publish fleet.tasks --source /agents/a --type é --data 1; done; c=$(ls ?.txt 2>/dev/null | wc -l); signalbox audit checkpoint > $c.txt`)
		shell(t, dir, `signalbox audit proof --position 1 > proof.json && python3 proof.py proof.json`)
		shell(t, dir, `sed 's/"flags":1/"flags":2/' proof.json > x.json; ! python3 proof.py x.json`)
		shell(t, dir, `for c in ?.txt; do signalbox audit proof --since $c --key key > since.json && python3 proof.py since.json $c || exit 1; done`)
	}
	shell(t, dir, `signalbox audit proof --since 1.txt --key key > since.json && ! python3 proof.py since.json 2.txt`)
	shell(t, dir, `signalbox publish fleet.tasks --source /agents/a --type t --data 1 && signalbox audit proof --leaf 2 > other.json && sed "s/\"leaf\":\"[0-9a-f]*\",\"size\"/\"leaf\":\"$(printf %064d 0)\",\"size\"/" other.json > x.json; ! python3 proof.py x.json`)
}

// TestExportIsResumed goes on with an export that was cut in the middle of a line.
func TestExportIsResumed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SIGNALBOX_URL", serveForTest(t))
	shell(t, dir, `for i in 1 2 3 4 5; do signalbox publish a --source /s --type t --id $i --no-data; done; signalbox audit key > key`)
	shell(t, dir, `signalbox audit export -o whole.ndjson && head -c 1500 whole.ndjson > part.ndjson`)
	shell(t, dir, `signalbox publish a --source /s --type t --id 6 --no-data && signalbox audit export -o part.ndjson --resume`)
	shell(t, dir, `signalbox audit export -o part.ndjson --resume && signalbox audit verify part.ndjson --key key`)
	if got := shell(t, dir, `grep -c '"index"' part.ndjson`); got != "8\n" {
		t.Errorf("the resumed export has %s entries", got)
	}
	shell(t, dir, `: > empty && signalbox audit export -o empty --resume && signalbox audit verify empty --key key`)
	shell(t, dir, `echo other > other && ! signalbox audit export -o other --resume && test "$(cat other)" = other`)
}

// TestTimelineSaysWhyAnEventIsNotShown: a message that others may read is not said to be
// gone.
func TestTimelineSaysWhyAnEventIsNotShown(t *testing.T) {
	for topic, want := range map[string]string{"orders": "accepted (the event is gone)\n", "bus.main.plan.network": "accepted (the event is gone, or not for you to read; see --as)\n"} {
		var b strings.Builder
		if err := writeEntry(&b, &client.AuditEntry{Kind: "event", Topic: topic, Outcome: event.OutcomeAccepted}, true); err != nil || !strings.HasSuffix(b.String(), want) {
			t.Errorf("%s: %q, %v", topic, b.String(), err)
		}
	}
}
