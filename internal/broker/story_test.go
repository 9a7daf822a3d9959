// SPDX-License-Identifier: Apache-2.0

package broker_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"signalbox/event"
	"signalbox/internal/broker"
	"signalbox/internal/dispatch"
	"signalbox/internal/identity"
	"signalbox/internal/store"
)

// TestStories plays the scripts in testdata against a broker with all its
// goroutines, on a disk in memory and a clock that the script moves. `go test
// -rewrite` writes down what happens now.
//
// Times are counted from the beginning of a script, `4h30m`; an HLC is a time
// and, after a colon, a counter, `90s:2`; positions and cursors are written @7,
// without the incarnation, which is drawn anew each time.
func TestStories(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := &story{readers: map[string]*dispatch.Reader{}, kept: map[string]string{}, lists: map[string]string{}, present: map[string]*broker.Attendance{}}
			datadriven.RunTest(t, path, s.run)
			if s.box != nil {
				s.end(t)
			}
		})
	}
}

type story struct {
	*box
	data    *datadriven.TestData
	readers map[string]*dispatch.Reader
	lists   map[string]string // what each reader reads
	kept    map[string]string // the cursor that each reader has
	present map[string]*broker.Attendance
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	s.data = d
	if d.Cmd == "broker" {
		return s.begin(t)
	}
	s.t = t
	commands := map[string]func() string{
		"topic": s.topic, "drop": s.drop, "publish": s.publish, "batch": s.batch, "pass": s.passes, "step": s.steps, "restart": s.restarts,
		"follow": s.follows, "poll": s.poll, "away": s.away, "state": s.state, "key": s.key, "digest": s.digest, "figures": s.figures, "rows": s.rows,
		"announce": s.announces, "leave": s.leaves, "report": s.reports,
	}
	command := commands[d.Cmd]
	if command == nil {
		d.Fatalf(t, "there is no command %q", d.Cmd)
	}
	return command()
}

// broker [dedup=24h] [drift=500ms] [keys=100000]: a new broker.
func (s *story) begin(t *testing.T) string {
	if s.box != nil {
		s.end(t)
	}
	keys, _ := strconv.Atoi(s.text("keys"))
	s.box = newBox(t, broker.Options{DedupWindow: s.span("dedup", 24*time.Hour), MaxDrift: s.span("drift", 500*time.Millisecond), Held: dispatch.HeldLimits{Keys: keys}})
	return ""
}

func (s *story) end(t *testing.T) {
	s.t = t
	for name, reader := range s.readers {
		reader.Close()
		delete(s.readers, name)
	}
	s.close()
}

// topic name=T [cleanup=compact] [retention=7d] [lag=0s] [delete-retention=24h] [key-from=PATH] [ephemeral]
func (s *story) topic() string {
	policy := event.DefaultPolicy()
	if cleanup := s.text("cleanup"); cleanup != "" {
		policy.CleanupPolicy = cleanup
	}
	policy.KeyFrom = s.text("key-from")
	if s.data.HasArg("ephemeral") {
		policy.Durability = event.DurabilityEphemeral
	}
	retention := event.Duration(s.span("retention", 7*24*time.Hour))
	policy.Retention, policy.DeleteRetention = &retention, event.Duration(s.span("delete-retention", 24*time.Hour))
	policy.MinCompactionLag = event.Duration(s.span("lag", 0))
	_, created, err := s.PutTopic(context.Background(), identity.Anonymous(), s.text("name"), policy)
	if err != nil {
		return refusal(err)
	}
	if created {
		return "created"
	}
	return "changed"
}

// drop name=T
func (s *story) drop() string {
	if err := s.DeleteTopic(context.Background(), identity.Anonymous(), s.text("name")); err != nil {
		return refusal(err)
	}
	return "gone"
}

// publish topic=T id=I [key=K] [source=/s] [hlc=90s:2] [expiry=60] [expires=90s]
// [bare] [shipment=S] [idem=K] [if-match=*|@1] [if-none-match]
//
// The data is the id, unless the event is bare or about a shipment: then it has
// a shipment_id, and the id as its state.
func (s *story) publish() string {
	req := broker.PublishRequest{
		Topic: s.text("topic"), Events: []*event.Event{s.event(s.data.CmdArgs)}, IdempotencyKey: s.text("idem"), IfNoneMatch: s.data.HasArg("if-none-match"),
	}
	if match := s.text("if-match"); match == "*" {
		req.IfMatch = &broker.Match{Any: true}
	} else if match != "" {
		req.IfMatch = &broker.Match{Positions: []uint64{s.cursor(match).Position}}
	}
	return s.answer(s.send(req))
}

// batch topic=T [idem=K]
// id=I …  (one line for each event, as in publish)
func (s *story) batch() string {
	req := broker.PublishRequest{Topic: s.text("topic"), Batch: true, IdempotencyKey: s.text("idem")}
	for _, line := range strings.Split(s.data.Input, "\n") {
		_, args, err := datadriven.ParseLine("event " + line)
		if err != nil {
			s.t.Fatal(err)
		}
		req.Events = append(req.Events, s.event(args))
	}
	return s.answer(s.send(req))
}

