// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"signalbox/ticket"
)

// heartbeatEvery is how often every actor says that it is there; after three that
// are missed the bus escalates.
const heartbeatEvery = 10 * time.Second

// accepts is the range of versions that this package understands.
const accepts = ">=1.0.0 <2.0.0"

// beats says every so often what an agent is at.
type beats struct {
	sender       *Sender
	every        time.Duration
	accepts      string
	capabilities []string
	capacity     int
	onError      func(error)

	mu       sync.Mutex
	inflight map[string]Inflight // guarded by mu; by id of the execute
}

func newBeats(s *Sender, every time.Duration, accepted string, capabilities []string, capacity int, onError func(error)) *beats {
	return &beats{
		sender: s, every: cmp.Or(every, heartbeatEvery), accepts: cmp.Or(accepted, accepts), capabilities: capabilities,
		capacity: capacity, onError: onError, inflight: map[string]Inflight{},
	}
}

// run sends heartbeats until ctx ends. One that cannot be sent is not sent later: the
// next one says more.
func (b *beats) run(ctx context.Context, domains []string) {
	for seq := int64(1); ctx.Err() == nil; seq++ {
		if err := b.beat(ctx, domains, seq); err != nil && ctx.Err() == nil {
			b.onError(fmt.Errorf("the heartbeat: %w", err))
		}
		sleep(ctx, b.every)
	}
}

func (b *beats) beat(ctx context.Context, domains []string, seq int64) error {
	ctx, stop := context.WithTimeout(ctx, b.every)
	defer stop()
	b.mu.Lock()
	inflight := slices.SortedFunc(maps.Values(b.inflight), func(x, y Inflight) int { return cmp.Compare(x.ExecuteID, y.ExecuteID) })
	b.mu.Unlock()
	_, err := b.sender.Send(ctx, ticket.Draft{
		Header: ticket.Header{Type: ticket.TypeHeartbeat, TicketID: ticket.None, TraceID: "heartbeat-" + b.sender.Name(), To: ticket.RolePlatformOps},
		Payload: &Heartbeat{
			Agent: b.sender.Name(), Accepts: b.accepts, Domains: domains, Capabilities: b.capabilities,
			Inflight: inflight, Capacity: max(0, b.capacity-len(inflight)), Seq: seq,
		},
	})
	return err
}

func (b *beats) progress(execute string, done float64, note string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inflight[execute] = Inflight{ExecuteID: execute, Progress: min(max(done, 0), 1), Note: note}
}

func (b *beats) ended(execute string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.inflight, execute)
}
