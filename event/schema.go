// SPDX-License-Identifier: Apache-2.0

package event

import (
	"crypto/sha256"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxSchemaBytes stops schemas that no producer could keep to, and bounds the
// time that it takes to compile one.
const MaxSchemaBytes = 64 << 10

// normalSchema returns a JSON Schema without white space and needless escapes, so
// that it is the same text however often it was written and read. Whether it is a
// schema is found out where it is compiled.
func normalSchema(text []byte) (string, bool) {
	v := jsontext.Value(text)
	if v.Kind() != jsontext.KindBeginObject || tooDeep(text) {
		return "", false
	}
	normal, err := jsontext.AppendFormat(nil, text)
	return string(normal), err == nil && len(normal) <= MaxSchemaBytes
}

// SchemaHash identifies what a topic's schema asks, apart from how it is written.
// That of no schema is zero.
func SchemaHash(schema string) (hash [16]byte) {
	if schema == "" {
		return hash
	}
	normal, ok := normalSchema([]byte(schema))
	if !ok {
		normal = schema
	}
	sum := sha256.Sum256([]byte(normal))
	copy(hash[:], sum[:])
	return hash
}
