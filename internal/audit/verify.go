// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
)

// The kinds of findings. Damage of one kind has one name, wherever it is.
const (
	FoundLine       = "line"       // a line cannot be read
	FoundContent    = "content"    // an entry was changed: it does not give its leaf
	FoundBody       = "body"       // a body was changed: it does not give the digest
	FoundOrder      = "order"      // an entry is missing, exchanged or there twice
	FoundChain      = "chain"      // a leaf was replaced: the chain does not go on with it
	FoundCheckpoint = "checkpoint" // what was signed is not what is here
	FoundSignature  = "signature"  // a checkpoint is not signed by a key that is trusted
	FoundCut        = "cut"        // the export ends before a checkpoint
	FoundUnproved   = "unproved"   // no checkpoint is about the last entries, or none can be compared
)

// Finding is one thing that is wrong in an export.
type Finding struct {
	What        string `json:"what"`
	Index       uint64 `json:"index,string"` // of the first entry that is concerned
	Line        uint64 `json:"line"`         // in the export, from 1; 0: no line is
	Explanation string `json:"explanation"`
}

// Report is what a verification found.
type Report struct {
	From     uint64    `json:"from,string"` // first entry of the export
	Size     uint64    `json:"size,string"` // entries up to its end, those before it included
	Proved   uint64    `json:"proved,string"`
	Bodies   uint64    `json:"bodies"`  // entries whose body was checked, too
	Unknown  uint64    `json:"unknown"` // entries of which only the leaf is there
	Root     string    `json:"root"`
	Chain    string    `json:"chain"` // in hexadecimal
	Compared []uint64  `json:"compared"`
	Total    int       `json:"total"` // findings, also those that are not listed
	Findings []Finding `json:"findings"`
}

// VerifyOptions are what an auditor knows already.
type VerifyOptions struct {
	Keys Keys
	// Checkpoints are those that the auditor kept, beside those in the export.
	Checkpoints []Checkpoint
	Progress    func(entries, bytes uint64)
}

// findingsMax bounds the list: one change can break a rule in every line.
const findingsMax = 100

