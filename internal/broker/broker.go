// SPDX-License-Identifier: Apache-2.0

// Package broker joins the stages: what is published is admitted, ordered,
// applied, made durable, answered, and offered to readers. Publish and the
// apply loop (apply.go) read in that order, and that order is the contract:
// nothing is answered or shown before it is durable.
//
// Transports see this package, identity and event; it imports every stage and
// no transport.
package broker

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/event"
	"signalbox/internal/admission"
	"signalbox/internal/dispatch"
	"signalbox/internal/eventlog"
	"signalbox/internal/filter"
	"signalbox/internal/identity"
	"signalbox/internal/metrics"
	"signalbox/internal/outside"
	"signalbox/internal/projector"
	"signalbox/internal/signature"
	"signalbox/internal/store"
	"signalbox/ticket"
)

// Options say where a broker keeps its data and how it behaves.
type Options struct {
	Dir    string
	FS     vfs.FS // nil: the machine's file system
	Clock  Clock  // nil: the machine's clock
	Logger *slog.Logger
	// MinFree is how many bytes must be free on the data directory's volume;
	// below it publishes are refused while reading, deleting and reclaiming go
	// on. 0 turns the check off.
	MinFree uint64
	// MaxDrift is how far a producer's HLC may be ahead. 0: 500 ms.
	MaxDrift time.Duration
	// DedupWindow is how long an event's id is remembered. 0: 24 h.
	DedupWindow time.Duration
	// Restored says that Dir was put back from a backup. Positions that were
	// given out since the backup will be given out again, to other events, so
	// the log gets a new incarnation: every older cursor is foreign.
	Restored bool
	// KeepSettings leaves what is configured in the log as it is, for upkeep
	// that does not know how the broker is configured. MaxDrift and DedupWindow
	// have no effect then, but on a log that is new.
	KeepSettings bool
	// HoldMax is for how long beyond a topic's retention events are kept for a
	// subscription that has not read them, and HoldBytes how many bytes of them in
	// each topic. 0: 7 days, 1 GiB.
	HoldMax   time.Duration
	HoldBytes uint64
	// CheckSink refuses URLs that webhooks may not be sent to. nil: none may.
	CheckSink func(sink string) error
	// CleanEvery is how often retention is looked after. 0: 10 s.
	CleanEvery time.Duration
	// ReadEntryEvery is after what time a reader without a subscription that was given
	// ticket messages has an entry in the audit trail, at the latest. 0: 10 s.
	ReadEntryEvery time.Duration
	// AuditInterval is how often a checkpoint of the audit trail is signed, while
	// something is added to it. 0: 1 min; negative: only when one is asked for.
	AuditInterval time.Duration
	// AuditFile and AuditURL are where checkpoints go beside the data directory, so
	// that whoever can change that cannot take back what was signed. "": nowhere.
	AuditFile, AuditURL string
	// AuditStore is the URL below which checkpoints are put into an object store, and
	// AuditStoreCredentials sign that. "": nowhere.
	AuditStore            string
	AuditStoreCredentials *outside.Credentials
	// AuditSync brings the entries of the audit trail to these places, too, and holds
	// ticket messages back until all of them have the entries up to them.
	AuditSync bool
	// Held bounds what ephemeral topics hold in memory.
	Held dispatch.HeldLimits
	// Found, if set, is asked for the name and the administrator key of a space
	// that has none; without them it has no registry of agents.
	Found func() (space string, administrator ed25519.PublicKey, err error)
	// Verbs is the catalogue of verbs that is put in force. nil: that of this version.
	Verbs []byte
	// Fatal is called when the state on disk is no longer known; it must end
	// the process. nil: panic.
	Fatal func(message string)
	// Tap, if set, gets each proposal before it is applied, in order. Tests use
	// it to apply the same proposals afresh.
	Tap func(*eventlog.Proposal)
}

