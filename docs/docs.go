// SPDX-License-Identifier: Apache-2.0

// Package docs embeds the pages that a running broker serves. It has no code
// and imports nothing of ours.
package docs

import _ "embed" // for the page below

// Errors is the list of error codes, in Markdown.
//
//go:embed errors.md
var Errors []byte
