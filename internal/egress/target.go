// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// targetBytesMax bounds a URL; servers do not read longer ones.
const targetBytesMax = 2048

// ParseTarget reads the URL of a sink strictly. Parsers of URLs differ in what
// they take for the host, and names differ from addresses by what some resolvers
// make of them; whatever can be read in two ways is refused.
func ParseTarget(text string) (*url.URL, error) {
	if text == "" || len(text) > targetBytesMax {
		return nil, errors.New("must be a URL of at most 2048 bytes")
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || c == '\\' {
			return nil, errors.New("has a character that URLs have not: percent-encode it, and write names of other scripts as xn--")
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("cannot be parsed as a URL")
	}
	host := u.Hostname()
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("must begin with https://")
	case u.Opaque != "" || host == "":
		return nil, errors.New("has no host")
	case u.User != nil:
		return nil, errors.New("has a user in it: use sinkcredential")
	case strings.Contains(text, "#"):
		return nil, errors.New("has a fragment, which is never sent")
	case strings.Contains(u.Host, "%"):
		return nil, errors.New("has a percent sign in its host")
	case !validPort(u):
		return nil, errors.New("has a port that is not a number from 1 to 65535")
	}
	if strings.HasPrefix(u.Host, "[") {
		if ip, err := netip.ParseAddr(host); err != nil || !ip.Is6() {
			return nil, errors.New("has brackets around what is no IPv6 address")
		}
		return u, nil
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return u, nil
	}
	name := canonicalName(host)
	if !isName(name) || endsInNumber(name) {
		return nil, errors.New("has a host that is neither a name nor an address in its usual form")
	}
	return u, nil
}

func validPort(u *url.URL) bool {
	port := u.Port()
	if port == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == port
}

func portOf(u *url.URL) uint16 {
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		return uint16(n)
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}

// HostPort names where a URL leads to in one way, however its host is spelt and
// whether its port is written or not.
func HostPort(u *url.URL) string {
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return net.JoinHostPort(canonicalName(host), strconv.Itoa(int(portOf(u))))
}

// canonicalName is a name as it is compared: in lower case, without the dot that
// stands for the root.
func canonicalName(host string) string {
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isName reports whether a text is a host name (RFC 1123 2.1, and underscores,
// which are in use).
func isName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}

// endsInNumber reports whether a name may be taken for an IPv4 address in one of
// its old forms, such as 127.1 or 0x7f000001 (WHATWG URL, ends-in-a-number).
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if strings.Trim(last, "0123456789") == "" {
		return true
	}
	return strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == ""
}

// isLocalName reports whether a name means this machine wherever it is resolved
// (RFC 6761 6.3, and what systems have in their hosts files).
func isLocalName(host string) bool {
	name := canonicalName(host)
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || name == "ip6-localhost" || name == "ip6-loopback"
}
