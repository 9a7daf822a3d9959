// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"signalbox/client"
	ticketclient "signalbox/client/ticket"
	"signalbox/ticket"
)

// child is a process of the story.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// command is this program again, as somebody.
func (s *ticketStory) command(ctx context.Context, as string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Args[0], cmd.Dir = os.Args[0], s.dir // which program this is may be in its name
	cmd.Env = append(os.Environ(), "SIGNALBOX_URL="+s.url, "SIGNALBOX_AGENT="+as, "SIGNALBOX_AGENT_KEY="+s.keyFile(as))
	return cmd, nil
}

func (s *ticketStory) keyFile(name string) string { return filepath.Join(s.dir, name+".key") }

// start starts a process that goes on. What it prints is in files.
func (s *ticketStory) start(name, as string, args ...string) error {
	cmd, err := s.command(context.Background(), as, args...)
	if err != nil {
		return err
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // the process has its own
		}
	}()
	for _, suffix := range []string{".out", ".err"} {
		f, err := os.OpenFile(filepath.Join(s.dir, name+suffix), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	if err := cmd.Start(); err != nil {
		return err
	}
	c := &child{cmd: cmd, done: make(chan struct{})}
	go func() { defer close(c.done); _ = cmd.Wait() }()
	s.running[name] = c
	return nil
}

// kill ends a process as kill -9 does.
func (s *ticketStory) kill(name string) {
	if c := s.running[name]; c != nil {
		_ = c.cmd.Process.Kill()
		<-c.done
		delete(s.running, name)
	}
}

func (s *ticketStory) killAll() {
	for name := range s.running {
		s.kill(name)
	}
}

// run runs a process to its end and returns what it printed.
func (s *ticketStory) run(ctx context.Context, as string, args ...string) (string, error) {
	cmd, err := s.command(ctx, as, args...)
	if err != nil {
		return "", err
	}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	s.says(as, "$ signalbox %s", shorten(strings.Join(args, " "), 90))
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("signalbox %s: %w: %s", strings.Join(args, " "), err, oneLine(complaint.String()))
	}
	return out.String(), nil
}

// startBroker starts the broker and waits until it says where it is.
func (s *ticketStory) startBroker(ctx context.Context) error {
	if err := s.start("broker", "", "serve", "--data", filepath.Join(s.dir, "data"), "--listen", "127.0.0.1:0", "--log-level", "error"); err != nil {
		return err
	}
	banner := regexp.MustCompile(`Signalbox is at (http://\S+)`)
	for {
		text, err := os.ReadFile(filepath.Join(s.dir, "broker.out"))
		if err != nil {
			return err
		}
		if m := banner.FindSubmatch(text); m != nil {
			s.url = string(m[1])
			s.c, err = client.New(s.url)
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.running["broker"].done:
			return errors.New("the broker has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// register draws a key for somebody and has the administrator register them.
func (s *ticketStory) register(ctx context.Context, name, role, domain string) error {
	administrator, err := readKey(filepath.Join(s.dir, "data", administratorFile))
	if err != nil {
		return err
	}
	if s.keys[name], err = drawKey(s.keyFile(name)); err != nil {
		return err
	}
	r, err := s.c.Agents(ctx)
	if err != nil {
		return err
	}
	change := ticket.Change{
		Space: r.Space, Revision: r.Revision + 1, At: time.Now().UTC(), Op: ticket.ChangeAdd, Agent: name,
		Roles: []string{role}, Key: ticket.EncodeKey(publicKey(s.keys[name])),
	}
	if domain != "" {
		change.Domains = []string{domain}
	}
	signed, err := change.Sign(administrator)
	if err != nil {
		return err
	}
	_, err = s.c.ChangeAgents(ctx, signed.Bytes())
	return err
}

// follow listens to all that is said about tickets, as the auditor.
func (s *ticketStory) follow(ctx context.Context) {
	auditor := s.c.With(client.WithToken(ticketclient.Tokens(s.c, "audit", s.keys["audit"])))
	go func() {
		defer close(s.messages)
		for item, err := range auditor.Follow(ctx, []string{ticket.TopicRoot + ".main.>"}, client.FollowOptions{}) {
			if err != nil || item.Kind != client.ItemEvent {
				continue
			}
			m, err := ticketclient.DecodeMessage(item.Event.Data())
			if err != nil || m.Type == ticket.TypeHeartbeat {
				continue
			}
			select {
			case s.messages <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// await goes on until somebody says something about a ticket that was not awaited
// before.
func (s *ticketStory) await(ctx context.Context, id, from, kind string) (*ticketclient.Message, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s did not say %s about %s: %w", from, kind, id, context.Cause(ctx))
		case m, ok := <-s.messages:
			if !ok {
				return nil, fmt.Errorf("nothing more is said, and %s did not say %s about %s", from, kind, id)
			}
			s.seen = append(s.seen, m)
			s.says(m.From, "%s", saying(m))
			if m.TicketID == id && m.From == from && m.Type == kind {
				return m, nil
			}
		}
	}
}

// saying says what a message says, in a few words.
func saying(m *ticketclient.Message) string {
	switch p := m.Payload.(type) {
	case *ticketclient.State:
		return fmt.Sprintf("moves %s: %s → %s (%s)", m.TicketID, p.From, p.To, p.ReasonCode)
	case *ticketclient.Execute:
		return fmt.Sprintf("%s to %s: %s %s", m.Type, m.To, p.Mode, p.SliceID)
	case *ticketclient.Result:
		return fmt.Sprintf("%s of %s: %s", m.Type, p.SliceID, p.Outcome)
	case *ticketclient.Plan:
		return fmt.Sprintf("%s to %s: tier %d. %s", m.Type, m.To, p.Tier, p.TierReason)
	case *ticketclient.Escalation:
		return fmt.Sprintf("%s to %s: %s %v", m.Type, m.To, p.ReasonCode, p.Asks)
	}
	return fmt.Sprintf("%s of %s to %s", m.Type, m.TicketID, m.To)
}

// count counts what somebody has said about a ticket so far.
func (s *ticketStory) count(id, from, kind string) (n int) {
	for _, m := range s.seen {
		if m.TicketID == id && m.From == from && m.Type == kind {
			n++
		}
	}
	return n
}

// told returns the states that a ticket was moved to, and the outcomes of its results.
func (s *ticketStory) told(id string) (states, outcomes []string) {
	for _, m := range s.seen {
		if m.TicketID != id {
			continue
		}
		switch p := m.Payload.(type) {
		case *ticketclient.State:
			states = append(states, p.To)
		case *ticketclient.Result:
			outcomes = append(outcomes, p.Outcome)
		}
	}
	return states, outcomes
}

// acts counts what agents have done, by what they printed, and returns what was done
// twice.
func (s *ticketStory) acts(names ...string) (n int, repeated string) {
	var lines []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(s.dir, name+".out"))
		if err != nil {
			return 0, err.Error()
		}
		for _, line := range strings.Fields(string(text)) {
			if slices.Contains(lines, line) {
				repeated = line
			}
			lines = append(lines, line)
		}
	}
	return len(lines), repeated
}

// quote prints what a process printed.
func (s *ticketStory) quote(text string) {
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintf(s.out, "          |        %s\n", shorten(line, 140))
	}
}

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}
