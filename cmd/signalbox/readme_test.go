// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestREADMECommandsWorkWhenPasted runs the shell blocks of the README's five
// minutes one after another against a fresh broker, and holds what they print
// against the block that follows; "…" in it stands for anything.
func TestREADMECommandsWorkWhenPasted(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed; .ci/run installs it and runs this test")
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	url := serveForTest(t)
	_, section, _ := strings.Cut(string(readme), "## Five minutes")
	section, _, _ = strings.Cut(section, "\n## ")
	steps := regexp.MustCompile("(?s)```sh( follow)?\n(.*?)```\n```\n(.*?)```").FindAllStringSubmatch(section, -1)
	if shown := strings.Count(section, "```sh"); len(steps) != shown || shown < 8 {
		t.Fatalf("the README shows %d commands, of which %d have their output after them", shown, len(steps))
	}
	for _, step := range steps {
		command := strings.ReplaceAll(step[2], "http://127.0.0.1:8080", url)
		got := paste(t, command, step[1] != "")
		want := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(step[3])), "…", ".*") + "$"
		if !regexp.MustCompile(want).MatchString(strings.TrimSpace(got)) {
			t.Errorf("%s\nprinted\n%s\nand the README says\n%s", step[2], got, step[3])
		}
	}
}

// paste runs a command as a shell would. One that follows is ended, as with
// Ctrl-C, when it has printed the sync marker.
func paste(t *testing.T, command string, follows bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-ec", "exec "+command)
	if !follows {
		out, err := shell.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	pipe, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	lines := bufio.NewScanner(io.TeeReader(pipe, &out))
	marker := false
	for lines.Scan() && (!marker || lines.Text() != "") {
		marker = marker || strings.HasPrefix(lines.Text(), "event: signalbox.sync")
	}
	cancel()
	if err := shell.Wait(); err == nil {
		t.Errorf("%s ended by itself", command)
	}
	return out.String()
}

// serveForTest runs `signalbox serve` and returns its URL.
func serveForTest(t *testing.T) string {
	t.Helper()
	data := t.TempDir() // before the cleanup below, so that it is removed after
	ctx, cancel := context.WithCancel(context.Background())
	banner, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--data", data, "--listen", "127.0.0.1:0"}, stdio{in: strings.NewReader(""), out: w, err: io.Discard})
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("serve exited with %d", code)
		}
	})
	first, err := bufio.NewReader(banner).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, banner) }() // the rest is not read, and must not block serve
	url := regexp.MustCompile(`http://\S+`).FindString(first)
	if url == "" {
		t.Fatalf("the banner begins with %q", first)
	}
	return url
}

// TestREADMEGoCodeIsTheExample keeps the Go code in the README in agreement
// with an example of package client that the compiler sees.
func TestREADMEGoCodeIsTheExample(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../client/readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(readme), "```go\n")
	code, _, _ = strings.Cut(code, "```")
	if !found {
		t.Fatal("the README has no Go code")
	}
	fold := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	for _, line := range strings.Split(strings.TrimSpace(code), "\n") {
		if !strings.Contains(fold(string(example)), fold(line)) {
			t.Errorf("client/readme_test.go does not have the README's line %q", line)
		}
	}
}
