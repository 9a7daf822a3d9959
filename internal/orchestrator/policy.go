// SPDX-License-Identifier: Apache-2.0

package orchestrator

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"signalbox/event"
	"signalbox/ticket"
)

// policyBytesMax bounds a policy file: it is written by people.
const policyBytesMax = 1 << 20

// What holds where a rule says nothing.
const (
	revisionsDefault = 3
	asksDefault      = 3
)

// Policy says how tickets are worked on. The first rule that matches a ticket is the
// one for it.
type Policy struct {
	Rules []Rule `yaml:"rules"`
}

// What can be done about a plan that did not come to its end, or cannot begin.
const (
	ActRollback = "rollback" // undo what was applied
	ActReplan   = "replan"   // ask for another revision of what has not succeeded
	ActAccept   = "accept"   // ask the gate to take it as it is
	ActEscalate = "escalate" // ask the gate what to do
	ActClose    = "close"
	ActReset    = "reset"   // ask the gate to reset the breaker
	ActApprove  = "approve" // ask the gate to approve the plan under an open breaker
)

// Rule says how the tickets are worked on that it matches.
type Rule struct {
	Name string `yaml:"name"`
	// SourceRef is what the source_ref of a ticket has to be; one * stands for any
	// text, and {*} in objective and targets for the same text. Priorities are those
	// that match; none is all.
	SourceRef  string `yaml:"source_ref"`
	Priorities []int  `yaml:"priorities"`

	Slices []SliceRule `yaml:"slices"`

	// Window is when plans may be carried out, in UTC; none is always.
	Window *WindowRule `yaml:"window"`
	// Approvers is the least number of people that approve a plan of tier 2 or 3;
	// tier 3 has two in any case.
	Approvers int `yaml:"approvers"`

	OnBreaker    string `yaml:"on_breaker"`     // reset, approve or escalate
	OnDenied     string `yaml:"on_denied"`      // close or replan
	OnPartial    string `yaml:"on_partial"`     // rollback, replan, accept or escalate
	OnUnaccepted string `yaml:"on_unaccepted"`  // escalate or rollback: what is partial, and the gate does not accept
	OnFailed     string `yaml:"on_failed"`      // escalate, replan or close
	OnRolledBack string `yaml:"on_rolled_back"` // close or replan
	// Revisions is how often a plan is asked for before the gate has to decide.
	Revisions int `yaml:"revisions"`
	// Asks is how often the gate is asked for the same before its silence is taken for a
	// no, or platform-ops is told of it.
	Asks int `yaml:"asks"`
	// SkipVerify takes the checks of the results for the verification.
	SkipVerify bool `yaml:"skip_verify"`

	// Deadlines; what is not set is the protocol's.
	PlanWithin     Duration `yaml:"plan_within"`
	ApproveWithin  Duration `yaml:"approve_within"`
	DeliverWithin  Duration `yaml:"deliver_within"`
	CompleteWithin Duration `yaml:"complete_within"`
}

// SliceRule is what one domain is asked for.
type SliceRule struct {
	ID          string   `yaml:"id"`
	Domain      string   `yaml:"domain"`
	Objective   string   `yaml:"objective"`
	Targets     []string `yaml:"targets"`
	Constraints []string `yaml:"constraints"`
	DependsOn   []string `yaml:"depends_on"` // slices that have to succeed before
	// Verbs are those that a proposal may have; none is all of the catalogue.
	Verbs []string `yaml:"verbs"`
}

// WindowRule is a part of each day. If the end is before the start it is on the next.
type WindowRule struct {
	Start string `yaml:"start"` // such as 22:00
	End   string `yaml:"end"`
}

// Duration is written as in policies of topics, such as 30m or 24h.
type Duration time.Duration

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := event.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// ParsePolicy reads a policy: YAML, or JSON, which is a part of it. A key that is not
// known is a fault, for a misspelt one would silently leave its default in place.
func ParsePolicy(text []byte) (*Policy, error) {
	if len(text) > policyBytesMax {
		return nil, fmt.Errorf("a policy has at most %d bytes", policyBytesMax)
	}
	p := &Policy{}
	if err := yaml.UnmarshalWithOptions(text, p, yaml.Strict()); err != nil {
		return nil, err
	}
	if len(p.Rules) == 0 {
		return nil, errors.New("a policy needs a rule")
	}
	for i := range p.Rules {
		if err := p.Rules[i].check(); err != nil {
			return nil, fmt.Errorf("rules[%d] (%s): %w", i, p.Rules[i].Name, err)
		}
	}
	return p, nil
}

// Fits reports what a policy has that cannot work with a catalogue of verbs: verbs
// that it has not, or not for the domain.
func (p *Policy) Fits(verbs *ticket.Catalogue) error {
	for i := range p.Rules {
		for _, s := range p.Rules[i].Slices {
			for _, name := range s.Verbs {
				if v, ok := verbs.Verb(name); !ok || !slices.Contains(v.Domains, s.Domain) {
					return fmt.Errorf("rules[%d] (%s): the slice %q may use %q, which the catalogue of verbs %s has not for %s", i, p.Rules[i].Name, s.ID, name, verbs.Version, s.Domain)
				}
			}
			if !slices.ContainsFunc(verbs.Verbs, func(v ticket.Verb) bool { return slices.Contains(v.Domains, s.Domain) }) {
				return fmt.Errorf("rules[%d] (%s): the catalogue of verbs %s has none for the domain %s of the slice %q", i, p.Rules[i].Name, verbs.Version, s.Domain, s.ID)
			}
		}
	}
	return nil
}

