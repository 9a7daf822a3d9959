// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package doctor

func (e *examination) machine() {
	e.add(Note, "machine", "the machine was not examined", "What doctor knows of machines is Linux.", "Nothing.")
}

// holder names the process that has a directory open.
func holder(string) string { return "" }
