// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"crypto/sha256"
	"errors"
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
	"signalbox/internal/eventlog"
	"signalbox/internal/projector"
	"signalbox/internal/store"
)

// TestScripts plays the scripts in testdata, each of which explains one thing
// that apply decides. `go test -rewrite` writes down what happens now.
//
// Times are counted from the moment that a script begins at: `90s` is that much
// later. An HLC is a time and, after a colon, a counter: `90s:2`. Positions are
// written @1. The admission time of a proposal is log time unless `at` says
// otherwise. Each command is one proposal in a group of its own, unless it
// stands between `group` and `commit`.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := &script{}
			datadriven.RunTest(t, path, s.run)
			s.end(t)
		})
	}
}

type script struct {
	*rig
	data    *datadriven.TestData
	group   []*eventlog.Proposal // between group and commit
	asked   []func(projector.Result) string
	waiting bool
	last    *eventlog.Proposal
	leaves  uint64 // at the last `leaves`
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.data = d
	if d.Cmd == "open" {
		return s.begin(t)
	}
	s.t = t
	commands := map[string]func() string{
		"publish": s.publish, "batch": s.batch, "put-topic": s.putTopic, "delete-topic": s.deleteTopic,
		"retire": s.retire, "compact": s.compact, "tick": s.tick, "repeat": s.repeat, "group": s.begun, "commit": s.commit,
		"configure": s.configure, "reopen": s.restart, "state": s.state, "guards": s.guards, "history": s.history, "figures": s.figures,
		"digest": s.digestOf, "leaves": s.countLeaves, "rows": s.countRows,
	}
	maps.Copy(commands, s.subscriptionCommands())
	command := commands[d.Cmd]
	if command == nil {
		d.Fatalf(t, "there is no command %q", d.Cmd)
	}
	return command()
}

// open [dedup=24h] [drift=500ms] [topics=100] [timers=1000]
//
// A new, configured space, whose log time is 0s.
func (s *script) begin(t *testing.T) string {
	s.end(t)
	s.rig = newRig(t, s.settings())
	s.do(tick(epoch))
	s.leaves = s.projector.Space().Leaves
	return "ok"
}

// end checks what a script has left.
func (s *script) end(t *testing.T) {
	if s.rig == nil {
		return
	}
	s.t = t
	checkSound(t, s.rig)
	s.close()
}

func (s *script) settings() eventlog.Settings {
	settings := defaultSettings()
	settings.DedupMillis = s.duration("dedup", 24*time.Hour)
	settings.MaxDriftMillis = s.duration("drift", 500*time.Millisecond)
	settings.TopicsMax = int(s.number("topics", 100))
	settings.TimersPerTick = int(s.number("timers", 1000))
	return settings
}

// configure …: settings as of open, in force from here on.
func (s *script) configure() string {
	return s.propose(configure(s.settings()), verdict)
}

// publish topic=T id=I [source=/s] [key=K] [subject=K] [hlc=90s:2] [at=90s]
// [data=JSON] [text=T] [bytes=N] [dataref=U] [expires=90s] [bare] [idem=K]
// [principal=P] [if-match=(*|@1,@2)] [if-none-match] [checked=SCHEMA] [fault=/a]
//
// Checked is the schema that admission saw, and fault what it found to break it.
// Without data, text or bytes the data is the id as a JSON string; bare is no data.
func (s *script) publish() string {
	p := s.events([]eventlog.Entry{s.entry(s.data.CmdArgs)})
	if arg, ok := s.data.Arg("if-match"); ok {
		p.Condition.IfMatch = []uint64{}
		for _, v := range arg.Vals {
			if v == "*" {
				p.Condition = eventlog.Condition{IfMatchAny: true}
				continue
			}
			p.Condition.IfMatch = append(p.Condition.IfMatch, s.position(v))
		}
	}
	p.Condition.IfNoneMatch = s.data.HasArg("if-none-match")
	p.Schema.Hash = event.SchemaHash(s.text("checked"))
	if s.data.HasArg("fault") {
		p.Schema.Faults = []eventlog.SchemaFault{{Pointer: s.text("fault"), Keyword: "minimum", Text: "is too small"}}
	}
	return s.propose(p, verdict)
}

