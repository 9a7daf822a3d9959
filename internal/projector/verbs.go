// SPDX-License-Identifier: Apache-2.0

package projector

import (
	"signalbox/event"
	"signalbox/ticket"
)

// activate puts a catalogue of verbs in force. A message that was checked against
// another one is to be sent again.
func (p *Projector) activate(text string) *event.Error {
	verbs, err := ticket.ParseCatalogue([]byte(text))
	if err != nil {
		return event.AsError(err)
	}
	next := *p.registry
	next.Verbs = verbs
	p.registry = &next
	p.batch.SetVerbs(text)
	return nil
}

// loadVerbs reads the catalogue in force; one that nobody has activated has no
// verbs.
func (p *Projector) loadVerbs() error {
	text, err := p.store.LoadVerbs()
	if err != nil || text == "" {
		p.registry.Verbs = &ticket.Catalogue{}
		return err
	}
	p.registry.Verbs, err = ticket.ParseCatalogue([]byte(text))
	return err
}
