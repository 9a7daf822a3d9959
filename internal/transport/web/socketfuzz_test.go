// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/transport/web"
)

// FuzzFrames sends any bytes as the frames of a client. Whatever comes, the
// memory that is held follows what came and not what was announced, and the end
// is that of the input or has a close code.
func FuzzFrames(f *testing.F) {
	f.Add(frame(text, "{}"))
	f.Add(append(frame(0x01, "{"), frame(0x80, "}")...))
	f.Add(append(frame(0x89, "ping"), frame(0x88, "\x03\xe8bye")...))
	f.Add([]byte{text, 0x80 | 127, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4})
	f.Add([]byte{text, 0x80 | 126, 0xff, 0xff, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, input []byte) {
		const limit = 1 << 20
		held, err := web.ReadMessages(bytes.NewReader(input), limit, func(message []byte) {
			if len(message) > len(input) {
				t.Errorf("a message of %d bytes in %d", len(message), len(input))
			}
		})
		if held > 3*len(input)+64<<10 {
			t.Errorf("%d bytes held for an input of %d", held, len(input))
		}
		if web.CloseCode(err) == 0 && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the end is %v", err)
		}
	})
}

// FuzzMessages sends any text as a message of signalbox.v1: a refusal has a code
// that is the caller's, and a repetition decides the same.
func FuzzMessages(f *testing.F) {
	f.Add(`{"op":"publish","ref":"1","topic":"a","event":` + ev("1", "k", someData) + `,"if_match":"\"@1\""}`)
	f.Add(`{"op":"publish","ref":"1","events":[` + ev("1", "") + `],"idempotency_key":"k"}`)
	f.Add(`{"op":"ack","cursor":"@105.k3f9x0ab"}`)
	f.Add(`{"op":"publish","ref":"1","event":{"data":` + strings.Repeat("[", 200) + `}}`)
	f.Fuzz(func(t *testing.T, input string) {
		op, ref, err := web.DecodeMessage([]byte(input))
		if err != nil {
			if e := event.AsError(err); e.Code.Class().HTTP/100 != 4 || e.Message == "" {
				t.Errorf("refused with %+v", e)
			}
		} else if op != "ack" && (op != "publish" || ref == "") {
			t.Errorf("op %q with ref %q is taken", op, ref)
		}
		again, _, errAgain := web.DecodeMessage([]byte(input))
		if again != op || (err == nil) != (errAgain == nil) {
			t.Errorf("the second time it is %q, %v", again, errAgain)
		}
	})
}

// However a message is cut into frames, and whatever pings stand between them,
// it arrives as it was sent.
func TestFragmentationChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOfN(rapid.String(), 1, 5).Draw(t, "messages")
		var input []byte
		for _, message := range sent {
			first, rest := byte(0x01), message
			for len(rest) > 0 && rapid.Bool().Draw(t, "cut") {
				n := rapid.IntRange(0, len(rest)).Draw(t, "piece")
				input = append(input, frame(first, rest[:n])...)
				first, rest = 0x00, rest[n:]
				if rapid.Bool().Draw(t, "ping") {
					input = append(input, frame(0x89, "x")...)
				}
			}
			input = append(input, frame(first|0x80, rest)...)
		}
		var got []string
		_, err := web.ReadMessages(bytes.NewReader(input), 1<<20, func(message []byte) { got = append(got, string(message)) })
		if !errors.Is(err, io.EOF) {
			t.Fatalf("the end is %v", err)
		}
		if strings.Join(got, "\x00") != strings.Join(sent, "\x00") || len(got) != len(sent) {
			t.Fatalf("%q arrives as %q", sent, got)
		}
	})
}
