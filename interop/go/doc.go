// SPDX-License-Identifier: Apache-2.0

// Package interop holds the tests of the broker against the official CloudEvents
// SDK for Go. It is a module of its own, so that the SDK is no requirement of the
// product, and imports nothing of the product: both ends know only the wire.
package interop
