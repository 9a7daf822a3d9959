// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"signalbox/internal/doctor"
)

// TestFilesOfAnotherUserAreAFinding: a broker that was once started as root leaves them.
func TestFilesOfAnotherUserAreAFinding(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	fill(t, dir)
	for name, mode := range map[string]os.FileMode{filepath.Dir(parent): 0o755, parent: 0o755, filepath.Join(dir, "LOCK"): 0} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	var r doctor.Report
	var err error
	examined := make(chan struct{})
	go func() {
		defer close(examined)
		if os.Geteuid() == 0 { // who may open everything
			runtime.LockOSThread() // and is not given back: the thread ends here
			if err = syscall.Setfsuid(65534); err != nil {
				return
			}
		}
		r, err = doctor.Examine(context.Background(), doctor.Options{Dir: dir, Listen: "127.0.0.1:0"})
	}()
	<-examined
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Check == "data" && f.Severity == doctor.Critical })
	if i < 0 {
		t.Errorf("no finding among %+v", r.Findings)
	}
}
