// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"signalbox/client"
	"signalbox/event"
)

// quickDir is a directory in memory where the system has one. Whoever damages a file byte by byte asks what is read from
// it; a disk that syncs each of a thousand files is a minute of waiting and answers nothing.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "signalbox-client-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// filled makes the file of an outbox with three events, and returns its bytes and where each record begins.
func filled(t *testing.T, c *client.Client, path string) (whole []byte, starts []int) {
	t.Helper()
	box := openOutbox(t, c, path, client.OutboxOptions{})
	for _, id := range []string{"0", "1", "2"} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		starts = append(starts, int(info.Size()))
		put(t, box, id)
	}
	_ = box.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole, append(starts, len(whole))
}

// waiting sends what waits to a server that takes everything, and returns the ids.
func waiting(t *testing.T, path string, o client.OutboxOptions) (ids []string, s client.OutboxStatus, err error) {
	t.Helper()
	box, err := client.OpenOutbox(connect(t, "http://127.0.0.1:1"), path, o)
	if err != nil {
		return nil, s, err
	}
	s = box.Status()
	_ = box.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), `"id":"`)[1:] {
		id, _, _ := strings.Cut(part, `"`)
		ids = append(ids, id)
	}
	if len(ids) != s.Waiting {
		t.Fatalf("%d wait, the file has %v", s.Waiting, ids)
	}
	return ids, s, nil
}

// At whatever byte a crash cuts the file: what had been put is there, in order, and the rest is trimmed and reported.
func TestOutboxFileCutAnywhere(t *testing.T) {
	c := connect(t, "http://127.0.0.1:1")
	path := filepath.Join(quickDir(t), "outbox")
	whole, starts := filled(t, c, path)
	for n := range len(whole) + 1 {
		// A power cut may also leave a part of the file as zeros.
		for _, rest := range []int{0, 100}[:1+n%5/4] {
			if err := os.WriteFile(path, append(slices.Clone(whole[:n]), make([]byte, rest)...), 0o600); err != nil {
				t.Fatal(err)
			}
			ids, s, err := waiting(t, path, client.OutboxOptions{})
			if n < starts[0] {
				if event.AsError(err).Code != event.CodeJournalDamaged {
					t.Fatalf("%d bytes: %v", n, err)
				}
				continue
			}
			full := 0
			for full < 3 && starts[full+1] <= n {
				full++
			}
			if err != nil || !slices.Equal(ids, []string{"0", "1", "2"}[:full]) || s.Trimmed != int64(n+rest-starts[full]) {
				t.Fatalf("%d bytes and %d zeros: %v, trimmed %d, %v", n, rest, ids, s.Trimmed, err)
			}
			if n%5 != 4 {
				continue
			}
			if _, s, err := waiting(t, path, client.OutboxOptions{}); err != nil || s.Trimmed != 0 {
				t.Fatalf("%d bytes, opened again: trimmed %d, %v", n, s.Trimmed, err)
			}
		}
	}
}

// Whatever byte rots: nothing that was never put is sent, and the loss is reported. Only the last record is taken for
// torn, which it cannot be told from; its loss is reported as what was trimmed.
func TestOutboxFileRottenAnywhere(t *testing.T) {
	c := connect(t, "http://127.0.0.1:1")
	path := filepath.Join(quickDir(t), "outbox")
	whole, starts := filled(t, c, path)
	for n := range whole {
		rotten := slices.Clone(whole)
		rotten[n] ^= 1 << (n % 8)
		if err := os.WriteFile(path, rotten, 0o600); err != nil {
			t.Fatal(err)
		}
		hit := -1 // the header
		for i := range 3 {
			if n >= starts[i] {
				hit = i
			}
		}
		left := []string{"0", "1", "2"}
		if hit >= 0 {
			left = slices.Delete(left, hit, hit+1)
		}
		ids, s, err := waiting(t, path, client.OutboxOptions{})
		if hit == 2 {
			if err != nil || !slices.Equal(ids, left) || s.Trimmed != int64(len(whole)-starts[2]) {
				t.Fatalf("byte %d: %v, trimmed %d, %v", n, ids, s.Trimmed, err)
			}
			continue
		}
		e := event.AsError(err)
		if e == nil || e.Code != event.CodeJournalDamaged || e.Facts["path"] != path {
			t.Fatalf("byte %d: %v, %v", n, ids, err)
		}
		if n%5 != 0 {
			continue // Salvaging writes the file anew, which takes its time.
		}
		ids, s, err = waiting(t, path, client.OutboxOptions{Salvage: true})
		if err != nil || !slices.Equal(ids, left) || s.Damaged == 0 {
			t.Fatalf("byte %d, salvaged: %v, damaged %d, %v", n, ids, s.Damaged, err)
		}
		if aside, err := os.ReadFile(path + ".damaged"); err != nil || !slices.Equal(aside, rotten) {
			t.Fatalf("byte %d: what was damaged is not set aside: %v", n, err)
		}
	}
}

