// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package store

// standBack does nothing where a thread has no priority of its own.
func standBack() {}
