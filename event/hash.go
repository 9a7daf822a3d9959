// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
)

// ContentHash is SHA-256 over the event as its producer meant it: every
// attribute by name, each name and canonical string value preceded by its length
// (32 bits, big-endian), then a byte that says whether there is data, then the
// data bytes. It is the same for the same event in binary and structured mode:
// kinds are left out, since headers do not carry them, and so is white space
// around a JSON text, since the JSON format does not keep it. The attributes
// that the broker adds on delivery are left out too.
func (e *Event) ContentHash() [32]byte {
	var stack [1024]byte
	b := stack[:0]
	required := [...]Attribute{
		{nameID, StringValue(e.id)}, {nameSource, StringValue(e.source)},
		{nameSpecVersion, StringValue(specVersion)}, {nameType, StringValue(e.typ)},
	}
	next := required[:]
	for i := range e.attrs {
		a := &e.attrs[i]
		switch a.Name {
		case namePosition, nameSuperseded, nameProducer, nameTopic:
			continue
		}
		for len(next) > 0 && next[0].Name < a.Name {
			b, next = appendHashed(b, &next[0]), next[1:]
		}
		b = appendHashed(b, a)
	}
	for i := range next {
		b = appendHashed(b, &next[i])
	}
	if e.dataKind == NoData {
		return sha256.Sum256(append(b, 0))
	}
	b = append(b, 1)
	data := e.data
	if e.dataKind == JSONData {
		data = bytes.Trim(data, " \t\r\n")
	}
	if len(b)+len(data) <= cap(b) {
		return sha256.Sum256(append(b, data...))
	}
	h := sha256.New()
	h.Write(b)
	h.Write(data)
	var sum [32]byte
	h.Sum(sum[:0])
	return sum
}

func appendHashed(b []byte, a *Attribute) []byte {
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(a.Name))), a.Name...)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(a.Value.text))), a.Value.text...)
}
