// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"slices"
	"strings"
	"testing"

	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// standing are the tickets in a state, by name, from behind one on.
func standing(t *testing.T, r *rig, state, after string) (ids []string) {
	t.Helper()
	view := r.store.View(func() {})
	defer view.Close()
	err := view.TicketsIn(state, after, func(id string) (bool, error) {
		ids = append(ids, id)
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestTicketsAreFoundByTheirState: each by the one that it is in, and by no other that
// it was in, also where it has passed several in one group.
func TestTicketsAreFoundByTheirState(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	third := func(s *said) { s.Ticket = "T3" }
	r.do(with(opened(1), func(s *said) { s.Ticket = "T2" }).proposal(t))
	var group []*eventlog.Proposal
	for _, s := range []said{opened(2), with(opened(3), third), fromOrchestrator(4, 2, ticket.TypePlanRequest, "network")} {
		group = append(group, s.proposal(t))
	}
	r.stamp(group)
	for _, result := range r.apply(group) {
		if result.Err != nil {
			t.Fatal(result.Err)
		}
	}
	for state, want := range map[string][]string{ticket.StateOpen: {"T2", "T3"}, ticket.StatePlanning: {"T1"}, ticket.StateClosed: nil} {
		if got := standing(t, r, state, ""); !slices.Equal(got, want) {
			t.Errorf("%s are %q, want %q", state, got, want)
		}
	}
	if got := standing(t, r, ticket.StateOpen, "T2"); !slices.Equal(got, []string{"T3"}) {
		t.Errorf("behind T2 %q are open", got)
	}
	checkSound(t, r)
}

// TestRaisedLevelListsOlderTickets: those that a version stored which did not list them
// by their state; what is listed wrongly is found by verification.
func TestRaisedLevelListsOlderTickets(t *testing.T) {
	r := staffedRig(t)
	defer r.close()
	r.do(opened(1).proposal(t))
	rows := func(change func(*store.Batch)) {
		b := r.store.NewBatch()
		defer b.Close()
		change(b)
		if err := r.store.Commit(b, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(what string) {
		t.Helper()
		if !slices.ContainsFunc(inspect(t, r), func(f projector.Finding) bool { return f.Key == "T1" && strings.Contains(f.Explanation, what) }) {
			t.Errorf("%q was not found", what)
		}
	}
	rows(func(b *store.Batch) {
		b.DeleteMessage(store.MessageStanding, store.StandingKey(ticket.StateOpen, "T1"))
	})
	wants("is not listed as that")
	older := defaultSettings()
	older.FeatureLevel = 5
	r.do(configure(older))
	checkSound(t, r) // of that level nothing is missing
	// What a start wrote that died before the level was there, and where the ticket is no more.
	rows(func(b *store.Batch) {
		b.SetMessage(store.MessageStanding, store.StandingKey(ticket.StatePlanning, "T1"), []byte(`"`+messageID(1)+`"`))
	})
	checkSound(t, r)
	r.do(configure(defaultSettings()))
	if got := standing(t, r, ticket.StatePlanning, ""); got != nil {
		t.Errorf("%q are listed as in planning", got)
	}
	if got := standing(t, r, ticket.StateOpen, ""); !slices.Equal(got, []string{"T1"}) {
		t.Errorf("%q are listed as open", got)
	}
	checkSound(t, r)
	rows(func(b *store.Batch) {
		b.SetMessage(store.MessageStanding, store.StandingKey(ticket.StateClosed, "T1"), []byte(`"`+messageID(1)+`"`))
	})
	wants("which it is not")
}
