// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDoctorPageShowsADamagedDirectory damages a data directory as docs/operations.md
// does, and holds what doctor prints against what the page shows; "…" stands for
// anything.
func TestDoctorPageShowsADamagedDirectory(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	step := regexp.MustCompile("(?s)```sh damage\n(.*?)```\n```\n(.*?)```").FindStringSubmatch(string(page))
	if step == nil {
		t.Fatal("the page shows no damage")
	}
	dir := t.TempDir()
	seedData(t, dir)
	command := strings.ReplaceAll(step[1], "signalbox doctor", "signalbox doctor --format text") + "test $? = 3\n" // a terminal gets text
	got := shell(t, dir, command)
	const progress = "(checking [^\n]*\n)*" // which is shown when it takes a while
	want := "(?s)^" + progress + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(step[2])), "…", ".*") + "$"
	if !regexp.MustCompile(want).MatchString(strings.TrimSpace(got)) {
		t.Errorf("%s\nprinted\n%s\nand the page says\n%s", command, got, step[2])
	}
}
