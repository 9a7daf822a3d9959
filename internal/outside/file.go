// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// File is a place that is appended to.
type File struct {
	name string
	torn []byte // the beginning of a line at its end, which an interrupted write has left
}

// NewFile returns the place in a file, which is made when something is added.
func NewFile(name string) *File { return &File{name: name} }

const (
	// fileTailBytes is how much is read at a time to find the last line.
	fileTailBytes = 64 << 10
	// fileLineMax bounds that line: an entry's, which has no event in it.
	fileLineMax = 64 << 20
)

// Last implements [Place].
func (f *File) Last(context.Context) ([]byte, error) {
	f.torn = nil
	file, err := os.Open(f.name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	line, err := f.tail(file)
	return line, errors.Join(err, file.Close())
}

func (f *File) tail(file *os.File) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	for n := int64(fileTailBytes); ; n *= 2 {
		from := max(0, info.Size()-n)
		text, err := io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
		if err != nil {
			return nil, err
		}
		end := bytes.LastIndexByte(text, '\n')
		begin := -1
		if end >= 0 {
			begin = bytes.LastIndexByte(text[:end], '\n')
		}
		switch {
		case from > 0 && begin < 0 && n < fileLineMax:
			continue
		case from > 0 && begin < 0:
			return nil, fmt.Errorf("outside: %s is no file of entries: its last line has no end", f.name)
		}
		if begin < 0 { // the first piece has two lines at least, so it was interrupted
			f.torn = text
			return nil, nil
		}
		f.torn = text[end+1:]
		return text[begin+1 : end], nil
	}
}

// Append implements [Place]. What an interrupted write has left is the beginning of
// these lines, and is completed: the file may take additions only.
func (f *File) Append(_ context.Context, _ uint64, lines []byte) (taken []byte, err error) {
	rest, ok := bytes.CutPrefix(lines, f.torn)
	if !ok {
		return nil, fmt.Errorf("outside: %s ends within a line that is of another log", f.name)
	}
	file, err := os.OpenFile(f.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = file.Write(rest)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	f.torn = nil
	return nil, syncDir(filepath.Dir(f.name)) // the file may be new
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
