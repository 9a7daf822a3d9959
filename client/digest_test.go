// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"signalbox/client"
	"signalbox/event"
)

func delivered(t *testing.T, id, hlc, rest string) *event.Event {
	t.Helper()
	ev, err := event.DecodeDelivered([]byte(`{"specversion":"1.0","source":"/s","type":"t.x","id":"` + id + `","hlc":"` + hlc + `"` + rest + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

// The vector was computed by hand from the definition, with other tools: printf, xxd and sha256sum.
func TestDigestVector(t *testing.T) {
	d := client.DigestOf(slices.Values([]*event.Event{delivered(t, "e1", "5000.00003", `,"subject":"T-998","data":1`)}), client.DigestOptions{})
	if client.Bucket("T-998") != 0x34 {
		t.Errorf("bucket %d, want %d", client.Bucket("T-998"), 0x34)
	}
	if got := hex.EncodeToString(d.Buckets[client.Bucket("T-998")][:]); got != "d85c1a8f540815bebaee7579ba4304b22b3dee6de3ab634f40d9a2c61ae5e493" || d.Keys != 1 {
		t.Errorf("got %s over %d keys, want %s", got, d.Keys, "d85c1a8f540815bebaee7579ba4304b22b3dee6de3ab634f40d9a2c61ae5e493")
	}
}

// What an agent read, in any order and with repeats, sums up to the state: losers, tombstones and what expired do not
// count.
func TestDigestOfAnyOrder(t *testing.T) {
	winners := []*event.Event{
		delivered(t, "e1", "9.00000", `,"subject":"a","data":1`),
		delivered(t, "e2", "9.00001", `,"partitionkey":"b","subject":"a","data":1`),
		delivered(t, "e3", "9.00002", `,"datacontenttype":"application/json","data":{"k":"c"}`),
		delivered(t, "e4", "9.00003", `,"subject":"claimed","dataref":"http://x/"`),
	}
	others := []*event.Event{
		delivered(t, "o1", "8.00000", `,"subject":"a","data":1`),
		delivered(t, "o2", "9.00000", `,"subject":"gone","data":1`),
		delivered(t, "o3", "9.00001", `,"subject":"gone"`),
		delivered(t, "o4", "9.00001", `,"subject":"old","data":1,"expirytime":"2026-01-01T00:00:00Z"`),
		delivered(t, "e0", "9.00000", `,"subject":"a","data":1`),
		delivered(t, "o5", "9.00000", `,"data":1`),
	}
	o := client.DigestOptions{KeyFrom: "k", At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	want := client.DigestOf(slices.Values(winners), o)
	if want.Keys != 4 {
		t.Fatalf("%d keys", want.Keys)
	}
	all := append(slices.Clone(winners), others...)
	all = append(all, all...)
	for range 50 {
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if got := client.DigestOf(slices.Values(all), o); len(got.Diff(want)) != 0 || got.Keys != 4 || got.Sum() != want.Sum() {
			t.Fatalf("differs in %v", got.Diff(want))
		}
	}
	o.At = o.At.Add(-time.Millisecond)
	if got := client.DigestOf(slices.Values(all), o); !slices.Equal(got.Diff(want), []byte{client.Bucket("old")}) {
		t.Errorf("before its expiry the event differs in %v", got.Diff(want))
	}
}

func TestDigestOverHTTP(t *testing.T) {
	local := client.DigestOf(slices.Values([]*event.Event{delivered(t, "e1", "9.00000", `,"subject":"a","data":1`)}), client.DigestOptions{})
	local.Topic, local.Cursor, local.LogTime = "t", at(9), time.UnixMilli(77)
	var rec recorder
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { rec.note(r); _ = json.NewEncoder(w).Encode(local) })
	got, err := c.Digest(t.Context(), "t")
	if err != nil || *got != *local || rec.all()[0].path != "/v1/topics/t/digest" {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{`{"topic":"t","cursor":"@1","buckets":[]}`, `{"topic":"t","cursor":"@1","buckets":["00"]}`, `[]`} {
		if json.Unmarshal([]byte(bad), &client.Digest{}) == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}
