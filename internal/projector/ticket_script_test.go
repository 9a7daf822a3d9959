// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// TestTickets plays the scripts in testdata/tickets, each of which tells what
// becomes of tickets. `go test -rewrite` writes down what happens now.
//
// A command is a message, by its type: `execute slice=s1`. What it says is named
// like the members of its payload; what is left out is as the ticket has it, so
// that a script shows only what matters. `as=x` gives the message a name by which
// others cite it, `from=bob` another sender, `cause=x` what it answers (else the
// message accepted last). Hashes are names. What is printed is the ticket as it is
// then, or the refusal with its sentence.
func TestTickets(t *testing.T) {
	paths, err := filepath.Glob("testdata/tickets/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	made, played := movesMade{}, 0
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			played++
			s := &tale{moves: made}
			datadriven.RunTest(t, path, s.run)
			checkSound(t, s.rig)
			s.close()
		})
	}
	if played == len(paths) { // and not only the one that was asked for
		made.check(t)
	}
}

// tale is a script about tickets.
type tale struct {
	script
	moves movesMade
	// deadlines: those of messages are kept, and what is missed has its consequences.
	deadlines bool
	ids       map[string]int // of messages, by name
	names     map[int]string
	n         int
	last      int // accepted
}

func (s *tale) run(t *testing.T, d *datadriven.TestData) string {
	s.data = d
	switch d.Cmd {
	case "open":
		s.deadlines = d.HasArg("deadlines")
		s.begin(t)
		s.ids, s.names, s.n, s.last = map[string]int{}, map[int]string{}, 0, 0
		return "ok"
	case "owed":
		return s.owed()
	case "tick":
		s.t = t
		return s.tick()
	case "reopen":
		return s.restart()
	case "ticket":
		return s.show(s.ticketID())
	case "waiting":
		return s.waiting(s.ticketID())
	case "breaker":
		return s.showBreaker(s.text("target"))
	case "catalogue":
		s.do(activate(strings.Replace(someVerbs, "1.0.0", s.text("version"), 1)))
		return "ok"
	}
	if _, ok := ticket.TypeOf(d.Cmd); !ok {
		d.Fatalf(t, "there is no command %q", d.Cmd)
	}
	s.t = t
	for range s.num("times", 1) - 1 {
		s.say()
	}
	return s.say()
}

// begin opens a space with the agents desk (intake), orch, net (network), dns
// (dns), and the gate's alice, bob and u1.
func (s *tale) begin(t *testing.T) {
	if s.rig != nil {
		checkSound(t, s.rig)
		s.close()
	}
	s.rig = staffedRig(t)
	s.rig.t = t
	for i, name := range []string{"bob", "u1"} {
		c := addAgent(int64(6+i), name, name)
		c.Roles, c.Domains = []string{ticket.RoleGate}, nil
		s.do(changeAgent(t, c, "admin"))
	}
	s.do(tick(epoch))
}

// ticketID is T1 unless the command says otherwise.
func (s *tale) ticketID() string { return s.or("ticket", "T1") }

func (s *tale) or(key, otherwise string) string {
	if s.data.HasArg(key) {
		return s.text(key)
	}
	return otherwise
}

func (s *tale) num(key string, otherwise int) int { return int(s.number(key, uint64(otherwise))) }

// id is that of a message by its name.
func (s *tale) id(name string) string {
	if n, ok := s.ids[name]; ok {
		return messageID(n)
	}
	s.t.Fatalf("%s: there is no message %q", s.data.Pos, name)
	return ""
}

func (s *tale) list(key string) []string {
	text := s.text(key)
	if text == "" {
		return nil
	}
	return strings.Split(strings.ReplaceAll(text, " ", ""), ",")
}

