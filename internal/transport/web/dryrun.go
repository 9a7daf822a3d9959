// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/filter"
)

// dryRunBytesMax lets the largest event and the largest document of filters
// travel in one request.
const dryRunBytesMax = singleBytesMax + filter.MaxDocumentBytes + 64<<10

// dryRunLast is how many events a dry run looks at unless it is told.
const dryRunLast = 1000

// dryRunRequest is the body of a dry run.
type dryRunRequest struct {
	Filter  *string        `json:"filter"`
	Filters jsontext.Value `json:"filters"`
	Strict  bool           `json:"strict"`
	Topics  []string       `json:"topics"`
	Last    *int           `json:"last"`
	Event   jsontext.Value `json:"event"` // a CloudEvent, a cursor, or "latest"
}

// dryRun tries a filter. Its body is read as JSON whatever it says it is, as
// that of a policy is.
func (s *Server) dryRun(w http.ResponseWriter, r *http.Request, _ url.Values) error {
	body, held, err := s.readBody(r, dryRunBytesMax)
	defer s.held.give(held)
	if err != nil {
		return err
	}
	run, err := parseDryRun(body)
	if err != nil {
		return err
	}
	run.As = principalOf(r)
	s.streams.enter() // the broker must not be closed meanwhile
	defer s.streams.leave(nil)
	report, err := s.broker.DryRun(r.Context(), run)
	if err != nil {
		return err
	}
	return s.json(w, http.StatusOK, report)
}

func parseDryRun(body []byte) (run broker.DryRun, err error) {
	var q dryRunRequest
	if err := json.Unmarshal(body, &q, json.RejectUnknownMembers(true)); err != nil {
		return run, dryRunFault(err)
	}
	if run.Filter, err = q.filter(); err != nil {
		return run, err
	}
	run.Last = dryRunLast
	if q.Last != nil {
		run.Last = *q.Last
	}
	if run.Patterns, err = q.patterns(); err != nil {
		return run, event.AsError(err).With("topics")
	}
	return run, q.event(&run)
}

func (q *dryRunRequest) patterns() ([]event.Pattern, error) {
	if q.Topics == nil {
		return event.ParsePatterns(">")
	}
	if n := len(q.Topics); n == 0 || n > event.MaxPatterns {
		return nil, event.Errorf(event.CodeTopicInvalid, "There are %d topic patterns; use 1 to %d, or leave topics out for all.", n, event.MaxPatterns)
	}
	patterns := make([]event.Pattern, len(q.Topics))
	for i, text := range q.Topics {
		var err error
		if patterns[i], err = event.ParsePattern(text); err != nil {
			return nil, err
		}
	}
	return patterns, nil
}

// dryRunFault tells a body that is no JSON from one with a wrong member.
func dryRunFault(err error) error {
	var fault *json.SemanticError
	if !errors.As(err, &fault) || fault.JSONPointer == "" {
		return event.Errorf(event.CodeJSONInvalid, "The body is not one JSON object such as {\"filter\":\"type = 'a.b'\"}.")
	}
	field := strings.TrimPrefix(string(fault.JSONPointer), "/")
	if errors.Is(err, json.ErrUnknownName) {
		return event.Errorf(event.CodeParameterInvalid, "The member %.40q is unknown: there are filter, filters, strict, topics, last and event.", field).With(field)
	}
	return event.Errorf(event.CodeParameterInvalid, "The member %.40q does not have the type that it must have.", field).With(field)
}

func (q *dryRunRequest) filter() (*filter.Filter, error) {
	o := filter.Options{Strict: q.Strict}
	switch {
	case (q.Filter == nil) == (q.Filters == nil):
		return nil, event.Errorf(event.CodeParameterInvalid, "Give one filter: an expression in `filter`, or dialects in `filters`.").With("filter")
	case q.Filter != nil:
		return o.ParseText(*q.Filter)
	}
	return o.ParseDocument(q.Filters)
}

// event reads which event is to be explained, if any.
func (q *dryRunRequest) event(run *broker.DryRun) (err error) {
	switch q.Event.Kind() {
	case jsontext.KindBeginObject:
		if run.Event, err = event.DecodeDelivered(q.Event); err != nil {
			fault := event.AsError(err)
			return fault.With(strings.TrimSuffix("event/"+fault.Field, "/"))
		}
		return nil
	case jsontext.KindString:
		var text string
		if err := json.Unmarshal(q.Event, &text); err != nil {
			return dryRunFault(err)
		}
		if run.Latest = text == "latest"; run.Latest {
			return nil
		}
		cursor, err := event.ParseCursor(text)
		if err != nil {
			return event.AsError(err).With("event")
		}
		run.Cursor = &cursor
		return nil
	case jsontext.KindInvalid: // there is none
		return nil
	}
	return event.Errorf(event.CodeParameterInvalid, "The event is neither a CloudEvent in JSON, nor a cursor, nor latest.").With("event")
}
