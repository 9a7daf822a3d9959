// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"signalbox/internal/validjson"
)

// verdict is what a form says of a value. A smaller one outweighs a larger one
// where all have to agree.
type verdict uint8

const (
	breaks verdict = iota // it certainly breaks the schema
	unsure                // the library has to say
	keeps                 // it certainly keeps to the schema
)

// payloadSureBytes is how large a payload a form judges. Of smaller ones
// none has more than valuesMax values.
const payloadSureBytes = valuesMax

// form is a schema of api/ticket/schema.json, compiled to judge the text of a
// payload as it stands. It takes what ordinary messages have, and of everything
// else (escapes in names, fractions, whatever does not keep to it) it is unsure:
// then the library looks, and says what is wrong. So a form never refuses, and a
// test holds that whatever it takes, the library takes.
type form struct {
	kinds   kinds    // 0: of any kind
	allowed [][]byte // scalars as they are written; nil: any
	all     []*form  // of $ref and allOf
	any     []*form
	when    *form // if
	then    *form

	text   *textForm
	number *numberForm
	array  *arrayForm
	object *objectForm
}

type textForm struct {
	pattern  *regexp.Regexp
	dateTime bool
	least    int // characters
	most     int // -1: no limit
}

type numberForm struct {
	integer     bool
	least, most int64
}

type arrayForm struct {
	least  int
	most   int // -1: no limit
	unique bool
	items  *form // nil: any
}

type objectForm struct {
	most      int // -1: no limit
	members   map[string]member
	required  uint64
	dependent []dependence
}

// member is one that the form of an object has a word for.
type member struct {
	bit  uint64 // its own, among those that are required
	form *form  // nil: any
}

// dependence says that with one member others are required.
type dependence struct{ of, required uint64 }

// kinds is a set of kinds of values.
type kinds uint8

const (
	isObject kinds = 1 << iota
	isArray
	isString
	isNumber
	isBoolean
	isNull
)

func kindsOf(k validjson.Kind) kinds {
	switch k {
	case validjson.Object:
		return isObject
	case validjson.Array:
		return isArray
	case validjson.String:
		return isString
	case validjson.True, validjson.False:
		return isBoolean
	case validjson.Null:
		return isNull
	}
	return isNumber
}

// judge reads a value. With another verdict than keeps it may stop in the middle.
func (f *form) judge(r *validjson.Reader) verdict {
	if f == nil {
		if r.Skip(sure) {
			return keeps
		}
		return unsure
	}
	kind := r.Kind()
	if f.kinds != 0 && f.kinds&kindsOf(kind) == 0 {
		return breaks
	}
	for _, also := range f.all {
		if v := also.again(r); v != keeps {
			return v
		}
	}
	if v := f.choose(r); v != keeps {
		return v
	}
	switch kind {
	case validjson.Object:
		if f.allowed != nil {
			return breaks
		}
		return f.object.judge(r)
	case validjson.Array:
		if f.allowed != nil {
			return breaks
		}
		return f.array.judge(r)
	}
	scalar := r.Scalar()
	if v := f.allows(kind, scalar); v != keeps {
		return v
	}
	switch kind {
	case validjson.String:
		return f.text.judge(scalar)
	case validjson.Number:
		return f.number.judge(scalar)
	}
	return keeps
}

// again judges the value that comes next without reading it.
func (f *form) again(r *validjson.Reader) verdict {
	copied := *r
	return f.judge(&copied)
}

// choose judges alternatives and conditions.
func (f *form) choose(r *validjson.Reader) verdict {
	if f.any != nil {
		best := breaks
		for _, one := range f.any {
			best = max(best, one.again(r))
		}
		if best != keeps {
			return best
		}
	}
	if f.when == nil {
		return keeps
	}
	switch f.when.again(r) {
	case keeps:
		return f.then.again(r)
	case unsure:
		return unsure
	}
	return keeps
}

func (f *form) allows(kind validjson.Kind, scalar []byte) verdict {
	switch {
	case f.allowed == nil:
		return keeps
	case kind == validjson.Number || bytes.IndexByte(scalar, '\\') >= 0:
		return unsure
	case slices.ContainsFunc(f.allowed, func(a []byte) bool { return bytes.Equal(a, scalar) }):
		return keeps
	}
	return breaks
}

