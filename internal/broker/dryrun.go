// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"signalbox/event"
	"signalbox/internal/dispatch"
	"signalbox/internal/filter"
	"signalbox/internal/identity"
)

// The limits of a dry run.
const (
	// DryRunLastMax is the greatest number of events that one looks at, each of
	// which costs tens of microseconds.
	DryRunLastMax = 10_000

	// dryRunTime is the time after which no further event is looked at, so that a costly
	// filter on large events does not pin a snapshot of the store for minutes. The
	// evaluation of one event is not broken off.
	dryRunTime = 5 * time.Second

	// dryRunsMax keeps them from taking all processors from publishers and readers.
	dryRunsMax = 2

	// dryRunListed bounds the lists of an answer: nobody looks through more.
	dryRunListed = 10
)

// DryRun says what to try a filter on.
type DryRun struct {
	As       identity.Principal // who tries it
	Filter   *filter.Filter
	Patterns []event.Pattern
	Last     int // how many of the latest events, up to DryRunLastMax

	// At most one of these names an event to explain.
	Event  *event.Event  // that need not have been published
	Cursor *event.Cursor // at which it is
	Latest bool          // the latest one in the topics
}

// DryRunReport says what a filter makes of the events that were looked at, and
// of those that do not pass, why.
type DryRunReport struct {
	Canonical  string         `json:"canonical"`
	Cursor     event.Cursor   `json:"cursor"`   // at which all this is exact
	Complete   bool           `json:"complete"` // false: the time was up before all were looked at
	Events     int            `json:"events"`
	Matched    int            `json:"matched"`
	Errors     int            `json:"errors"` // events on which an evaluation ended so
	ErrorKinds map[string]int `json:"error_kinds"`
	Matches    []DryRunMatch  `json:"matches"` // the latest of them
	Failures   []DryRunFault  `json:"failures"`
	Explained  *DryRunVerdict `json:"explained,omitempty"`
}

// DryRunMatch is an event that passes.
type DryRunMatch struct {
	Cursor event.Cursor `json:"cursor"`
	Topic  string       `json:"topic"`
	Source string       `json:"source"`
	ID     string       `json:"id"`
}

// DryRunFault is a clause that kept events from passing, and on how many it was
// the first to do so.
type DryRunFault struct {
	Clause string   `json:"clause"`
	Errors []string `json:"errors,omitempty"` // that were met in it
	Events int      `json:"events"`
}

// DryRunVerdict says what becomes of one event.
type DryRunVerdict struct {
	Cursor *event.Cursor `json:"cursor,omitempty"` // if it is in the log
	Source string        `json:"source"`
	ID     string        `json:"id"`
	Passes bool          `json:"passes"`
	// Tombstone says that it removes a key, and so passes, too, if the evaluation
	// looked for something in data.
	Tombstone   bool               `json:"tombstone,omitempty"`
	Explanation filter.Explanation `json:"explanation"`
}

// DryRun tries a filter on events that are retained. It changes nothing.
func (b *Broker) DryRun(ctx context.Context, run DryRun) (DryRunReport, error) {
	if run.Last < 1 || run.Last > DryRunLastMax {
		return DryRunReport{}, event.Errorf(event.CodeParameterInvalid, "last=%d is not a number of events from 1 to %d.", run.Last, DryRunLastMax).With("last")
	}
	var err error
	if run.Patterns, err = b.reach(run.As).narrow(run.Patterns); err != nil {
		return DryRunReport{}, err
	}
	if b.dryRuns.Add(1) > dryRunsMax {
		b.dryRuns.Add(-1)
		return DryRunReport{}, event.Errorf(event.CodeOverloaded, "%d dry runs of filters are under way: retry in a second.", dryRunsMax)
	}
	defer b.dryRuns.Add(-1)
	return b.dryRun(ctx, run, dryRunTime)
}

