// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Checkpoint says what the audit trail was at one size. Signed, it is a note in
// the form of C2SP tlog-checkpoint: the name of the key as the origin, the size,
// the root in base64; then as extensions the head of the chain and the time.
type Checkpoint struct {
	Origin string
	Size   uint64
	Root   Hash
	Chain  [32]byte
	Time   time.Time

	// Note is the signed text; empty before it is signed.
	Note []byte
}

// The prefixes of the extension lines.
const (
	chainLine = "chain "
	timeLine  = "time "
)

func (c *Checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\n%s%x\n%s%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]),
		chainLine, c.Chain, timeLine, c.Time.UTC().Format(time.RFC3339Nano))
}

// checkpointBytesMax bounds a signed checkpoint; ours have some 300 bytes, and
// witnesses may add signatures.
const checkpointBytesMax = 64 << 10

// ErrSignature is the cause where a note has no valid signature of a known key.
var ErrSignature = errors.New("it is not signed by a key that is trusted here")

// OpenCheckpoint checks the signature of a note and returns what it says.
func OpenCheckpoint(signed []byte, keys Keys) (Checkpoint, error) {
	if len(signed) > checkpointBytesMax {
		return Checkpoint{}, fmt.Errorf("audit: a checkpoint has %d bytes", len(signed))
	}
	n, err := note.Open(signed, keys.verifiers)
	var unverified *note.UnverifiedNoteError
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &unverified), errors.As(err, &invalid):
		return Checkpoint{}, fmt.Errorf("audit: a checkpoint: %w", ErrSignature)
	case err != nil:
		return Checkpoint{}, fmt.Errorf("audit: a checkpoint: %w", err)
	}
	c, err := parseCheckpoint(n.Text)
	if err != nil {
		return Checkpoint{}, err
	}
	for _, s := range n.Sigs {
		// One signature has one spelling, so that no byte of a checkpoint can be changed.
		if _, err := base64.StdEncoding.Strict().DecodeString(s.Base64); err == nil && s.Name == c.Origin {
			c.Note = bytes.Clone(signed)
			return c, nil
		}
	}
	return Checkpoint{}, fmt.Errorf("audit: a checkpoint of %q: %w", c.Origin, ErrSignature)
}

// PeekCheckpoint returns what a note says, without the signature having been checked
// that is there in its origin's name.
func PeekCheckpoint(signed []byte) (Checkpoint, error) {
	text, signatures, _ := bytes.Cut(signed, []byte("\n\n"))
	c, err := parseCheckpoint(string(text) + "\n")
	if err == nil && !bytes.Contains(append([]byte{'\n'}, signatures...), []byte("\n"+signatureMark+c.Origin+" ")) {
		err = fmt.Errorf("audit: a checkpoint of %q has no signature of that name", c.Origin)
	}
	c.Note = signed
	return c, err
}

