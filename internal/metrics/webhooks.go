// SPDX-License-Identifier: Apache-2.0

package metrics

import "time"

// WebhookClass is what became of an attempt to send a webhook.
type WebhookClass int

// The classes. A new one goes to the end, and into webhookClasses.
const (
	WebhookDelivered WebhookClass = iota
	WebhookFailed                 // an answer that is no success, or no connection
	WebhookTimeout                // no answer in time
	WebhookRefused                // an address that the broker does not connect to
	webhookClassCount
)

var webhookClasses = [webhookClassCount]string{"delivered", "failed", "timeout", "refused"}

// Webhooks counts what is sent to endpoints.
type Webhooks struct {
	attempts [webhookClassCount]Counter
	seconds  Histogram

	Proven, Unproven Gauge // attempts that are under way
}

// Attempted counts an attempt, and how long it took.
func (w *Webhooks) Attempted(class WebhookClass, took time.Duration) {
	w.attempts[class].Inc()
	w.seconds.Observe(took.Seconds())
}

func newWebhooks(r register) (w Webhooks) {
	for i, name := range webhookClasses {
		w.attempts[i] = r.counter("signalbox_webhook_attempts_total", name)
	}
	w.seconds = r.histogram("signalbox_webhook_attempt_seconds")
	w.Proven = r.gauge("signalbox_webhook_attempts_open", "proven")
	w.Unproven = r.gauge("signalbox_webhook_attempts_open", "unproven")
	return w
}

var webhookArea = Area{"Webhooks", []Definition{
	{Name: "signalbox_webhook_attempts_total", Kind: KindCounter, Labels: []string{"outcome"}, Unit: "attempts",
		Meaning: "Attempts to send to endpoints, by outcome: delivered, failed (an answer that is no success, or no connection), timeout, refused (an address that the broker does not connect to).",
		Night:   "Many failed or timeout: see which subscriptions have a circuit that is open, and their last_error. refused: somebody's sink leads into a network that it must not reach; the subscription is disabled."},
	{Name: "signalbox_webhook_attempt_seconds", Kind: KindHistogram, Unit: "seconds", Buckets: latencies,
		Meaning: "Time of one attempt, the endpoint's answer included.",
		Night:   "Near the limit of 20 s: endpoints hang. They hold up nobody else, unless all attempts are open; see below."},
	{Name: "signalbox_webhook_attempts_open", Kind: KindGauge, Labels: []string{"endpoints"}, Unit: "attempts",
		Meaning: "Attempts that are under way, to endpoints whose last attempt succeeded (proven) and to others (unproven).",
		Night:   "Unproven near three quarters of the limit of 2048: very many endpoints hang; new ones wait for their turn, proven ones do not. Proven near seven eighths: so many answer slowly that others wait for them; an eighth stays for new ones."},
	{Name: "signalbox_webhook_endpoints", Kind: KindGauge, Labels: []string{"state"}, Unit: "subscriptions", sampled: true,
		Meaning: "Webhook subscriptions whose endpoint is in trouble, as of the last round over all: failing (its last attempt failed), open (its circuit is, so nothing is sent for a while), disabled (nothing more is sent).",
		Night:   "open or failing in numbers: something between the broker and many endpoints is down. disabled: `$subscriptions` says which and why; their events wait, and retention with them, until somebody resumes the subscription or deletes it."},
	{Name: "signalbox_webhook_due", Kind: KindGauge, Labels: []string{"when"}, Unit: "subscriptions", sampled: true,
		Meaning: "Webhook subscriptions that have something to deliver now, and those that wait for a time: a retry, or a circuit that is open.",
		Night:   "now growing for minutes: the endpoints take less than is published, or the processors are short. later only says how many endpoints are in trouble."},
}}
