// SPDX-License-Identifier: Apache-2.0

package ticketclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/internal/tickettest"
	"signalbox/ticket"
)

// The agent of this test is a process of its own, which these variables tell where the
// broker is, where its files are, and at which point it dies as by kill -9.
const (
	agentURL   = "SIGNALBOX_TEST_AGENT_URL"
	agentDir   = "SIGNALBOX_TEST_AGENT_DIR"
	agentDeath = "SIGNALBOX_TEST_AGENT_DEATH"
)

// TestExecuteRunsOnceWhereverTheAgentDies kills the agent at every point between taking
// an execute on and being done with it. Whatever it acts on sees each step once, the
// broker gets one result, and the agent is told when an earlier life may have begun.
func TestExecuteRunsOnceWhereverTheAgentDies(t *testing.T) {
	s, dir := newSpace(t), t.TempDir()
	for _, c := range []struct{ death, calls string }{
		{"taken, not acknowledged", "first"},
		{"delivered, not begun", "first"},
		{"begun, not called", "again"},
		{"acting, nothing done", "first again"},
		{"acting, all done", "first again"},
		{"done, no answer stored", "first again"},
		{"answer stored, not sent", "first"},
		{"answer sent, not noted", "first"},
	} {
		id := "INC-" + strings.ReplaceAll(strings.ReplaceAll(c.death, ",", ""), " ", "-")
		dying := process(t, s.url, dir, c.death)
		s.approve(id)
		dead := make(chan struct{})
		go func() { _ = dying.Wait(); close(dead) }()
		select {
		case <-dead:
		case <-time.After(tickettest.Patience):
			t.Fatalf("%s: the agent never came there", c.death)
		}
		living := process(t, s.url, dir, "")
		r := s.saidOf(id, "net", ticket.TypeResult).Payload.(*ticketclient.Result)
		_ = living.Process.Kill()
		_ = living.Wait()
		if r.Outcome != ticketclient.OutcomeSuccess {
			t.Errorf("%s: the outcome is %s", c.death, r.Outcome)
		}
		calls, err := os.ReadFile(filepath.Join(dir, id+".calls"))
		if got := strings.Join(strings.Fields(string(calls)), " "); err != nil || got != c.calls {
			t.Errorf("%s: the calls are %q, %v", c.death, got, err)
		}
		done, err := filepath.Glob(filepath.Join(dir, id+".done.*"))
		if err != nil || len(done) != 1 {
			t.Errorf("%s: what was done is %v, %v", c.death, done, err)
		}
	}
}

// process starts the agent.
func process(t *testing.T, url, dir, death string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAgentProcess$")
	cmd.Env = append(os.Environ(), agentURL+"="+url, agentDir+"="+dir, agentDeath+"="+death)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// TestAgentProcess is the agent, where it is one.
func TestAgentProcess(t *testing.T) {
	url, dir := os.Getenv(agentURL), os.Getenv(agentDir)
	if url == "" {
		t.Skip("this is the agent of another test")
	}
	c, err := client.New(url)
	if err != nil {
		t.Fatal(err)
	}
	file, err := client.OpenLedgerFile(filepath.Join(dir, "net.book"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := ticketclient.OpenAgent(t.Context(), c, ticketclient.AgentOptions{
		Name: "net", Key: tickettest.Key("net"), Store: &mortal{LedgerFile: file}, Plan: proposed,
		Execute: func(_ context.Context, x *ticketclient.Execution) (*ticketclient.Report, error) {
			call := "first\n"
			if x.Uncertain {
				call = "again\n"
			}
			if err := appendTo(filepath.Join(dir, x.Ticket+".calls"), call); err != nil {
				return nil, err
			}
			diesAt("acting, nothing done")
			f, err := os.OpenFile(filepath.Join(dir, x.Ticket+".done."+x.ID), os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil && !errors.Is(err, fs.ErrExist) { // what it acts on knows the name
				return nil, err
			}
			_ = f.Close()
			diesAt("acting, all done")
			return &ticketclient.Report{Outcome: ticketclient.OutcomeSuccess, Verification: ticketclient.Verification{Passed: true}}, nil
		},
		OnError: func(err error) { fmt.Fprintln(os.Stderr, "agent:", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Run(t.Context())
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// diesAt ends the process at a point, if that is where it is to end.
func diesAt(point string) {
	if os.Getenv(agentDeath) == point {
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		select {}
	}
}

// mortal is a store that the agent dies before or after.
type mortal struct {
	*client.LedgerFile
	answered bool // there is the answer to an execute
}

func (m *mortal) Append(ctx context.Context, record []byte) error {
	has := func(part string) bool { return bytes.Contains(record, []byte(part)) }
	points := [2]string{}
	switch {
	case has(`"request":`):
		points[1] = "taken, not acknowledged"
	case has(`"started":true`):
		points = [2]string{"delivered, not begun", "begun, not called"}
	case has(`"answer":`) && has(`"type":"result"`):
		points = [2]string{"done, no answer stored", "answer stored, not sent"}
		m.answered = true
	case has(`"sent":true`) && m.answered:
		points[0] = "answer sent, not noted"
	}
	diesAt(points[0])
	err := m.LedgerFile.Append(ctx, record)
	diesAt(points[1])
	return err
}
