// SPDX-License-Identifier: Apache-2.0

package metrics

// auditArea is about the audit trail.
var auditArea = Area{"Audit trail", []Definition{
	{Name: "signalbox_audit_entries", Kind: KindGauge, Unit: "entries", sampled: true,
		Meaning: "Entries of the audit trail, all of which are durable.", Night: "Smaller than before a restart: the end of the log was cut off. Run signalbox verify with the checkpoints that you keep outside."},
	{Name: "signalbox_audit_checkpoints_total", Kind: KindCounter, Unit: "checkpoints",
		Meaning: "Checkpoints signed since the start.", Night: "Standing still while entries grow for longer than audit_interval: see the failures."},
	{Name: "signalbox_audit_checkpoint_entries", Kind: KindGauge, Unit: "entries",
		Meaning: "Entries that the newest checkpoint is over.", Night: "Far behind the entries: as above. What is not covered yet could be cut off unnoticed."},
	{Name: "signalbox_audit_failures_total", Kind: KindCounter, Unit: "failures",
		Meaning: "Checkpoints that could not be signed.", Night: "Any: the error log says why. Publishing goes on; run signalbox verify on a copy."},
	{Name: "signalbox_audit_outside_entries", Kind: KindGauge, Labels: []string{"place"}, Unit: "entries",
		Meaning: "Entries of the newest checkpoint that audit_file (file), audit_url (url) or audit_store (store) has taken since the start.",
		Night:   "Behind checkpoint_entries for minutes, while the place is configured: see the failures."},
	{Name: "signalbox_audit_outside_failures_total", Kind: KindCounter, Labels: []string{"place"}, Unit: "failures",
		Meaning: "Attempts to bring a checkpoint outside that failed; each is repeated within a minute.",
		Night:   "Growing: the file cannot be written or the endpoint does not answer with 2xx. Until it does, a cut log would be noticed only up to the last checkpoint there."},
	{Name: "signalbox_audit_external_entries", Kind: KindGauge, Labels: []string{"place"}, Unit: "entries",
		Meaning: "With audit_external=sync: entries that the place has acknowledged, themselves and not only checkpoints of them.",
		Night:   "Standing still while signalbox_audit_entries grows: ticket messages wait for it. See the failures."},
	{Name: "signalbox_audit_external_failures_total", Kind: KindCounter, Labels: []string{"place"}, Unit: "failures",
		Meaning: "Attempts to bring entries to the place that failed; each is repeated within two seconds.",
		Night:   "Growing: the error log says why. Ticket messages are not delivered until the place answers; other topics go on."},
	{Name: "signalbox_audit_held_messages", Kind: KindGauge, Unit: "messages", sampled: true,
		Meaning: "Ticket messages that are in the log and wait for the places outside. Those that waited when the broker was started are not counted.",
		Night:   "Growing: as above. At 10,000 further ones are refused (audit_waiting)."},
	{Name: "signalbox_audit_unfound_entries_total", Kind: KindCounter, Unit: "entries", sampled: true,
		Meaning: "Entries since the start of deliveries to so many readers, or of so many tickets, that a query by ticket does not find them by each of these.",
		Night:   "Any: ask for the trail by time or by agent, too, where it matters who was given what. More than 4,096 readers of ticket messages at one time are the usual cause."},
}}
