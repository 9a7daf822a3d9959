// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/audit"
)

// tampered is a change of an export, what it is to be called, and the first entry that
// must be named.
type tampered struct {
	name, what string
	index      uint64
	lines      [][]byte
}

// TestTamperingIsDetectedAndLocated flips, cuts, exchanges, repeats, replaces and signs
// again every entry and every checkpoint of a small log, one after the other.
func TestTamperingIsDetectedAndLocated(t *testing.T) {
	tr := newTrail(t, 23)
	sound := tr.export(t)
	if r := verify(t, sound, audit.VerifyOptions{Keys: tr.keys}); r.Total != 0 {
		t.Fatalf("the sound export has findings: %+v", r.Findings)
	}
	for i, line := range sound {
		var cases []tampered
		switch {
		case i == 0:
			continue
		case bytes.HasPrefix(line, []byte(`{"checkpoint"`)):
			cases = checkpointTampering(t, tr, sound, i)
		default:
			cases = entryTampering(t, tr, sound, i)
		}
		for _, c := range cases {
			r := verify(t, c.lines, audit.VerifyOptions{Keys: tr.keys, Checkpoints: []audit.Checkpoint{tr.checkpoint(t, 23)}})
			if r.Total == 0 {
				t.Errorf("line %d: %s is not detected", i+1, c.name)
				continue
			}
			if f := r.Findings[0]; f.What != c.what || f.Index != c.index {
				t.Errorf("line %d: %s is found as %q at entry %d, want %q at %d: %s", i+1, c.name, f.What, f.Index, c.what, c.index, f.Explanation)
			}
		}
	}
}

func with(lines [][]byte, at int, line []byte) [][]byte {
	out := slices.Clone(lines)
	out[at] = line
	return out
}

func entryTampering(t *testing.T, tr *trail, sound [][]byte, i int) []tampered {
	t.Helper()
	var scratch []byte
	l, err := audit.ParseLine(bytes.TrimSpace(sound[i]), &scratch)
	if err != nil {
		t.Fatal(err)
	}
	at := l.Index
	change := func(what string, of func(*audit.Line)) tampered {
		c := l
		c.Body, c.Salt = bytes.Clone(l.Body), bytes.Clone(l.Salt)
		of(&c)
		return tampered{what, what, at, with(sound, i, audit.AppendLine(nil, &c))}
	}
	out := []tampered{
		change(audit.FoundContent, func(l *audit.Line) { l.LogMillis++ }),
		change(audit.FoundContent, func(l *audit.Line) { l.Topic += "x" }),
		change(audit.FoundContent, func(l *audit.Line) { l.Flags ^= 3 }),
		change(audit.FoundContent, func(l *audit.Line) { l.Position++ }),
		change(audit.FoundContent, func(l *audit.Line) { l.HLC++ }),
		change(audit.FoundChain, func(l *audit.Line) { l.Position++; l.Leaf = l.Entry.Leaf() }),
		change(audit.FoundChain, func(l *audit.Line) { l.Chain[0]++ }),
		{"a line that is no JSON", audit.FoundLine, at, with(sound, i, append(sound[i][1:len(sound[i]):len(sound[i])], '\n'))},
		{"repeated", audit.FoundOrder, at + 1, slices.Insert(slices.Clone(sound), i, sound[i])},
	}
	if l.Kind == audit.KindRefusal {
		out = append(out, change(audit.FoundBody, func(l *audit.Line) { l.Body = nil }))
	}
	if at > 0 {
		out = append(out, change(audit.FoundContent, func(l *audit.Line) { *l = audit.Line{Entry: audit.Entry{Index: l.Index}, Leaf: l.Leaf, Chain: l.Chain} }))
	}
	if l.Body != nil {
		out = append(out, change(audit.FoundBody, func(l *audit.Line) { l.Body[3] ^= 1 }))
	}
	if at < 22 {
		out = append(out, tampered{"left out", audit.FoundOrder, at, slices.Delete(slices.Clone(sound), i, i+1)},
			tampered{"cut from here on", audit.FoundCut, at, sound[:i]})
	}
	if next := i + 1; at > 0 && bytes.HasPrefix(sound[next], []byte(`{"index"`)) {
		exchanged := slices.Clone(sound)
		exchanged[i], exchanged[next] = sound[next], sound[i]
		out = append(out, tampered{"exchanged with the next", audit.FoundOrder, at, exchanged})
	}
	// Everything from here on is written again, with a chain that fits: only what
	// was signed contradicts that.
	forged := slices.Clone(tr.lines)
	chain := [32]byte{}
	for n := range forged {
		if n == int(at) {
			forged[n].Position += 1000
			forged[n].Leaf = forged[n].Entry.Leaf()
		}
		chain = audit.NextChain(chain, forged[n].Leaf)
		forged[n].Chain = chain
	}
	rewritten := slices.Clone(sound)
	for n, line := range sound {
		if bytes.HasPrefix(line, []byte(`{"index"`)) {
			var at int
			if _, err := fmt.Sscanf(string(line), `{"index":"%d"`, &at); err != nil {
				t.Fatal(err)
			}
			rewritten[n] = audit.AppendLine(nil, &forged[at])
		}
	}
	return append(out, tampered{"rewritten from here on", audit.FoundCheckpoint, at / 10 * 10, rewritten})
}