// The journal of an agent that is killed holds every event whose Put had returned, and at most one more.
func TestOutboxOfAKilledAgentLosesNothing(t *testing.T) {
	if path := os.Getenv("SIGNALBOX_TEST_OUTBOX"); path != "" {
		box := openOutbox(t, connect(t, "http://127.0.0.1:1"), path, client.OutboxOptions{})
		for n := box.Status().Waiting; ; n++ {
			put(t, box, fmt.Sprint(n))
			fmt.Println("put", n)
		}
	}
	path := filepath.Join(t.TempDir(), "outbox")
	said := -1
	for round := range 5 {
		agent := exec.Command(os.Args[0], "-test.run=^TestOutboxOfAKilledAgentLosesNothing$")
		agent.Env = append(os.Environ(), "SIGNALBOX_TEST_OUTBOX="+path)
		out, err := agent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			_, _ = fmt.Sscanf(lines.Text(), "put %d", &said)
			if n == 20+round {
				_ = agent.Process.Kill() // What is in the pipe still counts.
			}
		}
		_ = agent.Wait()
		ids, _, err := waiting(t, path, client.OutboxOptions{})
		if err != nil || len(ids) < said+1 || len(ids) > said+2 {
			t.Fatalf("it said %d, and %d are there: %v", said, len(ids), err)
		}
		for i, id := range ids {
			if id != fmt.Sprint(i) {
				t.Fatalf("the event %d has the id %s", i, id)
			}
		}
	}
}

// What was sent does not stay in the file for ever.
func TestOutboxFileStaysSmall(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		receipt(w, event.OutcomeAccepted, 1, event.NewHLC(7000, 1))
	})
	path := filepath.Join(t.TempDir(), "outbox")
	box := openOutbox(t, c, path, client.OutboxOptions{})
	for n := range 5 {
		for range 8 {
			d := draft
			d.Data = []byte(`"` + strings.Repeat("x", 100_000) + `"`)
			if _, err := box.Put("t", d); err != nil {
				t.Fatal(err)
			}
		}
		flush(t, box)
		if info, err := os.Stat(path); err != nil || info.Size() > 2<<20 {
			t.Errorf("%d bytes after %d events were sent: %v", info.Size(), 8*(n+1), err)
		}
	}
}

// Whatever is in a file, reading it does not panic. The records that are found in it are found again, and none beside
// them, in a file that is made of them; and so is what they add up to.
func FuzzOutboxFile(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("signalbox.outbox/1\n\xf5SBr\x00\x00\x00\x01"))
	path := filepath.Join(f.TempDir(), "outbox")
	box, err := client.OpenOutbox(must(client.New("http://127.0.0.1:1")), path, client.OutboxOptions{})
	if err != nil {
		f.Fatal(err)
	}
	for range 2 {
		if _, err := box.Put("t", draft); err != nil {
			f.Fatal(err)
		}
	}
	_ = box.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, data []byte) {
		waiting, again, err := client.ReplayOutbox(data)
		if err != nil {
			return
		}
		if w, third, err := client.ReplayOutbox(again); err != nil || w != waiting || string(third) != string(again) {
			t.Fatalf("%q, then %q: %v", again, third, err)
		}
	})
}

// Whatever a record holds, replaying it does not panic, and a ledger that accepts it can write it anew.
func FuzzLedgerRecord(f *testing.F) {
	f.Add([]byte("C\x02@5H\x08\x00\x00\x00\x00\x00\x00\x00\x01X"))
	f.Add([]byte("E\x01k\x00\x01iD\x01t\x01k"))
	f.Add(append([]byte("F\x10"), make([]byte, 25)...))
	f.Fuzz(func(t *testing.T, record []byte) {
		again, err := client.ReplayLedger([][]byte{record})
		if err != nil {
			return
		}
		third, err := client.ReplayLedger(again)
		if err != nil || len(slices.Concat(third...)) != len(slices.Concat(again...)) {
			t.Fatalf("%q, then %q: %v", again, third, err)
		}
	})
}
