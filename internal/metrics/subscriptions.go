// SPDX-License-Identifier: Apache-2.0

package metrics

// Subscriptions counts what becomes of events on their way to durable
// subscriptions, of all of them together: the status of each has its own.
type Subscriptions struct {
	Matched, Dropped, Failed      Counter // events
	HandedOut                     Counter
	Acked, Nacked, TimedOut, Gone Counter // how hand-outs ended
	Spent, Quarantined            Counter // dead letters
	Redriven, Discarded           Counter
	Gaps, Expired                 Counter
}

func newSubscriptions(r register) Subscriptions {
	return Subscriptions{
		Matched:     r.counter("signalbox_subscription_events_total", "matched"),
		Dropped:     r.counter("signalbox_subscription_events_total", "dropped"),
		Failed:      r.counter("signalbox_subscription_events_total", "failed"),
		HandedOut:   r.counter("signalbox_subscription_hand_outs_total"),
		Acked:       r.counter("signalbox_subscription_settled_total", "acked"),
		Nacked:      r.counter("signalbox_subscription_settled_total", "nacked"),
		TimedOut:    r.counter("signalbox_subscription_settled_total", "timed_out"),
		Gone:        r.counter("signalbox_subscription_settled_total", "gone"),
		Spent:       r.counter("signalbox_subscription_dead_letters_total", "spent"),
		Quarantined: r.counter("signalbox_subscription_dead_letters_total", "quarantined"),
		Redriven:    r.counter("signalbox_subscription_redriven_total"),
		Discarded:   r.counter("signalbox_subscription_discarded_total"),
		Gaps:        r.counter("signalbox_subscription_gaps_total"),
		Expired:     r.counter("signalbox_subscription_expired_total"),
	}
}

// subscriptionArea is what is told of durable subscriptions.
var subscriptionArea = Area{"Subscriptions", []Definition{
	{Name: "signalbox_subscriptions", Kind: KindGauge, Unit: "subscriptions", sampled: true,
		Meaning: "Durable subscriptions there are, in use or not.",
		Night:   "Growing without end: an agent makes one at each start. Let it keep its id, or set expires_after."},
	{Name: "signalbox_subscription_sessions", Kind: KindGauge, Unit: "subscriptions", sampled: true,
		Meaning: "Subscriptions that somebody is using just now.",
		Night:   "A sudden fall: workers are gone, or the network. See lag."},
	{Name: "signalbox_subscription_lag_events", Kind: KindGauge, Unit: "events", sampled: true,
		Meaning: "Events on its topics behind the cursor of the subscription that is furthest behind, whatever its filters say of them, as of the last round over all of them.",
		Night:   "Growing: its consumers are away or too slow. `signalbox subscription list` and `show` say how far each is; past hold_max it will get a gap."},
	{Name: "signalbox_subscription_lag_seconds", Kind: KindGauge, Unit: "seconds", sampled: true,
		Meaning: "How long the oldest event that a subscription has not come to has been there, as of the last round.",
		Night:   "As above; compare with the retention of the topic and with hold_max."},
	{Name: "signalbox_subscription_held_topics", Kind: KindGauge, Unit: "topics", sampled: true,
		Meaning: "Topics of which something is kept only because a subscription has not read it.",
		Night:   "It takes disk up to hold_max_bytes for each topic. Find who is behind, or lower the caps."},
	{Name: "signalbox_subscription_events_total", Kind: KindCounter, Labels: []string{"result"}, Unit: "events",
		Meaning: "What subscriptions' filters made of the events they came to: matched, dropped, and of the dropped those on which a filter failed (failed).",
		Night:   "Failed growing: an expression asks for an attribute that is often missing. The status of a subscription has its own counts; `signalbox filter run` says which clause."},
	{Name: "signalbox_subscription_hand_outs_total", Kind: KindCounter, Unit: "attempts",
		Meaning: "Events handed out to consumers, each time counted.",
		Night:   "Far above what is acked: consumers fail. See settled."},
	{Name: "signalbox_subscription_settled_total", Kind: KindCounter, Labels: []string{"result"}, Unit: "attempts",
		Meaning: "How hand-outs ended: acked, nacked (put off), timed_out (no answer by the deadline), gone (the event had expired or was superseded). A stream's acknowledged positions are not counted.",
		Night:   "Many timed_out: consumers crash, or need a longer visibility. Many nacked: something behind them is down."},
	{Name: "signalbox_subscription_dead_letters_total", Kind: KindCounter, Labels: []string{"cause"}, Unit: "events",
		Meaning: "Events that became dead letters: spent (as many attempts as allowed, or rejected), quarantined (they silence their consumers, or came back too often).",
		Night:   "Look at them before they are redriven: `signalbox subscription dlq list`. Quarantined ones are in $quarantine, too."},
	{Name: "signalbox_subscription_dead_letters", Kind: KindGauge, Unit: "events", sampled: true,
		Meaning: "Dead letters that there are, as of the last round over all subscriptions.",
		Night:   "Growing: `$dlq.>` has what becomes of which subscription. They are kept for dead_letter_retention of each."},
	{Name: "signalbox_subscription_redriven_total", Kind: KindCounter, Unit: "events",
		Meaning: "Dead letters that were sent on their way again.", Night: "It should come down to few dead letters; else what made them fail still does."},
	{Name: "signalbox_subscription_discarded_total", Kind: KindCounter, Unit: "events",
		Meaning: "Dead letters that somebody has discarded.", Night: "Who and why is in $subscriptions."},
	{Name: "signalbox_subscription_gaps_total", Kind: KindCounter, Unit: "gaps",
		Meaning: "Times that events were removed before a subscription had read them; it was told.",
		Night:   "Each names the lost range, in $subscriptions and to the consumer. It must read the state or another source again."},
	{Name: "signalbox_subscription_expired_total", Kind: KindCounter, Unit: "subscriptions",
		Meaning: "Subscriptions that ended because nobody had used them for expires_after.",
		Night:   "Each is in $subscriptions. Many at once: their consumers are gone for long."},
}}
