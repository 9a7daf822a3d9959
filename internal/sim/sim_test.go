// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"
)

var (
	simFor   = flag.Duration("sim.for", 3*time.Second, "for how long to simulate")
	simSeed  = flag.Uint64("sim.seed", 0, "simulate this seed only; 0 draws them")
	simSteps = flag.String("sim.steps", "400", "how many steps a run has, or which: 3,17,20-31")
)

// lastStep is the number of the step that checks everything once more.
const lastStep = 1 << 20

// shrinkTime is how long a failing run is made shorter.
const shrinkTime = 30 * time.Second

// steps are what may happen, as often as their weight says.
func steps() []step {
	return []step{
		{"publish", 30, stepPublish},
		{"repeat", 8, stepRepeat},
		{"burst", 4, stepBurst},
		{"policy", 3, stepPolicy},
		{"compact", 1, stepCompact},
		{"follow", 4, stepFollow},
		{"read", 16, stepRead},
		{"leave", 3, stepLeave},
		{"find", 2, stepFind},
		{"state", 10, stepState},
		{"subscribe", 3, stepSubscribe},
		{"fetch", 10, stepFetch},
		{"settle", 14, stepSettle},
		{"stream", 5, stepStream},
		{"door", 8, stepDoor},
		{"letters", 5, stepLetters},
		{"signal", 6, stepSignal},
		{"glance", 4, stepGlance},
		{"message", 30, stepMessage},
		{"again", 3, stepAgain},
		{"wait", 8, stepWait},
		{"suspend", 4, stepSuspend},
		{"clock", 2, stepClock},
		{"restart", 1, stepRestart},
		{"crash", 3, stepCrash},
		{"backup", 1, stepBackup},
	}
}

// step is something that may happen. It draws from the world's rng alone.
type step struct {
	name   string
	weight int
	do     func(*world)
}

func (w *world) drawStep() step {
	all := steps()
	total := 0
	for _, s := range all {
		total += s.weight
	}
	n := w.rng.IntN(total)
	for _, s := range all {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	panic("unreachable")
}

// outcome is what became of a run.
type outcome struct {
	failure *failure
	trace   []string
	sum     uint64 // of the trace
	passed  time.Duration
	counts  map[string]int
}

// simulate runs the steps of a seed.
func simulate(t *testing.T, seed uint64, list []int) (out outcome) {
	cryptotest.SetGlobalRandom(t, seed)
	var w *world
	defer func() {
		if out.failure == nil {
			out.failure = caught(recover(), w)
		}
		if w != nil {
			out.trace, out.counts = w.trace, w.counts
			h := fnv.New64a()
			for _, line := range w.trace {
				fmt.Fprintln(h, line)
			}
			out.sum = h.Sum64()
		}
	}()
	synctest.Test(t, func(*testing.T) {
		defer func() {
			out.failure = caught(recover(), w)
			if w != nil && w.broker != nil {
				w.abandon()
			}
		}()
		w = newWorld(seed)
		w.register()
		began := w.clock.Mono()
		for _, number := range list {
			w.begin(number)
			w.answers = w.answers[:0]
			w.endUnused()
			w.drawStep().do(w)
			w.heedAll()
		}
		w.finish()
		out.passed = w.clock.Mono() - began
	})
	return out
}

// caught turns what a run has panicked with into its failure.
func caught(v any, w *world) *failure {
	switch v := v.(type) {
	case nil:
		return nil
	case *failure:
		return v
	default:
		number := -1
		if w != nil {
			number = w.number
		}
		return &failure{number, "panic", fmt.Sprintf("panic: %v\n%s", v, debug.Stack())}
	}
}

// finish checks everything once more.
func (w *world) finish() {
	w.begin(lastStep)
	w.pass(0, time.Second)
	w.checkTopics()
	w.checkState(">")
	w.checkDigest()
	w.checkKeys()
	w.checkSilence()
	for _, r := range w.readers {
		w.read(r, pollAll)
	}
	w.endUnused()
	for _, p := range w.pulls {
		if !w.expired(p.id, &p.usage) { // while others were drained
			w.drain(p)
		}
	}
	w.close()
	w.audit()
	w.broker = nil
}

// abandon ends the broker of a run that has failed, so that its bubble can end.
func (w *world) abandon() {
	w.leave()
	w.mu.Lock()
	fatal := w.fatal
	w.mu.Unlock()
	if fatal == "" {
		_ = w.broker.Close()
	}
}

// TestSimulation simulates brokers until the time is over.
func TestSimulation(t *testing.T) {
	list, err := parseSteps(*simSteps)
	if err != nil {
		t.Fatal(err)
	}
	if *simSeed != 0 {
		report(t, *simSeed, list, simulate(t, *simSeed, list))
		return
	}
	first := rand.Uint64() >> 40 << 8
	total, runs := outcome{counts: map[string]int{}}, 0
	for began := time.Now(); time.Since(began) < *simFor && !t.Failed(); runs++ {
		seed := first + uint64(runs) + 1
		out := simulate(t, seed, list)
		if out.failure != nil {
			report(t, seed, shrink(t, seed, list, out), out)
			return
		}
		total.passed += out.passed
		for what, n := range out.counts {
			total.counts[what] += n
		}
	}
	t.Logf("seeds %d to %d: %d runs of %d steps, %.1f hours simulated: %s", first+1, first+uint64(runs), runs, len(list), total.passed.Hours(), total.figures())
}

func (o *outcome) figures() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(o.counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", o.counts[what], what))
	}
	return strings.Join(parts, ", ")
}

