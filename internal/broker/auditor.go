// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/store"
)

// auditor makes the Merkle tree over the audit leaves and signs it. It works
// beside the apply loop, from rows that are durable: what it has not come to yet
// after a crash it makes when it is next asked.
type auditor struct {
	b        *Broker
	signer   *audit.Signer
	trail    atomic.Pointer[trail]            // what is durable
	latest   atomic.Pointer[audit.Checkpoint] // nil: none was signed yet
	looking  atomic.Int32                     // how many look for something in the trail
	turn     chan struct{}                    // held by whoever builds or signs
	tree     auditTree                        // of the holder of turn
	signed   time.Duration                    // when latest was, see elapsed; of the holder of turn
	spent    time.Duration                    // until when readers have used what they may, see elapsed; of the holder of turn
	outside  *courier
	scanMax  uint64 // auditScanMax, but in tests
	traceMax int    // auditTraceMax, but in tests
}

// trail is how far the audit trail is.
type trail struct {
	size  uint64
	chain [32]byte
}

const (
	auditKeyFile = "audit.key"
	// auditSpacing is the least time between two checkpoints, which are kept for
	// ever: whoever asks for proofs of what is new shares them.
	auditSpacing = 100 * time.Millisecond
	// auditForced is how often readers may have one signed that nobody else needs: a
	// second apart in the long run, and auditForcedMax at once. So nobody who only reads
	// can make the log grow.
	auditForced    = time.Second
	auditForcedMax = 20
)

// purpose says who needs a checkpoint.
type purpose bool

const (
	forWriter purpose = false // whoever has added to the trail, or the broker itself
	forReader purpose = true
)

// openAuditor opens the audit trail, and draws the key of a new data directory.
func openAuditor(b *Broker) (*auditor, error) {
	a := &auditor{b: b, turn: make(chan struct{}, 1), tree: auditTree{store: b.store}, signed: -auditSpacing, scanMax: auditScanMax, traceMax: auditTraceMax}
	secret, err := b.keyFile(auditKeyFile, func() ([]byte, error) {
		secret, err := audit.GenerateKey("signalbox/" + newName(8))
		return []byte(secret + "\n"), err
	})
	if err != nil {
		return nil, fmt.Errorf("broker: the audit key: %w", err)
	}
	if a.signer, err = audit.NewSigner(secret); err != nil {
		return nil, event.Errorf(event.CodeStoreDamaged, "The key that signs checkpoints, %s in the data directory, cannot be used: %w. Put it back from where you keep it; without it, remove the file, and a new key is drawn that auditors have to be told of.", auditKeyFile, err)
	}
	if err := a.tree.load(); err != nil {
		return nil, err
	}
	signed, err := b.store.LastCheckpoint(math.MaxInt64)
	if err != nil {
		return nil, err
	}
	if c, err := audit.OpenCheckpoint(signed, a.keys()); err == nil {
		a.latest.Store(&c)
	} // one of another key, from before a restore, is no claim of this one
	space := b.projector.Space()
	a.advance(&space)
	return a, nil
}

// advance notes what a commit has made durable.
func (a *auditor) advance(s *store.Space) { a.trail.Store(&trail{s.Leaves, s.Chain}) }

// keys are those with which the broker's own checkpoints are checked. It panics if
// the signer has no valid public form.
func (a *auditor) keys() audit.Keys {
	keys, err := audit.ParseKeys(a.signer.Public())
	if err != nil {
		panic(fmt.Sprintf("broker: the audit key has no valid public form: %v", err))
	}
	return keys
}

// loop signs a checkpoint at every interval in which something was added.
func (a *auditor) loop() {
	if a.b.options.AuditInterval < 0 {
		return
	}
	every := time.NewTicker(a.b.options.AuditInterval)
	defer every.Stop()
	for {
		select {
		case <-a.b.stop:
			return
		case <-every.C:
		}
		if _, err := a.checkpoint(context.Background(), a.trail.Load().size, forWriter); err != nil {
			a.b.metrics.Audit.Failures.Inc()
			a.b.logger.Error("no checkpoint of the audit trail could be signed", "err", err, "todo", "run signalbox verify on a copy of the data directory; what is missing is signed with the next checkpoint")
		}
	}
}

// finish signs what has been added since the last interval, when the apply loop has
// ended.
func (a *auditor) finish() error {
	if a.b.options.AuditInterval < 0 {
		a.outside.close()
		return nil
	}
	_, err := a.checkpoint(context.Background(), a.trail.Load().size, forWriter)
	a.outside.close()
	return err
}

// lock waits for the turn.
func (a *auditor) lock(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return event.Errorf(event.CodeOverloaded, "The request ended before a checkpoint was signed: %w. Ask again.", ctx.Err())
	}
}

func (a *auditor) unlock() { <-a.turn }

// checkpoint returns a checkpoint over at least so many leaves, which must be
// durable, and signs one if there is none.
func (a *auditor) checkpoint(ctx context.Context, atLeast uint64, who purpose) (audit.Checkpoint, error) {
	for {
		if c := a.latest.Load(); c != nil && c.Size >= atLeast {
			return *c, nil
		}
		c, wait, err := a.signUnless(ctx, atLeast, who)
		if err != nil || wait == 0 {
			return c, err
		}
		select {
		case <-time.After(min(wait, auditSpacing)): // somebody else may have one signed earlier
		case <-ctx.Done():
			return c, event.Errorf(event.CodeOverloaded, "The request ended before a checkpoint was signed: %w. Ask again.", ctx.Err())
		}
	}
}

// signUnless signs a checkpoint unless there is one meanwhile, or it is too early, and
// says for how long.
func (a *auditor) signUnless(ctx context.Context, atLeast uint64, who purpose) (c audit.Checkpoint, wait time.Duration, err error) {
	if err := a.lock(ctx); err != nil {
		return c, 0, err
	}
	defer a.unlock()
	if c := a.latest.Load(); c != nil && c.Size >= atLeast {
		return *c, 0, nil
	}
	now := a.b.elapsed()
	wait = a.signed + auditSpacing - now
	if who == forReader {
		wait = max(wait, a.spent-auditForcedMax*auditForced-now)
	}
	if wait > 0 {
		return c, wait, nil
	}
	if who == forReader {
		a.spent = max(a.spent, now) + auditForced
	}
	c, err = a.sign()
	return c, 0, err
}

// sign signs the trail as it is. It is called by the holder of the turn.
func (a *auditor) sign() (audit.Checkpoint, error) {
	t := a.trail.Load()
	if err := a.tree.build(t.size); err != nil {
		return audit.Checkpoint{}, err
	}
	root, err := a.tree.root(t.size)
	if err != nil {
		return audit.Checkpoint{}, err
	}
	c := audit.Checkpoint{Size: t.size, Root: root, Chain: t.chain, Time: time.Now()}
	if err := a.signer.Sign(&c); err != nil {
		return c, err
	}
	batch := a.b.store.NewBatch()
	batch.SetCheckpoint(c.Size, c.Note)
	err = a.b.store.WriteAudit(batch)
	batch.Close()
	if err != nil {
		return c, err
	}
	a.latest.Store(&c)
	a.signed = a.b.elapsed()
	a.b.metrics.Audit.Checkpoints.Inc()
	a.b.metrics.Audit.Size.Set(float64(c.Size))
	a.outside.offer()
	return c, nil
}
