// SPDX-License-Identifier: Apache-2.0

// Package prometheus holds the tests of the board and the alerts in deploy/: with
// Prometheus's own parser, and with Prometheus itself, which scrapes a broker and
// evaluates them. It is a module of its own, so that the parser is no requirement
// of the product, and imports nothing of the product.
package prometheus
