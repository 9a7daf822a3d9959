// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/internal/broker"
	"signalbox/internal/crashtest"
	"signalbox/internal/store"
)

// stepWait lets a little time pass, in which the broker does what is due.
func stepWait(w *world) {
	w.pass(0, upTo(w.rng, pick(w.rng, 10*time.Millisecond, time.Second, 15*time.Second)))
}

// stepSuspend lets time pass while the machine sleeps, and then wake up.
func stepSuspend(w *world) {
	asleep := upTo(w.rng, pick(w.rng, time.Minute, time.Minute, time.Hour, 30*time.Hour))
	w.pass(asleep, upTo(w.rng, pick(w.rng, time.Second, 15*time.Second)))
}

// pass lets time pass; the broker notices nothing of the first part.
func (w *world) pass(asleep, awake time.Duration) {
	w.elapse(asleep, awake)
	w.note("%v passed, of which the machine slept %v", asleep+awake, asleep)
}

// stepClock has the wall clock go wrong, or be put right.
func stepClock(w *world) {
	if w.rng.IntN(2) == 0 {
		ppm := w.rng.IntN(2001) - 1000
		w.clock.drifts(ppm)
		w.note("the wall clock drifts by %d ppm", ppm)
		return
	}
	by := upTo(w.rng, pick(w.rng, 2*time.Second, 2*time.Hour))
	if w.rng.IntN(2) == 0 {
		by = -by
	}
	w.clock.set(by)
	w.note("the wall clock is set by %v", by)
}

func (w *world) elapse(asleep, awake time.Duration) {
	w.clock.suspend(asleep)
	time.Sleep(awake + 1) // at no moment at which the broker does something
	w.settle()
	w.checkClock()
}

// steady lets do take as long as it likes, and then time pass until a moment that
// does not depend on it: how long the store's background work takes depends on
// how goroutines are scheduled.
func (w *world) steady(do func()) {
	const enough = 20 * time.Second
	until := time.Now().Add(enough)
	do()
	left := time.Until(until)
	if left < 0 {
		w.fail("it took %v more than %v", -left, enough)
	}
	w.elapse(0, left)
}

// stepRestart stops the broker in good order and starts it again.
func stepRestart(w *world) {
	w.close()
	w.counts["restarts"]++
	w.note("restart")
	if w.rng.IntN(3) == 0 {
		w.clock.suspend(upTo(w.rng, 10*time.Hour)) // nobody was there
	}
	w.audit()
	w.open(false)
}

// stepCrash lets the power fail: now, or while something is on its way to the
// disk, before the sync or after it.
func stepCrash(w *world) {
	before := w.model.clone()
	unsynced := pick(w.rng, 0, 100)
	switch w.rng.IntN(4) {
	case 0:
		w.cut(unsynced)
	default:
		w.mu.Lock()
		w.power = &powerCut{left: w.rng.IntN(2), unsynced: unsynced}
		w.mu.Unlock()
		pick(w.rng, stepPublish, stepPublish, stepRepeat, stepPolicy, stepWait, stepCompact, stepFetch, stepSettle, stepLetters)(w)
	}
	w.mu.Lock()
	w.power = nil
	w.mu.Unlock()
	if w.lost() {
		w.recover(before)
	}
}

// lost reports whether the power has failed in this step: what was answered
// since nobody can have heard.
func (w *world) lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.after != nil
}

// recover goes on with what the power cut has left. Whatever was settled before
// the step must be there; of the step what the log has.
func (w *world) recover(before *model) {
	w.counts["crashes"]++
	w.fall(before)
	w.open(false)
}

// fall ends the broker whose power has failed, and looks at what that has left.
func (w *world) fall(before *model) {
	w.model = before
	w.settleOld()
	w.mu.Lock()
	w.mem, w.after = w.after, nil
	w.mu.Unlock()
	sequence := w.audit()
	if sequence < uint64(before.sequence) || sequence > uint64(len(w.tapped)) {
		w.fail("of %d proposals, of which %d were settled before, the disk has %d", len(w.tapped), before.sequence, sequence)
	}
	w.tapped = w.tapped[:sequence]
	w.note("crash: the log has %d proposals, and had %d for certain", sequence, before.sequence)
}

