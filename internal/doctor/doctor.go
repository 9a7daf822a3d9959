// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a machine and a data directory and says what is
// wrong, what that means and what to do. It changes nothing but a file that it
// writes and removes to measure syncs, and needs no running broker.
//
// What is known of damage is broker's and store's; here it becomes findings
// beside those about the machine. It imports both, and no transport.
package doctor

import (
	"context"
	"fmt"

	"signalbox/internal/broker"
)

// Severity says how urgent a finding is.
type Severity string

// The severities.
const (
	OK       Severity = "ok"
	Note     Severity = "note"     // good to know
	Warning  Severity = "warning"  // it works, and will not for ever or not well
	Critical Severity = "critical" // data are damaged or in danger, or a broker cannot run
)

// Finding is the outcome of one check.
type Finding struct {
	Severity Severity `json:"severity"`
	Check    string   `json:"check"`             // what was looked at, a name that does not change
	What     string   `json:"what"`              // what was found
	Meaning  string   `json:"meaning,omitempty"` // why it matters
	Action   string   `json:"action,omitempty"`  // what to do about it
}

// Report is everything that was found.
type Report struct {
	Dir      string    `json:"dir"`
	Findings []Finding `json:"findings"`
	Damaged  bool      `json:"damaged"`
}

// Worst is the most urgent severity of the report.
func (r *Report) Worst() Severity {
	worst := OK
	for _, f := range r.Findings {
		if rank(f.Severity) > rank(worst) {
			worst = f.Severity
		}
	}
	return worst
}

func rank(s Severity) int {
	return map[Severity]int{OK: 0, Note: 1, Warning: 2, Critical: 3}[s]
}

// Options say what to examine.
type Options struct {
	Dir     string
	Listen  string // the address that a broker is to have
	MinFree uint64
	// Quick leaves out reading all data.
	Quick    bool
	Progress func(broker.VerifyProgress)
}

// Examine looks at the machine first and then at the data.
func Examine(ctx context.Context, o Options) (Report, error) {
	e := examination{Options: o, report: Report{Dir: o.Dir}}
	e.machine()
	e.port()
	err := e.data(ctx)
	return e.report, err
}

// examination collects a report.
type examination struct {
	Options
	report Report
}

func (e *examination) add(severity Severity, check, what, meaning, action string) {
	e.report.Findings = append(e.report.Findings, Finding{severity, check, what, meaning, action})
}

func (e *examination) ok(check, format string, args ...any) {
	e.add(OK, check, fmt.Sprintf(format, args...), "", "")
}

// size is a number of bytes for people.
func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
