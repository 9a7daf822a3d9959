// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/store"
)

// PresenceTopic is the ephemeral topic on which the broker says who is
// connected: a value for each agent, by the name that it gave, and for each
// connection that gave none.
const PresenceTopic = "$presence"

// presenceTopics are the broker's own topics. Nothing of them expires by age:
// what is there is there.
func presenceTopics() []store.Topic {
	policy := event.DefaultPolicy()
	policy.Durability, policy.Retention = event.DurabilityEphemeral, nil
	return []store.Topic{{Name: PresenceTopic, Policy: policy}}
}

const (
	// agentGrace is how long an agent is still shown as present after its last
	// stream has ended: streams end now and then, and readers come back after up
	// to three seconds. It spares everybody the news.
	agentGrace = 5 * time.Second
	// streamsShown bounds the value of an agent that has many streams.
	streamsShown = 8
	// reportedMax stops callers without a stream from filling the topic with
	// names.
	reportedMax = 10_000
	// StatusBytesMax is the longest status that an agent may report.
	StatusBytesMax = 8 << 10
	// StatusTTL is how long a status stands if nothing else is said.
	StatusTTL = 5 * time.Minute
	// StatusTTLMax is the longest that may be asked for.
	StatusTTLMax = 24 * time.Hour
	// connectionPrefix begins the keys of connections without a name.
	connectionPrefix = "connection:"
)

// Presence is what a door knows of a connection that streams.
type Presence struct {
	Agent  string // who it says it is, see [CheckAgent]; "" if it does not
	Door   string // "sse", "websocket"
	Topics []string
	Remote string // address; "" if there is none
}

// CheckAgent reports whether a name can be an agent's: a URI-reference as a
// CloudEvents source is one, such as /agents/beta.
func CheckAgent(name string) error {
	if len(name) > event.MaxKeyBytes || event.CheckSource(name) != nil || strings.HasPrefix(name, connectionPrefix) {
		return event.Errorf(event.CodeParameterInvalid, "agent=%.60q is not the name of an agent: give a URI-reference such as /agents/beta, as in the source of its events.", name).With("agent")
	}
	return nil
}

// Attendance is a connection that was announced.
type Attendance struct {
	Presence
	roster *roster
	agent  *agent
	since  int64 // Unix ms
}

// Announce shows on $presence that a connection streams, until Leave. The agent
// must have passed CheckAgent.
func (b *Broker) Announce(p Presence) *Attendance {
	r := b.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	now := b.clock.Millis()
	key := p.Agent
	if key == "" {
		r.connections++
		key = connectionPrefix + strconv.FormatUint(r.connections, 10)
	}
	a := r.agents[key]
	if a == nil {
		a = &agent{key: key, named: p.Agent != ""}
		r.agents[key] = a
	}
	if len(a.streams) == 0 {
		if a.gone == 0 {
			a.since = now
		}
		if a.reported() {
			r.strangers--
		}
	}
	at := &Attendance{Presence: p, roster: r, agent: a, since: now}
	a.streams, a.gone = append(a.streams, at), 0
	_ = r.show(a) // if there is no room for it, the connection works all the same
	return at
}

// Leave says that the connection has ended.
func (at *Attendance) Leave() {
	r, a := at.roster, at.agent
	r.mu.Lock()
	defer r.mu.Unlock()
	a.streams = slices.DeleteFunc(a.streams, func(other *Attendance) bool { return other == at })
	switch {
	case len(a.streams) > 0:
		_ = r.show(a)
	case a.named:
		a.gone = r.b.clock.Millis()
		r.pending[a] = struct{}{}
	default:
		r.remove(a)
	}
}

// Report shows what an agent says of itself, a JSON object, beside its presence:
// until the time is over, its last stream has ended, or it reports anew.
func (b *Broker) Report(name string, status []byte, ttl time.Duration) error {
	if err := b.open(); err != nil {
		return err
	}
	if err := CheckAgent(name); err != nil {
		return err
	}
	if err := checkStatus(status); err != nil {
		return err
	}
	if ttl <= 0 || ttl > StatusTTLMax {
		return event.Errorf(event.CodeParameterInvalid, "A status stands for more than nothing and at most %v.", StatusTTLMax).With("ttl")
	}
	r := b.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	now := b.clock.Millis()
	a := r.agents[name]
	if a == nil {
		if r.strangers >= reportedMax {
			return event.Errorf(event.CodeTopicFull, "%d agents have reported a status without a stream of theirs, which is the limit. Open a stream with agent=%.60s first.", r.strangers, name)
		}
		r.strangers++
		a = &agent{key: name, named: true}
		r.agents[name] = a
	}
	a.status, a.reportedAt, a.until = bytes.Clone(status), now, now+ttl.Milliseconds()
	r.pending[a] = struct{}{}
	return r.show(a)
}

