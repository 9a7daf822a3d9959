// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestRulesPassPromtool has Prometheus's own tool check the alerts, and run their
// unit tests.
func TestRulesPassPromtool(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", "../../deploy/prometheus/alerts_test.yaml"}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestBoardHasDataInARealRun scrapes a broker that is used with a real Prometheus
// and asks it everything that the board and the alerts ask.
func TestBoardHasDataInARealRun(t *testing.T) {
	use(t, 0)
	p := startPrometheus(t)
	deadline := time.Now().Add(3 * time.Minute)
	for round := 1; ; round++ {
		use(t, round) // rates need something that goes on
		time.Sleep(time.Second)
		silent := p.silent(t)
		if len(silent) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no data for:\n%s", strings.Join(silent, "\n"))
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	p.get(t, "/api/v1/rules", &rules)
	n := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			n++
			if r.Health != "ok" && r.Health != "unknown" || r.State == "firing" {
				t.Errorf("alert %s is %s and its health %s: %s", r.Name, r.State, r.Health, r.LastError)
			}
		}
	}
	if want := len(alertQueries(t)); n != want {
		t.Errorf("Prometheus has %d alerts of %d", n, want)
	}
}

// silent returns the board's queries without a number.
func (p *server) silent(t *testing.T) (out []string) {
	t.Helper()
	for _, q := range boardQueries(t, "10s") {
		if strings.HasPrefix(q.where, "annotation ") {
			continue // there is one at each start, and none otherwise
		}
		var answer struct {
			Result []struct{ Value [2]any }
		}
		p.get(t, "/api/v1/query?query="+url.QueryEscape(q.expr), &answer)
		numbers := 0
		for _, r := range answer.Result {
			if v, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64); err == nil && !math.IsNaN(v) {
				numbers++
			}
		}
		if numbers == 0 {
			out = append(out, q.where+": "+q.expr)
		}
	}
	return out
}

// use does of everything a little.
func use(t *testing.T, round int) {
	t.Helper()
	events := brokerURL(t) + "/v1/topics/interop.prometheus/events"
	for i := range 20 {
		stamp := fmt.Sprintf("%d.%05d", time.Now().UnixMilli(), i)
		body := fmt.Sprintf(`{"specversion":"1.0","id":"%d-%d","source":"/interop/prometheus","type":"t","hlc":"%s","data":1}`, round, i, stamp)
		do(t, http.MethodPost, events, body, http.StatusOK)
	}
	live := brokerURL(t) + "/v1/topics/interop.prometheus.live"
	do(t, http.MethodPut, live, `{"durability":"ephemeral"}`, []int{http.StatusCreated, http.StatusOK}[min(round, 1)])
	do(t, http.MethodPost, live+"/events", fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"/interop/prometheus","type":"t","subject":"k","data":1}`, round), http.StatusOK)
	do(t, http.MethodPost, events, `{"specversion":"1.0"}`, http.StatusBadRequest)
	do(t, http.MethodGet, events, "", http.StatusOK)
	do(t, http.MethodGet, brokerURL(t)+"/v1/topics/interop.prometheus/nothing", "", http.StatusNotFound)
}

func do(t *testing.T, method, url, body string, status int) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/cloudevents+json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if answer, err := io.ReadAll(res.Body); err != nil || res.StatusCode != status {
		t.Fatalf("%s %s: status %d, %v: %s", method, url, res.StatusCode, err, answer)
	}
}

// server is a Prometheus that scrapes the broker.
type server struct{ url string }

func startPrometheus(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"global":{"scrape_interval":"1s","evaluation_interval":"1s"},"rule_files":[%q],
"scrape_configs":[{"job_name":"signalbox","static_configs":[{"targets":[%q]}]}]}`, rules, strings.TrimPrefix(brokerURL(t), "http://"))
	file := filepath.Join(dir, "prometheus.yml") // YAML takes JSON
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+listen)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // its exit status is of no interest
		if t.Failed() {
			t.Logf("%s", out.Bytes())
		}
	})
	p := &server{"http://" + listen}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if res, err := http.Get(p.url + "/-/ready"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return p
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("Prometheus did not come up")
		}
	}
}

func (p *server) get(t *testing.T, path string, data any) {
	t.Helper()
	res, err := http.Get(p.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %s, %v", path, answer.Error, err)
	}
}
