// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/client"
	"signalbox/event"
	"signalbox/ticket"
)

type entriesFlags struct {
	from, to, position                                  uint64
	since, until, kind, topic, typ, source, key, ticket string
	limit                                               int
}

func (f *entriesFlags) query() url.Values {
	q := url.Values{}
	for name, n := range map[string]uint64{"from": f.from, "to": f.to, "from_position": f.position} {
		if n > 0 {
			q.Set(name, strconv.FormatUint(n, 10))
		}
	}
	for name, v := range map[string]string{"since": f.since, "until": f.until, "kind": f.kind, "topic": f.topic, "type": f.typ, "source": f.source, "key": f.key, "ticket": f.ticket} {
		if v != "" {
			q.Set(name, v)
		}
	}
	return q
}

func (a *app) auditEntriesCommand() *cobra.Command {
	f := &entriesFlags{}
	cmd := &cobra.Command{
		Use:   "entries",
		Short: "Print what was decided, in order",
		Long: "Print the entries of the audit trail that have all that is asked for: a line for each for people, or a JSON object\n" +
			"with --json. Only those about a ticket have an index; for all others the broker looks through the trail, so name a\n" +
			"range where you can.",
		Example: "  signalbox audit entries --limit 20\n" +
			"  signalbox audit entries --kind refusal --since 2026-11-29T10:00:00Z\n" +
			"  signalbox audit entries --topic 'fleet.>' --source /agents/a --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			text, err := a.text()
			if err != nil {
				return err
			}
			left := f.limit
			return a.eachEntry(cmd.Context(), c, f.query(), func(e *client.AuditEntry) (bool, error) {
				left--
				return left != 0, writeEntry(a.out, e, text)
			})
		},
	}
	fl := cmd.Flags()
	fl.Uint64Var(&f.from, "from", 0, "begin with the entry of this `index`")
	fl.Uint64Var(&f.to, "to", 0, "end before the entry of this `index`")
	fl.Uint64Var(&f.position, "from-position", 0, "begin with the event at this `position`")
	fl.StringVar(&f.since, "since", "", "not before this log `time`, such as 2026-11-29T10:00:00Z")
	fl.StringVar(&f.until, "until", "", "not after this log `time`")
	fl.StringVar(&f.kind, "kind", "", "event, control, refusal, delivery or expiry")
	fl.StringVar(&f.topic, "topic", "", "a topic or a `pattern`")
	fl.StringVar(&f.typ, "type", "", "the `type` of the event")
	fl.StringVar(&f.source, "source", "", "the `source` of the event, or who else it was")
	fl.StringVar(&f.key, "key", "", "the `key` of the event: its partitionkey or subject")
	fl.StringVar(&f.ticket, "ticket", "", "a `ticket`, its trace, or one of its messages; these have an index")
	fl.IntVar(&f.limit, "limit", 0, "stop after so many; 0 prints all")
	return cmd
}

// eachEntry passes on what a query finds, until there is no more.
func (a *app) eachEntry(ctx context.Context, c *client.Client, q url.Values, each func(*client.AuditEntry) (more bool, err error)) error {
	m := a.meter()
	cut := false
	defer func() {
		m.clear()
		if cut {
			fmt.Fprintf(a.err, "signalbox: more tickets have the trace %q than one query reads: not all of them are here; ask for the others by their names, see \"signalbox ticket list\"\n", q.Get("ticket"))
		}
	}()
	for {
		page, err := c.AuditEntries(ctx, q)
		if err != nil {
			return err
		}
		cut = page.TicketsCut
		for i := range page.Entries {
			if more, err := each(&page.Entries[i]); err != nil || !more {
				return err
			}
		}
		if page.Next >= page.Size {
			return nil
		}
		q.Set("from", strconv.FormatUint(page.Next, 10))
		q.Del("from_position")
		m.say("looking: %d of %d entries", page.Next, page.Size)
	}
}