// batch topic=T [at=90s] [idem=K] [principal=P]
// id=I …  (one line for each event, as in publish)
func (s *script) batch() string {
	var entries []eventlog.Entry
	for _, line := range strings.Split(s.data.Input, "\n") {
		_, args, err := datadriven.ParseLine("event " + line)
		if err != nil {
			s.t.Fatal(err)
		}
		entries = append(entries, s.entry(args))
	}
	p := s.events(entries)
	p.Batch = true
	return s.propose(p, verdict)
}

func (s *script) events(entries []eventlog.Entry) *eventlog.Proposal {
	p := &eventlog.Proposal{
		Kind: eventlog.KindEvents, Topic: s.text("topic"), Principal: s.text("principal"),
		AdmittedMillis: s.admitted(), Entries: entries,
	}
	if key := s.text("idem"); key != "" {
		p.Idempotency.Set = true
		scope := sha256.Sum256([]byte(p.Principal + "\x00" + p.Topic + "\x00" + key))
		request := sha256.New()
		for i := range entries {
			request.Write(entries[i].Content[:])
		}
		copy(p.Idempotency.Scope[:], scope[:])
		copy(p.Idempotency.Request[:], request.Sum(nil))
	}
	return p
}

func (s *script) entry(args []datadriven.CmdArg) eventlog.Entry {
	d := event.Draft{Source: "/s", Type: "t", Extensions: map[string]any{}}
	data, bare := "", false
	for _, arg := range args {
		value := strings.Join(arg.Vals, ",")
		switch arg.Key {
		case "id":
			d.ID = value
		case "source":
			d.Source = value
		case "subject":
			d.Subject = value
		case "key":
			d.Extensions["partitionkey"] = value
		case "hlc":
			d.Extensions["hlc"] = s.hlc(value).String()
		case "expires":
			d.Extensions["expirytime"] = time.UnixMilli(s.moment(value)).UTC().Format(time.RFC3339Nano)
		case "dataref":
			d.Extensions["dataref"] = value
		case "data":
			data = value
		case "text":
			data, d.DataContentType = value, "text/plain"
		case "bytes":
			n, err := strconv.Atoi(value)
			if err != nil {
				s.t.Fatal(err)
			}
			data, d.DataContentType = strings.Repeat("\x00", n), "application/octet-stream"
		case "bare":
			bare = true
		}
	}
	if data == "" {
		data = strconv.Quote(d.ID)
	}
	if !bare {
		d.Data = []byte(data)
	}
	ev, err := d.Event()
	if err != nil {
		s.t.Fatal(err)
	}
	return entry(ev)
}

// put-topic name=T [cleanup=delete|compact|(compact,delete)] [retention=7d|none]
// [retention-bytes=N] [lag=0s] [delete-retention=24h] [key-from=a.b] [require-hlc] [max-event-bytes=N]
func (s *script) putTopic() string {
	policy := event.DefaultPolicy()
	if cleanup := s.text("cleanup"); cleanup != "" {
		policy.CleanupPolicy = cleanup
	}
	switch retention := s.text("retention"); retention {
	case "":
	case "none":
		policy.Retention = nil
	default:
		d := event.Duration(s.duration("retention", 0) * 1e6)
		policy.Retention = &d
	}
	policy.RetentionBytes = int64(s.number("retention-bytes", 0))
	policy.MinCompactionLag = event.Duration(s.duration("lag", 0) * 1e6)
	policy.DeleteRetention = event.Duration(s.duration("delete-retention", 24*time.Hour) * 1e6)
	policy.KeyFrom = s.text("key-from")
	policy.Schema = s.text("schema")
	policy.RequireHLC = s.data.HasArg("require-hlc")
	policy.MaxEventBytes = int(s.number("max-event-bytes", event.DefaultMaxEventBytes))
	if err := policy.Validate(); err != nil {
		s.t.Fatal(err)
	}
	return s.propose(putTopic(s.text("name"), policy), verdict)
}