// fill sets the defaults. Without a Fatal of its own, the broker panics when
// the state on disk is no longer known.
func (o *Options) fill() {
	if o.Clock == nil {
		o.Clock = &systemClock{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxDrift == 0 {
		o.MaxDrift = 500 * time.Millisecond
	}
	if o.DedupWindow == 0 {
		o.DedupWindow = 24 * time.Hour
	}
	if o.HoldMax == 0 {
		o.HoldMax = 7 * 24 * time.Hour
	}
	if o.HoldBytes == 0 {
		o.HoldBytes = 1 << 30
	}
	if o.CleanEvery == 0 {
		o.CleanEvery = 10 * time.Second
	}
	if o.ReadEntryEvery == 0 {
		o.ReadEntryEvery = 10 * time.Second
	}
	if o.AuditInterval == 0 {
		o.AuditInterval = time.Minute
	}
	if o.Fatal == nil {
		o.Fatal = func(message string) { panic("broker: " + message) }
	}
}

// topicsMax bounds the topics of a space, each of which takes memory.
const topicsMax = 1_000_000

// timersPerTick bounds what one tick does, and so how long it holds up apply.
const timersPerTick = 1000

// Broker is one space. All methods are safe for concurrent use.
type Broker struct {
	options   Options
	logger    *slog.Logger
	metrics   *metrics.Metrics
	clock     *logClock
	store     *store.Store
	log       *eventlog.Embedded
	projector *projector.Projector // owned by the apply loop
	dispatch  *dispatch.Dispatch
	schemas   *admission.Schemas
	disk      *diskWatch
	refusals  *refusals
	roster    *roster
	ready     probe

	audit      *auditor
	external   *external // nil: messages wait for no place outside
	deliveries *deliveries
	recipients *recipients
	filters    compiled // of subscriptions
	registry   atomic.Pointer[projector.Registry]
	survey     survey
	messages   *admission.Messages

	bus  *bus
	due  *due // webhooks
	keys signingKeys

	began    time.Time   // see elapsed
	leftover atomic.Bool // timers that are due were left by the last tick
	dryRuns  atomic.Int32

	upkeep   sync.Mutex      // held by a backup or a compaction
	cleanNow chan chan error // asks the cleaner for a thorough pass

	draining     chan struct{}
	drainOnce    sync.Once
	stop         chan struct{}  // closed by Close
	background   sync.WaitGroup // ticker, cleaner, disk watch
	applyStopped chan struct{}
	closeOnce    sync.Once
	closeErr     error
}

// notePlace warns of a directory that is a copy of another, and takes it for
// the original from now on.
func (b *Broker) notePlace() {
	if b.options.FS != nil {
		return // not the machine's files
	}
	if copied, _ := store.Copied(b.options.Dir); copied && !b.options.Restored {
		b.logger.Warn("the data directory was copied since a broker last had it open; if the original went on after that, stop this broker and start it once with --restored",
			"data", b.options.Dir)
	}
	if err := store.MarkPlace(b.options.Dir); err != nil {
		b.logger.Warn("it cannot be noted that this data directory is the original", "err", err)
	}
}

func start(o Options, s *store.Store, counted *metrics.Metrics) (*Broker, error) {
	p, err := projector.Open(s)
	if err != nil {
		return nil, err
	}
	b := &Broker{
		options: o, logger: o.Logger, metrics: counted, began: time.Now(), store: s, projector: p,
		clock:   newLogClock(o.Clock, p.Space().LogMillis),
		log:     eventlog.NewEmbedded(p.Space().Sequence),
		schemas: admission.NewSchemas(), messages: admission.NewMessages(),
		disk: newDiskWatch(o.FS, o.Dir, o.MinFree, o.Logger),

		cleanNow:   make(chan chan error),
		deliveries: newDeliveries(), due: newDue(), survey: survey{most: surveyedTime},

		draining: make(chan struct{}), stop: make(chan struct{}), applyStopped: make(chan struct{}),
	}
	b.refusals, b.roster = newRefusals(b), newRoster(b)
	b.recipients = newRecipients(b)
	if err := b.configure(); err != nil {
		return nil, err
	}
	if b.bus, err = openBus(b); err != nil {
		return nil, err
	}
	if err := errors.Join(b.found(), b.activate(), b.bus.register()); err != nil {
		return nil, err
	}
	b.registry.Store(p.Registry())
	if err := b.keys.load(p.Settings()); err != nil {
		return nil, err
	}
	if err := s.Terms(b.due.note); err != nil {
		return nil, err
	}
	b.dispatch = dispatch.New(dispatch.Options{
		Store: s, Incarnation: p.Settings().IncarnationName, Now: b.clock.Millis,
		DedupMillis: p.Settings().DedupMillis, Space: p.Space(), Topics: p.Topics(), Metrics: counted,
		Boot: newIncarnation(), Held: o.Held, MaxDriftMillis: p.Settings().MaxDriftMillis, Own: presenceTopics(),
	})
	if b.audit, err = openAuditor(b); err != nil {
		return nil, err
	}
	// What is outside is looked at before anything is brought there.
	if b.external, err = openExternal(b); err != nil {
		return nil, err
	}
	if b.audit.outside, err = openOutside(b.audit); err != nil {
		return nil, err
	}
	b.external.start()
	counted.Source(s.Sample)
	counted.Source(b.sample)
	if skew := b.clock.Skew(); skew < -time.Minute {
		b.logger.Warn("the wall clock is behind the log: time goes on from the log's, and follows the wall clock slowly", "behind", -skew,
			"todo", "check NTP on this machine; producers with a right clock are accepted meanwhile")
	}
	go b.applyLoop()
	b.background.Go(b.tickLoop)
	b.background.Go(b.cleanLoop)
	b.background.Go(b.keeper)
	b.background.Go(b.audit.loop)
	b.background.Go(b.external.loop)
	b.background.Go(b.recipients.loop)
	b.background.Go(b.bus.loop)
	b.background.Go(b.matchLoop)
	b.background.Go(b.sweepLoop)
	b.background.Go(func() { b.disk.loop(b.stop) })
	return b, nil
}

// configure proposes the settings if the log has none, or others. It runs
// before the apply loop, through the same projector.
func (b *Broker) configure() error {
	want := b.projector.Settings()
	if !b.projector.Configured() || b.options.Restored {
		want.IncarnationName = newIncarnation()
	}
	if !b.projector.Configured() || !b.options.KeepSettings {
		want.FeatureLevel = projector.FeatureLevel
		want.MaxDriftMillis = b.options.MaxDrift.Milliseconds()
		want.DedupMillis = b.options.DedupWindow.Milliseconds()
		want.TopicsMax, want.TimersPerTick = topicsMax, timersPerTick
		want.SubscriptionsMax = subscriptionsMax
		want.HoldMillis, want.HoldBytes = b.options.HoldMax.Milliseconds(), b.options.HoldBytes
	}
	if want.WebhookKeys == "" {
		want.WebhookKeys = signature.NewPrivate()
	}
	if want == b.projector.Settings() {
		return nil
	}
	now := b.clock.Millis()
	group := []*eventlog.Proposal{
		{Kind: eventlog.KindTick, AdmittedMillis: now},
		{Kind: eventlog.KindControl, AdmittedMillis: now, Control: eventlog.Control{Op: eventlog.OpConfigure, Settings: &want}},
	}
	if !b.projector.Configured() {
		group = group[1:] // a tick consults the settings
	}
	return b.begin(group)
}

// found proposes the space's name and administrator if it has none.
func (b *Broker) found() error {
	if b.options.Found == nil || b.projector.Registry().Space != "" {
		return nil
	}
	verbs, _, err := b.options.verbs()
	if err != nil {
		return err
	}
	space, administrator, err := b.options.Found()
	if err != nil {
		return err
	}
	now := b.clock.Millis()
	return b.begin([]*eventlog.Proposal{{Kind: eventlog.KindTick, AdmittedMillis: now}, {Kind: eventlog.KindControl, AdmittedMillis: now, Control: eventlog.Control{
		Op: eventlog.OpFound, Founding: &eventlog.Founding{Space: space, Administrator: ticket.EncodeKey(administrator), Verbs: string(verbs), Bus: b.bus.public()},
	}}})
}

// begin applies proposals before the apply loop runs.
func (b *Broker) begin(group []*eventlog.Proposal) error {
	b.stamp(group)
	for len(group) > 0 {
		out, err := b.projector.Apply(group)
		if err != nil {
			return fmt.Errorf("broker: configuring: %w", err)
		}
		err = b.store.Commit(out.Batch, func() {})
		out.Batch.Close()
		if err != nil {
			return fmt.Errorf("broker: configuring: %w", err)
		}
		for _, result := range out.Results {
			if result.Err != nil {
				return result.Err
			}
		}
		b.deliveries.stir(out.Subscriptions) // a tick may have found something to do
		group = group[out.Taken:]
	}
	return nil
}

// stamp gives a group its place in the log.
func (b *Broker) stamp(group []*eventlog.Proposal) {
	b.log.Stamp(group)
	if b.options.Tap != nil {
		for _, p := range group {
			b.options.Tap(p)
		}
	}
}

// newIncarnation draws the name that tells this log's cursors from others'.
func newIncarnation() string { return newName(8) }

// Drain begins the shutdown: publishes are refused, and readers are told to
// end their streams.
func (b *Broker) Drain() { b.drainOnce.Do(func() { close(b.draining) }) }

// Draining is closed when the shutdown has begun.
func (b *Broker) Draining() <-chan struct{} { return b.draining }

const (
	// tableRetry is how long a table waits that could not be written.
	tableRetry = 100 * time.Millisecond
	// closeTimeout bounds the last flush; what it would write is in the log.
	closeTimeout = 10 * time.Second
)

// Close applies what is queued, answers it, and closes the data directory.
// Readers must be closed before.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() {
		b.Drain()
		close(b.stop)
		b.background.Wait()
		b.log.Close()
		<-b.applyStopped
		b.upkeep.Lock() // for good
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		b.external.close()
		b.closeErr = errors.Join(b.audit.finish(), b.store.Flush(ctx), b.store.Close())
	})
	return b.closeErr
}