func (s *story) event(args []datadriven.CmdArg) *event.Event {
	id, key := "", ""
	attributes := map[string]any{}
	var data []byte
	for _, arg := range args {
		value := strings.Join(arg.Vals, ",")
		switch arg.Key {
		case "id":
			id = value
		case "key":
			key = value
		case "hlc":
			at, counter, _ := strings.Cut(value, ":")
			n, _ := strconv.Atoi(counter)
			attributes["hlc"] = stampAt(s.parse(at), uint16(n)).String()
		case "expires":
			attributes["expirytime"] = startTime().Add(s.parse(value)).Format(time.RFC3339Nano)
		case "expiry":
			n, err := strconv.Atoi(value)
			if err != nil {
				s.t.Fatal(err)
			}
			attributes["expiry"] = n
		case "source":
			attributes["source"] = value
		case "bare":
			attributes["bare"] = true
		case "shipment":
			data = fmt.Appendf(nil, `{"shipment_id":%q,"state":%q}`, value, id)
		}
	}
	return s.draft(id, key, attributes, data...)
}

func (s *story) answer(result broker.PublishResult, err error) string {
	if err != nil {
		return refusal(err)
	}
	var lines []string
	for _, r := range result.Receipts {
		if r.Cursor.Position != r.Position || r.Position != 0 && r.Cursor.Incarnation != s.Head().Incarnation || r.Topic != s.text("topic") {
			s.t.Fatalf("the receipt is %+v", r)
		}
		line := string(r.Outcome)
		if r.Position != 0 {
			line += fmt.Sprintf(" @%d", r.Position)
		}
		line += " hlc=" + sinceStart(r.HLC)
		if result.Replayed {
			line += " (replayed)"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// pass time=4h: time passes, and the ticker and the cleaner do what is due.
func (s *story) passes() string {
	s.pass(s.span("time", 0))
	return "it is " + time.Duration(s.LogMillis()*1e6-startTime().UnixNano()).String()
}

// step by=-2s: the wall clock is set.
func (s *story) steps() string {
	s.clock.step(s.span("by", 0))
	return ""
}

// restart: the broker is stopped and started. Readers lose their connection.
func (s *story) restarts() string {
	for name := range s.readers {
		s.leave(name)
	}
	s.box.restart()
	return ""
}

// follow name=R [topics=a,b.>] [from=oldest|now|@7|id:X|90s] [view=history]
//
// A reader connects: with `from`, or with the cursor that it has.
func (s *story) follows() string {
	name := s.text("name")
	if list := s.text("topics"); list != "" {
		s.lists[name] = list
	}
	from := s.text("from")
	if from == "" {
		from = s.kept[name]
	}
	var start dispatch.Start
	switch id, isID := strings.CutPrefix(from, "id:"); {
	case from == "oldest":
	case from == "now":
		start.Now = true
	case isID:
		start.EventID = id
	case strings.HasPrefix(from, "@"):
		cursor := s.cursor(from)
		start.Cursor = &cursor
	default:
		start.Time = startTime().Add(s.parse(from))
	}
	reader, err := s.Read(broker.ReadRequest{Patterns: mustPatterns(s.t, s.lists[name]), Start: start, View: s.text("view")})
	if err != nil {
		return refusal(err)
	}
	if s.readers[name] != nil {
		s.leave(name)
	}
	s.readers[name] = reader
	return s.read(name)
}

// poll name=R: what it gets up to the sync marker.
func (s *story) poll() string { return s.read(s.text("name")) }

func (s *story) read(name string) string {
	var lines []string
	for {
		w, err := s.readers[name].Poll(dispatch.Limit{Events: 2, Bytes: 1 << 20})
		if err != nil {
			s.leave(name)
			return strings.Join(append(lines, refusal(err)), "\n")
		}
		for i := range w.Deliveries {
			lines = append(lines, describe(deliveredEvent(s.t, &w.Deliveries[i])))
		}
		if w.CaughtUp {
			s.kept[name] = fmt.Sprintf("@%d", w.Cursor.Position)
			return strings.Join(append(lines, "sync "+s.kept[name]), "\n")
		}
	}
}

// away name=R: it loses its connection, and keeps its cursor.
func (s *story) away() string {
	s.leave(s.text("name"))
	return "with " + s.kept[s.text("name")]
}

func (s *story) leave(name string) {
	s.readers[name].Close()
	delete(s.readers, name)
}

func describe(ev *event.Event) string {
	key, _ := ev.Key()
	line := fmt.Sprintf("@%d", ev.Position())
	if ev.Position() == 0 {
		line = "live"
	}
	if key != "" {
		line += " " + key
	}
	if ev.DataKind() == event.NoData {
		line += " removed"
	} else {
		line += " " + strings.Trim(string(ev.Data()), `"`)
	}
	line += " hlc=" + sinceStart(ev.HLC())
	if ev.Superseded() {
		line += " superseded"
	}
	return line
}

// announce name=C [agent=A] [topics=a,b.>]: a connection streams.
func (s *story) announces() string {
	agent := s.text("agent")
	if agent != "" && broker.CheckAgent(agent) != nil {
		return refusal(broker.CheckAgent(agent))
	}
	s.present[s.text("name")] = s.Announce(broker.Presence{Agent: agent, Door: "sse", Topics: strings.Split(s.text("topics"), ","), Remote: s.text("name")})
	return ""
}

// leave name=C: it ends.
func (s *story) leaves() string {
	s.present[s.text("name")].Leave()
	return ""
}

// report agent=A [ttl=5m]
// status
func (s *story) reports() string {
	if err := s.Report(s.text("agent"), []byte(s.data.Input), s.span("ttl", broker.StatusTTL)); err != nil {
		return refusal(err)
	}
	return ""
}

// state topics=a,b: as it is downloaded.
func (s *story) state() string {
	state, err := s.OpenState(mustPatterns(s.t, s.text("topics")), nil)
	if err != nil {
		return refusal(err)
	}
	defer state.Close()
	var lines []string
	for {
		d, ok, err := state.Next()
		if err != nil {
			s.t.Fatal(err)
		}
		if !ok {
			return strings.Join(append(lines, fmt.Sprintf("exact at @%d", state.Cursor().Position)), "\n")
		}
		lines = append(lines, describe(deliveredEvent(s.t, &d)))
	}
}

// key topic=T key=K
func (s *story) key() string {
	d, err := s.StateKey(s.text("topic"), s.text("key"))
	if err != nil {
		return refusal(err)
	}
	return describe(deliveredEvent(s.t, &d.Delivery))
}

// digest topic=T: how many keys are in it, and in how many buckets.
func (s *story) digest() string {
	d, err := s.Digest(context.Background(), s.text("topic"))
	if err != nil {
		return refusal(err)
	}
	buckets := 0
	for _, b := range d.Buckets {
		if b != [32]byte{} {
			buckets++
		}
	}
	return fmt.Sprintf("%d keys in %d buckets at @%d", d.Keys, buckets, d.Cursor.Position)
}

// figures topic=T
func (s *story) figures() string {
	info, err := s.Topic(s.text("topic"))
	if err != nil {
		return refusal(err)
	}
	line := fmt.Sprintf("%d events, %d keys, %d tombstones, oldest @%d, head @%d", info.Events, info.Keys, info.Tombstones, info.Oldest.Position, info.Head.Position)
	if info.Floor != 0 {
		line += ", floor " + sinceStart(info.Floor)
	}
	return line
}

// rows [of=K]: how many rows the store has of each kind; with `of`, those that
// mention it.
func (s *story) rows() string {
	counts := map[string]int{}
	of := s.text("of")
	count := func(kind string, row any, err error) error {
		if strings.Contains(fmt.Sprintf("%+q", fmt.Sprintf("%v %s", row, row)), of) {
			counts[kind]++
		}
		return err
	}
	in, err := s.Store().NewInspector()
	if err != nil {
		s.t.Fatal(err)
	}
	defer in.Close()
	for _, err := range []error{
		in.Events(func(e store.EventAt, err error) error { return count("events", e, err) }),
		in.Histories(func(e store.EventAt, err error) error { return count("superseded", e, err) }),
		in.Winners(func(w store.WinnerAt, err error) error { return count("winners", w, err) }),
		in.Timers(func(t store.Timer, err error) error { return count("timers", t, err) }),
		in.Seen(func(v store.SeenAt, err error) error { return count("identities", v, err) }),
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func refusal(err error) string {
	e := event.AsError(err)
	line := "refused " + string(e.Code)
	for _, name := range slices.Sorted(maps.Keys(e.Facts)) {
		value := fmt.Sprint(e.Facts[name])
		if h, err := event.ParseHLC(value); err == nil {
			value = sinceStart(h)
		}
		if c, err := event.ParseCursor(value); err == nil {
			value = fmt.Sprintf("@%d", c.Position)
		}
		line += " " + name + "=" + value
	}
	return line
}

func (s *story) text(key string) string {
	arg, _ := s.data.Arg(key)
	return strings.Join(arg.Vals, ",")
}

func (s *story) span(key string, otherwise time.Duration) time.Duration {
	if text := s.text(key); text != "" {
		return s.parse(text)
	}
	return otherwise
}

func (s *story) parse(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *story) cursor(text string) event.Cursor {
	c, err := event.ParseCursor(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func sinceStart(h event.HLC) string {
	at := time.Duration(h.Millis()*1e6 - startTime().UnixNano()).String()
	if h.Counter() == 0 {
		return at
	}
	return fmt.Sprintf("%s:%d", at, h.Counter())
}
