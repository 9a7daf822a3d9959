// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
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
)

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// mustParse fails unless a command line is one of this program's.
func mustParse(t *testing.T, args []string) {
	t.Helper()
	root := (&app{stdio: stdio{out: io.Discard, err: io.Discard}}).root()
	cmd, rest, err := root.Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || cmd == root {
		t.Errorf("%q is no command: %v", args, err)
	}
}

// TestSystemdUnitIsSound: what it starts exists, its configuration parses, and systemd understands it.
func TestSystemdUnitIsSound(t *testing.T) {
	unit := readDeploy(t, "systemd/signalbox.service")
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/signalbox (.*)$`).FindStringSubmatch(unit)
	if start == nil {
		t.Fatal("the unit has no ExecStart")
	}
	mustParse(t, strings.Fields(start[1]))
	r, err := (&configFlags{path: "../../deploy/systemd/signalbox.yaml"}).resolve()
	if err != nil {
		t.Fatal(err)
	}
	state := regexp.MustCompile(`(?m)^StateDirectory=(.*)$`).FindStringSubmatch(unit)
	if state == nil || r.Data != "/var/lib/"+state[1] {
		t.Errorf("the data are in %s, and the unit makes %q", r.Data, state)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "signalbox.service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(unit, "/usr/local/bin/signalbox", self)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "signalbox.service") {
			t.Errorf("systemd-analyze: %s", line)
		}
	}
	t.Logf("systemd-analyze verify: %v %s", err, out)
}

// TestContainerFileIsSound checks what can be checked without building it.
func TestContainerFileIsSound(t *testing.T) {
	file := readDeploy(t, "container/Containerfile")
	for _, directive := range []string{"CMD", "HEALTHCHECK .* CMD"} {
		m := regexp.MustCompile(`(?m)^` + directive + ` (\[.*\])$`).FindStringSubmatch(file)
		if m == nil {
			t.Fatalf("there is no %s", directive)
		}
		var args []string
		if err := json.Unmarshal([]byte(m[1]), &args); err != nil {
			t.Fatal(err)
		}
		if args[0] == "/signalbox" {
			args = args[1:]
		}
		mustParse(t, args)
	}
	for _, m := range regexp.MustCompile(`(SIGNALBOX_[A-Z_]+)=(\S+)`).FindAllStringSubmatch(file, -1) {
		t.Setenv(m[1], m[2])
	}
	r, err := (&configFlags{}).resolve()
	if err != nil || r.Data != "/data" || len(r.unknownVariables()) > 0 {
		t.Errorf("the environment gives %+v, %v, unknown %v", r, err, r.unknownVariables())
	}
	if !strings.Contains(file, "\nUSER 65532:65532\n") || !strings.Contains(file, "CGO_ENABLED=0") {
		t.Error("the image runs as root or needs a C library")
	}
}

// TestServiceManagerIsTold: ready when requests are answered, stopping when they are not any more.
func TestServiceManagerIsTold(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Skip("there are no such sockets here")
	}
	defer func() { _ = conn.Close() }()
	t.Setenv("NOTIFY_SOCKET", socket)
	next := func() string {
		b := make([]byte, 100)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	p := serveIn(t, t.TempDir(), "signalbox serve")
	if got := next(); got != "READY=1" {
		t.Errorf("after the start: %q", got)
	}
	p.stop(syscall.SIGTERM)
	if got := next(); got != "STOPPING=1" {
		t.Errorf("at the end: %q", got)
	}
}
