// SPDX-License-Identifier: Apache-2.0

package metrics

// ticketArea is about deadlines of the ticket protocol, and what the broker itself
// says about them.
var ticketArea = Area{"Tickets", []Definition{
	{Name: "signalbox_ticket_deadlines", Kind: KindGauge, Unit: "deadlines", sampled: true,
		Meaning: "Deadlines of messages that nothing has met yet and that are not due.",
		Night:   "Growing without end: tickets are opened and nobody works on them."},
	{Name: "signalbox_ticket_deadlines_missed_total", Kind: KindCounter, Unit: "deadlines", sampled: true,
		Meaning: "Deadlines missed since the start; each has become an escalation, or a dead letter and a page.",
		Night:   "Many at once: an orchestrator or a domain's agents are down. The log line \"the broker has escalated\" says which ticket and whom it asks."},
	{Name: "signalbox_bus_owed", Kind: KindGauge, Unit: "messages", sampled: true,
		Meaning: "Messages that the broker has to send about missed deadlines and silent agents, and has not sent yet.",
		Night:   "Not 0 for more than a few seconds: people are not told. See the failures."},
	{Name: "signalbox_bus_messages_total", Kind: KindCounter, Labels: []string{"reason"}, Unit: "messages",
		Meaning: "Messages that the broker has sent since the start, by reason_code.",
		Night:   "deliver_by_missed: executes do not reach their agents. heartbeats_missed: agents have died. version_unread, type_unknown: agents of different versions."},
	{Name: "signalbox_bus_failures_total", Kind: KindCounter, Unit: "failures",
		Meaning: "Attempts to send such messages that failed; each is repeated within a minute.",
		Night:   "Any: the error log says why. On a full disk nothing is sent until there is room."},
	{Name: "signalbox_agents_silent", Kind: KindGauge, Unit: "agents", sampled: true,
		Meaning: "Agents that have missed three heartbeats and have not been heard of since.",
		Night:   "Any: start them again, or revoke them if they are gone for good."},
	{Name: "signalbox_messages_withheld_total", Kind: KindCounter, Unit: "messages", sampled: true,
		Meaning: "Messages since the start that were not for a receiver, because its heartbeat says that it does not read their version.",
		Night:   "Any: bring that agent up to date; what it missed is in its ticket."},
}}

// busReasons are the reason_codes of what the broker itself says.
var busReasons = []string{"ack_by_missed", "deadline_missed", "expires_at_missed", "deliver_by_missed", "complete_by_missed", "heartbeats_missed", "version_unread", "type_unknown"}

func newBus(r register) Bus {
	b := Bus{Failures: r.counter("signalbox_bus_failures_total"), messages: map[string]Counter{}}
	for _, reason := range busReasons {
		b.messages[reason] = r.counter("signalbox_bus_messages_total", reason)
	}
	return b
}
