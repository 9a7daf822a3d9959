// SPDX-License-Identifier: Apache-2.0

// Package ticketclient makes the ticket protocol pleasant for agents in Go. Package
// ticket has its language (envelopes, hashes, verbs); here is what an agent does
// with it.
//
// A domain agent is an [Agent]: it has a function for each thing that it is asked
// for (plan, execute, roll back, verify), and everything around that is done for it.
// Requests come by a durable subscription. An execute is begun once the broker has it
// as delivered. What the agent has answered is in its store before it is sent, so that
// a request which comes again, whatever died in between, is answered with the same
// words and not acted on again; docs/tickets.md has what holds after which death. Ids, nonces,
// causes, traces and signatures are filled in, deadlines end the work, and a
// heartbeat says every ten seconds what is under way.
//
// An orchestrator is an [Orchestrator] and a function from a [Ticket], which is
// all its messages in order, with the breakers and the verbs that the broker judges it
// by, to the next moves. Nothing else is remembered, so one
// that was killed goes on where the log ends; the names of its moves follow from
// what they are for, so that none is made twice.
//
// Everybody else (intake, a gate, a bridge) speaks by a [Sender].
//
// It imports client and ticket, and nothing of the broker.
package ticketclient