func (b *Broker) dryRun(ctx context.Context, run DryRun, most time.Duration) (DryRunReport, error) {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	t := trial{run: &run, faults: map[[2]string]*DryRunFault{}, report: DryRunReport{
		Canonical: run.Filter.Text(), Cursor: b.Head(), ErrorKinds: map[string]int{}, Matches: []DryRunMatch{}, Failures: []DryRunFault{},
	}}
	err := t.explain(limited, b.dispatch)
	if err == nil {
		t.report.Cursor, err = b.dispatch.Recent(limited, run.Patterns, run.Last, t.look)
	}
	t.report.Complete = err == nil
	if err == nil || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = t.fault // that the time was up is in the report
	}
	t.list()
	return t.report, err
}

// trial is a dry run that is under way.
type trial struct {
	run     *DryRun
	machine filter.Machine
	report  DryRunReport
	faults  map[[2]string]*DryRunFault // by clause and errors; no more than the filter has clauses
	fault   error                      // of look
}

// look evaluates the filter on one event.
func (t *trial) look(e *dispatch.Retained) bool {
	f, r := t.run.Filter, &t.report
	if t.run.Latest && r.Explained == nil {
		if t.fault = t.explainRetained(e); t.fault != nil {
			return false
		}
	}
	r.Events++
	passes := t.machine.Selects(f, e.Record.Event(), e.Tombstone)
	if names := t.machine.Errors().Names(); len(names) > 0 {
		r.Errors++
		for _, name := range names {
			r.ErrorKinds[name]++
		}
	}
	if passes {
		r.Matched++
		if len(r.Matches) < dryRunListed {
			var decoded *event.Event
			if decoded, t.fault = event.DecodeDelivered(e.JSON()); t.fault != nil {
				return false
			}
			r.Matches = append(r.Matches, DryRunMatch{e.Cursor, decoded.Topic(), decoded.Source(), decoded.ID()})
		}
		return true
	}
	clause, met := t.machine.Decider(f, e.Record.Event())
	key := [2]string{clause, met.String()}
	if t.faults[key] == nil {
		t.faults[key] = &DryRunFault{Clause: clause, Errors: met.Names()}
	}
	t.faults[key].Events++
	return true
}

// explain explains the event that the dry run names.
func (t *trial) explain(ctx context.Context, d *dispatch.Dispatch) error {
	switch {
	case t.run.Event != nil:
		var r filter.Record
		r.FillFrom(t.run.Event)
		t.verdict(t.run.Event, &r)
	case t.run.Cursor != nil:
		found, err := d.RetainedAt(ctx, t.run.Patterns, *t.run.Cursor, func(e *dispatch.Retained) { t.fault = t.explainRetained(e) })
		if err == nil {
			err = t.fault
		}
		if err != nil {
			return err
		}
		if !found {
			return event.Errorf(event.CodeParameterInvalid, "None of the topics retains an event at %s: it was removed, has expired, or is in another topic.", t.run.Cursor).With("event")
		}
	}
	return nil
}

func (t *trial) explainRetained(e *dispatch.Retained) error {
	decoded, err := event.DecodeDelivered(e.JSON())
	if err != nil {
		return err
	}
	x := t.verdict(decoded, e.Record)
	x.Cursor, x.Tombstone = &e.Cursor, e.Tombstone
	x.Passes = t.machine.Selects(t.run.Filter, e.Record.Event(), e.Tombstone)
	return nil
}

func (t *trial) verdict(e *event.Event, r *filter.Record) *DryRunVerdict {
	x := &DryRunVerdict{Source: e.Source(), ID: e.ID(), Explanation: t.machine.Explain(t.run.Filter, r.Event())}
	x.Passes = x.Explanation.Passes
	t.report.Explained = x
	return x
}

// list puts what most events failed at first.
func (t *trial) list() {
	list := &t.report.Failures
	for _, f := range t.faults {
		*list = append(*list, *f)
	}
	slices.SortFunc(*list, func(a, b DryRunFault) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), strings.Compare(a.Clause, b.Clause), slices.Compare(a.Errors, b.Errors))
	})
	*list = (*list)[:min(len(*list), dryRunListed)]
}
