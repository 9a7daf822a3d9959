// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"signalbox/event"
	"signalbox/internal/audit"
	"signalbox/internal/metrics"
	"signalbox/internal/outside"
)

// courier brings checkpoints to places that an operator has chosen. Whoever then
// cuts or replaces the log contradicts what is there. A place that fails is tried
// again; a later checkpoint stands for those before it, so only the newest waits.
type courier struct {
	places []*place
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// place is a file that is appended to, or an endpoint that is posted to.
type place struct {
	name    string
	a       *auditor
	bring   func(context.Context, *audit.Checkpoint) error
	offered chan struct{} // holds one token while there is something to bring
	counts  *metrics.AuditPlace
}

const (
	outsideTimeout  = 10 * time.Second // of one POST
	outsideRetry    = time.Second      // before the first repetition; doubled up to the most
	outsideRetryMax = time.Minute
	// outsideLast is how long the end of the broker waits for the last checkpoint.
	outsideLast = 3 * time.Second
	// outsidePiece is how much of the file is read at a time when it is opened.
	outsidePiece = 1 << 20
)

// openOutside refuses to go on with a log that is not what the last checkpoint in
// the file has signed: a start must not bless a log that was cut.
func openOutside(a *auditor) (*courier, error) {
	ctx, cancel := context.WithCancel(context.Background())
	o := &courier{stop: cancel}
	opt, m := &a.b.options, &a.b.metrics.Audit
	if name := opt.AuditFile; name != "" {
		if err := a.compare(name); err != nil {
			cancel()
			return nil, err
		}
		o.places = append(o.places, &place{name: name, a: a, counts: &m.File, bring: func(_ context.Context, c *audit.Checkpoint) error { return appendNote(name, c.Note) }})
	}
	if url := opt.AuditURL; url != "" {
		o.places = append(o.places, &place{name: url, a: a, counts: &m.URL, bring: func(ctx context.Context, c *audit.Checkpoint) error { return postNote(ctx, url, c.Note) }})
	}
	if base := opt.AuditStore; base != "" {
		store, err := outside.NewObjects(base, opt.AuditStoreCredentials)
		if err != nil {
			cancel()
			return nil, err
		}
		o.places = append(o.places, &place{name: base, a: a, counts: &m.Store, bring: func(ctx context.Context, c *audit.Checkpoint) error { return putNote(ctx, store, c) }})
	}
	for _, p := range o.places {
		p.offered = make(chan struct{}, 1)
		o.ended.Go(func() { p.loop(ctx) })
	}
	if a.latest.Load() != nil {
		o.offer() // the last run may not have brought it
	}
	return o, nil
}

// offer has the newest checkpoint brought. It does not wait.
func (o *courier) offer() {
	for _, p := range o.places {
		select {
		case p.offered <- struct{}{}:
		default:
		}
	}
}

// close brings the last checkpoint, if it can be done soon.
func (o *courier) close() {
	timer := time.AfterFunc(outsideLast, o.stop)
	defer timer.Stop()
	for _, p := range o.places {
		close(p.offered)
	}
	o.ended.Wait()
	o.stop()
}

func (p *place) loop(ctx context.Context) {
	brought := uint64(0)
	for range p.offered {
		for wait := outsideRetry; ; wait = min(2*wait, outsideRetryMax) {
			c := p.a.latest.Load()
			if c.Size == brought {
				break
			}
			err := p.bring(ctx, c)
			if err == nil {
				brought = c.Size
				p.counts.Size.Set(float64(c.Size))
				break
			}
			p.counts.Failures.Inc()
			p.a.b.logger.Error("a checkpoint of the audit trail was not taken outside, and is tried again", "place", p.name, "size", c.Size, "err", err,
				"todo", "see that audit_file can be written, and that audit_url and audit_store answer with 2xx; checkpoints are kept in the data directory meanwhile")
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
	}
}

// compare holds the log against the checkpoints in the file: the last one, and that
// which was signed last. They differ where somebody who can add to the file has added
// an old one again, so that a log that was cut would fit.
func (a *auditor) compare(name string) error {
	last, newest, err := readNotes(name)
	if err != nil {
		return fmt.Errorf("broker: reading the checkpoints in %s: %w", name, err)
	}
	if last == nil {
		return nil
	}
	err = a.compareNote(name, last)
	if err == nil && !bytes.Equal(last, newest) {
		err = a.compareNote(name, newest)
	}
	if err != nil && a.b.options.Restored {
		a.b.logger.Warn("the log is not what the checkpoints outside say, which a restore explains", "file", name, "err", err)
		return nil
	}
	return err
}

func (a *auditor) compareNote(name string, signed []byte) error {
	c, err := audit.OpenCheckpoint(signed, a.keys())
	if err != nil {
		return event.Errorf(event.CodeStoreDamaged, "A checkpoint in %s does not belong to this data directory: %w. Find out whether the directory or its key was replaced; after a restore on purpose, start it once with --restored.", name, err)
	}
	if size := a.trail.Load().size; size < c.Size {
		return event.Errorf(event.CodeStoreDamaged, "The audit trail has %d entries, and a checkpoint in %s was signed over %d: the end of the log is missing. Restore a copy that has it, and find out who can write to the directory; after a restore of an older copy on purpose, start it once with --restored.", size, name, c.Size)
	}
	if err := a.tree.build(c.Size); err != nil {
		return err
	}
	root, err := a.tree.root(c.Size)
	if err == nil && root != c.Root {
		return event.Errorf(event.CodeStoreDamaged, "The first %d entries of the audit trail are not those over which a checkpoint in %s was signed: the log was replaced. Restore a copy, and find out who can write to the directory; signalbox verify says what is wrong.", c.Size, name)
	}
	return err
}

// readNotes returns the last checkpoint in a file, and of those behind the last one of
// another key that with the latest time. There may be years of them, so they are read in
// pieces.
func readNotes(name string) (last, newest []byte, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var origin string
	var at time.Time
	take := func(text []byte) {
		for _, n := range audit.SplitNotes(text) {
			c, err := audit.PeekCheckpoint(n)
			last = bytes.Clone(n)
			if err != nil || c.Origin != origin || !c.Time.Before(at) {
				newest, origin, at = last, c.Origin, c.Time
			}
		}
	}
	piece, held := make([]byte, outsidePiece), 0
	for err == nil {
		var n int
		n, err = f.Read(piece[held:])
		held += n
		whole := bytes.LastIndex(piece[:held], []byte(noteEnd))
		if whole < 0 && held < len(piece) {
			continue
		}
		if whole < 0 {
			whole = held - len(noteEnd) // no checkpoint is as long
		}
		whole += len(noteEnd)
		take(piece[:whole])
		held = copy(piece, piece[whole:held])
	}
	take(piece[:held])
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return last, newest, errors.Join(err, f.Close())
}

// noteEnd separates notes in a file: an empty line more than a note has within.
const noteEnd = "\n\n\n"

// appendNote adds a note to a file, durably. What an interrupted write has left before
// it stays, for the file may take additions only.
func appendNote(name string, note []byte) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > 0 {
		end := make([]byte, min(info.Size(), int64(len(noteEnd))))
		if _, err = f.ReadAt(end, info.Size()-int64(len(end))); string(end) != noteEnd {
			note = append([]byte(noteEnd), note...)
		}
	}
	if err == nil {
		_, err = f.Write(append(bytes.Clone(note), noteEnd[1:]...))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(name)) // the file may be new
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// postNote sends a note to an endpoint.
func postNote(ctx context.Context, url string, note []byte) error {
	ctx, cancel := context.WithTimeout(ctx, outsideTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(note))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("the endpoint answered with %s", resp.Status)
	}
	return err
}

// putNote puts a note into an object store. Its name has the time, so that one over as
// many entries that a log signed before it was restored stays beside it.
func putNote(ctx context.Context, store *outside.Objects, c *audit.Checkpoint) error {
	ctx, cancel := context.WithTimeout(ctx, outsideTimeout)
	defer cancel()
	err := store.Put(ctx, fmt.Sprintf("checkpoints/%020d-%d.txt", c.Size, c.Time.UnixMilli()), "text/plain; charset=utf-8", c.Note)
	if errors.Is(err, outside.ErrTaken) {
		return nil // it was put before
	}
	return err
}
