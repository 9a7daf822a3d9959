// SPDX-License-Identifier: Apache-2.0

package projector

import "signalbox/internal/store"

// PortionRowsMax and PortionBytesMax bound what a raised level writes ahead at a time.
const (
	PortionRowsMax  = raiseRowsMax
	PortionBytesMax = raiseBytesMax
)

// BeforeWriteAhead has a function be called with the size of each portion that a raised
// level writes ahead. If it fails, the portion is not written.
func (p *Projector) BeforeWriteAhead(f func(rows, bytes int) error) {
	write := p.writeAhead
	p.writeAhead = func(b *store.Batch) error {
		if err := f(b.Size()); err != nil {
			return err
		}
		return write(b)
	}
}
