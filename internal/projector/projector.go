// SPDX-License-Identifier: Apache-2.0

// Package projector decides what proposals mean. It is a deterministic state
// machine: it has no clock, no randomness, no goroutine and no network, and
// whatever it consults (policies, limits, windows, log time) is state that
// logged proposals have set. So the same proposals give the same state on
// every machine, and how they are grouped into commits makes no difference.
//
// It assigns positions and decides everything that depends on order:
// duplicates, preconditions, HLC drift and supersession, expiry, retention,
// and the audit chain. All writes of one group go into one batch.
//
// It imports eventlog, audit and store, and event and ticket.
package projector

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// FeatureLevel is what this code can apply. A log that was configured with a
// higher one must not be opened by it, and a start of newer code raises it by a
// control entry. It goes up with every kind of proposal or row that is added, and
// with every change of a rule that apply takes from code and not from state: among
// these are the forms and roles of the ticket protocol, which package ticket has
// from api/ticket/registry.json. So all code of one level applies a log alike.
//
// Level 2 added the founding of a space, agents, ticket messages and catalogues,
// subscriptions, and the entries of the audit trail. Level 3 added a row for each
// message of a ticket, entries of the audit trail for what readers were given and
// for messages whose time is over, and deadlines, obligations, heartbeats and the key
// of the bus; it judges tickets. Level 4 added to a topic's figures what a shorter lag
// has given up. Level 5 added the rows by which the audit trail of a ticket is found,
// does not count what approvers granted before they asked for the ticket themselves, and
// expects heartbeats of whoever is sent an execute. Level 6 forgets the heartbeats of
// whoever is revoked, so that they are expected of whoever is registered again, added the
// rows by which tickets are found by their state, and has a request for approval wait for
// the gate for as long as its grants do not count, and no longer than something can come
// of it. Level 7 takes a message for a repetition only if it is of the same ticket and to
// the same receiver, and no grant that names another plan than its hash is of, and probes
// an endpoint with one event. Level 8 executes nothing of a plan that was denied without a
// grant, whatever its tier, and takes no result that does not account for the steps of its
// execute; requests that an older version has left without a deadline have one again.
const FeatureLevel = 8

// Outcomes of a verdict. Their numbers are part of the stored format.
const (
	Accepted   uint8 = 1
	Superseded uint8 = 2
	Duplicate  uint8 = 3
)

// Projector holds the state in memory that apply needs at once: the space, the
// settings and the topics. It belongs to one goroutine.
type Projector struct {
	store    *store.Store
	space    store.Space
	settings eventlog.Settings
	topics   map[string]*topic
	numbers  map[uint32]*topic
	overlay  overlay
	ahead    map[string][]byte // rows about messages as the group found them, by kind and key; nil: none, see lookAhead
	places   []string          // scratch
	// writeAhead is that of the store, see raise.
	writeAhead func(*store.Batch) error
	// schemaBytes are those of the schemas of all topics.
	schemaBytes int

	subscribed subscribed
	bus        bus
	registry   *Registry         // replaced by every change
	owners     map[string]string // of all keys there ever were, to the agent's name; apply alone reads it

	batch   *store.Batch  // of the current group
	lookup  *store.Lookup // what was committed before the current group
	leaves  []byte        // of the current group
	entries []byte        // of which they are, see audit.AppendEntry
	applied []Applied
	gone    []Key
	touched []*topic
	placed  []placed // of the current group
}

// Result is what apply said about one proposal.
type Result struct {
	Err      *event.Error    // nil: it took effect, or was a repetition
	Verdicts []store.Verdict // one for each entry
	Replayed bool            // the verdicts are an earlier request's
	Delivery *Delivery       // of a subscription's proposal
	Answered *Answered       // of a message that repeats another one's request
}

// Applied is an event that was given a position.
type Applied struct {
	Topic        string
	Number       uint32 // of the topic; it tells the topic from one that had its name before
	Key          string // where the topic is compacted
	LogMillis    int64
	Position     uint64
	HLC          event.HLC
	ExpiryMillis int64 // Unix ms; 0: never
	Flags        store.EventFlags
	Replaces     uint64 // position of the event that it supersedes, or 0
	Members      []byte
}

// Key is a key of a compacted topic.
type Key struct {
	Topic uint32
	Key   string
}

// Output is what applying a group produced. Nothing of it may be shown to
// anyone before Batch is durable.
type Output struct {
	Taken   int // how many proposals from the front of the group
	Batch   *store.Batch
	Results []Result
	Applied []Applied
	Topics  []store.Topic // those that changed, as they are now
	// Forgotten are keys of which nothing is left, before anything in Applied.
	Forgotten []Key
	// Subscriptions are those that changed or need attention; one may be there
	// more than once.
	Subscriptions []Stirred
	Registry      *Registry // of agents, as it is now
	Bus           BusCounts
	Delivered     store.DeliveryCounts // of all subscriptions, by this group
	Space         store.Space
	Due           bool // timers that were due are left for another tick
}