// Domains are those that a policy asks, by name.
func (p *Policy) Domains() (domains []string) {
	for i := range p.Rules {
		for _, s := range p.Rules[i].Slices {
			domains = append(domains, s.Domain)
		}
	}
	slices.Sort(domains)
	return slices.Compact(domains)
}

// check fills in what is left out, and refuses what contradicts itself.
func (r *Rule) check() error {
	if r.Name == "" || r.SourceRef == "" || strings.Count(r.SourceRef, "*") > 1 {
		return errors.New("a rule needs a name and a source_ref with at most one *")
	}
	if r.Approvers < 0 || r.Approvers > 2 || r.Revisions < 0 || r.Asks < 0 || len(r.Slices) == 0 || len(r.Slices) > 100 {
		return errors.New("approvers are 0 to 2, revisions and asks 0 or more, and slices 1 to 100")
	}
	for _, p := range r.Priorities {
		if p < 1 || p > 5 {
			return errors.New("priorities are 1 to 5")
		}
	}
	for _, act := range []struct {
		name string
		is   *string
		may  []string // the first is the default
	}{
		{"on_breaker", &r.OnBreaker, []string{ActReset, ActApprove, ActEscalate}},
		{"on_denied", &r.OnDenied, []string{ActClose, ActReplan}},
		{"on_partial", &r.OnPartial, []string{ActRollback, ActReplan, ActAccept, ActEscalate}},
		{"on_unaccepted", &r.OnUnaccepted, []string{ActEscalate, ActRollback}},
		{"on_failed", &r.OnFailed, []string{ActEscalate, ActReplan, ActClose}},
		{"on_rolled_back", &r.OnRolledBack, []string{ActClose, ActReplan}},
	} {
		if *act.is == "" {
			*act.is = act.may[0]
		}
		if !slices.Contains(act.may, *act.is) {
			return fmt.Errorf("%s is %s, and not %q", act.name, strings.Join(act.may, " or "), *act.is)
		}
	}
	r.Revisions, r.Asks = cmp.Or(r.Revisions, revisionsDefault), cmp.Or(r.Asks, asksDefault)
	if r.Window != nil {
		if _, _, err := r.Window.at(time.Time{}); err != nil {
			return err
		}
	}
	return r.checkSlices()
}

// tokenForm is that of ids in payloads.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)

func (r *Rule) checkSlices() error {
	before := map[string]bool{}
	for _, s := range r.Slices {
		if !tokenForm.MatchString(s.ID) || before[s.ID] || ticket.CheckName(s.Domain) != nil || s.Objective == "" || len(s.Targets) == 0 {
			return fmt.Errorf("the slice %q needs an id of its own, a domain, an objective and targets", s.ID)
		}
		for _, id := range s.DependsOn {
			if !before[id] {
				return fmt.Errorf("the slice %q depends on %q, which is not before it", s.ID, id)
			}
		}
		before[s.ID] = true
	}
	return nil
}

// at returns the window that a time is in, or the next one.
func (w *WindowRule) at(now time.Time) (start, end time.Time, err error) {
	from, err := time.Parse("15:04", w.Start)
	if err != nil {
		return start, end, fmt.Errorf("a window starts at a time such as 22:00, and not at %q", w.Start)
	}
	to, err := time.Parse("15:04", w.End)
	if err != nil || to.Equal(from) {
		return start, end, fmt.Errorf("a window ends at another time such as 04:00, and not at %q", w.End)
	}
	length := to.Sub(from)
	if length < 0 {
		length += 24 * time.Hour
	}
	now = now.UTC()
	start = time.Date(now.Year(), now.Month(), now.Day()-1, from.Hour(), from.Minute(), 0, 0, time.UTC)
	for !start.Add(length).After(now) {
		start = start.Add(24 * time.Hour)
	}
	return start, start.Add(length), nil
}

// Match returns the rule for a ticket, and what its * stands for; nil if none is.
func (p *Policy) Match(sourceRef string, priority int) (*Rule, string) {
	for i := range p.Rules {
		r := &p.Rules[i]
		prefix, suffix, wild := strings.Cut(r.SourceRef, "*")
		fits := sourceRef == r.SourceRef
		if wild {
			fits = len(sourceRef) >= len(prefix)+len(suffix) && strings.HasPrefix(sourceRef, prefix) && strings.HasSuffix(sourceRef, suffix)
		}
		if fits && (len(r.Priorities) == 0 || slices.Contains(r.Priorities, priority)) {
			if !wild {
				return r, ""
			}
			return r, sourceRef[len(prefix) : len(sourceRef)-len(suffix)]
		}
	}
	return nil, ""
}

// filled puts the text of the * into those that ask for it.
func filled(texts []string, star string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = strings.ReplaceAll(t, "{*}", star)
	}
	return out
}
