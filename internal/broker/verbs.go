// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"signalbox/api"
	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/ticket"
)

// verbs is the catalogue of verbs that is to be in force.
func (o *Options) verbs() (text []byte, c *ticket.Catalogue, err error) {
	if text = o.Verbs; text == nil {
		text = api.Verbs
	}
	c, err = ticket.WholeCatalogue(text)
	return text, c, err
}

// activate proposes the catalogue of verbs that is to be in force, if another one is.
// A plan says by version which catalogue it was made with, so an operator's that was
// changed and has its version still is refused.
func (b *Broker) activate() error {
	text, verbs, err := b.options.verbs()
	if err != nil || b.options.KeepSettings || b.projector.Registry().Space == "" {
		return err
	}
	if verbs.Version == b.projector.Registry().Verbs.Version {
		active, err := b.store.LoadVerbs()
		if err == nil && b.options.Verbs != nil && active != string(text) {
			err = event.Errorf(event.CodePolicyInvalid, "The catalogue of verbs has the version %s, and so has the one in force, which says something else; give what was changed a version of its own.", verbs.Version).With("version")
		}
		return err
	}
	return b.begin([]*eventlog.Proposal{{Kind: eventlog.KindControl, AdmittedMillis: b.clock.Millis(), Control: eventlog.Control{Op: eventlog.OpVerbs, Verbs: string(text)}}})
}

// Verbs returns the catalogue of verbs in force, as it was activated; "" before there
// is one.
func (b *Broker) Verbs() (text string, err error) {
	text, err = b.store.LoadVerbs()
	if err != nil {
		err = event.AsError(err)
	}
	return text, err
}