// delete-topic name=T
func (s *script) deleteTopic() string { return s.propose(deleteTopic(s.text("name")), verdict) }

// retire topic=T to=@9: what the cleaner proposes when it has found that
// everything up to there is older than the topic's retention.
func (s *script) retire() string {
	return s.propose(retire(s.text("topic"), s.position(s.text("to"))), verdict)
}

// compact topic=T to=@9: what the cleaner proposes when it has found that what is
// superseded up to there is older than the topic's lag.
func (s *script) compact() string {
	return s.propose(compact(s.text("topic"), s.position(s.text("to"))), verdict)
}

// tick to=90s
func (s *script) tick() string {
	return s.propose(tick(s.moment(s.text("to"))), func(projector.Result) string {
		return "log time " + moment(s.projector.Space().LogMillis)
	})
}

// repeat: the last proposal comes once more, with the sequence that it had, as
// after a log was followed twice.
func (s *script) repeat() string {
	last := s.last
	return verdict(s.apply([]*eventlog.Proposal{last})[0])
}

// group: the proposals up to commit share one group.
func (s *script) begun() string {
	s.waiting, s.group, s.asked = true, nil, nil
	return "ok"
}

// commit: applies the group, and prints what was said of each of its proposals.
func (s *script) commit() string {
	s.waiting = false
	s.rig.stamp(s.group)
	var lines []string
	for i, result := range s.apply(s.group) {
		lines = append(lines, s.asked[i](result))
	}
	return strings.Join(lines, "\n")
}

// reopen: a restart.
func (s *script) restart() string {
	s.reopen()
	return "ok"
}

func (s *script) propose(p *eventlog.Proposal, answer func(projector.Result) string) string {
	s.last = p
	if s.waiting {
		s.group, s.asked = append(s.group, p), append(s.asked, answer)
		return "waits"
	}
	return answer(s.do(p))
}

// state topic=T: the live keys, by position.
func (s *script) state() string { return s.listWinners(s.live(s.text("topic"))) }

// guards topic=T: the keys without a value that are not forgotten yet.
func (s *script) guards() string {
	found := s.winners(s.text("topic"))
	maps.DeleteFunc(found, func(_ string, row store.WinnerRow) bool {
		return row.Live(s.projector.Space().LogMillis)
	})
	return s.listWinners(found)
}

func (s *script) listWinners(found map[string]store.WinnerRow) string {
	lines := []string{}
	keys := slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return int(found[a].Position) - int(found[b].Position)
	})
	for _, key := range keys {
		row := found[key]
		line := fmt.Sprintf("%s: @%d hlc=%s %s %s", key, row.Position, stamp(row.HLC), row.Source, row.ID)
		if row.Flags&store.WinnerTombstone != 0 {
			line += " tombstone"
		}
		if row.Flags&store.WinnerHidden != 0 {
			line += " hidden"
		}
		lines = append(lines, line)
	}
	return orNothing(lines)
}