// settleOld ends the broker whose power has failed. It does not know that yet.
func (w *world) settleOld() {
	w.leave()
	if err := w.broker.Close(); err != nil {
		w.fail("closing: %v", err)
	}
}

// audit looks at a data directory that nobody has open: every row must be that of
// the same proposals applied afresh, and a verification must find nothing. It
// returns how many proposals the log has.
func (w *world) audit() (sequence uint64) {
	s, err := store.Open(store.Options{Dir: dataDir, FS: w.mem, ReadOnly: true, CacheBytes: 8 << 20})
	if err != nil && w.model.sequence == 0 {
		return 0 // the first start has not got so far, and the next one will show
	}
	if err != nil {
		w.fail("the store does not open: %v", err)
	}
	space, _, _, err := s.LoadSpace()
	if err == nil && w.rng.IntN(4) == 0 && space.Sequence <= uint64(len(w.tapped)) {
		err = w.compare(s, w.tapped[:space.Sequence])
	}
	if err := errors.Join(err, s.Close()); err != nil {
		w.fail("the store: %v", err)
	}
	if w.rng.IntN(4) == 0 {
		report, err := broker.Verify(context.Background(), dataDir, w.mem, nil)
		if err != nil || report.Total > 0 {
			w.fail("verify: %v, %d findings: %+v", err, report.Total, report.Findings)
		}
		w.counts["verified"]++
	}
	return space.Sequence
}

func (w *world) compare(s *store.Store, proposals [][]byte) error {
	afresh, err := crashtest.NewAfresh(rand.New(rand.NewPCG(w.seed, uint64(w.number))))
	if err != nil {
		return err
	}
	if err := afresh.Apply(proposals); err != nil {
		return errors.Join(err, afresh.Close())
	}
	differences, err := crashtest.Compare(s, afresh.Store())
	if len(differences) > 0 {
		err = errors.Join(err, fmt.Errorf("the rows are not those of the same proposals applied afresh: %q", differences))
	}
	w.counts["compared"]++
	return errors.Join(err, afresh.Close())
}

// spare is a copy of the data directory that an operator has put aside.
type spare struct {
	mem    *vfs.MemFS
	model  *model
	tapped [][]byte
	pulls  []*pull
	// streams are those that there were, at what they had acknowledged.
	streams []stream
}

// stepBackup copies the data, or goes back to the copy: a new incarnation, so
// that whatever was given out since is known to be of another log.
func stepBackup(w *world) {
	if w.spare == nil || w.rng.IntN(3) > 0 {
		w.close()
		w.spare = &spare{w.copied(w.mem), w.model.clone(), w.tapped[:len(w.tapped):len(w.tapped)], w.clonedPulls(w.pulls), nil}
		for _, s := range w.streams {
			w.spare.streams = append(w.spare.streams, *s)
		}
		w.note("backup at @%d", w.model.position)
		w.open(false)
		return
	}
	w.close()
	w.mem, w.model, w.tapped = w.copied(w.spare.mem), w.spare.model.clone(), w.spare.tapped
	w.pulls, w.streams = w.clonedPulls(w.spare.pulls), nil
	for _, s := range w.spare.streams {
		w.streams = append(w.streams, &s)
	}
	w.crew.forget(w.model.position)
	w.note("restore of @%d", w.model.position)
	w.counts["restores"]++
	w.open(true)
}

// copied is a copy of a disk that nobody writes to.
func (w *world) copied(mem *vfs.MemFS) *vfs.MemFS {
	return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(w.seed, 1))})
}

// clonedPulls is what workers knew at the time of a backup.
func (w *world) clonedPulls(pulls []*pull) []*pull {
	list := make([]*pull, len(pulls))
	for i, p := range pulls {
		list[i] = p.clone()
	}
	return list
}