// Verify reads an export to its end. What is wrong is in the report; the error
// is for what kept it from reading. After a finding the rest is still checked, as
// far as it can be without what is wrong.
func Verify(ctx context.Context, r io.Reader, o VerifyOptions) (Report, error) {
	v := &verifier{options: o}
	v.report.Findings, v.report.Compared = []Finding{}, []uint64{}
	v.expected = slices.Clone(o.Checkpoints)
	slices.SortFunc(v.expected, func(a, b Checkpoint) int { return compare(a.Size, b.Size) })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	blocks := make(chan *block, 2*runtime.GOMAXPROCS(0))
	failed := make(chan error, 1)
	go func() { failed <- readBlocks(ctx, r, blocks) }()
	read := uint64(0)
	for b := range blocks {
		select {
		case <-b.parsed:
		case <-ctx.Done():
			return v.report, ctx.Err()
		}
		for i := range b.lines {
			v.line(&b.lines[i])
		}
		read += uint64(len(b.text))
		if o.Progress != nil {
			o.Progress(v.tree.Size(), read)
		}
	}
	if err := <-failed; err != nil {
		return v.report, err
	}
	v.end()
	return v.report, nil
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// verifier holds what is known up to a line.
type verifier struct {
	options  VerifyOptions
	report   Report
	expected []Checkpoint // still to come, by size
	number   uint64       // of the line
	begun    bool
	tree     Range
	chain    [32]byte
	adrift   bool // entries are missing, so that the tree is another one
	knew     bool // an entry with its members was there, so that all later ones have them
	lost     bool // the line before was none, so that its chain is not known
}

func (v *verifier) found(what string, index uint64, format string, args ...any) {
	v.report.Total++
	if len(v.report.Findings) < findingsMax {
		v.report.Findings = append(v.report.Findings, Finding{what, index, v.number, fmt.Sprintf(format, args...)})
	}
}

func (v *verifier) line(p *parsedLine) {
	v.number++
	switch {
	case p.start != nil:
		v.start(p.start)
	case p.checkpoint != nil:
		v.checkpoint(p.checkpoint)
	case p.err != nil:
		v.begun = true
		v.adrift, v.lost = true, true
		v.found(FoundLine, v.tree.Size(), "The line cannot be read: %v.", p.err)
		v.tree.size++ // it was to be an entry, and the next one follows it
	default:
		v.begun = true
		v.entry(p)
	}
}

func (v *verifier) start(line []byte) {
	s, chain, err := parseStart(line)
	tree, fits := NewRange(s.From, s.Subtrees)
	switch {
	case err != nil:
		v.found(FoundLine, 0, "The line cannot be read: %v.", err)
	case !fits:
		v.found(FoundLine, s.From, "An export from entry %d on begins with other subtrees.", s.From)
	case v.begun:
		v.found(FoundOrder, v.tree.Size(), "A first line is in the middle of the export.")
		return
	case s.From == 0 && chain != [32]byte{}:
		v.found(FoundChain, 0, "An export from the beginning on begins with another chain: it is 32 zero bytes there.")
	default:
		v.tree, v.chain = tree, chain
		v.claims(s.Keys)
	}
	v.begun = true
	v.report.From = v.tree.Size()
	v.compareAll()
}

// claims looks at the keys with which the broker says that it signs.
func (v *verifier) claims(keys []string) {
	for _, key := range keys {
		if claimed, err := ParseKeys(key); err != nil || !v.options.Keys.has(claimed) {
			v.found(FoundSignature, v.tree.Size(), "The export says that it is signed with %.100q, which is not trusted here.", key)
		}
	}
}

func (v *verifier) entry(p *parsedLine) {
	size := v.tree.Size()
	if p.index != size {
		v.found(FoundOrder, size, "Entry %d is expected here, and entry %d is there: entries are missing, exchanged or there twice.", size, p.index)
		v.adrift = true
		v.tree.size = p.index
		v.chain = p.chain
	} else if next := NextChain(v.chain, p.leaf); next != p.chain && !v.lost {
		v.found(FoundChain, p.index, "The chain does not go on with this leaf: it gives %x, and %x is there. The leaf or the chain was replaced here.", next, p.chain)
		v.chain = p.chain
	} else {
		v.chain = p.chain
	}
	v.lost = false
	switch {
	case !p.known && v.knew:
		v.found(FoundContent, p.index, "Of the entry only its leaf is there: its members were taken out, for those before it have them.")
	case !p.known:
		v.report.Unknown++
	case p.content:
		v.found(FoundContent, p.index, "The entry does not give its leaf: one of its members was changed.")
	case p.body:
		v.found(FoundBody, p.index, "The body does not give the digest of the entry: salt or body was changed.")
	case p.hasBody:
		v.report.Bodies++
	case p.needsBody:
		v.found(FoundBody, p.index, "The body is missing: what an entry of this kind says is kept for ever.")
	}
	v.knew = v.knew || p.known
	if v.adrift {
		v.tree.size++
		return
	}
	v.tree.Add(LeafHash(p.leaf))
	v.compareAll()
}

// checkpoint takes a checkpoint that the export brings with it.
func (v *verifier) checkpoint(line []byte) {
	var l checkpointLineOf
	if err := json.Unmarshal(line, &l); err != nil {
		v.found(FoundLine, v.tree.Size(), "The line cannot be read: %v.", err)
		return
	}
	c, err := OpenCheckpoint([]byte(l.Checkpoint), v.options.Keys)
	again, fault := AppendCheckpoint(nil, []byte(l.Checkpoint))
	switch {
	case fault != nil || !bytes.Equal(bytes.TrimSuffix(again, []byte{'\n'}), line):
		v.found(FoundLine, v.tree.Size(), "The line is not written as an export has it.")
	case err != nil:
		v.found(FoundSignature, v.tree.Size(), "The checkpoint that is here does not count: %v.", err)
	case c.Size != v.tree.Size():
		v.found(FoundOrder, v.tree.Size(), "A checkpoint over %d entries is behind %d.", c.Size, v.tree.Size())
	case !v.adrift:
		v.compare(&c)
	}
}

// compareAll compares the checkpoints that are about the tree as it is.
func (v *verifier) compareAll() {
	for len(v.expected) > 0 && v.expected[0].Size <= v.tree.Size() {
		c := &v.expected[0]
		v.expected = v.expected[1:]
		switch {
		case c.Size == v.tree.Size():
			v.compare(c)
		case c.Size > 0:
			v.found(FoundUnproved, c.Size, "The checkpoint over %d entries cannot be compared, for the export begins with entry %d.", c.Size, v.report.From)
		}
	}
}

func (v *verifier) compare(c *Checkpoint) {
	if c.Root == v.tree.Root() && c.Chain == v.chain {
		v.report.Proved = max(v.report.Proved, c.Size)
		if n := len(v.report.Compared); n == 0 || v.report.Compared[n-1] != c.Size {
			v.report.Compared = append(v.report.Compared, c.Size)
		}
		return
	}
	proved := uint64(0)
	for i := len(v.report.Compared) - 1; i >= 0 && proved == 0; i-- {
		if v.report.Compared[i] < c.Size {
			proved = v.report.Compared[i]
		}
	}
	v.found(FoundCheckpoint, proved, "What was signed at %s over %d entries is not what is here: entries from %d on were replaced after that.", c.Time.UTC().Format("2006-01-02 15:04:05Z"), c.Size, proved)
}

func (v *verifier) end() {
	v.number = 0
	size := v.tree.Size()
	for _, c := range v.expected {
		if c.Size > size {
			v.found(FoundCut, size, "The export ends after %d entries, and a checkpoint was signed over %d: the end was cut off.", size, c.Size)
		}
	}
	if v.report.Proved < size && v.report.Total == 0 {
		v.found(FoundUnproved, v.report.Proved, "No checkpoint is about the entries from %d on: nothing shows that they are those that were written. Export with a checkpoint at the end, or give one.", v.report.Proved)
	}
	v.report.Size = size
	v.report.Chain = fmt.Sprintf("%x", v.chain)
	if !v.adrift {
		v.report.Root = v.tree.Root().String()
	}
}

// ErrExportTooLong is the cause where a line is longer than any entry can be.
var ErrExportTooLong = errors.New("a line is longer than any entry can be")
