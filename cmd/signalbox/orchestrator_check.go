// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"signalbox/api"
	"signalbox/client"
	"signalbox/internal/orchestrator"
	"signalbox/ticket"
)

// readPolicy reads a policy file.
func readPolicy(path string) (*orchestrator.Policy, error) {
	if path == "" {
		return nil, usagef("say with --policy where the policy is; --example prints one")
	}
	written, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError{err}
	}
	policy, err := orchestrator.ParsePolicy(written)
	if err != nil {
		return nil, exitError{exitUsage, path + ": " + oneLine(firstLine(err.Error()))} // what follows is a picture of the place
	}
	return policy, nil
}

// policyCheck is what there is to say of a policy.
type policyCheck struct {
	Policy   string      `json:"policy"`
	Verbs    string      `json:"verbs"`  // version of the catalogue that it was held against
	Broker   bool        `json:"broker"` // that catalogue is the one in force at the broker
	Rules    []ruleCheck `json:"rules"`
	Warnings []string    `json:"warnings"`
}

type ruleCheck struct {
	Name       string       `json:"name"`
	SourceRef  string       `json:"source_ref"`
	Priorities []int        `json:"priorities"` // none: all
	Slices     []sliceCheck `json:"slices"`
	Window     string       `json:"window,omitempty"`
	OnBreaker  string       `json:"on_breaker"`
	OnDenied   string       `json:"on_denied"`
	OnPartial  string       `json:"on_partial"`
	OnFailed   string       `json:"on_failed"`
}

type sliceCheck struct {
	ID        string   `json:"id"`
	Domain    string   `json:"domain"`
	Objective string   `json:"objective"`
	Targets   []string `json:"targets"`
	DependsOn []string `json:"depends_on"`
}

// checkPolicy says what a policy comes to, and what of it cannot work.
func (a *app) checkPolicy(ctx context.Context, path, source string, priority int) error {
	text, err := a.text()
	if err != nil {
		return err
	}
	policy, err := readPolicy(path)
	if err != nil {
		return err
	}
	c, err := a.newClient(client.WithRetry(client.Retry{Attempts: 1}))
	if err != nil {
		return err
	}
	out := policyCheck{Policy: path, Warnings: []string{}}
	verbs, warnings, err := inForce(ctx, c, policy)
	if u := (*client.UnreachableError)(nil); errors.As(err, &u) {
		warnings = []string{"no broker answers at " + a.url + ", so the policy is held against the catalogue of verbs that this program has"}
		verbs, err = ticket.ParseCatalogue(api.Verbs)
	} else {
		out.Broker = true
	}
	if err != nil {
		return err
	}
	if err := policy.Fits(verbs); err != nil {
		return exitError{exitUsage, path + ": " + err.Error()}
	}
	out.Verbs, out.Warnings = verbs.Version, append(out.Warnings, warnings...)
	for i := range policy.Rules {
		out.Rules = append(out.Rules, ruleOf(&policy.Rules[i], "{*}"))
	}
	if source != "" {
		rule, star := policy.Match(source, priority)
		if rule == nil {
			return exitError{exitFailure, fmt.Sprintf("%s: no rule is for the source_ref %q with the priority %d; such a ticket goes to the gate", path, source, priority)}
		}
		out.Rules = []ruleCheck{ruleOf(rule, star)}
	}
	if !text {
		return writeJSON(a.out, out)
	}
	return a.writeCheck(&out)
}

// inForce asks a broker for its catalogue of verbs, and who is registered for the
// domains of a policy.
func inForce(ctx context.Context, c *client.Client, policy *orchestrator.Policy) (*ticket.Catalogue, []string, error) {
	text, err := c.Verbs(ctx)
	if err != nil {
		return nil, nil, err
	}
	verbs, err := ticket.ParseCatalogue(text)
	if err != nil {
		return nil, nil, err
	}
	registry, err := c.Agents(ctx)
	if err != nil {
		return nil, nil, err
	}
	var warnings []string
	for _, domain := range policy.Domains() {
		if !slices.ContainsFunc(registry.Agents, func(a client.Agent) bool { return a.Active && slices.Contains(a.Domains, domain) }) {
			warnings = append(warnings, fmt.Sprintf("no agent is registered for the domain %s; requests for plans will not be answered", domain))
		}
	}
	for _, role := range []string{ticket.RoleOrchestrator, ticket.RoleGate, ticket.RoleIntake} {
		if !slices.ContainsFunc(registry.Agents, func(a client.Agent) bool { return a.Active && slices.Contains(a.Roles, role) }) {
			warnings = append(warnings, fmt.Sprintf("no agent is registered with the role %s", role))
		}
	}
	return verbs, warnings, nil
}

func ruleOf(r *orchestrator.Rule, star string) ruleCheck {
	out := ruleCheck{
		Name: r.Name, SourceRef: r.SourceRef, Priorities: append([]int{}, r.Priorities...), OnBreaker: r.OnBreaker, OnDenied: r.OnDenied, OnPartial: r.OnPartial, OnFailed: r.OnFailed,
	}
	fill := func(text string) string { return strings.ReplaceAll(text, "{*}", star) }
	for i := range r.Slices {
		s := &r.Slices[i]
		one := sliceCheck{ID: s.ID, Domain: s.Domain, Objective: fill(s.Objective), DependsOn: append([]string{}, s.DependsOn...)}
		for _, target := range s.Targets {
			one.Targets = append(one.Targets, fill(target))
		}
		out.Slices = append(out.Slices, one)
	}
	if r.Window != nil {
		out.Window = r.Window.Start + " to " + r.Window.End + " UTC"
	}
	return out
}

func (a *app) writeCheck(c *policyCheck) error {
	s := sheet{a.out}
	for i := range c.Rules {
		r := &c.Rules[i]
		priorities := "of every priority"
		if len(r.Priorities) > 0 {
			priorities = "of priority " + strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Priorities), " ", ", "), "[]")
		}
		s.say("rule", "%s: tickets from %s, %s", r.Name, r.SourceRef, priorities)
		for k := range r.Slices {
			one := &r.Slices[k]
			after := ""
			if len(one.DependsOn) > 0 {
				after = ", after " + listed(one.DependsOn)
			}
			s.say("  slice", "%s asks %s about %s: %s%s", one.ID, one.Domain, listed(one.Targets), one.Objective, after)
		}
		if r.Window != "" {
			s.say("  window", "%s", r.Window)
		}
		s.say("  then", "denied: %s; in part: %s; failed: %s; breaker open: %s", r.OnDenied, r.OnPartial, r.OnFailed, r.OnBreaker)
	}
	for _, w := range c.Warnings {
		s.say("warning", "%s", w)
	}
	s.say("good", "%s can be used with the catalogue of verbs %s", c.Policy, c.Verbs)
	return nil
}
