// SPDX-License-Identifier: Apache-2.0

package ticket

import (
	"strconv"
	"strings"
	"time"

	"signalbox/event"
)

// major returns the first number of a version of versionForm.
func major(version string) int {
	text, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(text) // of at most six digits
	return n
}

// CheckName reports whether a name can be that of an agent or a domain. It is one
// token of a topic, in lower case, so that names cannot differ by case only.
func CheckName(name string) error {
	if !nameForm(name) {
		return event.Errorf(event.CodeMessageInvalid, "%.40q is no name: use up to 63 characters of a-z, 0-9, _ and -, with a letter or digit at either end.", name)
	}
	return nil
}

// CheckTicket reports whether a text can be the name of a ticket.
func CheckTicket(id string) error {
	if !tokenForm(id) {
		return event.Errorf(event.CodeMessageInvalid, "%.40q is the name of no ticket: use 1 to 128 letters, digits and any of . _ : -, the first a letter or digit.", id).With("ticket_id")
	}
	return nil
}

// set takes the members from their JSON values.
func (h *Header) set(values *[members][]byte) error {
	var moment string
	for _, f := range []struct {
		at   member
		to   *string
		form func(string) bool // nil: see check
		want string
	}{
		{memberID, &h.ID, idForm, "msg_ and a ULID in upper case"},
		{memberSchemaVersion, &h.SchemaVersion, versionForm, "three numbers joined by dots, such as 1.0.0"},
		{memberTicketID, &h.TicketID, nil, ""},
		{memberTraceID, &h.TraceID, tokenForm, "1 to 128 letters, digits and any of . _ : -, the first a letter or digit"},
		{memberCausationID, &h.CausationID, nil, ""},
		{memberFrom, &h.From, nameForm, "a name in lower case of at most 63 characters"},
		{memberTo, &h.To, nameForm, "a role or a domain, in lower case"},
		{memberTS, &moment, timeForm, "a time of RFC 3339 in UTC that ends in Z"},
		{memberNonce, &h.Nonce, nonceForm, "16 to 64 characters of base64url"},
		{memberIdempotencyKey, &h.IdempotencyKey, keyForm, "1 to 128 visible ASCII characters"},
		{memberType, &h.Type, nil, ""},
	} {
		text, ok := unquote(values[f.at])
		if !ok {
			return invalid(memberNames[f.at], "is not a JSON string")
		}
		if f.form != nil && !f.form(text) {
			return invalid(memberNames[f.at], "is not %s", f.want)
		}
		*f.to = text
	}
	var err error
	if h.Time, err = time.Parse(time.RFC3339Nano, moment); err != nil {
		return invalid("ts", "is no time of the calendar")
	}
	return h.check()
}

// check checks the members that depend on each other. What a type of another
// version asks for nobody here can say.
func (h *Header) check() error {
	t, known := TypeOf(h.Type)
	switch {
	case !known && !typeForm(h.Type):
		return h.unknown()
	case h.Type == TypeHeartbeat && h.TicketID != None:
		return invalid("ticket_id", "of a heartbeat is %q", None)
	case h.TicketID == None && (h.Type == TypeHeartbeat || h.Type == TypeEscalation || !known): // one of the bus may be about no ticket
	case !tokenForm(h.TicketID):
		return invalid("ticket_id", "is not 1 to 128 letters, digits and any of . _ : -, the first a letter or digit")
	case h.CausationID != None && !idForm(h.CausationID):
		return invalid("causation_id", "is neither the id of a message nor %q", None)
	case known && !t.goesTo(h.To):
		return invalid("to", "is %.40q, and a message of type %s goes to %s", h.To, t.Name, t.targets())
	}
	return nil
}

func (h *Header) unknown() error {
	return event.Errorf(event.CodeMessageTypeUnknown, "%.40q is none of the types of the protocol.", h.Type).With("type")
}
