// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	ticketclient "signalbox/client/ticket"
)

// gateWhole is all that there is to say of a request.
func gateWhole(w *ticketclient.Waiting) *gateDocument {
	d := gateLine(w)
	d.Risk, d.Breakers = &w.Ask().Risk, w.Breakers
	for i, m := range w.Plans {
		d.Plans = append(d.Plans, m.Payload.(*ticketclient.Plan))
		if p := w.Proposals[i]; p != nil {
			d.Proposals = append(d.Proposals, p.Payload.(*ticketclient.Proposal))
		}
	}
	return d
}

// sheet is a page for a person: names on the left, texts on the right. What agents
// have written is kept from controlling the terminal.
type sheet struct{ out io.Writer }

func (s sheet) say(name, format string, args ...any) {
	fmt.Fprintf(s.out, "%-13s %s\n", name, oneLine(fmt.Sprintf(format, args...)))
}

// showWaiting writes all that a person needs to decide.
func showWaiting(out io.Writer, w *ticketclient.Waiting, now time.Time) {
	s, ask := sheet{out}, w.Ask()
	s.say("ticket", "%s, asked for by %s", w.Request.TicketID, listed(w.Requesters))
	s.say("request", "%s: %s", w.Request.ID, gateKinds[ask.Kind])
	s.say("summary", "%s", ask.Summary)
	if ask.Target != "" {
		s.say("target", "%s", ask.Target)
	}
	s.plan(w)
	for _, b := range w.Breakers {
		s.say("breaker", "open for %s since %s", b.Target, b.Opened.Format(time.RFC3339))
	}
	s.say("blast radius", "%s", ask.Risk.BlastRadius)
	s.say("reversible", "%s", ask.Risk.Reversibility)
	s.say("data", "%s", ask.Risk.DataClass)
	yes := ""
	if len(w.Granted) > 0 {
		yes = ": " + listed(w.Granted)
	}
	s.say("approvals", "%d of %d%s, so %d more", len(w.Granted), w.Needed, yes, w.Missing())
	s.say("expires", "%s, at %s", remaining(w.Expires, now), w.Expires.Format(time.RFC3339))
	switch {
	case w.Fault != nil:
		s.say("NOT VALID", "%s", w.Fault)
		return
	case ask.PlanHash != "":
		s.say("hash", "%s, which is that of the steps above", ask.PlanHash)
	}
	choice := ""
	if len(ask.Options) > 0 {
		s.say("options", "%s", strings.Join(ask.Options, ", "))
		choice = " --choice OPTION"
	}
	s.say("decide", "signalbox gate approve %[1]s%[2]s, or signalbox gate deny %[1]s --reason WHY", w.Request.ID, choice)
}

// gateKinds says what a request is for.
var gateKinds = map[string]string{
	"plan":           "approval of a plan",
	"accept_partial": "acceptance of what a plan has done in part",
	"breaker_reset":  "reset of the breaker of a target",
	"escalation":     "a decision how the ticket goes on",
}

func (s sheet) plan(w *ticketclient.Waiting) {
	for i, m := range w.Plans {
		p := m.Payload.(*ticketclient.Plan)
		if i == 0 {
			s.say("tier", "%d: %s", p.Tier, p.TierReason)
			s.say("window", "%s to %s", p.Window.Start.Format(time.RFC3339), p.Window.End.Format(time.RFC3339))
		}
		after := ""
		if len(p.DependsOn) > 0 {
			after = ", after " + listed(p.DependsOn)
		}
		by, proposed := "", (*ticketclient.Proposal)(nil)
		if w.Proposals[i] != nil {
			by, proposed = ", proposed by "+w.Proposals[i].From, w.Proposals[i].Payload.(*ticketclient.Proposal)
		}
		s.say("slice", "%s of %s%s%s", p.Slice.ID, m.To, by, after)
		for n, step := range p.Slice.Steps {
			s.say("  does", "%s %s %s", step.Verb, step.Target, step.Params)
			if proposed != nil { // its steps have the same hash, so there are as many
				s.say("", "  before: %s; after: %s", proposed.Steps[n].Precheck, proposed.Steps[n].Postcheck)
			}
		}
		for _, step := range p.Slice.Rollback {
			s.say("  undoes", "%s %s %s", step.Verb, step.Target, step.Params)
		}
		if len(p.Slice.Rollback) == 0 {
			s.say("  undoes", "nothing: there is no rollback")
		}
	}
}

// remaining is the time until a time, in words.
func remaining(at, now time.Time) string {
	left := at.Sub(now)
	switch {
	case left <= 0:
		return "over"
	case left < 2*time.Minute:
		return fmt.Sprintf("in %d s", int(left.Seconds()))
	case left < 2*time.Hour:
		return fmt.Sprintf("in %d min", int(left.Minutes()))
	}
	return fmt.Sprintf("in %d h", int(left.Hours()))
}

// clipped is a text that a line has room for.
func clipped(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
