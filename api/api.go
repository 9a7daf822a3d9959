// SPDX-License-Identifier: Apache-2.0

// Package api holds the contracts of the broker's doors. They are written by
// hand; tests of the doors keep them in agreement with what is served.
package api

import _ "embed"

// OpenAPI describes the HTTP door (OpenAPI 3.1).
//
//go:embed openapi.yaml
var OpenAPI []byte