func parseCheckpoint(text string) (c Checkpoint, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	bad := func(what string) (Checkpoint, error) {
		return Checkpoint{}, fmt.Errorf("audit: a checkpoint has no valid %s", what)
	}
	if len(lines) < 5 {
		return bad("number of lines")
	}
	c.Origin = lines[0]
	if c.Size, err = strconv.ParseUint(lines[1], 10, 63); err != nil || strconv.FormatUint(c.Size, 10) != lines[1] {
		return bad("size")
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != len(c.Root) {
		return bad("root")
	}
	copy(c.Root[:], root)
	chain, isChain := strings.CutPrefix(lines[3], chainLine)
	if b, err := hex.DecodeString(chain); !isChain || err != nil || len(b) != len(c.Chain) {
		return bad("chain")
	} else {
		copy(c.Chain[:], b)
	}
	at, isTime := strings.CutPrefix(lines[4], timeLine)
	if c.Time, err = time.Parse(time.RFC3339Nano, at); !isTime || err != nil {
		return bad("time")
	}
	return c, nil
}

// SplitNotes splits checkpoints that were written one behind the other. A torn one
// that an interrupted write has left, at the end or with an empty line behind it, is
// left out.
func SplitNotes(b []byte) (notes [][]byte) {
	for len(b) > 0 {
		at := bytes.Index(b, []byte("\n\n"+signatureMark))
		if at < 0 {
			return notes
		}
		end := at + 2
		for bytes.HasPrefix(b[end:], []byte(signatureMark)) {
			line := bytes.IndexByte(b[end:], '\n')
			if line < 0 {
				return notes
			}
			end += line + 1
		}
		start := 0
		if torn := bytes.LastIndex(b[:at], []byte("\n\n")); torn >= 0 { // a checkpoint has no empty line within
			start = torn + 2
		}
		notes = append(notes, b[start:end:end])
		b = bytes.TrimLeft(b[end:], "\n")
	}
	return notes
}

// signatureMark begins the lines of signatures in a note.
const signatureMark = "— "

// Signer signs checkpoints.
type Signer struct {
	signer note.Signer
	public string
}

// GenerateKey draws a key with a name, and returns its secret form.
func GenerateKey(name string) (secret string, err error) {
	secret, _, err = note.GenerateKey(rand.Reader, name)
	if err != nil {
		return "", fmt.Errorf("audit: drawing a key: %w", err)
	}
	return secret, nil
}

// NewSigner takes a key's secret form.
func NewSigner(secret string) (*Signer, error) {
	s, err := note.NewSigner(secret)
	if err != nil {
		return nil, fmt.Errorf("audit: the secret key: %w", err)
	}
	public, err := publicOf(secret)
	if err != nil {
		return nil, err
	}
	return &Signer{s, public}, nil
}

// publicOf derives the public form of a key that [note.NewSigner] has accepted.
func publicOf(secret string) (string, error) {
	parts := strings.SplitN(secret, "+", 5)
	seed, err := base64.StdEncoding.DecodeString(parts[len(parts)-1])
	if err != nil || len(parts) != 5 || len(seed) != 1+ed25519.SeedSize {
		return "", errors.New("audit: the secret key has another form than expected")
	}
	key, ok := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	if !ok {
		return "", errors.New("audit: the secret key has no public one")
	}
	return note.NewEd25519VerifierKey(parts[2], key)
}

// Public is the public form of the key, as [ParseKeys] takes it.
func (s *Signer) Public() string { return s.public }

// Sign signs a checkpoint, whose origin becomes the name of the key.
func (s *Signer) Sign(c *Checkpoint) error {
	c.Origin = s.signer.Name()
	signed, err := note.Sign(&note.Note{Text: c.text()}, s.signer)
	if err != nil {
		return fmt.Errorf("audit: signing: %w", err)
	}
	c.Note = signed
	return nil
}

// Keys are the public keys that somebody trusts.
type Keys struct {
	verifiers note.Verifiers
	names     []string
	texts     []string // their public forms
}

// has reports whether all of the others are among the keys.
func (k Keys) has(others Keys) bool {
	return !slices.ContainsFunc(others.texts, func(text string) bool { return !slices.Contains(k.texts, text) })
}

// Names are those of the keys.
func (k Keys) Names() []string { return k.names }

// ParseKeys takes public keys, one a line, as the broker shows its own.
func ParseKeys(text string) (Keys, error) {
	var list []note.Verifier
	var names []string
	texts := strings.Fields(text)
	for _, line := range texts {
		v, err := note.NewVerifier(line)
		if err != nil {
			return Keys{}, fmt.Errorf("audit: %.100q is no public key such as signalbox/k3f9x0ab+0f1e2d3c+A…: %w", line, err)
		}
		list = append(list, v)
		names = append(names, v.Name())
	}
	if len(list) == 0 {
		return Keys{}, errors.New("audit: there is no public key")
	}
	return Keys{note.VerifierList(list...), names, texts}, nil
}