// Open loads the state. A new store has none: its first proposal must be a
// control entry that configures it.
func Open(s *store.Store) (*Projector, error) {
	p := &Projector{store: s, topics: map[string]*topic{}, numbers: map[uint32]*topic{}, owners: map[string]string{}, overlay: newOverlay(), ahead: map[string][]byte{}, writeAhead: s.WriteAhead}
	var err error
	p.space, p.settings, _, err = s.LoadSpace()
	if err != nil {
		return nil, fmt.Errorf("projector: loading: %w", err)
	}
	if p.settings.FeatureLevel > FeatureLevel {
		return nil, event.Errorf(event.CodeStoreFormat, "The data needs feature level %d and this version has %d. Start the newer version that wrote it.", p.settings.FeatureLevel, FeatureLevel)
	}
	count, err := s.LoadSubscriptions()
	if err != nil {
		return nil, fmt.Errorf("projector: loading: %w", err)
	}
	p.subscribed = newSubscribed(count)
	if err := p.loadRegistry(); err != nil {
		return nil, fmt.Errorf("projector: loading agents: %w", err)
	}
	if err := p.loadBus(); err != nil {
		return nil, fmt.Errorf("projector: loading deadlines: %w", err)
	}
	err = s.LoadTopics(func(t store.Topic) error {
		p.addTopic(&topic{Topic: t})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("projector: loading topics: %w", err)
	}
	return p, nil
}

// Bus returns what there is to say of the bus, as of the last applied group.
func (p *Projector) Bus() BusCounts { return p.bus.counts }

// Configured reports whether the space has been configured.
func (p *Projector) Configured() bool { return p.settings.FeatureLevel > 0 }

// Settings returns the settings in force.
func (p *Projector) Settings() eventlog.Settings { return p.settings }

// Space returns the space's state as of the last applied group.
func (p *Projector) Space() store.Space { return p.space }

// Topics returns all topics, deleted ones too, by name.
func (p *Projector) Topics() []store.Topic {
	out := make([]store.Topic, 0, len(p.topics))
	for _, name := range slices.Sorted(maps.Keys(p.topics)) {
		out = append(out, p.topics[name].Topic)
	}
	return out
}

// Apply applies proposals from the front of group, as many as may share a
// commit. The caller commits the batch before it calls Apply again. An error
// means that the state is not what it must be, and ends the process.
func (p *Projector) Apply(group []*eventlog.Proposal) (out Output, err error) {
	p.lookup = p.store.NewLookup()
	defer func() { err = errors.Join(err, p.lookup.Close()) }()
	p.batch = p.store.NewBatch()
	p.leaves, p.entries = p.leaves[:0], p.entries[:0] // the batch copies them
	p.applied, p.gone, p.touched, p.placed = nil, nil, p.touched[:0], p.placed[:0]
	p.overlay.reset()
	p.subscribed.reset()
	if err := p.lookAhead(group); err != nil {
		return Output{}, fmt.Errorf("projector: looking ahead: %w", err)
	}
	firstLeaf := p.space.Leaves
	out.Results = make([]Result, 0, len(group))
	for _, proposal := range group {
		// A proposal that scans rows reads what is committed, so nothing may
		// stand before it in its batch.
		if scans(proposal) && out.Taken > 0 {
			break
		}
		result, err := p.apply(proposal, &out)
		if err != nil {
			return Output{}, fmt.Errorf("projector: applying proposal %d: %w", proposal.Sequence, err)
		}
		out.Results = append(out.Results, result)
		out.Taken++
		if proposal.Kind == eventlog.KindControl && proposal.Control.Op == eventlog.OpConfigure {
			break // a level that was raised has written rows beside the batch, which later look-ups of this group do not see
		}
	}
	for _, t := range p.touched {
		p.batch.SetFigures(t.Number, &t.Figures)
		out.Topics = append(out.Topics, t.Topic)
		t.touched = false
	}
	out.Subscriptions = p.finishSubscriptions(&out.Delivered)
	if len(p.leaves) > 0 {
		p.batch.SetLeaves(firstLeaf, p.leaves)
		p.batch.SetEntries(firstLeaf, p.entries)
	}
	p.batch.SetSpace(&p.space)
	out.Bus = p.bus.counts
	out.Batch, out.Applied, out.Forgotten, out.Space, out.Registry = p.batch, p.applied, p.gone, p.space, p.registry
	return out, nil
}

func scans(p *eventlog.Proposal) bool {
	switch c := &p.Control; {
	case p.Kind == eventlog.KindTick:
		return true
	case p.Kind != eventlog.KindControl:
		return false
	case c.Op == eventlog.OpPutTopic:
		// From here on superseded events are read to be kept, and those of the
		// group before it are not in the overlay.
		return c.Policy.MinCompactionLag > 0
	default:
		return c.Op == eventlog.OpRetire || c.Op == eventlog.OpCompact || c.Op == eventlog.OpConfigure
	}
}

// ErrRepeated is the cause of the refusal of a proposal that was applied before.
var ErrRepeated = errors.New("the proposal was applied before")

func (p *Projector) apply(proposal *eventlog.Proposal, out *Output) (Result, error) {
	if proposal.Sequence <= p.space.Sequence {
		return Result{Err: event.AsError(ErrRepeated)}, nil
	}
	p.space.Sequence = proposal.Sequence
	switch proposal.Kind {
	case eventlog.KindEvents:
		if proposal.Message != nil {
			return p.message(proposal)
		}
		return p.events(proposal)
	case eventlog.KindControl:
		return p.control(proposal)
	case eventlog.KindSubscription:
		return p.subscription(proposal)
	case eventlog.KindTick:
		due, err := p.tick(proposal.AdmittedMillis)
		out.Due = due
		return Result{}, err
	case eventlog.KindReading:
		return Result{}, p.readingEntry(proposal)
	case eventlog.KindRefusal:
		p.refusalEntry(proposal, proposal.Topic, proposal.RefusedCode)
		if proposal.Message != nil && proposal.RefusedCode == string(event.CodeMessageTypeUnknown) {
			return Result{}, p.unknownType(proposal)
		}
		return Result{}, nil
	case eventlog.KindProbe:
		return Result{}, nil
	}
	return Result{}, fmt.Errorf("a proposal of unknown kind %d", proposal.Kind)
}
