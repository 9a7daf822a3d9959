// SPDX-License-Identifier: Apache-2.0

package ticket

import "slices"

// The states of a ticket that code refers to by name. All of them are in the
// registry.
const (
	StateOpen             = "OPEN"
	StatePlanning         = "PLANNING"
	StatePlanned          = "PLANNED"
	StateAwaitingApproval = "AWAITING_APPROVAL"
	StateApproved         = "APPROVED"
	StateDenied           = "DENIED"
	StateExecuting        = "EXECUTING"
	StateVerifying        = "VERIFYING"
	StatePartial          = "PARTIAL"
	StateFailed           = "FAILED"
	StateRollingBack      = "ROLLING_BACK"
	StateRolledBack       = "ROLLED_BACK"
	StateResolved         = "RESOLVED"
	StateEscalated        = "ESCALATED"
	StateCancelled        = "CANCELLED"
	StateClosed           = "CLOSED"
)

// The states of a slice. All of them are in the registry.
const (
	SliceRequested      = "REQUESTED"
	SliceProposed       = "PROPOSED"
	SliceFrozen         = "FROZEN"
	SliceDispatched     = "DISPATCHED"
	SliceRunning        = "RUNNING"
	SliceSucceeded      = "SUCCEEDED"
	SlicePartial        = "PARTIAL"
	SliceFailed         = "FAILED"
	SliceRolledBack     = "ROLLED_BACK"
	SliceRollbackFailed = "ROLLBACK_FAILED"
	SliceRefused        = "REFUSED"
	SliceDeadLettered   = "DEAD_LETTERED"
	SliceSkipped        = "SKIPPED"
)

// Words of the table of moves that are no states.
const (
	Any      = "*"         // among states: each that is not terminal; as a trigger: any message of the ticket
	ResumeTo = "resume_to" // the state that an escalated ticket came from
	Same     = "same"      // the state that the ticket is in
)

// State is a state of a ticket or of a slice.
type State struct {
	Name     string `json:"state"`
	Terminal bool   `json:"terminal,omitempty"`
}

// Move is a row of the table of the protocol: what lets a ticket go from one state
// to another. What no row has is refused.
type Move struct {
	From    []string `json:"from"`             // states, Any, or None for a ticket that is not there yet
	Trigger string   `json:"trigger"`          // type of message, or Any
	Moves   bool     `json:"moves,omitempty"`  // the trigger itself moves; else a ticket.state that names it among its causes
	Guard   string   `json:"guard,omitempty"`  // what has to hold besides, by its name in the broker
	Choice  string   `json:"choice,omitempty"` // what the gate has to have chosen
	To      string   `json:"to"`               // a state, ResumeTo or Same
	Rule    string   `json:"rule"`             // the sentence that a refusal cites
}

// Take says in which states of its ticket a message of a type is taken at all.
type Take struct {
	Type string   `json:"type"`
	Kind string   `json:"kind,omitempty"` // op, mode or kind in the payload
	In   []string `json:"in"`             // states, or Any
	Rule string   `json:"rule"`
}

// States returns the states of a ticket. They must not be changed.
func States() []State { return load().States }

// SliceStates returns the states of a slice. They must not be changed.
func SliceStates() []State { return load().SliceStates }

// Moves returns the table of moves. It must not be changed.
func Moves() []Move { return load().Moves }

// Takes returns what is taken in which state. What is not in it is taken in every
// state. It must not be changed.
func Takes() []Take { return load().Takes }

// Terminal reports whether a ticket in a state moves no more.
func Terminal(state string) bool { return terminal(load().States, state) }

// TerminalSlice reports whether a slice in a state changes no more.
func TerminalSlice(state string) bool { return terminal(load().SliceStates, state) }

func terminal(states []State, name string) bool {
	return slices.Contains(states, State{Name: name, Terminal: true})
}

// Leaves reports whether the row begins at a state.
func (m *Move) Leaves(state string) bool { return among(m.From, state) }

// Permits reports whether the row has a state of its ticket.
func (t *Take) Permits(state string) bool { return among(t.In, state) }

func among(states []string, state string) bool {
	return slices.Contains(states, state) || slices.Contains(states, Any) && state != None && !Terminal(state)
}
