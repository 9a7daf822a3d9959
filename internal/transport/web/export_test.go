// SPDX-License-Identifier: Apache-2.0

package web

// The seam between this package and its tests, which use only what is exported.

// Route is one method of one path, with the query parameters it takes.
type Route struct {
	Method, Path string
	Params       []string
}

// Routes returns the whole surface.
func Routes() []Route {
	var out []Route
	for _, rt := range table() {
		out = append(out, Route{Method: rt.method, Path: rt.path, Params: rt.params})
	}
	return out
}

// HeldBytes is what requests hold of the budget for bodies and answers.
func (s *Server) HeldBytes() int64 { return s.held.used.Load() }

// HoldBytes takes n bytes of that budget, as requests under way would.
func (s *Server) HoldBytes(n int) error { return s.held.take(n) }

// OpenStreams counts what reads from the broker.
func (s *Server) OpenStreams() int {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	return s.streams.open
}

// Limits that tests go up to.
const (
	HeldBytesMax   = heldBytesMax
	SingleBytesMax = singleBytesMax
	BatchBytesMax  = batchBytesMax
	StatesMax      = statesMax
)

// LoopbackHost is the check of the Host header.
func LoopbackHost(host string) bool { return loopbackHost(host) }
