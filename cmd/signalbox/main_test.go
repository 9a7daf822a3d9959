// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"signalbox/internal/broker"
	"signalbox/internal/porttest"
	"signalbox/internal/transport/web"
)

// noRaceSleep keeps the race detector from waiting for a second at the end of every command that a test runs.
var noRaceSleep = [2]string{"GORACE", "atexit_sleep_ms=0"}

// TestMain lets scripts and shells run this test binary as the command signalbox.
func TestMain(m *testing.M) {
	_ = os.Setenv(noRaceSleep[0], noRaceSleep[1])
	testscript.Main(m, map[string]func(){"signalbox": main})
}

// The scripts are in testdata/script. Beside the commands of testscript they have
//
//	broker       start a broker and point SIGNALBOX_URL at it
//	certificate  write a certificate for the loopback address and its key to two files
//	ready        wait until a broker answers at SIGNALBOX_URL
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			listen, release, err := porttest.Hold()
			if err != nil {
				return err
			}
			e.Defer(release)
			e.Setenv(noRaceSleep[0], noRaceSleep[1])
			e.Setenv("SIGNALBOX_LISTEN", listen)
			e.Setenv("SIGNALBOX_URL", "http://"+listen)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"broker": func(ts *testscript.TestScript, _ bool, _ []string) {
				url, stop, err := startBroker(filepath.Join(ts.Getenv("WORK"), "broker-data"))
				ts.Check(err)
				ts.Defer(stop)
				ts.Setenv("SIGNALBOX_URL", url)
			},
			"certificate": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(writeCertificate(ts.MkAbs(args[0]), ts.MkAbs(args[1])))
			},
			"ready": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(awaitReady(ts.Getenv("SIGNALBOX_URL")))
			},
		},
	})
}

// startBroker runs a broker in this process.
func startBroker(dir string) (url string, stop func(), err error) {
	quiet := slog.New(slog.DiscardHandler)
	// The examples of help texts find the administrator key where serve puts it by default.
	found := founder("main", filepath.Join(filepath.Dir(dir), "signalbox-data"))
	b, err := broker.Open(broker.Options{Dir: dir, Logger: quiet, Found: found})
	if err != nil {
		return "", nil, err
	}
	server, err := web.New(web.Options{Broker: b, Logger: quiet})
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() { _ = server.Serve(ctx, l); close(served) }()
	return "http://" + l.Addr().String(), func() { cancel(); <-served; _ = b.Close() }, nil
}

// awaitReady waits for a broker, whatever certificate it has.
func awaitReady(url string) error {
	var err error
	patient := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer patient.CloseIdleConnections()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var res *http.Response
		if res, err = patient.Get(url + "/readyz"); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	return err
}

// TestFoundingSurvivesAnInterruptedStart: a file that is no key is never taken for
// one, and what is said of it helps; one that an interrupted write has left is none.
func TestFoundingSurvivesAnInterruptedStart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, administratorFile)
	for _, name := range []string{path, path + ".new"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := founder("main", dir)(); err == nil || !strings.Contains(err.Error(), "remove the file") || !strings.Contains(err.Error(), path) {
		t.Errorf("an empty file: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, first, err := founder("main", dir)()
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := founder("main", dir)(); err != nil || !first.Equal(again) {
		t.Errorf("the next start draws another key: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
