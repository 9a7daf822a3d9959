// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPagesShowWhatHappens runs the commands of pages, which stand behind "$ " in
// their blocks, one after another in one shell against a fresh broker, and holds
// what they print against the lines that follow each.
func TestPagesShowWhatHappens(t *testing.T) {
	for _, page := range []string{"subscriptions", "filters", "webhooks"} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile("../../docs/" + page + ".md")
			if err != nil {
				t.Fatal(err)
			}
			steps := stepsOf(string(text))
			if len(steps) < 3 {
				t.Fatalf("the page has %d commands", len(steps))
			}
			t.Setenv("SIGNALBOX_URL", serveForTest(t))
			printed := runSteps(t, steps)
			if len(printed) != len(steps) {
				t.Fatalf("%d commands printed %d times", len(steps), len(printed))
			}
			for i, step := range steps {
				if got := withoutIncarnation(printed[i]); got != withoutIncarnation(step.prints) {
					t.Errorf("$ %s\nprinted\n%sand the page says\n%s", step.command, got, step.prints)
				}
			}
		})
	}
}

// step is a command of a page, and what it says that it prints.
type step struct{ command, prints string }

func stepsOf(page string) (steps []step) {
	for _, block := range regexp.MustCompile("(?s)```\n(\\$ .*?)```").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				steps = append(steps, step{command: strings.TrimSpace(command)})
				continue
			}
			steps[len(steps)-1].prints += line
		}
	}
	return steps
}

// runSteps returns what each step printed. In the shell the output is no terminal,
// so signalbox is told that it is for people.
func runSteps(t *testing.T, steps []step) []string {
	t.Helper()
	const mark = "--- next step ---"
	script := "signalbox() { command signalbox \"$@\" --format text; }\nexec 2>&1\n"
	for i, s := range steps {
		if i > 0 {
			script += "echo '" + mark + "'\n"
		}
		script += s.command + "\n"
	}
	return strings.Split(shell(t, t.TempDir(), script+"true\n"), mark+"\n")
}

// withoutIncarnation gives all cursors the same log, which every broker draws anew.
func withoutIncarnation(text string) string {
	return regexp.MustCompile(`(@\d+)\.[a-z0-9]{8}`).ReplaceAllString(text, "$1.k3f9x0ab")
}