// sure takes the scalars that every check takes. Numbers with exponents are not
// always looked at, see parser.number.
func sure(kind validjson.Kind, scalar []byte) bool {
	return kind != validjson.Number || len(scalar) <= numberBytesMax && bytes.IndexByte(scalar, 'e') < 0 && bytes.IndexByte(scalar, 'E') < 0
}

func (t *textForm) judge(raw []byte) verdict {
	if t == nil {
		return keeps
	}
	text := validjson.Text(raw)
	if t.least > 0 || t.most >= 0 {
		if n := utf8.RuneCount(text); n < t.least || t.most >= 0 && n > t.most {
			return breaks
		}
	}
	if t.dateTime && !plainTime(text) {
		return unsure
	}
	if t.pattern != nil && !t.pattern.Match(text) {
		return breaks
	}
	return keeps
}

// plainTime reports whether a text is a time of the calendar in UTC, of the form
// 2026-01-31T12:00:00.5Z, in a second that every minute has.
func plainTime(text []byte) bool {
	const form = "0000-00-00T00:00:00"
	if len(text) <= len(form) || text[len(text)-1] != 'Z' {
		return false
	}
	for i := range len(form) {
		if digit := '0' <= text[i] && text[i] <= '9'; form[i] == '0' != digit || !digit && form[i] != text[i] {
			return false
		}
	}
	if fraction := text[len(form) : len(text)-1]; len(fraction) > 0 {
		if fraction[0] != '.' || len(fraction) == 1 || len(bytes.Trim(fraction[1:], "0123456789")) > 0 {
			return false
		}
	}
	two := func(at int) int { return int(text[at]-'0')*10 + int(text[at+1]-'0') }
	year, month, day := two(0)*100+two(2), two(5), two(8)
	return month >= 1 && month <= 12 && day >= 1 && day <= daysOf(year, month) && two(11) < 24 && two(14) < 60 && two(17) < 60
}

func daysOf(year, month int) int {
	switch {
	case month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0):
		return 29
	case month == 2:
		return 28
	case month == 4 || month == 6 || month == 9 || month == 11:
		return 30
	}
	return 31
}

// digitsSure is how many digits a whole number may have that is compared.
const digitsSure = 16

func (n *numberForm) judge(raw []byte) verdict {
	if !sure(validjson.Number, raw) {
		return unsure
	}
	if n == nil {
		return keeps
	}
	whole, err := strconv.ParseInt(string(raw), 10, 64)
	switch {
	case err == nil && len(raw) <= digitsSure:
		if whole < n.least || whole > n.most {
			return breaks
		}
		return keeps
	case n.integer:
		return unsure // 1.0 is an integer
	}
	// The limits are whole. A double next to one of them may stand for a number on
	// its other side.
	if f, err := strconv.ParseFloat(string(raw), 64); err != nil || f <= float64(n.least) || f >= float64(n.most) {
		return unsure
	}
	return keeps
}

func (a *arrayForm) judge(r *validjson.Reader) verdict {
	var items *form
	if a != nil {
		items = a.items
	}
	var seen [][]byte
	count := 0
	r.Enter()
	for !r.Leave() {
		count++
		if a != nil && a.unique {
			kind := r.Kind()
			copied := *r
			item := copied.Scalar()
			if kind != validjson.String || bytes.IndexByte(item, '\\') >= 0 {
				return unsure
			}
			seen = append(seen, item)
		}
		if v := items.judge(r); v != keeps {
			return v
		}
	}
	if a == nil {
		return keeps
	}
	if count < a.least || a.most >= 0 && count > a.most {
		return breaks
	}
	slices.SortFunc(seen, bytes.Compare)
	if len(slices.CompactFunc(seen, bytes.Equal)) < count && a.unique {
		return breaks
	}
	return keeps
}

func (o *objectForm) judge(r *validjson.Reader) verdict {
	var has uint64
	count := 0
	r.Enter()
	for !r.Leave() {
		name := r.Scalar()
		count++
		if bytes.IndexByte(name, '\\') >= 0 {
			return unsure
		}
		var m member
		if o != nil {
			m = o.members[string(validjson.Text(name))]
		}
		has |= m.bit
		if v := m.form.judge(r); v != keeps {
			return v
		}
	}
	switch {
	case o == nil:
		return keeps
	case has&o.required != o.required || o.most >= 0 && count > o.most:
		return breaks
	}
	for _, d := range o.dependent {
		if has&d.of != 0 && has&d.required != d.required {
			return breaks
		}
	}
	return keeps
}
