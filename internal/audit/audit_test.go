// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"signalbox/event"
	"signalbox/internal/audit"
)

// trail is a small trail with whatever a broker has of it.
type trail struct {
	signer *audit.Signer
	keys   audit.Keys
	lines  []audit.Line
	leaves []audit.Hash
}

func newSigner(t testing.TB, name string) (*audit.Signer, audit.Keys) {
	t.Helper()
	secret, err := audit.GenerateKey(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := audit.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := audit.ParseKeys(s.Public())
	if err != nil {
		t.Fatal(err)
	}
	return s, keys
}

func newTrail(t testing.TB, n int) *trail {
	t.Helper()
	tr := &trail{}
	tr.signer, tr.keys = newSigner(t, "signalbox/test")
	var chain [32]byte
	for i := range n {
		l := audit.Line{Known: true, Salt: bytes.Repeat([]byte{byte(i)}, 16), Body: fmt.Appendf(nil, `"id":"%d","data":"é <&> \u2028 −0"}`, i)}
		l.Entry = audit.Entry{Index: uint64(i), Kind: audit.KindEvent, LogMillis: 1_764_422_645_000 + int64(i), Position: uint64(i + 1),
			HLC: event.NewHLC(1_764_422_645_000, uint16(i)), Flags: 1, Topic: "fleet.tasks", Digest: sha256.Sum256(append(bytes.Clone(l.Salt), l.Body...))}
		switch i % 5 {
		case 3: // compacted: the body is gone
			l.Salt, l.Body = nil, nil
		case 4:
			detail := fmt.Appendf(nil, `{"code":"key_required","count":%d}`, i)
			l.Entry = audit.Detailed(audit.KindRefusal, "fleet.tasks", detail)
			l.Index, l.Salt, l.Body = uint64(i), nil, detail
		}
		l.Leaf = l.Entry.Leaf()
		chain = audit.NextChain(chain, l.Leaf)
		l.Chain = chain
		tr.lines = append(tr.lines, l)
		tr.leaves = append(tr.leaves, audit.LeafHash(l.Leaf))
	}
	return tr
}

// root is the root over the first n leaves.
func (tr *trail) root(n int) audit.Hash { return audit.Root(tr.leaves[:n]) }

func (tr *trail) checkpoint(t testing.TB, n int) audit.Checkpoint {
	t.Helper()
	c := audit.Checkpoint{Size: uint64(n), Root: tr.root(n), Time: time.Unix(1_764_422_645, 0)}
	if n > 0 {
		c.Chain = tr.lines[n-1].Chain
	}
	if err := tr.signer.Sign(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// export writes all of it, with a checkpoint after every tenth entry and at the end.
func (tr *trail) export(t testing.TB) [][]byte {
	t.Helper()
	start, err := audit.AppendStart(nil, audit.Start{Chain: strings.Repeat("0", 64)})
	if err != nil {
		t.Fatal(err)
	}
	out := [][]byte{start}
	for i := range tr.lines {
		out = append(out, audit.AppendLine(nil, &tr.lines[i]))
		if n := i + 1; n%10 == 0 || n == len(tr.lines) {
			line, err := audit.AppendCheckpoint(nil, tr.checkpoint(t, n).Note)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, line)
		}
	}
	return out
}

func verify(t testing.TB, lines [][]byte, o audit.VerifyOptions) audit.Report {
	t.Helper()
	r, err := audit.Verify(context.Background(), bytes.NewReader(bytes.Join(lines, nil)), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSoundExportHolds(t *testing.T) {
	tr := newTrail(t, 53)
	r := verify(t, tr.export(t), audit.VerifyOptions{Keys: tr.keys, Checkpoints: []audit.Checkpoint{tr.checkpoint(t, 0), tr.checkpoint(t, 7), tr.checkpoint(t, 53)}})
	if r.Total != 0 || r.Size != 53 || r.Proved != 53 || r.Bodies != 43 || !slices.Equal(r.Compared, []uint64{0, 7, 10, 20, 30, 40, 50, 53}) {
		t.Errorf("the report is %+v", r)
	}
	if r.Chain != fmt.Sprintf("%x", tr.lines[52].Chain) || r.Root != tr.root(53).String() {
		t.Errorf("chain and root are %s and %s", r.Chain, r.Root)
	}
}

// TestTreeIsThatOfRFC6962 holds roots and proofs against x/mod/sumdb/tlog.
func TestTreeIsThatOfRFC6962(t *testing.T) {
	tr := newTrail(t, 70)
	var stored []tlog.Hash
	nodes := audit.Nodes(func(level int, n uint64) (audit.Hash, error) {
		return audit.Root(tr.leaves[n<<level : (n+1)<<level]), nil
	})
	reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	for n := range tr.lines {
		hashes, err := tlog.StoredHashes(int64(n), tr.lines[n].Leaf[:], reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hashes...)
		want, err := tlog.TreeHash(int64(n+1), reader)
		got, err2 := audit.TreeRoot(uint64(n+1), nodes)
		if err != nil || err2 != nil || want != got || want != tr.root(n+1) {
			t.Errorf("the root over %d leaves is %v or %v, want %v (%v, %v)", n+1, got, tr.root(n+1), want, err, err2)
		}
	}
}

func TestProofsHoldOnlyForWhatTheyAreAbout(t *testing.T) {
	tr := newTrail(t, 70)
	nodes := audit.Nodes(func(level int, n uint64) (audit.Hash, error) {
		return audit.Root(tr.leaves[n<<level : (n+1)<<level]), nil
	})
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(1, 70).Draw(rt, "size")
		index := rapid.IntRange(0, size-1).Draw(rt, "index")
		hashes, err := audit.ProveInclusion(uint64(size), uint64(index), nodes)
		if err != nil {
			rt.Fatal(err)
		}
		p := audit.Proof{Index: uint64(index), Leaf: fmt.Sprintf("%x", tr.lines[index].Leaf), Size: uint64(size), Hashes: hashes,
			Checkpoint: string(tr.checkpoint(t, size).Note), Entry: audit.AppendLine(nil, &tr.lines[index])}
		if l, c, err := p.Check(tr.keys); err != nil || l.Index != uint64(index) || c.Size != uint64(size) {
			rt.Errorf("a sound proof gives %v", err)
		}
		other := p
		other.Entry = audit.AppendLine(nil, &tr.lines[(index+1)%70])
		if _, _, err := other.Check(tr.keys); err == nil {
			rt.Error("a proof with the entry of another leaf holds")
		}
		if size > 1 {
			other = p
			other.Hashes = slices.Clone(p.Hashes)
			other.Hashes[rapid.IntRange(0, len(hashes)-1).Draw(rt, "hash")][0]++
			if _, _, err := other.Check(tr.keys); err == nil {
				rt.Error("a proof with a changed hash holds")
			}
		}
		from := rapid.IntRange(0, size).Draw(rt, "from")
		hashes, err = audit.ProveConsistency(uint64(from), uint64(size), nodes)
		if err != nil {
			rt.Fatal(err)
		}
		q := audit.Consistency{From: uint64(from), To: uint64(size), Hashes: hashes, Checkpoint: p.Checkpoint}
		earlier := tr.checkpoint(t, from)
		if _, err := q.Check(earlier, tr.keys); err != nil {
			rt.Errorf("a sound proof of consistency from %d to %d gives %v", from, size, err)
		}
		if earlier.Root[0]++; from > 0 {
			if _, err := q.Check(earlier, tr.keys); err == nil {
				rt.Error("a checkpoint of another log is taken for the beginning of this one")
			}
		}
	})
}

func TestCheckpointsAreReadAsWritten(t *testing.T) {
	tr := newTrail(t, 3)
	c := tr.checkpoint(t, 3)
	got, err := audit.OpenCheckpoint(c.Note, tr.keys)
	if err != nil || got.Size != 3 || got.Root != c.Root || got.Chain != c.Chain || !got.Time.Equal(c.Time) || got.Origin != "signalbox/test" {
		t.Errorf("read %+v, %v", got, err)
	}
	_, others := newSigner(t, "signalbox/test")
	if _, err := audit.OpenCheckpoint(c.Note, others); err == nil {
		t.Error("a checkpoint of another key of the same name is taken")
	}
	for i := range c.Note {
		changed := bytes.Clone(c.Note)
		changed[i] ^= 1
		// The last letter of a signature has bits that mean nothing.
		if got, err := audit.OpenCheckpoint(changed, tr.keys); err == nil && i < len(c.Note)-4 {
			t.Errorf("with byte %d changed it is still taken, as %+v", i, got)
		}
	}
	file := slices.Concat(c.Note, []byte("\n\n"), tr.checkpoint(t, 2).Note, []byte("\n\n"), c.Note[:len(c.Note)-9])
	if notes := audit.SplitNotes(file); len(notes) != 2 || !bytes.Equal(notes[0], c.Note) {
		t.Errorf("a file of two checkpoints and a torn one has %d: %q", len(notes), notes)
	}
}

func TestEntriesAreReadAsStored(t *testing.T) {
	tr := newTrail(t, 9)
	var b []byte
	for i := range tr.lines {
		b = audit.AppendEntry(b, &tr.lines[i].Entry)
	}
	for i := range tr.lines {
		e, rest, err := audit.DecodeEntry(b)
		e.Index = uint64(i)
		if err != nil || e.Leaf() != tr.lines[i].Leaf || !bytes.Equal(e.Detail, tr.lines[i].Detail) {
			t.Fatalf("entry %d is read as %+v, %v", i, e, err)
		}
		if _, _, err := audit.DecodeEntry(b[:len(b)-len(rest)-1]); err == nil {
			t.Errorf("entry %d is read although its last byte is missing", i)
		}
		b = rest
	}
}

func FuzzParseLine(f *testing.F) {
	tr := newTrail(f, 10)
	for i := range tr.lines {
		f.Add(bytes.TrimSpace(audit.AppendLine(nil, &tr.lines[i])))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var scratch, again []byte
		l, err := audit.ParseLine(line, &scratch)
		if err != nil {
			return
		}
		written := bytes.TrimSpace(audit.AppendLine(nil, &l))
		m, err := audit.ParseLine(written, &again)
		if err != nil || m.Entry.Leaf() != l.Entry.Leaf() || m.Leaf != l.Leaf || !bytes.Equal(m.Body, l.Body) {
			t.Errorf("%q is read as %+v, written as %q, and that is read as %+v (%v)", line, l, written, m, err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	const entries = 100_000
	tr := newTrail(b, entries)
	export, err := audit.AppendStart(nil, audit.Start{Chain: strings.Repeat("0", 64)})
	if err != nil {
		b.Fatal(err)
	}
	for i := range tr.lines {
		export = audit.AppendLine(export, &tr.lines[i])
	}
	if export, err = audit.AppendCheckpoint(export, tr.checkpoint(b, entries).Note); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(export)))
	before := cpuTime(b)
	for b.Loop() {
		r, err := audit.Verify(context.Background(), bytes.NewReader(export), audit.VerifyOptions{Keys: tr.keys})
		if err != nil || r.Total != 0 {
			b.Fatal(r.Findings, err)
		}
	}
	b.ReportMetric(float64(entries)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/entries, "cpu-ns/entry")
}

// cpuTime is what the process has used so far, for machines that others use, too.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