func (a *app) auditTraceCommand() *cobra.Command {
	f := &entriesFlags{}
	var all bool
	cmd := &cobra.Command{
		Use:   "trace ID",
		Short: "Print everything that belongs to one trace, in order",
		Long: "Print the whole path of decisions of one trace: the events whose correlationid, causationid, id, traceparent or trace\n" +
			"id it is, their repetitions, and whatever was handed out, settled, given up or has expired of them. A line for each for people,\n" +
			"or a JSON object with --json.\n\n" +
			"Of a ticket, by its name, its trace or one of its messages, it is what was decided about all of its messages, those that\n" +
			"were refused included. That has an index, so nothing else is looked through, unless --all asks for other events\n" +
			"that name it too. Messages are for agents: say who asks with --as.\n\n" +
			"Other events that are gone are not found by a trace; keep those that have to be (retention, or an export).",
		Example: "  signalbox publish fleet.notes --id 5 --source /agents/a --type task.created --no-data\n" +
			"  signalbox audit trace 5\n" +
			"  signalbox audit trace 5 --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.auditTrace(cmd.Context(), args[0], all, f) },
	}
	fl := cmd.Flags()
	fl.Uint64Var(&f.from, "from", 0, "begin with the entry of this `index`")
	fl.StringVar(&f.since, "since", "", "not before this log `time`, such as 2026-11-29T10:00:00Z")
	fl.StringVar(&f.until, "until", "", "not after this log `time`")
	fl.BoolVar(&all, "all", false, "of a ticket: look through the whole trail too")
	return cmd
}

// positionsPerQuery keeps a query within what the broker takes in one URL.
const positionsPerQuery = 500

// auditTrace looks for what the trail has of a ticket, and where it is none's, or all is
// asked for, for the events of a trace and what became of them.
func (a *app) auditTrace(ctx context.Context, id string, all bool, f *entriesFlags) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	text, err := a.text()
	if err != nil {
		return err
	}
	found := map[uint64]client.AuditEntry{}
	q := f.query()
	q.Set("ticket", id)
	err = a.eachEntry(ctx, c, q, func(e *client.AuditEntry) (bool, error) { found[e.Index] = *e; return true, nil })
	var unnamed bool // it may be of a ticket, and is looked for among what is for everybody
	if err != nil {
		code := event.AsError(err).Code
		if unnamed = code == event.CodeUnauthenticated; !unnamed && code != event.CodeParameterInvalid { // of which no ticket has the name
			return err
		}
	}
	if len(found) == 0 || all {
		if err := a.traceEvents(ctx, c, id, f, found); err != nil {
			return err
		}
	}
	entries := slices.SortedFunc(maps.Values(found), func(a, b client.AuditEntry) int { return cmp.Compare(a.Index, b.Index) })
	for i := range entries {
		if err := writeEntry(a.out, &entries[i], text); err != nil {
			return err
		}
	}
	switch {
	case len(entries) > 0:
	case unnamed:
		fmt.Fprintln(a.err, "signalbox: nothing that is stored for everybody has this trace; what is about a ticket is for agents, see --as")
	default:
		fmt.Fprintln(a.err, "signalbox: nothing that is stored has this trace")
	}
	return nil
}

// traceEvents looks for the events of a trace first, and then for what became of them.
func (a *app) traceEvents(ctx context.Context, c *client.Client, id string, f *entriesFlags, found map[uint64]client.AuditEntry) error {
	var positions []string
	q := f.query()
	q.Set("trace", id)
	err := a.eachEntry(ctx, c, q, func(e *client.AuditEntry) (bool, error) {
		if len(positions) == 0 {
			f.from = e.Index // nothing became of them before
		}
		found[e.Index] = *e
		positions = append(positions, strconv.FormatUint(e.Position, 10))
		return true, nil
	})
	if err != nil {
		return err
	}
	for part := range slices.Chunk(positions, positionsPerQuery) {
		q := f.query()
		q.Set("positions", strings.Join(part, ","))
		if err := a.eachEntry(ctx, c, q, func(e *client.AuditEntry) (bool, error) { found[e.Index] = *e; return true, nil }); err != nil {
			return err
		}
	}
	return nil
}

