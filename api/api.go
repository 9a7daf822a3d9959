// SPDX-License-Identifier: Apache-2.0

// Package api holds the contracts of the broker's doors and of the ticket
// protocol. They are written by hand; tests keep them in agreement with what is
// served and with what the code does.
package api

import _ "embed"

// OpenAPI describes the HTTP door (OpenAPI 3.1).
//
//go:embed openapi.yaml
var OpenAPI []byte

// TicketRegistry says of each type of ticket message who may send it, to whom,
// and what its deadlines are; and what looks like a secret.
//
//go:embed ticket/registry.json
var TicketRegistry []byte

// TicketSchema is the JSON Schema (2020-12) of the envelope, with that of each
// type's payload under $defs.
//
//go:embed ticket/schema.json
var TicketSchema []byte

// Verbs is the catalogue of what a step of a ticket may do.
//
//go:embed verbs.json
var Verbs []byte

// TicketVectors are messages, their canonical bytes, signatures and hashes, for
// implementations in any language to reproduce.
//
//go:embed ticket/vectors.json
var TicketVectors []byte
