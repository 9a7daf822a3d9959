// SPDX-License-Identifier: Apache-2.0

// Package sim holds a simulation of a whole broker, and nothing but tests.
//
// A run is one seed: it decides what publishers, readers, workers and operators
// do, how clocks go wrong, and when the power fails. The broker is the real one,
// on a disk in memory; time is that of testing/synctest, so that a day passes in
// milliseconds and, since one goroutine does everything, the same seed gives the
// same run. After each step what the broker answered is held against a model:
// plain maps, written from what is promised (docs/guarantees.md), that are told
// the proposals in the order of the log. Of tickets the model knows no states: it
// holds against what their messages say what must be true of any sequence of them.
//
// What it covers: publishing in all its forms, with schemas, preconditions and
// idempotency keys; policies and their changes, retention and compaction; readers,
// states and digests; the HTTP door with clients that follow by event streams and polls, whose connections
// break, who stop reading and are cut off, and come back with the last id that they saw; ephemeral topics; pull and stream subscriptions and webhooks, with
// their dead letters and their end; messages about tickets; clocks that go wrong; crashes,
// also while a broker starts, backups and restores. Not covered are WebSockets, the other calls of the door, TCP itself (connections are pipes in
// memory), and places outside for the audit trail. Webhooks have a sender of the simulation's own: the real
// one draws its delays and answers as its goroutines are scheduled, so that no seed would
// repeat it, and what goes when is decided by the broker.
//
//	go test ./internal/sim                                a few seconds
//	make sim FOR=2h                                       as long as you like
//	go test ./internal/sim -run Simulation -sim.seed=7    that run again
//
// A failure prints the steps that are needed to get to it, and the command that
// repeats them.
//
// Steps are in files named after what they exercise; model_test.go has what must
// hold. A step draws from its own random numbers (the seed and its number), so
// that leaving one out does not change what the others draw.
package sim