// writeEntry writes an entry as a JSON object, or as a line of a timeline.
func writeEntry(w io.Writer, e *client.AuditEntry, text bool) error {
	if !text {
		return writeJSON(w, e)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %-8s  ", e.Time.Format("2006-01-02 15:04:05.000"), e.Kind)
	switch {
	case e.Leaf != "":
		b.Reset()
		fmt.Fprintf(&b, "%-23s  %-8s  entry %d, of which only its leaf is known", "", "unknown", e.Index)
	case e.Kind == "event":
		fmt.Fprintf(&b, "%s @%d %s", e.Topic, e.Position, e.Outcome)
		if e.Outcome != event.OutcomeDuplicate { // of which nothing is stored, for it is what was there before
			describeEvent(&b, e.Topic, e.Event)
		}
	case e.Kind == "expiry":
		fmt.Fprintf(&b, "%s @%d %s", e.Topic, e.Position, expired(e.Detail))
	default:
		describeDetail(&b, e.Topic, e.Detail)
	}
	_, err := fmt.Fprintln(w, oneLine(b.String()))
	return err
}

// expired says what is over: the time of an event, or one by which a message was to be
// answered.
func expired(detail json.RawMessage) string {
	var missed struct{ Deadline, Message, Owed string }
	if detail == nil || json.Unmarshal(detail, &missed) != nil || missed.Deadline == "" {
		return "has expired"
	}
	return "missed its " + missed.Deadline + "  message " + missed.Message + "  escalated by " + missed.Owed
}

// describeEvent writes what is known of an event. That of a topic which not everybody may
// read is left out for others, too.
func describeEvent(b *bytes.Buffer, topic string, raw json.RawMessage) {
	var ev struct {
		ID, Source, Type, Subject, PartitionKey string
		Data                                    json.RawMessage
	}
	if raw == nil || json.Unmarshal(raw, &ev) != nil {
		why := " (the event is gone)"
		if strings.HasPrefix(topic, ticket.TopicRoot+".") || strings.HasPrefix(topic, "$") {
			why = " (the event is gone, or not for you to read; see --as)"
		}
		b.WriteString(why)
		return
	}
	fmt.Fprintf(b, "  %s from %s, id %s", ev.Type, ev.Source, ev.ID)
	if key := cmp.Or(ev.PartitionKey, ev.Subject); key != "" {
		fmt.Fprintf(b, ", key %s", key)
	}
	if ev.Data != nil {
		fmt.Fprintf(b, "  %.120s", ev.Data)
	}
}

// describeChange writes what was changed in the registry of agents, which stands in the
// detail as it was signed.
func describeChange(b *bytes.Buffer, raw json.RawMessage) {
	var signed string
	var change ticket.Change
	if raw == nil || json.Unmarshal(raw, &signed) != nil || json.Unmarshal([]byte(signed), &change) != nil {
		return
	}
	fmt.Fprintf(b, "  %s %s", change.Op, change.Agent)
	for _, part := range []struct{ name, text string }{
		{"roles", strings.Join(change.Roles, ",")}, {"domains", strings.Join(change.Domains, ",")}, {"key", change.Key}, {"reason", change.Reason},
	} {
		if part.text != "" {
			fmt.Fprintf(b, "  %s %s", part.name, part.text)
		}
	}
}

// describeDetail writes the members of a detail, the ones that say most first.
func describeDetail(b *bytes.Buffer, topic string, raw json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return
	}
	value := func(name string) string { return strings.Trim(string(members[name]), `"`) }
	b.WriteString(strings.TrimSpace(cmp.Or(value("op"), value("code")) + " " + topic))
	describeChange(b, members["change"])
	first := []string{"subscription", "id", "principal", "type", "message", "ticket", "handed", "acked", "nacked", "extended", "returned", "gone", "from", "to", "position", "letter", "cause", "count", "reason"}
	for _, name := range first {
		if members[name] != nil {
			fmt.Fprintf(b, "  %s %s", name, value(name))
		}
	}
}
