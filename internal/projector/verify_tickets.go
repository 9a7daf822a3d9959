// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"slices"

	"signalbox/internal/store"
	"signalbox/ticket"
)

// ticket checks a ticket's row: its states are ones that there are, what depends on
// the state is there with it and not without, and every message that it names is
// known.
func (v *verifier) ticket(m *store.MessageAt) error {
	var t store.TicketRow
	if err := store.DecodeMessage(m.Kind, m.Value, &t); err != nil {
		return err
	}
	if err := v.listed(m.Key, &t); err != nil {
		return err
	}
	fault := func(format string, args ...any) {
		v.found(Finding{What: "ticket", Key: m.Key, Explanation: sprintf(format, args...)})
	}
	if t.State != "" && !slices.ContainsFunc(ticket.States(), func(s ticket.State) bool { return s.Name == t.State }) {
		fault("The ticket is %q, which is no state of a ticket.", t.State)
	}
	if (t.State == ticket.StateEscalated) != (t.ResumeTo != "") {
		fault("The ticket is %s, and would go back to %q.", t.State, t.ResumeTo)
	}
	named := []string{t.Open, t.Moved, t.Amended, t.Cancelled}
	for i := range t.Slices {
		s := &t.Slices[i]
		for _, state := range []string{s.State, s.Undo} {
			if state != "" && !slices.ContainsFunc(ticket.SliceStates(), func(of ticket.State) bool { return of.Name == state }) {
				fault("The slice %q is %q, which is no state of a slice.", s.ID, state)
			}
		}
		if t.Plan == nil && !waiting(*s) && s.State != ticket.SliceSkipped {
			fault("The slice %q is %s, and no plan is in force.", s.ID, s.State)
		}
		named = append(named, s.Request, s.Proposal, s.Execute, s.UndoExecute)
	}
	if t.Plan != nil {
		named = append(named, t.Plan.Message)
	}
	for i := range t.Requests {
		r := &t.Requests[i]
		named = append(named, r.ID, r.Denied, r.Void)
		if r.Kind == requestPlan && (t.Plan == nil || t.Plan.Hash != r.Hash) {
			fault("The request %s is for the plan %s, which is not in force.", r.ID, r.Hash)
		}
		for k := range r.Grants {
			named = append(named, r.Grants[k].ID, r.Grants[k].Bound)
		}
	}
	for _, id := range named {
		if id == "" {
			continue
		}
		known, err := v.in.HasMessage(id)
		if err != nil {
			return err
		}
		if !known {
			fault("The ticket names the message %q, which is not there.", id)
		}
	}
	return nil
}
