// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"archive/tar"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"signalbox/client"
	"signalbox/event"
)

// TestBackupAndCompactOfARunningBroker: the archive ends with its manifest, and a compaction says where it is.
func TestBackupAndCompactOfARunningBroker(t *testing.T) {
	b := testBroker(t)
	c, err := client.New(b.url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), "a", event.Draft{Source: "/t", Type: "t", Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	backup, err := c.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if backup.Cursor.Position != 1 || backup.Bytes == 0 {
		t.Errorf("the backup is at %s and has %d bytes", backup.Cursor, backup.Bytes)
	}
	last := ""
	for archive := tar.NewReader(backup); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			if _, err := io.Copy(io.Discard, backup); err != nil {
				t.Error(err)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = h.Name
	}
	if last != "signalbox-backup.json" {
		t.Errorf("the archive ends with %q", last)
	}
	if err := backup.Close(); err != nil {
		t.Error(err)
	}
	steps := 0
	done, err := c.Compact(t.Context(), func(at client.Compaction) { steps = at.Steps })
	if err != nil || !done.Done || steps == 0 {
		t.Errorf("%+v after %d steps, %v", done, steps, err)
	}
}

// TestAdminCallsTellWhatIsWrong: a refusal keeps its code, and an answer that breaks off is no success.
func TestAdminCallsTellWhatIsWrong(t *testing.T) {
	answer := func(w http.ResponseWriter) {}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
	defer server.Close()
	c, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	answer = func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"overloaded","detail":"A backup is under way."}`)
	}
	if _, err := c.Backup(t.Context()); event.AsError(err).Code != event.CodeOverloaded {
		t.Errorf("a refused backup: %v", err)
	}
	answer = func(w http.ResponseWriter) { _, _ = io.WriteString(w, "hello") }
	if b, err := c.Backup(t.Context()); err == nil {
		t.Errorf("a page of something else is taken for a backup: %+v", b)
	}
	answer = func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"step":1,"steps":2}`+"\n") }
	if done, err := c.Compact(t.Context(), nil); err == nil {
		t.Errorf("a compaction without an end is taken for done: %+v", done)
	}
	server.Close()
	if _, err := c.Compact(t.Context(), nil); !errors.As(err, new(*client.UnreachableError)) {
		t.Errorf("nobody there: %v", err)
	}
}
