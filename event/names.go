// SPDX-License-Identifier: Apache-2.0

package event

// specVersion is the one version of CloudEvents that is spoken.
const specVersion = "1.0"

// contentTypeJSON is what data without a datacontenttype is in the JSON format
// (JSON format 3.1.1).
const contentTypeJSON = "application/json"

// The names that code refers to. Anything that is not in attrNames is an
// extension that passes through untouched.
const (
	nameID              = "id"
	nameSource          = "source"
	nameSpecVersion     = "specversion"
	nameType            = "type"
	nameSubject         = "subject"
	nameTime            = "time"
	nameDataContentType = "datacontenttype"
	nameData            = "data"
	nameDataBase64      = "data_base64" // a member of the JSON format, not an attribute
	namePartitionKey    = "partitionkey"
	nameHLC             = "hlc"
	nameExpiry          = "expiry"
	nameExpiryTime      = "expirytime"
	namePosition        = "position"
	nameSuperseded      = "superseded"
	nameProducer        = "producer"
	nameTopic           = "topic"
)

// attrID numbers the known names, so that checks can switch on a number and
// decoding allocates nothing for a name.
type attrID uint8

const (
	attrOther attrID = iota
	attrIdent
	attrSource
	attrSpecVersion
	attrType
	attrSubject
	attrTime
	attrDataContentType
	attrDataSchema
	attrPartitionKey
	attrHLC
	attrExpiry
	attrExpiryTime
	attrRecordedTime
	attrDataRef
	attrPosition
	attrSuperseded
	attrProducer
	attrTopic
	attrCorrelationID
	attrCausationID
	attrTraceParent
	attrTraceState
)

var attrNames = [...]string{
	attrOther:           "",
	attrIdent:           nameID,
	attrSource:          nameSource,
	attrSpecVersion:     nameSpecVersion,
	attrType:            nameType,
	attrSubject:         nameSubject,
	attrTime:            nameTime,
	attrDataContentType: nameDataContentType,
	attrDataSchema:      "dataschema",
	attrPartitionKey:    namePartitionKey,
	attrHLC:             nameHLC,
	attrExpiry:          nameExpiry,
	attrExpiryTime:      nameExpiryTime,
	attrRecordedTime:    "recordedtime",
	attrDataRef:         "dataref",
	attrPosition:        namePosition,
	attrSuperseded:      nameSuperseded,
	attrProducer:        nameProducer,
	attrTopic:           nameTopic,
	attrCorrelationID:   "correlationid",
	attrCausationID:     "causationid",
	attrTraceParent:     "traceparent",
	attrTraceState:      "tracestate",
}

// attrOf finds the number of a name; [attrOther] if it is not a known one.
func attrOf(name []byte) attrID {
	switch string(name) {
	case "id":
		return attrIdent
	case "source":
		return attrSource
	case "specversion":
		return attrSpecVersion
	case "type":
		return attrType
	case "subject":
		return attrSubject
	case "time":
		return attrTime
	case "datacontenttype":
		return attrDataContentType
	case "dataschema":
		return attrDataSchema
	case "partitionkey":
		return attrPartitionKey
	case "hlc":
		return attrHLC
	case "expiry":
		return attrExpiry
	case "expirytime":
		return attrExpiryTime
	case "recordedtime":
		return attrRecordedTime
	case "dataref":
		return attrDataRef
	case "position":
		return attrPosition
	case "superseded":
		return attrSuperseded
	case "producer":
		return attrProducer
	case "topic":
		return attrTopic
	case "correlationid":
		return attrCorrelationID
	case "causationid":
		return attrCausationID
	case "traceparent":
		return attrTraceParent
	case "tracestate":
		return attrTraceState
	}
	return attrOther
}

// nameFault says what is wrong with an attribute name, or "".
func nameFault(name []byte) string {
	if len(name) == 0 {
		return "is empty"
	}
	if len(name) > MaxNameBytes {
		return "is longer than 128 bytes"
	}
	for _, c := range name {
		// Core, Attribute Naming Convention: MUST consist of a-z and 0-9. This is
		// also what keeps names that differ only by case apart.
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return "has a character other than a-z and 0-9"
		}
	}
	if string(name) == nameData { // core: MUST NOT use "data"
		return "is not allowed for an attribute"
	}
	return ""
}
