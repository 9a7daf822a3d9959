// SPDX-License-Identifier: Apache-2.0

package broker

// partMax is how many rows of an ordered list are read at a time where several are
// read as one. So a page of many lists costs what is on it and a part of each list,
// however long they are.
const partMax = 16

// part reads the next rows of an ordered list: no more than partMax, from those
// behind the last one that it has read on. None: there are no more.
type part[T any] func() ([]T, error)

// merged reads ordered lists as one, and calls each with their rows in order until it
// returns false. Of equal rows the one of the first list comes first.
func merged[T any](compare func(a, b T) int, parts []part[T], each func(T) (more bool, err error)) error {
	heads := make([][]T, len(parts))
	fill := func(i int) (err error) {
		heads[i], err = parts[i]()
		return err
	}
	for i := range parts {
		if err := fill(i); err != nil {
			return err
		}
	}
	for {
		first := -1
		for i := range heads {
			if len(heads[i]) > 0 && (first < 0 || compare(heads[i][0], heads[first][0]) < 0) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		row := heads[first][0]
		if heads[first] = heads[first][1:]; len(heads[first]) == 0 {
			if err := fill(first); err != nil {
				return err
			}
		}
		if more, err := each(row); err != nil || !more {
			return err
		}
	}
}

// partOf makes a part of a scan that goes on behind a row.
func partOf[T any](scan func(after *T, each func(T) (more bool)) error) part[T] {
	var last *T
	return func() ([]T, error) {
		rows := make([]T, 0, partMax)
		err := scan(last, func(row T) bool {
			rows = append(rows, row)
			return len(rows) < partMax
		})
		if n := len(rows); n > 0 {
			row := rows[n-1]
			last = &row
		}
		return rows, err
	}
}
