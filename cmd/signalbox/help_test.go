// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestHelpExamples pastes the examples of every command into a shell: each on a broker of its own, and then all of them
// on one, for a user has no fresh broker for each help text. Only durations are shortened.
func TestHelpExamples(t *testing.T) {
	dir := t.TempDir()
	seedData(t, dir)
	shared, stop, err := startBroker(filepath.Join(dir, "shared"))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for round := range 2 {
		eachCommand((&app{stdio: stdio{out: io.Discard, err: io.Discard}}).root(), func(c *cobra.Command) {
			if c.Long == "" || c.Short == "" || c.Example == "" && c.HasParent() {
				t.Errorf("%s: the help has no description or no example", c.CommandPath())
			}
			if round > 0 {
				t.Setenv("SIGNALBOX_URL", shared)
				pasteExample(t, dir, c.Example)
				return
			}
			own := t.TempDir()
			if c.Name() == "verify" {
				seedData(t, own)
			}
			url, stop, err := startBroker(filepath.Join(own, "broker"))
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			t.Setenv("SIGNALBOX_URL", url)
			pasteExample(t, own, c.Example)
		})
	}
}

// seedData makes the data directories that the examples of verify look at.
func seedData(t *testing.T, dir string) {
	t.Helper()
	for _, data := range []string{"signalbox-data", "other-data"} {
		_, stop, err := startBroker(filepath.Join(dir, data))
		if err != nil {
			t.Fatal(err)
		}
		stop()
	}
}

func pasteExample(t *testing.T, dir, example string) {
	t.Helper()
	for _, line := range strings.Split(example, "\n") {
		line = strings.TrimSpace(regexp.MustCompile(`--duration \S+`).ReplaceAllString(line, "--duration 100ms"))
		switch {
		case line == "" || t.Failed():
		case line == "signalbox demo ticket": // which a script plays once
		case strings.HasPrefix(line, "signalbox serve"):
			serveIn(t, dir, line).stop(syscall.SIGTERM)
		default:
			shell(t, dir, line)
		}
	}
}

func eachCommand(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, do)
	}
}

// shell runs a line as a user would paste it.
func shell(t *testing.T, dir, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// patience is how long a test waits for what must come. It decides nothing but when a test that fails gives up.
const patience = 5 * time.Minute

// process is a broker in a process of its own.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *os.File
	done chan error
}

// serveIn starts a broker and returns once its banner is there.
func serveIn(t *testing.T, dir, line string) *process {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "serve")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "exec "+line)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = append(os.Environ(), "SIGNALBOX_LISTEN=127.0.0.1:0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, out: out, done: make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for deadline := time.Now().Add(patience); !bytes.Contains(p.printed(), []byte("curl -N")); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come up:\n%s", line, p.printed())
		}
	}
	return p
}

func (p *process) printed() []byte {
	b, err := os.ReadFile(p.out.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// stop sends a signal and waits for the end, which must be in good order.
func (p *process) stop(s os.Signal) string {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			p.t.Errorf("the broker ended with %v:\n%s", err, p.printed())
		}
	case <-time.After(patience):
		p.t.Errorf("the broker did not end:\n%s", p.printed())
	}
	return string(p.printed())
}

// TestBannerPasted pastes the curl lines of the banner, twice: whoever starts over must not meet an error.
func TestBannerPasted(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl here")
	}
	p := serveIn(t, t.TempDir(), "signalbox serve")
	lines := regexp.MustCompile(`(?m)^  curl .*$`).FindAllString(string(p.printed()), -1)
	if len(lines) != 4 {
		t.Fatalf("%d curl lines, want 4: %q", len(lines), lines)
	}
	for range 2 {
		for i, want := range []string{`"cleanup_policy":"compact"`, `"position":"1"`, `"data":{"text":"hello"}`, "event: signalbox.sync"} {
			line := strings.Replace(strings.TrimSpace(lines[i]), "curl ", "curl -sS --fail-with-body ", 1)
			if out := paste(t, line, i == 3); !strings.Contains(out, want) { // a stream has no end of its own
				t.Errorf("%s\nprinted %q, want %q in it", line, out, want)
			}
		}
	}
	p.stop(syscall.SIGTERM)
}

// TestSecondSignal: a process that takes too long to end in good order can be ended at once.
func TestSecondSignal(t *testing.T) {
	p := serveIn(t, t.TempDir(), "signalbox serve")
	address := regexp.MustCompile(`http://([0-9.:]+)`).FindStringSubmatch(string(p.printed()))[1]
	// A request that never ends keeps an orderly shutdown waiting for its grace period.
	hold, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hold.Close() }()
	_, _ = io.WriteString(hold, "POST /v1/topics/t/events HTTP/1.1\r\nHost: "+address+"\r\nContent-Type: application/cloudevents+json\r\n"+
		"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
	_ = hold.SetReadDeadline(time.Now().Add(patience))
	if line, err := bufio.NewReader(hold).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("the broker does not wait for the request: %q, %v", line, err)
	}
	// When the first one has come to the process cannot be seen: one that comes too soon after it counts for none.
	for deadline := time.Now().Add(patience); ; {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails once the process has ended
		select {
		case err := <-p.done:
			if err == nil {
				t.Error("the broker ended in good order, and took no notice of further signals")
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("signals do not end the broker")
		}
	}
}
