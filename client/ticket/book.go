// SPDX-License-Identifier: Apache-2.0

package ticketclient

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync"

	"signalbox/client"
	"signalbox/ticket"
)

// bookJobsMax bounds the answers that are kept after they were sent. A request comes
// again at most while it is not acknowledged; what is older the broker recognises.
const bookJobsMax = 10_000

// job is a request that was taken on. It is replaced as a whole when it changes.
type job struct {
	id      string
	request *ticket.Message // of an execute without an answer; else nil
	token   string          // of the hand-out of the request, by which it is acknowledged
	started bool            // the execute: some of it may be done
	answer  *ticket.Message // signed; nil while there is none
	over    bool            // the answer was sent, or none is due any more
}

// record is a change of the book, as it is stored.
type record struct {
	Subscription *string         `json:"subscription,omitempty"`
	Job          string          `json:"job,omitempty"`
	Request      json.RawMessage `json:"request,omitempty"`
	Token        string          `json:"token,omitempty"`
	Started      bool            `json:"started,omitempty"`
	Answer       json.RawMessage `json:"answer,omitempty"`
	Over         bool            `json:"sent,omitempty"`
}

// book is what an agent took on and what it answered. What it says was done is in
// its store.
type book struct {
	store client.LedgerStore

	mu           sync.Mutex
	subscription string          // guarded by mu
	jobs         map[string]*job // guarded by mu
	order        []string        // guarded by mu; ids of jobs, the oldest first
	written      int             // guarded by mu; records since the store was written anew
}

func openBook(ctx context.Context, store client.LedgerStore) (*book, error) {
	b := &book{store: store, jobs: map[string]*job{}}
	err := store.Load(ctx, func(stored []byte) error {
		var r record
		if err := json.Unmarshal(stored, &r); err != nil {
			return fmt.Errorf("ticketclient: the store is not that of an agent: %w", err)
		}
		return b.apply(&r)
	})
	return b, err
}

// apply changes what is in memory. It is called with the lock held, or before anybody
// else has the book.
func (b *book) apply(r *record) error {
	b.written++
	if r.Subscription != nil {
		b.subscription = *r.Subscription
		return nil
	}
	next := job{id: r.Job}
	if last := b.jobs[r.Job]; last != nil {
		next = *last
	} else {
		b.order = append(b.order, r.Job)
	}
	for _, part := range []struct {
		raw json.RawMessage
		to  **ticket.Message
	}{{r.Request, &next.request}, {r.Answer, &next.answer}} {
		if part.raw == nil {
			continue
		}
		m, err := ticket.Parse(part.raw)
		if err != nil {
			return fmt.Errorf("ticketclient: a stored message is unreadable: %w", err)
		}
		*part.to = m
	}
	if r.Token != "" {
		next.token = r.Token
	}
	// A request without the token of its hand-out was stored by a version that began at
	// once and did not say so.
	begun := r.Started || r.Request != nil && r.Token == ""
	next.started, next.over = next.started || begun, next.over || r.Over
	if next.answer != nil || next.over {
		next.request = nil
	}
	b.jobs[r.Job] = &next
	return nil
}

// write makes a change durable and returns the job that it is about.
func (b *book) write(ctx context.Context, r *record) (*job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.put(ctx, r)
}

// put is write with the lock held. If it returns a job and an error, the change is
// durable all the same.
func (b *book) put(ctx context.Context, r *record) (*job, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if err := b.store.Append(ctx, text); err != nil {
		return nil, err
	}
	if err := b.apply(r); err != nil {
		return nil, err
	}
	j := b.jobs[r.Job]
	return j, b.tidy(ctx)
}

// tidy forgets the oldest answers that were sent, and writes the store anew when most
// of it is out of date. It is called with the lock held.
func (b *book) tidy(ctx context.Context) error {
	if len(b.order) <= bookJobsMax && b.written <= 4*bookJobsMax {
		return nil
	}
	kept := b.order[:0]
	for i, id := range b.order {
		if j := b.jobs[id]; j.over && len(b.order)-i > bookJobsMax/2 {
			delete(b.jobs, id)
			continue
		}
		kept = append(kept, id)
	}
	b.order = kept
	b.written = len(kept)
	return b.store.Replace(ctx, b.records())
}

// records gives all there is. It is called with the lock held.
func (b *book) records() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		all := []record{{Subscription: &b.subscription}}
		for _, id := range b.order {
			j := b.jobs[id]
			r := record{Job: id, Token: j.token, Started: j.started, Over: j.over}
			if j.request != nil {
				r.Request = j.request.Bytes()
			}
			if j.answer != nil {
				r.Answer = j.answer.Bytes()
			}
			all = append(all, r)
		}
		for i := range all {
			text, err := json.Marshal(&all[i])
			if err != nil || !yield(text) { // plain fields always encode
				return
			}
		}
	}
}

func (b *book) subscribed(ctx context.Context, id string) error {
	_, err := b.write(ctx, &record{Subscription: &id})
	return err
}

// taken stores a request before it is acknowledged. It returns nil for one that is
// there: of two that were handed the same, one acts.
func (b *book) taken(ctx context.Context, request *ticket.Message, token string) (*job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := request.Header().ID
	if b.jobs[id] != nil {
		return nil, nil
	}
	return b.put(ctx, &record{Job: id, Request: request.Bytes(), Token: token})
}

// said stores an answer before it is sent.
func (b *book) said(ctx context.Context, id string, answer *ticket.Message) (*job, error) {
	return b.write(ctx, &record{Job: id, Answer: answer.Bytes()})
}

// started stores that an execute is begun, before it is.
func (b *book) started(ctx context.Context, id string) error {
	_, err := b.write(ctx, &record{Job: id, Started: true})
	return err
}

// over stores that an answer was sent, or that none is due.
func (b *book) over(ctx context.Context, id string) error {
	_, err := b.write(ctx, &record{Job: id, Over: true})
	return err
}

// job returns what is known of a request, nil if it is new.
func (b *book) job(id string) *job {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.jobs[id]
}

// open returns the jobs that are not at their end, the oldest first.
func (b *book) open() (open []*job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range b.order {
		if j := b.jobs[id]; !j.over {
			open = append(open, j)
		}
	}
	return open
}
