// SPDX-License-Identifier: Apache-2.0

package cesql

// Machine evaluates expressions. It holds the memory that evaluations need,
// which grows to what the largest has needed, up to a limit, and is used again.
// It belongs to one goroutine. The zero Machine is ready.
type Machine struct {
	event   *Event
	errors  Errors
	touched bool
	work    int       // that the evaluation has done, and those that it belongs to
	before  int       // what the next evaluation begins with
	other   Value     // what the values of a path with [*] are compared with
	text    []byte    // made by casts, functions and escapes in data
	stack   []Value   // arguments of functions
	located []located // by the path's number
}

// located is what a path leads to in the data.
type located struct {
	known bool
	value Value
}

// keptBytes is how much memory for text a machine keeps between evaluations.
const keptBytes = 1 << 20

// Eval evaluates an expression. The first error ends it: then the value is the
// zero value of the expression's type, unless it is the outermost operator or
// function in which the error arose and the standard says what it yields. The
// value is valid until the machine is used again.
func (m *Machine) Eval(x *Expression, e *Event) (Value, Errors) {
	m.begin(x, e)
	v := x.eval(m)
	if v.kind == Absent { // of unknown type, which is to be taken for Boolean (3.2)
		v = BooleanValue(false)
	}
	return v, m.errors
}

// Match evaluates an expression as a filter: an event passes if the value is
// true, a Boolean, and there is no error (1.2).
func (m *Machine) Match(x *Expression, e *Event) bool {
	m.begin(x, e)
	return x.match(m) && m.errors == 0
}

// Errors returns the errors of the last evaluation.
func (m *Machine) Errors() Errors { return m.errors }

// TouchedData reports whether the last evaluation looked for something in data.
func (m *Machine) TouchedData() bool { return m.touched }

func (m *Machine) begin(x *Expression, e *Event) {
	m.event, m.errors, m.touched = e, 0, false
	m.work, m.before = m.before, 0
	if cap(m.text) > keptBytes {
		m.text = nil
	}
	m.text = m.text[:0]
	m.stack = m.stack[:0]
	if n := len(x.paths); n > 0 {
		if cap(m.located) < n {
			m.located = make([]located, n)
		}
		m.located = m.located[:n]
		clear(m.located)
	}
}

// attribute loads an attribute that an operator needs (3.2).
func (m *Machine) attribute(a *Attribute) Value {
	v := m.event.find(a)
	if v.kind == Absent {
		m.errors |= MissingAttributeError
	}
	return *v
}

// at loads what a path without [*] leads to.
func (m *Machine) at(pt *path) Value {
	v := m.peek(pt)
	if v.kind == Absent && m.errors == 0 {
		m.errors |= MissingAttributeError
	}
	return v
}

// peek is at for EXISTS, to which it is no error that there is nothing.
func (m *Machine) peek(pt *path) Value {
	m.touched = true
	if m.event.form != JSONData {
		return Value{}
	}
	found := &m.located[pt.number]
	if !found.known {
		found.known, found.value = true, m.read(m.follow(m.root(), pt.steps))
		if m.spent() {
			found.value = Value{}
		}
	}
	return found.value
}

// root is the position of the whole data.
func (m *Machine) root() int {
	at := skipSpace(m.event.data, 0)
	if at == len(m.event.data) {
		return malformed
	}
	return at
}

// follow takes steps from a position on.
func (m *Machine) follow(at int, steps []step) int {
	for i := range steps {
		if at == malformed || at == len(m.event.data) {
			break
		}
		found, work := locate(m.event.data, at, &steps[i])
		m.spend(work)
		at = found
	}
	return at
}

// read returns the value at a position. Null means the same as nothing, as it
// does for attributes (JSON format 2.2).
func (m *Machine) read(at int) Value {
	b := m.event.data
	if at == len(b) {
		return Value{}
	}
	end := malformed
	if at != malformed {
		end = skipValue(b, at)
	}
	if end == malformed {
		m.errors |= GenericError
		return Value{}
	}
	m.spend(end - at)
	switch raw := b[at:end]; raw[0] {
	case '"':
		return TextValue(m.unescape(raw[1 : len(raw)-1]))
	case '{', '[':
		return Value{kind: Composite}
	default:
		return m.scalar(raw)
	}
}

func (m *Machine) scalar(raw []byte) Value {
	switch string(raw) {
	case "true":
		return BooleanValue(true)
	case "false":
		return BooleanValue(false)
	case "null":
		return Value{}
	}
	if end, ok := scanNumber(raw, 0); ok && end == len(raw) && end <= MaxNumber {
		return numberValue(raw)
	}
	m.errors |= GenericError
	return Value{}
}

// unescape returns the characters of a string in data. Without escapes they are
// those of the data.
func (m *Machine) unescape(raw []byte) []byte {
	plain := 0
	for plain < len(raw) && raw[plain] != '\\' {
		plain++
	}
	if plain == len(raw) {
		return raw
	}
	m.spend(workText * len(raw))
	start := len(m.text)
	m.text = append(m.text, raw[:plain]...)
	for i := plain; i < len(raw); {
		m.text, i = character(raw, i, m.text)
	}
	return m.text[start:]
}

// test is what is asked of each value of a path with [*]. What it is compared
// with is in Machine.other.
type test func(m *Machine, v Value) bool

// anyOf reports whether the test holds for a value of a path with [*], and
// whether at least the first array is there. Elements in which the path leads
// nowhere are passed over. An error of a test counts only if no other value
// passes it.
func (m *Machine) anyOf(pt *path, t test) (hit, there bool) {
	m.touched = true
	if m.event.form != JSONData {
		return false, false
	}
	hit, there = m.visit(m.root(), pt.steps, t)
	if hit {
		m.errors = 0
	}
	return hit, there
}

// visit walks over the values of a path from a position on until the test holds
// for one. It calls itself once for each [*] in the path.
func (m *Machine) visit(at int, steps []step, t test) (hit, reached bool) {
	n := 0
	for n < len(steps) && (steps[n].name != nil || steps[n].index != anyElement) {
		n++
	}
	at = m.follow(at, steps[:n])
	b := m.event.data
	if m.spent() {
		return false, true
	}
	if n == len(steps) {
		room, before := len(m.text), m.errors
		m.errors = 0
		m.spend(workTest)
		v := m.read(at)
		hit = v.kind != Absent && t(m, v) && m.errors == 0
		m.errors |= before
		m.text = m.text[:room]
		return hit, true
	}
	if at == malformed {
		m.errors |= GenericError
		return false, false
	}
	if at == len(b) || b[at] != '[' {
		return false, false
	}
	c := descend(b, at)
	for c.more {
		if hit, _ = m.visit(c.at, steps[n+1:], t); hit || m.spent() {
			return hit, true
		}
		before := c.at
		c.skip()
		m.spend(workElement + max(c.at-before, 0))
	}
	if c.bad {
		m.errors |= GenericError
	}
	return false, true
}
