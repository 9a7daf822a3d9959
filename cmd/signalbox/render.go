// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"signalbox/event"
)

// dataShownMax bounds the data of one event on a terminal; a payload of megabytes would scroll everything else away.
const dataShownMax = 400

// writeJSON writes v as one line.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // for people read this, too, and expressions have a > in them
	return enc.Encode(v)
}

// many says how many there are of something.
func many[N int | int64 | uint64](n N, one, more string) string {
	if n == 1 {
		more = one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// writeEvent writes an event as one line of JSON, or as one line for people.
func writeEvent(w io.Writer, ev *event.Event, text bool) error {
	if !text {
		_, err := w.Write(append(ev.AppendJSON(nil), '\n'))
		return err
	}
	key, ok := ev.Key()
	if !ok {
		key = "-"
	}
	mark := ""
	if ev.Superseded() {
		mark = "  (superseded)"
	}
	position := "-" // of an ephemeral topic
	if ev.Position() != 0 {
		position = fmt.Sprintf("@%d", ev.Position())
	}
	_, err := fmt.Fprintf(w, "%s  %s  %s  %s  %s  %s  %s%s\n", position, oneLine(ev.Topic()),
		time.UnixMilli(ev.HLC().Millis()).Format("2006-01-02 15:04:05.000"),
		oneLine(ev.Type()), oneLine(key), oneLine(ev.Source()), dataLine(ev), mark)
	return err
}

// dataLine is the data of an event in a form that fits a line.
func dataLine(ev *event.Event) string {
	data := ev.Data()
	switch {
	case ev.DataKind() == event.NoData:
		return "(no data)"
	case ev.DataKind() == event.BinaryData || !utf8.Valid(data):
		return fmt.Sprintf("(%d bytes of %s)", len(data), cmp.Or(oneLine(ev.DataContentType()), "unknown type"))
	}
	s := oneLine(string(data))
	if len(s) <= dataShownMax {
		return s
	}
	return strings.ToValidUTF8(s[:dataShownMax], "") + "… (" + strconv.Itoa(len(data)) + " bytes)"
}

// oneLine makes foreign text safe for a terminal: an event must not be able to move the cursor, recolour the screen or
// fake a second line. It keeps what can be printed and shows the rest as an escape.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			b.WriteByte(' ')
		case unprintable(r):
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unprintable includes the format characters that reorder text (U+202E and its kin).
func unprintable(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }
