// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"testing"

	"signalbox/client"
	"signalbox/event"
)

func TestMetricsAndReadersOfABroker(t *testing.T) {
	c := connect(t, testBroker(t).url)
	if _, err := c.Publish(t.Context(), "a", event.Draft{Source: "/s", Type: "t", Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	m, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := client.Metrics{
		`signalbox_log_head_position`:                        1,
		`signalbox_publish_events_total{outcome="accepted"}`: 1,
		`signalbox_readers{door="sse",state="live"}`:         0,
	}
	for series, want := range want {
		if got, ok := m[series]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", series, got, ok, want)
		}
	}
	readers, err := c.Readers(t.Context())
	if err != nil || readers.Open != 0 || len(readers.Behind) != 0 {
		t.Errorf("the readers are %+v, %v", readers, err)
	}
}
