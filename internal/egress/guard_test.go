// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"signalbox/event"
	"signalbox/internal/egress"
)

// cases returns a section of the file of addresses and URLs.
func cases(t *testing.T, section string) (list []string) {
	t.Helper()
	b, err := os.ReadFile("testdata/ssrf-addresses.txt")
	if err != nil {
		t.Fatal(err)
	}
	in := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "# "):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			in = line[1 : len(line)-1]
		case in == section:
			text, err := strconv.Unquote(`"` + line + `"`)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			list = append(list, text)
		}
	}
	if len(list) == 0 {
		t.Fatalf("the file has no %s", section)
	}
	return list
}

func TestAddresses(t *testing.T) {
	for section, public := range map[string]bool{"refuse-address": false, "accept-address": true} {
		for _, text := range cases(t, section) {
			// A form that no parser knows cannot be dialled either.
			if a, err := netip.ParseAddr(text); err == nil && egress.Public(a) != public {
				t.Errorf("%s: %v", text, !public)
			}
		}
	}
}

// listener accepts nothing that the tests may reach, and counts who comes.
func listener(t *testing.T) (l net.Listener, came *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	came = &atomic.Int64{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			_ = c.Close()
		}
	}()
	return l, came
}

// names is a DNS server that answers every question for an IPv4 address, each
// time with the next of its addresses.
func names(t *testing.T, addresses ...string) (*net.Resolver, *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	asked := &atomic.Int64{}
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			end := 12
			for end < n && buf[end] != 0 {
				end += int(buf[end]) + 1
			}
			end += 5
			answer := append([]byte(nil), buf[:end]...)
			binary.BigEndian.PutUint16(answer[2:], 0x8180)
			binary.BigEndian.PutUint16(answer[6:], 0)
			binary.BigEndian.PutUint32(answer[8:], 0)
			if binary.BigEndian.Uint16(buf[end-4:]) == 1 { // A
				at := asked.Add(1) - 1
				binary.BigEndian.PutUint16(answer[6:], 1)
				answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				answer = append(answer, netip.MustParseAddr(addresses[min(int(at), len(addresses)-1)]).AsSlice()...)
			}
			_, _ = conn.WriteTo(answer, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}, asked
}

func isRefusal(err error) bool {
	refusal := (*egress.Refusal)(nil)
	return errors.As(err, &refusal)
}

