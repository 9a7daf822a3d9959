// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"bytes"
	"context"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"signalbox/internal/backup"
	"signalbox/internal/broker"
	"signalbox/internal/transport/web"
)

func (d *door) takeBackup() (answer, backup.Entries) {
	d.t.Helper()
	a := d.do(request{method: http.MethodPost, path: "/v1/admin/backup"})
	a.want(d.t, 200)
	return a, backup.ReadTar(context.Background(), bytes.NewReader(a.body))
}

// TestRestoredLogRefusesOldCursorsOnEveryDoor: what was published after the backup is gone, its positions are given out
// again, and a reader that had them is told so instead of being handed other events.
func TestRestoredLogRefusesOldCursorsOnEveryDoor(t *testing.T) {
	d := openDoor(t)
	d.put("s", `{"cleanup_policy":"compact"}`).want(t, 201)
	d.structured("s", ev("1", "k", someData)).want(t, 200)
	a, entries := d.takeBackup()
	d.structured("s", ev("2", "k", someData)).want(t, 200)
	old := d.get("/v1/topics/s/events").header.Get("Signalbox-Cursor")
	d.stop()

	restored := filepath.Join(t.TempDir(), "restored")
	m, err := backup.WriteDir(backup.Target{FS: vfs.Default, Dir: restored}, entries, nil)
	if err != nil {
		t.Fatal(err)
	}
	eq(t, "the cursor of the manifest", m.Cursor, a.header.Get("Signalbox-Cursor"))
	eq(t, "the announced length", a.header.Get("Signalbox-Backup-Bytes"), strconv.FormatInt(m.Bytes, 10))
	e := openDoor(t, func(o *doorOptions) { o.dir, o.broker = restored, broker.Options{Restored: true} })
	e.structured("s", ev("other", "k", someData)).want(t, 200) // it takes position 2
	for name, ask := range map[string]func() answer{
		"poll":                     func() answer { return e.get("/v1/topics/s/events?cursor=" + old) },
		"poll by Last-Event-ID":    func() answer { return e.get("/v1/topics/s/events", "Last-Event-ID: "+old) },
		"long poll":                func() answer { return e.get("/v1/topics/s/events?wait=1&cursor=" + old) },
		"poll of several topics":   func() answer { return e.get("/v1/events?topics=s&cursor=" + old) },
		"cursor within the backup": func() answer { return e.get("/v1/topics/s/events?cursor=" + m.Cursor) },
	} {
		a := ask()
		if a.status != http.StatusGone || !strings.Contains(string(a.body), `"code":"cursor_foreign"`) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	stream := e.follow("/v1/topics/s/events", "Last-Event-ID: "+old)
	block := <-stream.messages
	for !block.hasData && block.lastID == "" && block.name == "message" { // the blocks before, with a comment and the retry
		block = <-stream.messages
	}
	if block.name != "signalbox.reset" || !strings.Contains(block.data, `"code":"cursor_foreign"`) || block.lastID != "" {
		t.Errorf("SSE: %+v", block)
	}
	for _, path := range []string{"/v1/topics/s/events?cursor=" + old, "/v1/events?topics=s&cursor=" + old, "/v1/topics/s/events?cursor=" + m.Cursor} {
		ours := e.dial(path, v1)
		if said := ours.want("reset"); said.Code != "cursor_foreign" || !strings.HasPrefix(said.Oldest, "@") || strings.HasSuffix(said.Oldest, old[strings.IndexByte(old, '.'):]) {
			t.Errorf("signalbox.v1 at %s: %+v", path, said)
		}
		stock := e.dial(path, "cloudevents.json")
		if said := stock.next(); said.Type != "signalbox.reset" || !strings.Contains(string(said.Data), `"code":"cursor_foreign"`) {
			t.Errorf("cloudevents.json at %s: %+v", path, said)
		}
		for name, p := range map[string]*peer{v1: ours, "cloudevents.json": stock} {
			if end := p.closed(); int(end.Code) != 4410 || end.Reason != "cursor_foreign" {
				t.Errorf("%s at %s ended with %d %q", name, path, end.Code, end.Reason)
			}
		}
	}
}

// TestPagesOfOtherSitesChangeNothing: they could not read the answers, but a subscription that
// sends everything to their site would need none, and a backup makes the broker busy.
func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	d := openDoor(t, func(o *doorOptions) { o.web.Origins = []string{"https://console.example"} })
	for _, rt := range web.Routes() {
		if rt.Method == http.MethodGet || rt.Method == http.MethodOptions {
			continue
		}
		path := strings.NewReplacer("{", "", "}", "", "...", "").Replace(rt.Path)
		for _, header := range []string{"Origin: https://example.com", "Origin: null", "Origin: http://" + d.addr + "0", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"} {
			d.do(request{method: rt.Method, path: path, unchecked: true, header: []string{header, "Content-Type: text/plain"}}).refused(t, 403, "origin_refused")
		}
	}
	for _, header := range []string{"Origin: http://" + d.addr, "Origin: https://console.example", "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none"} {
		d.do(request{method: http.MethodPost, path: "/v1/admin/compact", header: []string{header}}).want(t, 200)
	}
	d.get("/v1/topics/a/events", "Origin: https://example.com").want(t, 200) // which the page cannot read
	// To follow a subscription is to take the place of its client.
	d.get("/v1/subscriptions/s/events", "Accept: text/event-stream", "Origin: https://example.com").refused(t, 403, "origin_refused")
	// And to follow as somebody is to say on $presence that they are there.
	d.get("/v1/events?topics=%3E&agent=net", "Accept: text/event-stream", "Origin: https://example.com").refused(t, 403, "origin_refused")
	d.get("/v1/subscriptions/s/events", "Accept: text/event-stream", "Origin: http://"+d.addr).refused(t, 404, "subscription_unknown")
}

func TestCompactionSaysHowFarItIs(t *testing.T) {
	d := openDoor(t)
	d.fill("a", 20)
	a := d.do(request{method: http.MethodPost, path: "/v1/admin/compact"})
	a.want(t, 200)
	lines := strings.Split(strings.TrimSpace(string(a.body)), "\n")
	if len(lines) < 2 || !strings.HasPrefix(lines[0], `{"step":1,"steps":`) || !strings.HasPrefix(lines[len(lines)-1], `{"done":true,"before_bytes":`) {
		t.Errorf("the answer is %q", lines)
	}
	eq(t, "events", d.count("a"), 20)
}
