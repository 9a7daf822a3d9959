// SPDX-License-Identifier: Apache-2.0

package web

import (
	"strconv"
	"time"

	"signalbox/event"
)

// The blocks of an event stream other than events; each ends with its empty
// line.

func appendRetry(dst []byte, d time.Duration) []byte {
	dst = strconv.AppendInt(append(dst, "retry: "...), d.Milliseconds(), 10)
	return append(dst, "\n\n"...)
}

func appendID(dst []byte, c event.Cursor) []byte {
	return append(c.AppendTo(append(dst, "id: "...)), "\n\n"...)
}

func appendContinued(dst []byte, reset *event.Error) []byte {
	return append(append(append(dst, ": "...), reset.Code...), ", continued at the oldest that is retained\n\n"...)
}

func appendSync(dst []byte, c event.Cursor, logMillis int64) []byte {
	dst = c.AppendTo(append(dst, "event: signalbox.sync\nid: "...))
	dst = c.AppendTo(append(dst, "\ndata: {\"cursor\":\""...))
	dst = strconv.AppendInt(append(dst, "\",\"log_ms\":"...), logMillis, 10)
	return append(dst, "}\n\n"...)
}
