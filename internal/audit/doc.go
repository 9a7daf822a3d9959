// SPDX-License-Identifier: Apache-2.0

// Package audit is what can be proved about the log: the entries of the audit
// trail and their leaves, the chain and the Merkle tree over the leaves, signed
// checkpoints, and the export that an auditor checks without a broker.
//
// Everything here is a function of bytes, so that the broker which writes the
// trail and the auditor who distrusts it use the same code. docs/audit.md
// describes the formats well enough to write that code again.
//
// The tree is that of RFC 6962 with the 32 bytes of a leaf as the data of each
// entry; checkpoints are signed notes (C2SP signed-note, tlog-checkpoint). Both
// are those of golang.org/x/mod/sumdb, which is chosen over a log server because
// a leaf has to be committed with what it stands for.
//
// It imports event only.
package audit