func checkpointTampering(t *testing.T, tr *trail, sound [][]byte, i int) []tampered {
	t.Helper()
	var l struct {
		Checkpoint string `json:"checkpoint"`
	}
	if err := json.Unmarshal(sound[i], &l); err != nil {
		t.Fatal(err)
	}
	c, err := audit.OpenCheckpoint([]byte(l.Checkpoint), tr.keys)
	if err != nil {
		t.Fatal(err)
	}
	line := func(signed []byte) []byte {
		b, err := audit.AppendCheckpoint(nil, signed)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	other, _ := newSigner(t, "signalbox/test")
	again := c
	if err := other.Sign(&again); err != nil {
		t.Fatal(err)
	}
	lied := c
	lied.Root[0]++
	if err := tr.signer.Sign(&lied); err != nil {
		t.Fatal(err)
	}
	before := uint64(max(0, int(c.Size)-1) / 10 * 10)
	return []tampered{
		{"signed by another key", audit.FoundSignature, c.Size, with(sound, i, line(again.Note))},
		{"a changed time", audit.FoundSignature, c.Size, with(sound, i, line([]byte(strings.Replace(l.Checkpoint, "time 2", "time 1", 1))))},
		{"another root, signed", audit.FoundCheckpoint, before, with(sound, i, line(lied.Note))},
		{"a checkpoint of another size", audit.FoundOrder, c.Size, with(sound, i, line(tr.checkpoint(t, int(c.Size)-1).Note))},
	}
}

// TestCutTailIsDetectedByAnEarlierCheckpoint: walking the chain of what is left shows
// nothing.
func TestCutTailIsDetectedByAnEarlierCheckpoint(t *testing.T) {
	tr := newTrail(t, 20)
	kept := tr.checkpoint(t, 20)
	tr.lines, tr.leaves = tr.lines[:15], tr.leaves[:15] // and signed again as if that were all
	r := verify(t, tr.export(t), audit.VerifyOptions{Keys: tr.keys})
	if r.Total != 0 {
		t.Errorf("what is left is found to be unsound: %+v", r.Findings)
	}
	r = verify(t, tr.export(t), audit.VerifyOptions{Keys: tr.keys, Checkpoints: []audit.Checkpoint{kept}})
	if r.Total != 1 || r.Findings[0].What != audit.FoundCut || r.Findings[0].Index != 15 {
		t.Errorf("the cut is found as %+v", r.Findings)
	}
}

// TestReplacedLogIsDetectedByAnEarlierCheckpoint: another log, whole and signed by the same
// key, is not the one that was signed before.
func TestReplacedLogIsDetectedByAnEarlierCheckpoint(t *testing.T) {
	tr := newTrail(t, 30)
	kept := tr.checkpoint(t, 12)
	other := newTrail(t, 0)
	other.signer, other.keys = tr.signer, tr.keys
	var chain [32]byte
	for _, l := range tr.lines {
		l.LogMillis += 5
		l.Leaf = l.Entry.Leaf()
		chain = audit.NextChain(chain, l.Leaf)
		l.Chain = chain
		other.lines = append(other.lines, l)
		other.leaves = append(other.leaves, audit.LeafHash(l.Leaf))
	}
	r := verify(t, other.export(t), audit.VerifyOptions{Keys: tr.keys, Checkpoints: []audit.Checkpoint{kept}})
	if r.Total != 1 || r.Findings[0].What != audit.FoundCheckpoint || !strings.Contains(r.Findings[0].Explanation, "over 12 entries") {
		t.Errorf("the replaced log is found as %+v", r.Findings)
	}
}

// TestRangeIsProvedByALaterCheckpoint: an export that begins in the middle holds against
// checkpoints in it, and says of earlier ones that it cannot tell.
func TestRangeIsProvedByALaterCheckpoint(t *testing.T) {
	tr := newTrail(t, 23)
	whole := tr.export(t)
	var first audit.Range
	for _, h := range tr.leaves[:13] {
		first.Add(h)
	}
	start, err := audit.AppendStart(nil, audit.Start{From: 13, Chain: fmt.Sprintf("%x", tr.lines[12].Chain), Subtrees: first.Subtrees()})
	if err != nil {
		t.Fatal(err)
	}
	part := slices.Concat([][]byte{start}, whole[1+13+1:])
	if r := verify(t, part, audit.VerifyOptions{Keys: tr.keys}); r.Total != 0 || r.From != 13 || r.Proved != 23 {
		t.Errorf("the range gives %+v", r)
	}
	r := verify(t, part, audit.VerifyOptions{Keys: tr.keys, Checkpoints: []audit.Checkpoint{tr.checkpoint(t, 5)}})
	if r.Total != 1 || r.Findings[0].What != audit.FoundUnproved {
		t.Errorf("a checkpoint before the range gives %+v", r.Findings)
	}
	forged := slices.Clone(first.Subtrees())
	forged[0][0]++
	start, err = audit.AppendStart(nil, audit.Start{From: 13, Chain: fmt.Sprintf("%x", tr.lines[12].Chain), Subtrees: forged})
	if err != nil {
		t.Fatal(err)
	}
	if r := verify(t, slices.Concat([][]byte{start}, part[1:]), audit.VerifyOptions{Keys: tr.keys}); r.Total == 0 || r.Findings[0].What != audit.FoundCheckpoint {
		t.Errorf("forged subtrees give %+v", r.Findings)
	}
}

// TestNoByteOfAnExportCanBeChanged flips bits, cuts, and takes out, exchanges and repeats
// lines anywhere: the first finding names the first entry that is concerned.
func TestNoByteOfAnExportCanBeChanged(t *testing.T) {
	tr := newTrail(t, 57)
	sound := tr.export(t)
	kept := []audit.Checkpoint{tr.checkpoint(t, 57)}
	concerns := make([]uint64, len(sound)+1) // for each line the entry that a fault in it is named with
	for i, next := 0, uint64(0); i < len(sound); i++ {
		concerns[i] = next
		if bytes.HasPrefix(sound[i], []byte(`{"index"`)) {
			next++
		}
		concerns[i+1] = next
	}
	rapid.Check(t, func(t *rapid.T) {
		lines := slices.Clone(sound)
		i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
		index := concerns[i]
		switch how := rapid.SampledFrom([]string{"flip", "flip", "flip", "cut", "take out", "exchange", "repeat"}).Draw(t, "how"); how {
		case "flip":
			lines[i] = bytes.Clone(lines[i])
			lines[i][rapid.IntRange(0, len(lines[i])-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			if s := (audit.Start{}); i == 0 && json.Unmarshal(lines[0], &s) == nil {
				index = s.From // from which entry on it is, an export says of itself
			}
		case "cut":
			at := rapid.IntRange(0, len(lines[i])-1).Draw(t, "byte")
			if at == 0 && i == len(lines)-1 {
				t.Skip("a checkpoint may be left out")
			}
			lines = append(lines[:i:i], lines[i][:at])
		case "take out":
			if !bytes.HasPrefix(lines[i], []byte(`{"index"`)) {
				t.Skip("a checkpoint may be left out, and a first line says nothing from 0 on")
			}
			lines = slices.Delete(lines, i, i+1)
		case "exchange":
			j := rapid.IntRange(0, len(lines)-1).Draw(t, "other")
			if i == j || i == 0 || j == 0 {
				t.Skip("nothing is changed, or no entry")
			}
			index = min(index, concerns[j])
			if behind := max(i, j); behind-min(i, j) == 1 && bytes.HasPrefix(lines[behind-1], []byte(`{"checkpoint"`)) {
				index = concerns[behind+1] // the entry stands where it did, and the checkpoint is one too late
			}
			lines[i], lines[j] = lines[j], lines[i]
		case "repeat":
			if bytes.HasPrefix(lines[i], []byte(`{"checkpoint"`)) {
				t.Skip("a checkpoint may stand there twice")
			}
			lines = slices.Insert(lines, i, lines[i])
			index = concerns[i+1]
		}
		r, err := audit.Verify(context.Background(), bytes.NewReader(bytes.Join(lines, nil)), audit.VerifyOptions{Keys: tr.keys, Checkpoints: kept})
		if err != nil {
			t.Fatal(err)
		}
		if r.Total == 0 {
			t.Fatal("nothing is found")
		}
		if f := r.Findings[0]; f.Index != index {
			t.Fatalf("the first finding is %q at entry %d, want %d: %s", f.What, f.Index, index, f.Explanation)
		}
	})
}
