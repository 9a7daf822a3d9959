// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"time"
)

// diskMain measures how long one write of 4 KiB and its fdatasync take, with
// nothing else going on: no acknowledgement of any server can be quicker.
func diskMain(args []string) error {
	fs := flag.NewFlagSet("disk", flag.ContinueOnError)
	dir := fs.String("dir", "", "folder for the file, which is removed")
	dur := fs.Duration("dur", 2*time.Second, "how long to measure")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("-dir is needed")
	}
	commit, err := openLog("raw", *dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Join(*dir, "raw"))
	m := newMeter(0)
	group := []waiter{{value: make([]byte, 4088)}} // with its 8 bytes of head a page
	h := new(hist)
	for end := time.Now().Add(*dur); time.Now().Before(end); {
		begin := time.Now()
		if err := commit(group); err != nil {
			return err
		}
		h.add(time.Since(begin))
	}
	r := result{"bench": "disk", "syncs": h.n}
	h.into(r, "")
	return m.emit(r)
}