// TestEveryURL: none of the URLs that are known to fool others reaches an address
// of this machine, by whatever way it is refused. Names lead to the metadata
// service of a cloud.
func TestEveryURL(t *testing.T) {
	resolver, _ := names(t, "169.254.169.254")
	g := egress.NewGuard(egress.Options{Resolver: resolver})
	for _, text := range cases(t, "refuse-url") {
		if g.CheckSink(text) != nil {
			continue
		}
		target, err := egress.ParseTarget(text)
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{DialContext: g.Dialer(target.Scheme == "https")}}
		_, err = client.Get(target.String())
		if !isRefusal(err) {
			t.Errorf("%q is accepted, and dialled with %v", text, err)
		}
	}
	for _, text := range []string{"https://u:p@host.example/", "https://host.example/#x", "https://host.example:0/", "https://127.1/", "https://ⓛocalhost/", "https://a..b/"} {
		if err := g.CheckSink(text); err == nil || event.AsError(err).Code != event.CodeSinkRefused {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"https://example.com/hook?a=b%20c", "https://example.com:8443/", "https://1.1.1.1/", "https://[2606:4700:4700::1111]/x", "https://xn--bcher-kva.example./"} {
		if err := g.CheckSink(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestRebinding: a name that was public when it was checked, and is this machine
// when it is dialled, is refused then, and nothing arrives.
func TestRebinding(t *testing.T) {
	l, came := listener(t)
	resolver, asked := names(t, "1.1.1.1", "127.0.0.1")
	g := egress.NewGuard(egress.Options{Resolver: resolver})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if found, err := resolver.LookupNetIP(t.Context(), "ip4", "rebind.example"); err != nil || !egress.Public(found[0]) {
		t.Fatalf("the first look-up says %v, %v", found, err)
	}
	if _, err := g.Dialer(true)(t.Context(), "tcp", net.JoinHostPort("rebind.example", port)); !isRefusal(err) {
		t.Errorf("dialled with %v", err)
	}
	if came.Load() != 0 || asked.Load() < 2 {
		t.Errorf("%d connections arrived, after %d look-ups", came.Load(), asked.Load())
	}
}

// TestAllowed: an operator's list opens what it names and no more, and never the
// broker's own listeners.
func TestAllowed(t *testing.T) {
	l, came := listener(t)
	own, hits := listener(t)
	resolver, _ := names(t, "127.0.0.1")
	dial := func(secure bool, host string, to net.Listener, allow ...string) error {
		a, err := egress.ParseAllowed(allow)
		if err != nil {
			t.Fatal(err)
		}
		g := egress.NewGuard(egress.Options{Allowed: a, Resolver: resolver})
		g.Own(own.Addr())
		_, port, _ := net.SplitHostPort(to.Addr().String())
		c, err := g.Dialer(secure)(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = c.Close()
		}
		u := url.URL{Scheme: map[bool]string{true: "https", false: "http"}[secure], Host: net.JoinHostPort(host, port), Path: "/"}
		if at := g.CheckSink(u.String()); at != nil && err == nil {
			t.Errorf("%s is dialled and refused as a sink: %v", u.String(), at)
		}
		return err
	}
	for _, c := range []struct {
		host  string
		allow []string
		to    net.Listener
		ok    bool
	}{
		{"127.0.0.1", nil, l, false},
		{"127.0.0.1", []string{"127.0.0.0/8"}, l, true},
		{"127.0.0.1", []string{"127.0.0.1"}, l, true},
		{"sink.internal", []string{"Sink.internal."}, l, true},
		{"sink.internal", []string{"127.0.0.0/8"}, l, true},
		{"other.internal", []string{"sink.internal", "10.0.0.0/8"}, l, false},
		{"127.0.0.1", []string{"127.0.0.0/8"}, own, false},
		{"sink.internal", []string{"sink.internal"}, own, false},
	} {
		for _, secure := range []bool{true, false} {
			if err := dial(secure, c.host, c.to, c.allow...); (err == nil) != c.ok || err != nil && !isRefusal(err) {
				t.Errorf("%s with %q, secure %v: %v", c.host, c.allow, secure, err)
			}
		}
	}
	if came.Load() == 0 || hits.Load() != 0 {
		t.Errorf("%d connections to what is allowed, %d to the broker's own", came.Load(), hits.Load())
	}
	for _, text := range []string{"10.0.0.1/8", "no such name", "", "http://a/", "-"} {
		if _, err := egress.ParseAllowed([]string{text}); err == nil {
			t.Errorf("%q is allowed", text)
		}
	}
}

// TestHostPort: limits for each host are not got round by another spelling.
func TestHostPort(t *testing.T) {
	for text, want := range map[string]string{
		"https://Sink.Example/a": "sink.example:443", "https://sink.example.:443/b": "sink.example:443", "http://sink.example": "sink.example:80",
		"https://sink.example:8443": "sink.example:8443", "https://[::ffff:192.0.2.1]/": "192.0.2.1:443", "https://[2001:DB8:0::1]/": "[2001:db8::1]:443",
	} {
		u, err := egress.ParseTarget(text)
		if err != nil {
			t.Fatal(text, err)
		}
		if got := egress.HostPort(u); got != want {
			t.Errorf("%s leads to %s, not %s", text, got, want)
		}
	}
}

// TestPlainNeedsLeave: without TLS nothing is reached but what the operator
// allows, however public it is.
func TestPlainNeedsLeave(t *testing.T) {
	g := egress.NewGuard(egress.Options{})
	if _, err := g.Dialer(false)(t.Context(), "tcp", "1.1.1.1:80"); !isRefusal(err) {
		t.Errorf("dialled with %v", err)
	}
	if err := g.CheckSink("http://example.com/"); err == nil {
		t.Error("http is accepted")
	}
}

// FuzzCheckSink: no text panics, and what is accepted is read in one way.
func FuzzCheckSink(f *testing.F) {
	for _, text := range []string{"https://example.com/", "http://127.0.0.1:80@x/", "https://[::1%25lo]/", "https://0x7f.1/", "//a"} {
		f.Add(text)
	}
	g := egress.NewGuard(egress.Options{})
	f.Fuzz(func(t *testing.T, text string) {
		if g.CheckSink(text) != nil {
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.User != nil || u.Hostname() == "" {
			t.Fatalf("%q is accepted, and read as %v, %v", text, u, err)
		}
		if a, err := netip.ParseAddr(u.Hostname()); err == nil && !egress.Public(a) {
			t.Fatalf("%q leads to %s", text, a)
		}
	})
}