// report fails the test if the run has failed.
func report(t *testing.T, seed uint64, list []int, out outcome) {
	t.Helper()
	if out.failure == nil {
		t.Logf("seed %d: %d steps, %.1f hours simulated: %s", seed, len(list), out.passed.Hours(), out.figures())
		return
	}
	const shown = 40
	t.Logf("the last steps:\n%s", strings.Join(out.trace[max(0, len(out.trace)-shown):], "\n"))
	t.Errorf("seed %d, %v\nagain with: go test ./internal/sim -run Simulation -sim.seed=%d -sim.steps=%s", seed, out.failure, seed, formatSteps(list))
}

// shrink leaves out whatever is not needed for a run to fail in the same way:
// first what comes after the failure, then ever smaller parts of the rest.
func shrink(t *testing.T, seed uint64, list []int, out outcome) []int {
	if out.failure.step >= 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(n int) bool { return n > out.failure.step })
	}
	end := time.Now().Add(shrinkTime)
	for size := len(list) / 2; size > 0; {
		smaller := false
		for at := 0; at < len(list) && time.Now().Before(end); {
			without := slices.Concat(list[:at], list[min(at+size, len(list)):])
			if f := simulate(t, seed, without).failure; f != nil && f.kind == out.failure.kind {
				list, smaller = without, true
			} else {
				at += size
			}
		}
		if !smaller || size > len(list) {
			size /= 2
		}
	}
	return list
}

// TestSameSeedSameRun: what a seed found once it finds again.
func TestSameSeedSameRun(t *testing.T) {
	list, _ := parseSteps("200")
	for seed := uint64(1); seed <= 2; seed++ {
		one, two := simulate(t, seed, list), simulate(t, seed, list)
		if one.failure != nil || two.failure != nil {
			t.Fatalf("seed %d fails: %v, %v", seed, one.failure, two.failure)
		}
		if one.sum == two.sum {
			continue
		}
		same := 0 // lines, after which one of the runs may be over
		for same < min(len(one.trace), len(two.trace)) && one.trace[same] == two.trace[same] {
			same++
		}
		t.Fatalf("seed %d was once\n%s\nand then\n%s", seed, lineAt(one.trace, same), lineAt(two.trace, same))
	}
}

func lineAt(trace []string, n int) string {
	if n < len(trace) {
		return trace[n]
	}
	return "at its end"
}

var errSteps = errors.New("-sim.steps is neither a number nor a list such as 3,17,20-31")

// parseSteps reads a number of steps, or a list of them.
func parseSteps(s string) (list []int, err error) {
	if n, err := strconv.Atoi(s); err == nil {
		for i := range n {
			list = append(list, i)
		}
		return list, nil
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(s, ","), ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		if err != nil || last < first {
			return nil, errSteps
		}
		for i := first; i <= last; i++ {
			list = append(list, i)
		}
	}
	return list, nil
}

// formatSteps writes a list so that it is not read as a number.
func formatSteps(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		b.WriteString(strconv.Itoa(list[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(list[j]))
		}
		b.WriteString(",")
		i = j + 1
	}
	return b.String()
}
