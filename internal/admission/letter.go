// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/rand"
	"crypto/sha256"

	"signalbox/event"
	"signalbox/internal/eventlog"
)

// Letter prepares a stored event for the log once more, as a dead letter: its
// members as they are, behind those that say why. It keeps its id, its source
// and its HLC, and does not expire.
func Letter(prefix, members []byte, hlc event.HLC) eventlog.Entry {
	object := append([]byte{'{'}, members...)
	entry := eventlog.Entry{HLC: hlc, WireBytes: uint32(len(members))}
	entry.ID, _ = event.LookupJSON(object, "id")
	entry.Source, _ = event.LookupJSON(object, "source")
	entry.Identity = eventlog.IdentityHash{ID: event.HashID(entry.ID), Source: event.HashSource(entry.Source)}
	content := sha256.Sum256(members)
	copy(entry.Content[:], content[:])
	// Read never returns an error, see Admit.
	_, _ = rand.Read(entry.Salt[:])
	entry.Members = append(append(make([]byte, 0, len(prefix)+len(members)), prefix...), members...)
	h := sha256.New()
	h.Write(entry.Salt[:])
	h.Write(entry.Members)
	h.Sum(entry.Body[:0])
	return entry
}
