// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/porttest"
)

var (
	size    = flag.Float64("scale", 0, "how much to try: 1 is the full size, 0 nothing")
	dataDir = flag.String("scale.data", "", "where the broker keeps its data; a temporary directory if empty")
)

// How a process is ended.
const (
	stopped = syscall.SIGTERM
	killed  = syscall.SIGKILL
)

// readyTarget is within what a broker must be ready, however much it holds.
const readyTarget = 2 * time.Second

// times returns a count of the full size, made as small as the test was asked to be.
func times(t *testing.T, full int) int {
	t.Helper()
	if *size <= 0 {
		t.Skip("it takes minutes and gigabytes: make scale")
	}
	return max(1, int(float64(full)**size))
}

// process is a broker in a process of its own.
type process struct {
	t    *testing.T
	bin  string
	data string
	addr string
	cmd  *exec.Cmd
	http *http.Client
}

// start builds the program and starts it on a directory of its own.
func start(t *testing.T) *process {
	t.Helper()
	dir := *dataDir
	if dir == "" {
		dir = t.TempDir()
	}
	p := &process{t: t, bin: filepath.Join(t.TempDir(), "signalbox"), data: filepath.Join(dir, t.Name()), http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	if out, err := exec.Command("go", "build", "-o", p.bin, "signalbox/cmd/signalbox").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	listen, release, err := porttest.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	p.addr = listen
	p.run()
	t.Cleanup(func() { p.end(killed) })
	return p
}

// run starts the process and returns how long it took until it was ready.
func (p *process) run() (ready time.Duration) {
	p.t.Helper()
	p.cmd = exec.Command(p.bin, "serve", "--data", p.data, "--listen", p.addr, "--webhook-allow", "127.0.0.0/8")
	var said bytes.Buffer
	p.cmd.Stderr = &said
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	for end := began.Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		res, err := p.http.Get("http://" + p.addr + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return time.Since(began)
			}
		}
		if time.Now().After(end) {
			p.t.Fatalf("it does not become ready: %v\n%s", err, said.String())
		}
	}
}

// end ends the process with a signal and waits for it.
func (p *process) end(signal syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(signal)
	_ = p.cmd.Wait() // what it says of its end is no concern here
	p.cmd = nil
	p.http.CloseIdleConnections()
}

// rss is the resident memory of the process, in bytes.
func (p *process) rss() int {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Skipf("the memory of another process cannot be read here: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				p.t.Fatal(err)
			}
			return kib << 10
		}
	}
	p.t.Fatal("there is no VmRSS")
	return 0
}

// settled is the memory once it has not fallen for a while: collections and the
// writing out of memtables have come to an end.
func (p *process) settled() int {
	p.t.Helper()
	least := p.rss()
	for still := 0; still < 10; still++ {
		time.Sleep(200 * time.Millisecond)
		if now := p.rss(); now < least-least/100 {
			least, still = now, 0
		}
	}
	return least
}

// do makes a request and returns the body of its answer, which must be as expected.
func (p *process) do(method, path, body string, status int, header ...string) string {
	p.t.Helper()
	text, err := p.try(method, path, body, status, header...)
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

func (p *process) try(method, path, body string, status int, header ...string) (string, error) {
	req, err := http.NewRequest(method, "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := p.http.Do(req)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(res.Body)
	if err := errorsFirst(err, res.Body.Close()); err != nil {
		return "", err
	}
	if res.StatusCode != status {
		return "", fmt.Errorf("%s %s: %s: %.300s", method, path, res.Status, text)
	}
	return string(text), nil
}

func errorsFirst(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls do for 0 to n-1, from several goroutines, and fails the test with
// the first error.
func (p *process) each(n int, do func(i int) error) {
	p.t.Helper()
	const workers = 32
	var group sync.WaitGroup
	failed := make(chan error, workers)
	for w := range min(workers, n) {
		group.Go(func() {
			for i := w; i < n; i += workers {
				if err := do(i); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		p.t.Fatal(err)
	default:
	}
}

const batchEvents = 1000

// publish publishes n events with ids of their own to topics, in batches.
func (p *process) publish(topic func(i int) string, prefix string, n int) {
	p.t.Helper()
	p.each((n+batchEvents-1)/batchEvents, func(batch int) error {
		return p.publishBatch(topic(batch), prefix, batch*batchEvents, min(n, (batch+1)*batchEvents))
	})
}

func (p *process) publishBatch(topic, prefix string, from, to int) error {
	var b bytes.Buffer
	separator := "["
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `%s{"specversion":"1.0","id":"%s-%d","source":"/scale","type":"made","subject":"k%d","data":{"n":%d,"text":"what an agent has to say"}}`, separator, prefix, i, i%10_000, i)
		separator = ","
	}
	b.WriteByte(']')
	_, err := p.try("POST", "/v1/topics/"+topic+"/events", b.String(), http.StatusOK, "Content-Type", "application/cloudevents-batch+json")
	return err
}

// stream is a connection that follows by SSE.
type stream struct {
	conn net.Conn
	r    *bufio.Reader
	last string // the last id
}

// follow connects a stream. With little, its socket takes hardly anything in.
func (p *process) follow(path string, little bool) (*stream, error) {
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		return nil, err
	}
	if little {
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			return nil, err
		}
	}
	if _, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", path, p.addr); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", path, res.Status)
	}
	return &stream{conn: conn, r: bufio.NewReaderSize(res.Body, 512)}, nil
}

// until reads lines until one has the prefix, and notes ids.
func (s *stream) until(prefix string) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("waiting for %q: %w", prefix, err)
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			s.last = strings.TrimSpace(id)
		}
		if strings.HasPrefix(line, prefix) {
			return nil
		}
	}
}

// metric is the value of a metric without labels.
func (p *process) metric(name string) float64 {
	p.t.Helper()
	for line := range strings.Lines(p.do("GET", "/metrics", "", http.StatusOK)) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return v
		}
	}
	p.t.Fatalf("there is no metric %s", name)
	return 0
}

func mibs(list []int) string {
	texts := make([]string, len(list))
	for i, bytes := range list {
		texts[i] = mib(bytes)
	}
	return strings.Join(texts, ", ")
}

func mib(bytes int) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }
