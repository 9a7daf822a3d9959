// SPDX-License-Identifier: Apache-2.0

// Package orchestrator is the reference orchestrator of the ticket protocol: a
// policy, and a function from what was said about a ticket to what is said next. It
// brings a ticket through plan, tier, approval, execution, verification and closing.
//
// [Policy.Decide] depends on the policy, on the ticket (its messages, the open breakers
// of its targets, the verbs in force) and the time, and on nothing else. So an orchestrator that dies at any point goes on where the log ends,
// and two of them would say the same under the same names, once.
//
// The broker enforces the protocol; what is decided here is only which of the legal
// moves to make. It imports what an orchestrator of somebody else would: package
// client/ticket, and the language of the protocol.
package orchestrator