// history topic=T: the stored events, by position, those that are kept although
// they are superseded among them. Late is what was superseded on arrival; what is
// past is read by nobody any more.
func (s *script) history() string {
	lines := []string{}
	t, _ := s.topic(s.text("topic"))
	err := s.store.AllEvents(&t, 0, ^uint64(0)-1, func(position uint64, row store.EventRow, superseded bool) (bool, error) {
		line := fmt.Sprintf("@%d hlc=%s", position, stamp(row.HLC))
		if len(row.Key) > 0 {
			line += " key=" + string(row.Key)
		}
		if row.ExpiryMillis != 0 {
			line += " expires=" + moment(row.ExpiryMillis)
		}
		if superseded {
			line += " superseded"
		}
		if row.Flags&store.EventSuperseded != 0 {
			line += " late"
		}
		if superseded && t.Past(position, &row, s.projector.Space().LogMillis) {
			line += " past"
		}
		lines = append(lines, line)
		return true, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return orNothing(lines)
}

// figures topic=T [bytes]
func (s *script) figures() string {
	t, ok := s.topic(s.text("topic"))
	if !ok {
		return "no topic"
	}
	line := fmt.Sprintf("events=%d keys=%d tombstones=%d last=@%d removed-to=@%d", t.Events, t.Keys, t.Tombstones, t.Last, t.RemovedTo)
	if t.History > 0 {
		line += fmt.Sprintf(" superseded=%d", t.History)
	}
	if s.data.HasArg("bytes") {
		line += fmt.Sprintf(" bytes=%d", t.Retained)
	}
	if t.Floor != 0 {
		line += " floor=" + stamp(t.Floor)
	}
	if t.Deleted {
		line += " deleted"
	}
	if t.Events == 0 && t.Retained != 0 {
		s.t.Fatalf("no event of topic %s is retained, and %d bytes are", t.Name, t.Retained)
	}
	return line
}

// digest topic=T: the first bytes of the hash of all buckets.
func (s *script) digestOf() string {
	d := s.digest(s.text("topic"))
	if d == (event.Digest{}) {
		return "empty"
	}
	h := sha256.New()
	for i := range d {
		h.Write(d[i][:])
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:4])
}

// leaves: how many audit leaves there are more than when it was asked last.
func (s *script) countLeaves() string {
	now := s.projector.Space().Leaves
	defer func() { s.leaves = now }()
	return fmt.Sprintf("%d more", now-s.leaves)
}

// rows: how many rows the store has of each kind, see the store's keys.
func (s *script) countRows() string {
	counts := map[byte]int{}
	for _, r := range s.rows() {
		counts[r.key[0]]++
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%c:%d", kind, counts[kind]))
	}
	return strings.Join(parts, " ")
}

func orNothing(lines []string) string {
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines, "\n")
}

// verdict writes down what a caller would be told.
func verdict(r projector.Result) string {
	if r.Err != nil {
		if errors.Is(r.Err, projector.ErrRepeated) {
			return "applied before"
		}
		line := "refused " + string(r.Err.Code)
		if r.Err.Field != "" {
			line += " field=" + r.Err.Field
		}
		for _, name := range slices.Sorted(maps.Keys(r.Err.Facts)) {
			value := fmt.Sprint(r.Err.Facts[name])
			if h, err := event.ParseHLC(value); err == nil {
				value = stamp(h)
			}
			line += " " + name + "=" + value
		}
		return line
	}
	if r.Delivery != nil {
		return delivery(r.Delivery)
	}
	if len(r.Verdicts) == 0 {
		return "ok"
	}
	names := map[uint8]string{projector.Accepted: "accepted", projector.Superseded: "superseded", projector.Duplicate: "duplicate"}
	var lines []string
	for _, v := range r.Verdicts {
		line := fmt.Sprintf("%s @%d hlc=%s", names[v.Outcome], v.Position, stamp(v.HLC))
		if r.Replayed {
			line += " (replayed)"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (s *script) text(key string) string {
	arg, _ := s.data.Arg(key)
	return strings.Join(arg.Vals, ",")
}

func (s *script) number(key string, otherwise uint64) uint64 {
	text := s.text(key)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) position(text string) uint64 {
	c, err := event.ParseCursor(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return c.Position
}

func (s *script) duration(key string, otherwise time.Duration) (millis int64) {
	text := s.text(key)
	if text == "" {
		return otherwise.Milliseconds()
	}
	d, err := event.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d.Std().Milliseconds()
}

func (s *script) admitted() int64 {
	if at := s.text("at"); at != "" {
		return s.moment(at)
	}
	return s.projector.Space().LogMillis
}

func (s *script) moment(text string) int64 {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return epoch + d.Milliseconds()
}

func (s *script) hlc(text string) event.HLC {
	at, counter, _ := strings.Cut(text, ":")
	n, _ := strconv.Atoi(counter)
	return event.NewHLC(s.moment(at), uint16(n))
}

func moment(millis int64) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace((time.Duration(millis-epoch) * time.Millisecond).String())
}

func stamp(h event.HLC) string {
	if h.Counter() == 0 {
		return moment(h.Millis())
	}
	return fmt.Sprintf("%s:%d", moment(h.Millis()), h.Counter())
}
