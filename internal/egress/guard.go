// SPDX-License-Identifier: Apache-2.0

// Package egress keeps connections that others have asked for from reaching what
// is not theirs: the machine itself, its network, the metadata services of
// clouds. A URL is checked when it is given to the broker, as far as its text
// tells, and every address when it is dialled, after DNS, on every attempt. So
// neither a name that changes its address nor one that is spelt in a strange way
// gets past it.
//
// It guarantees that a connection is made only to an address that was checked,
// and by nobody's proxy. It imports event.
package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"signalbox/event"
)

// refused4 are the IPv4 addresses that are not of the public internet (IANA's
// registry of special-purpose addresses), and one host that clouds put in it.
var refused4 = prefixes(
	"0.0.0.0/8",        // this network
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // carriers; metadata of a cloud
	"127.0.0.0/8",      // this machine
	"168.63.129.16/32", // services of a cloud
	"169.254.0.0/16",   // link-local; metadata of clouds
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // 6to4 relays
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved, broadcast
)

// Of IPv6 only what is handed out for general use may be reached, without what in
// it leads elsewhere. So the forms that carry an IPv4 address (mapped ones are
// unmapped first), NAT64 and site-local addresses need no list.
var (
	global6  = netip.MustParsePrefix("2000::/3")
	refused6 = prefixes(
		"2001::/23",     // Teredo, ORCHID and other assignments
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4, which carries an IPv4 address
		"3ffe::/16",     // what was the 6bone
		"3fff::/20",     // documentation
	)
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, text := range list {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

// Public reports whether an address is one of the public internet.
func Public(a netip.Addr) bool {
	// Prefixes contain neither addresses with a zone nor mapped ones.
	a = a.WithZone("").Unmap()
	if a.Is4() {
		return !contain(refused4, a)
	}
	return global6.Contains(a) && !contain(refused6, a)
}

func contain(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// allowedMax bounds an operator's list, which is gone through on every dial.
const allowedMax = 256

// Allowed is what an operator allows beyond the public internet, and to be
// reached without TLS. The zero value allows nothing.
type Allowed struct {
	hosts  map[string]bool // names, in lower case
	ranges []netip.Prefix
}

// ParseAllowed reads host names, addresses and ranges in CIDR notation.
func ParseAllowed(list []string) (Allowed, error) {
	a := Allowed{hosts: map[string]bool{}}
	if len(list) > allowedMax {
		return a, fmt.Errorf("there are %d entries, more than %d", len(list), allowedMax)
	}
	for _, text := range list {
		text = strings.TrimSpace(text)
		if p, err := netip.ParsePrefix(text); err == nil {
			if p != p.Masked() {
				return a, fmt.Errorf("%q has bits behind its prefix: write %s", text, p.Masked())
			}
			a.ranges = append(a.ranges, p)
			continue
		}
		if ip, err := netip.ParseAddr(text); err == nil {
			a.ranges = append(a.ranges, netip.PrefixFrom(ip.WithZone("").Unmap(), ip.Unmap().BitLen()))
			continue
		}
		name := canonicalName(text)
		if !isName(name) {
			return a, fmt.Errorf("%q is neither a host name, an address nor a range such as 10.1.0.0/16", text)
		}
		a.hosts[name] = true
	}
	return a, nil
}

func (a *Allowed) address(ip netip.Addr) bool { return contain(a.ranges, ip.WithZone("").Unmap()) }

func (a *Allowed) name(host string) bool { return a.hosts[canonicalName(host)] }

// Refusal says that an address must not be reached. It is no use trying again.
type Refusal struct{ Address string }

func (r *Refusal) Error() string {
	return "the address " + r.Address + " is not one that the broker connects to"
}

// Guard dials for others.
type Guard struct {
	allowed  Allowed
	resolver *net.Resolver
	own      atomic.Pointer[[]netip.AddrPort]
}

// Options are what a Guard is made of.
type Options struct {
	Allowed  Allowed
	Resolver *net.Resolver // nil: the machine's
}

// NewGuard returns a guard.
func NewGuard(o Options) *Guard { return &Guard{allowed: o.Allowed, resolver: o.Resolver} }

// Own names the listeners of the broker itself, which nothing may reach, allowed
// or not: an event that comes back by them would never end.
func (g *Guard) Own(listeners ...net.Addr) {
	var own []netip.AddrPort
	for _, l := range listeners {
		if ap, err := netip.ParseAddrPort(l.String()); err == nil {
			own = append(own, ap)
		}
	}
	g.own.Store(&own)
}

// dialTimeout bounds one attempt to connect.
const dialTimeout = 10 * time.Second

// Dialer returns a function that connects to public addresses and to allowed
// ones; without TLS to allowed ones only. It fails with a [Refusal].
func (g *Guard) Dialer(secure bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		d := net.Dialer{Timeout: dialTimeout, Resolver: g.resolver,
			// It sees the address of each connection that is tried, so there is
			// nothing between what is checked and what is dialled.
			ControlContext: func(_ context.Context, _, concrete string, _ syscall.RawConn) error {
				return g.check(concrete, g.allowed.name(host), secure)
			}}
		return d.DialContext(ctx, network, address)
	}
}

// check refuses an address; named says that the operator allows the name that
// led there.
func (g *Guard) check(concrete string, named, secure bool) error {
	ap, err := netip.ParseAddrPort(concrete)
	if err != nil {
		return &Refusal{concrete}
	}
	ip := ap.Addr().WithZone("").Unmap()
	allowed := named || g.allowed.address(ip)
	if !allowed && (!secure || !Public(ip)) || g.isOwn(ip, ap.Port()) {
		return &Refusal{concrete}
	}
	return nil
}

// isOwn reports whether the broker itself listens there.
func (g *Guard) isOwn(ip netip.Addr, port uint16) bool {
	own := g.own.Load()
	if own == nil {
		return false
	}
	for _, o := range *own {
		at := o.Addr().Unmap()
		if o.Port() == port && (at.WithZone("") == ip || at.IsLoopback() && (ip.IsLoopback() || ip.IsUnspecified()) || at.IsUnspecified() && isLocal(ip)) {
			return true
		}
	}
	return false
}

// isLocal reports whether an address is one of this machine's.
func isLocal(ip netip.Addr) bool {
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return true // rather than call ourselves
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().WithZone("").Unmap() == ip
	})
}

// CheckSink refuses the URL of a sink as far as its text tells: it must be https,
// or lead to what the operator allows, and have a host that can only be read in
// one way. What a name leads to is seen when it is dialled.
func (g *Guard) CheckSink(sink string) error {
	target, err := ParseTarget(sink)
	if err != nil {
		return event.Errorf(event.CodeSinkRefused, "The sink %s.", err).With("sink")
	}
	host := target.Hostname()
	ip, err := netip.ParseAddr(host)
	literal := err == nil
	allowed := g.allowed.name(host) || literal && g.allowed.address(ip)
	switch {
	case allowed && literal && g.isOwn(ip.Unmap(), portOf(target)):
		return event.Errorf(event.CodeSinkRefused, "The sink is the broker itself.").With("sink")
	case allowed:
		return nil
	case literal && !Public(ip) || isLocalName(host):
		return event.Errorf(event.CodeSinkRefused, "The sink's host %s is not of the public internet, and the operator does not allow it.", host).With("sink")
	case target.Scheme != "https" && (literal || len(g.allowed.ranges) == 0):
		return event.Errorf(event.CodeSinkRefused, "The sink must be an https URL: what the operator does not allow is not reached without TLS.").With("sink")
	}
	return nil
}
