// SPDX-License-Identifier: Apache-2.0

package cesql

// The work of an evaluation is counted in bytes that are looked at, about a
// nanosecond each, and one that has done more than it may ends with a GenericError
// (3.3). So an evaluation takes a time that the size of the data bounds, whatever
// the expression: without it, a number of 15 KiB that each element of an array is
// compared with took 80 µs for each byte of the array. What is counted is the same on
// every machine and at any load, so that an event passes always or never.
const (
	// workBase is what any evaluation may do. What an expression can do with
	// attributes is hardly ever more.
	workBase = 8 << 20

	// workPerByte is how much more for each byte of JSON data. To ask something of
	// each of the smallest elements there are takes 41 for each byte, of usual ones 8.
	workPerByte = 64

	// workElement is what it takes to step to a member or an element, beside what its
	// bytes take, and workTest what it takes to ask something of one.
	workElement = 32
	workTest    = 48

	// workText is for a byte of a text that is looked at as a character, to find what
	// a pattern has a _ in, say, or to change it.
	workText = 4

	// workDigit is for a byte of a number that is compared.
	workDigit = 6

	// workCompare is how many bytes of two texts are compared for one.
	workCompare = 4
)

// Continue has the next evaluation, of the same event, belong together with the last
// one: both of them may do the work of one.
func (m *Machine) Continue() { m.before = m.work }

// spend counts work that is to be done, or has been. What is begun is finished: nothing
// by itself is more than to look at the whole data once or twice.
func (m *Machine) spend(work int) {
	if m.work += work; m.spent() {
		m.errors |= GenericError
	}
}

// spent reports whether the evaluation has done more than it may.
func (m *Machine) spent() bool { return m.work > workBase && m.work > m.most() }

func (m *Machine) most() int {
	if m.event.form != JSONData {
		return workBase
	}
	return workBase + workPerByte*len(m.event.data)
}

// spendComparison counts the comparison of two values, and what it takes to find
// which number a text is.
func (m *Machine) spendComparison(x, y Value) {
	if x.kind == Number || y.kind == Number {
		m.spend(workDigit * (x.numberBytes() + y.numberBytes()))
		return
	}
	m.spend(min(len(x.text), len(y.text)) / workCompare)
}

func (v Value) numberBytes() int {
	if v.kind == String { // a longer one is no number
		return min(len(v.text), MaxNumber)
	}
	return len(v.text)
}