func checkStatus(status []byte) error {
	if len(status) > StatusBytesMax {
		return event.Errorf(event.CodeRequestTooLarge, "The status has %d bytes; use at most %d.", len(status), StatusBytesMax).Fact("limit", StatusBytesMax)
	}
	if trimmed := bytes.TrimLeft(status, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return event.Errorf(event.CodeDataInvalid, "The status is not a JSON object.")
	}
	// As part of an event, which every reader must be able to decode.
	_, err := event.Draft{Source: "/", Type: "status", DataContentType: "application/json", Data: slices.Concat([]byte(`{"status":`), status, []byte("}"))}.Event()
	return err
}

// roster knows who is connected. All of it is lost with the process, as the
// connections are.
type roster struct {
	b           *Broker
	mu          sync.Mutex
	agents      map[string]*agent   // by key; guarded by mu
	pending     map[*agent]struct{} // those for whom time does something; guarded by mu
	strangers   int                 // agents that reported and never had a stream; guarded by mu
	connections uint64              // without a name, so far; guarded by mu
	shown       uint64              // events, so far; guarded by mu
}

// agent is one value on the topic. Its fields are guarded by roster.mu.
type agent struct {
	key        string
	named      bool
	streams    []*Attendance // oldest first
	since      int64         // when the first of them began, Unix ms
	gone       int64         // when the last one ended; 0: it has some, or never had
	status     json.RawMessage
	reportedAt int64
	until      int64 // end of status
}

func newRoster(b *Broker) *roster {
	return &roster{b: b, agents: map[string]*agent{}, pending: map[*agent]struct{}{}}
}

// reported reports whether it is known by its status alone.
func (a *agent) reported() bool {
	return a.named && len(a.streams) == 0 && a.gone == 0 && a.status != nil
}

// sweep does what time asks for.
func (r *roster) sweep(now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.pending {
		over := a.status != nil && now >= a.until
		switch {
		case a.gone != 0 && now >= a.gone+agentGrace.Milliseconds():
			r.remove(a)
		case over && a.reported():
			r.strangers--
			r.remove(a)
		case over:
			a.status = nil
			_ = r.show(a)
		}
		if a.status == nil && a.gone == 0 {
			delete(r.pending, a)
		}
	}
}

func (r *roster) remove(a *agent) {
	delete(r.agents, a.key)
	delete(r.pending, a)
	_ = r.place(a.key, nil)
}

// presenceData is the data of an event on $presence.
type presenceData struct {
	Agent       string          `json:"agent,omitempty"`
	Connections int             `json:"connections"`
	Since       string          `json:"since,omitempty"`
	Streams     []presentStream `json:"streams,omitempty"` // the newest
	Status      json.RawMessage `json:"status,omitempty"`
	Reported    string          `json:"reported,omitempty"`
	Until       string          `json:"until,omitempty"` // of status
}

type presentStream struct {
	Door   string   `json:"door"`
	Since  string   `json:"since"`
	Topics []string `json:"topics"`
	Remote string   `json:"remote,omitempty"`
}

// show places what is known of an agent.
func (r *roster) show(a *agent) error {
	d := presenceData{Connections: len(a.streams)}
	if a.named {
		d.Agent = a.key
	}
	if len(a.streams) > 0 {
		d.Since = presenceTime(a.since)
	}
	for _, at := range a.streams[max(0, len(a.streams)-streamsShown):] {
		d.Streams = append(d.Streams, presentStream{Door: at.Door, Since: presenceTime(at.since), Topics: at.Topics, Remote: at.Remote})
	}
	if a.status != nil {
		d.Status, d.Reported, d.Until = a.status, presenceTime(a.reportedAt), presenceTime(a.until)
	}
	return r.place(a.key, plainJSON(d))
}

// plainJSON writes < and > as they are, which are part of names and patterns. It
// panics if v does not encode, as strings and a checked JSON text always do.
func plainJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// place places an event, a tombstone if there is no data. It is called with mu
// held, so that they come in order.
func (r *roster) place(key string, data []byte) error {
	r.shown++
	now := r.b.clock.Millis()
	e := eventlog.Entry{ID: strconv.FormatUint(r.shown, 10), Source: "/v1/presence", Key: key, HasKey: true}
	m := append([]byte(`"specversion":"1.0","id":"`), e.ID...)
	m = append(m, `","source":"/v1/presence","type":"signalbox.presence","recordedtime":"`...)
	m = append(append(m, presenceTime(now)...), `","subject":`...)
	m = append(m, plainJSON(key)...)
	if data == nil {
		e.Flags = eventlog.FlagBare
	} else {
		e.Flags = eventlog.FlagJSON
		m = append(append(m, `,"datacontenttype":"application/json","data":`...), data...)
	}
	e.Members = append(m, '}')
	_, _, err := r.b.dispatch.Place(PresenceTopic, []eventlog.Entry{e}, now)
	return err
}

func presenceTime(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