// ReadRequest says what to read, and from where, as [dispatch.Spec] does.
type ReadRequest struct {
	As       identity.Principal // who reads
	Patterns []event.Pattern
	Start    dispatch.Start
	View     string
	Filter   *filter.Filter
	Live     dispatch.Mark
	Durable  bool
	Expired  bool
	Counted  func(dispatch.Counts)
	Select   event.Selection
}

// Read opens a reader; see [dispatch.Dispatch.Open]. It must be closed. It fails, and
// a reader ends, with code unauthenticated, token_invalid or not_permitted where the
// principal may not read, and a reader with rights_changed where it may read
// something else from now on.
func (b *Broker) Read(req ReadRequest) (*dispatch.Reader, error) {
	spec := dispatch.Spec{Patterns: req.Patterns, Start: req.Start, View: req.View, Filter: req.Filter, Live: req.Live, Durable: req.Durable, Expired: req.Expired, Counted: req.Counted, Select: req.Select}
	reach := b.reach(req.As)
	if err := reach.limit(&spec); err != nil {
		b.refusals.add(req.As, refusedTopic(req.Patterns), event.AsError(err).Code, nil)
		return nil, err
	}
	reach.withhold(&spec)
	return b.dispatch.Open(spec)
}

// refusedTopic is what is logged of a reader that is refused.
func refusedTopic(patterns []event.Pattern) string {
	if len(patterns) > 1 {
		return ""
	}
	name, _ := patterns[0].Exact()
	return name
}

// Head is the cursor of the last durable event.
func (b *Broker) Head() event.Cursor { return b.dispatch.Head() }

// LogMillis is the time by which streams drop expired events, Unix ms.
func (b *Broker) LogMillis() int64 { return b.dispatch.LogMillis() }

// OpenState opens the state of compacted topics; see [dispatch.State]. It must
// be closed. Nothing of it is kept from anybody: topics of messages and of dead
// letters are never compacted.
func (b *Broker) OpenState(patterns []event.Pattern, f *filter.Filter) (*dispatch.State, error) {
	return b.dispatch.OpenState(patterns, f)
}

// StateKey returns the winner of a key.
func (b *Broker) StateKey(topic, key string) (dispatch.KeyState, error) {
	return b.dispatch.StateKey(topic, key)
}

// Digest returns the digest of a compacted topic.
func (b *Broker) Digest(ctx context.Context, topic string) (dispatch.Digest, error) {
	return b.dispatch.Digest(ctx, topic)
}
