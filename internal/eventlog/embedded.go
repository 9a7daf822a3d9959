// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is returned by a log that has been closed.
var ErrClosed = errors.New("eventlog: closed")

// Limits of the embedded log. They bound memory while the disk is slower than
// the callers.
const (
	queueProposalsMax = 8192
	queueBytesMax     = 64 << 20
	groupProposalsMax = 1024    // bounds the latency of one commit
	groupBytesMax     = 8 << 20 // a commit should stay well below a memtable
)

// Embedded is an in-process sequencer. Appended proposals wait in a bounded
// queue until the one consumer takes all of them as the next group: the group
// is whatever arrived while the last one was being made durable, so there is
// no artificial delay. A proposal that was appended but not committed is lost
// with the process; its caller was not answered.
type Embedded struct {
	mu     sync.Mutex
	queue  []*Proposal   // guarded by mu
	bytes  int           // of queue; guarded by mu
	room   chan struct{} // closed when the queue was taken; guarded by mu
	closed bool          // guarded by mu
	ready  chan struct{} // holds one token when the queue may be non-empty

	sequence uint64 // of the last stamped proposal; owned by the consumer
}

// NewEmbedded returns a log whose next sequence number is one past last, the
// last one that was applied.
func NewEmbedded(last uint64) *Embedded {
	return &Embedded{ready: make(chan struct{}, 1), room: make(chan struct{}), sequence: last}
}

// Append queues a proposal. It blocks while the queue is full, until ctx is
// done. The proposal must not be changed afterwards.
func (l *Embedded) Append(ctx context.Context, p *Proposal) error {
	size := p.memory()
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return ErrClosed
		}
		if len(l.queue) == 0 || (len(l.queue) < queueProposalsMax && l.bytes+size <= queueBytesMax) {
			l.queue = append(l.queue, p)
			l.bytes += size
			l.mu.Unlock()
			l.wake()
			return nil
		}
		room := l.room
		l.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Waiting is what is in the queue.
func (l *Embedded) Waiting() (proposals, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue), l.bytes
}

func (l *Embedded) wake() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// Next blocks until proposals wait and appends them to group in order. After
// Close it hands out what is left and then returns [ErrClosed]. It has one
// caller at a time.
func (l *Embedded) Next(group []*Proposal) ([]*Proposal, error) {
	for {
		l.mu.Lock()
		n, size := 0, 0
		for n < len(l.queue) && n < groupProposalsMax && (n == 0 || size < groupBytesMax) {
			size += l.queue[n].memory()
			n++
		}
		if n > 0 {
			group = append(group, l.queue[:n]...)
			rest := copy(l.queue, l.queue[n:])
			clear(l.queue[rest:])
			l.queue = l.queue[:rest]
			l.bytes -= size
			close(l.room)
			l.room = make(chan struct{})
			if rest > 0 {
				l.wake()
			}
			l.mu.Unlock()
			return group, nil
		}
		closed := l.closed
		l.mu.Unlock()
		if closed {
			return group, ErrClosed
		}
		<-l.ready
	}
}

// Stamp gives each proposal of a group its node and sequence. The consumer
// calls it once it has put the group in its final order.
func (l *Embedded) Stamp(group []*Proposal) {
	for _, p := range group {
		l.sequence++
		p.Node, p.Sequence = 0, l.sequence
	}
}

// Close refuses further proposals; those in the queue are still handed out.
func (l *Embedded) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.wake()
}

// memory is the number of bytes that a queued proposal holds on to.
func (p *Proposal) memory() int {
	n := 512
	for i := range p.Entries {
		n += 256 + len(p.Entries[i].Members)
	}
	return n
}
