// SPDX-License-Identifier: Apache-2.0

// Package cesql holds the broker's CESQL engine against the official one for Go:
// a differential fuzz, and benchmarks of both in one run. It is a module of its
// own, so that the official engine is no requirement of the product.
package cesql