func (s *tale) say() string {
	s.n++
	kind := s.data.Cmd
	m := eventlog.Message{
		Type: kind, Ticket: s.ticketID(), Payload: fmt.Sprint("p", s.n), From: s.or("from", "orch"), To: s.or("to", "orchestrator"), Verbs: s.projector.Registry().Verbs.Version,
	}
	m.Trace = "trace of " + m.Ticket
	if s.last > 0 {
		m.Cause = messageID(s.last)
	}
	if cause := s.text("cause"); cause != "" {
		m.Cause = s.id(cause)
	}
	if s.fill(&m); s.deadlines {
		fillDeadlines(&m)
	}
	if m.Type == ticket.TypeOpen && m.Op == "open" {
		m.Cause = ticket.None
	}
	said := said{id: s.n, at: s.projector.Space().LogMillis - epoch, Message: m}
	if name := s.text("as"); name != "" {
		s.ids[name], s.names[s.n] = s.n, name
	}
	before := ticketRow(s.rig, m.Ticket)
	p := said.proposal(s.t)
	result := s.do(p)
	if result.Err != nil {
		return fmt.Sprintf("%s: %s", result.Err.Code, s.named(result.Err.Message))
	}
	s.last = s.n
	after := ticketRow(s.rig, m.Ticket)
	s.moves.made(s, p.Message, &before, &after)
	return s.show(m.Ticket)
}

var messageIDs = regexp.MustCompile(`msg_0*([0-9]+)`)

// named puts names in the place of ids.
func (s *tale) named(text string) string {
	return messageIDs.ReplaceAllStringFunc(text, func(id string) string {
		n, _ := strconv.Atoi(messageIDs.FindStringSubmatch(id)[1])
		if name := s.names[n]; name != "" {
			return name
		}
		return fmt.Sprint("#", n)
	})
}

// show prints a ticket: its state, its plan, its slices, and what is open or noted.
func (s *tale) show(id string) string {
	t := ticketRow(s.rig, id)
	line := t.State
	if t.ResumeTo != "" {
		line += " from " + t.ResumeTo
	}
	if t.Plan != nil {
		line += fmt.Sprintf("; plan %s of tier %d", t.Plan.ID, t.Plan.Tier)
	}
	for _, v := range t.Slices {
		line += fmt.Sprintf("; %s %s", v.ID, v.State)
		if v.Undo != "" {
			line += ", undo " + v.Undo
		}
		if v.Verified == store.VerifyFailed {
			line += ", not verified"
		}
	}
	for _, r := range t.Requests {
		line += fmt.Sprintf("; %s asks %d for %s", s.named(r.ID), r.Approvers, r.Kind)
		if r.Denied != "" {
			line += ", denied"
		}
		if r.Void != "" {
			line += ", void"
		}
		for _, g := range r.Grants {
			line += ", " + g.Approver + " grants"
			if g.Choice != "" {
				line += " " + g.Choice
			}
			if g.Bound != "" {
				line += " (bound)"
			}
		}
	}
	for _, noted := range []struct{ what, text string }{{"amended", t.Amended}, {"to be cancelled", t.Cancelled}, {"missed", t.Missed}} {
		if noted.text != "" {
			line += "; " + noted.what
		}
	}
	return line
}

// waiting prints what waits for the gate, and what has a deadline.
func (s *tale) waiting(id string) string {
	t := ticketRow(s.rig, id)
	var lines []string
	for i := range t.Requests {
		if n := projector.Missing(&t, &t.Requests[i], s.projector.Space().LogMillis); n > 0 {
			lines = append(lines, fmt.Sprintf("%s waits for %d", s.named(t.Requests[i].ID), n))
		}
	}
	for _, d := range deadlinesOf(s.rig, id) {
		lines = append(lines, s.named(d)+" is to be answered")
	}
	return orNothing(lines)
}

// owed prints what the bus has to say.
func (s *tale) owed() string {
	ids, rows := s.obligations()
	var lines []string
	for _, id := range ids {
		o := rows[id]
		lines = append(lines, fmt.Sprintf("%s of %s to %s", o.Reason, s.named(o.Cause), o.To))
	}
	slices.Sort(lines)
	return orNothing(lines)
}

func (s *tale) showBreaker(target string) string {
	view := s.store.View(func() {})
	defer view.Close()
	var row store.BreakerRow
	if _, err := view.Message(store.MessageBreaker, target, &row); err != nil {
		s.t.Fatal(err)
	}
	state := "closed"
	if row.OpenedMillis != 0 {
		state = "open since " + moment(row.OpenedMillis)
	}
	var failures []string
	for _, at := range row.Failures {
		failures = append(failures, moment(at))
	}
	return fmt.Sprintf("%s; failed at %s", state, orNothing(failures))
}
