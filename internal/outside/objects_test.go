// SPDX-License-Identifier: Apache-2.0

package outside_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"signalbox/internal/outside"
)

// TestObjectsArePutOnce: an object that is there stays as it is and is read again; what
// is no success is an error; requests are signed if there are credentials.
func TestObjectsArePutOnce(t *testing.T) {
	stored, signed := map[string]string{}, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=key/") && r.Header.Get("X-Amz-Content-Sha256") == fmt.Sprintf("%x", sha256.Sum256(body)) {
			signed++
		}
		switch was, there := stored[r.URL.Path]; {
		case strings.Contains(r.URL.Path, "down"):
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method == http.MethodGet && there:
			_, _ = io.WriteString(w, was)
		case r.Method == http.MethodPut && there && r.Header.Get("If-None-Match") == "*":
			w.WriteHeader(http.StatusPreconditionFailed)
		case r.Method == http.MethodPut:
			stored[r.URL.Path] = string(body)
		default:
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}
	}))
	defer server.Close()
	ctx := context.Background()
	for _, c := range []*outside.Credentials{nil, {AccessKey: "key", SecretKey: "secret", SessionToken: "token", Region: "r"}} {
		clear(stored)
		signed = 0
		o, err := outside.NewObjects(server.URL+"/bucket/a b+c", c)
		if err != nil {
			t.Fatal(err)
		}
		if taken, err := o.Append(ctx, 7, []byte("x\n")); err != nil || taken != nil {
			t.Fatalf("%q, %v", taken, err)
		}
		if taken, err := o.Append(ctx, 7, []byte("y\n")); err != nil || string(taken) != "x\n" {
			t.Errorf("what is there is %q, %v", taken, err)
		}
		if err := o.Put(ctx, "entries/00000000000000000007.ndjson", "text/plain", nil); !errors.Is(err, outside.ErrTaken) {
			t.Errorf("putting again gives %v", err)
		}
		if err := o.Put(ctx, "down", "text/plain", nil); err == nil || errors.Is(err, outside.ErrTaken) {
			t.Errorf("a place that is down gives %v", err)
		}
		if got := stored["/bucket/a b+c/entries/00000000000000000007.ndjson"]; got != "x\n" || len(stored) != 1 {
			t.Errorf("stored are %q", stored)
		}
		if want := map[bool]int{true: 5, false: 0}[c != nil]; signed != want {
			t.Errorf("%d requests are signed, want %d", signed, want)
		}
	}
	if _, err := outside.NewObjects("bucket", nil); err == nil {
		t.Error("a URL without a host is taken")
	}
}
