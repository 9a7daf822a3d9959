// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"signalbox/event"
)

func TestSubscriptionDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		document string
		check    func(s *event.Subscription) bool
	}{
		"the least":        {`{"protocol":"SIGNALBOX"}`, func(s *event.Subscription) bool { return s.Config.Kind == "pull" && s.Config.Topics[0] == ">" }},
		"an id is ignored": {`{"id":"x","protocol":"SIGNALBOX"}`, func(s *event.Subscription) bool { return s.ID == "" }},
		"both spellings":   {`{"Protocol":"SIGNALBOX","protocolSettings":{}}`, func(s *event.Subscription) bool { return s.ProtocolSettings == nil }},
		"a single filter": {`{"protocol":"SIGNALBOX","filter":{"exact": {"type":"t"}}}`,
			func(s *event.Subscription) bool { return string(s.Filters) == `[{"exact":{"type":"t"}}]` }},
		"config as strings": {`{"protocol":"SIGNALBOX","config":{"topics":"a,b.>","max_attempts":"7"}}`,
			func(s *event.Subscription) bool { return len(s.Config.Topics) == 2 && s.Config.MaxAttempts == 7 }},
		"nulls": {`{"protocol":"SIGNALBOX","id":null,"source":null,"types":null,"filters":null,"sink":null,"sinkCredential":null,"protocolsettings":null,` +
			`"config":{"kind":null,"topics":null,"view":null,"start":null,"order":null,"select":null,"max_attempts":null,"max_parked":null,"visibility":null,"content_mode":null,"expires_after":null,"dead_letter_retention":null}}`,
			func(s *event.Subscription) bool {
				c := &s.Config
				return c.ExpiresAfter == 0 && c.DeadLetterRetention == 0 && c.Kind == "pull" && c.Topics[0] == ">" && c.Start == "now" && c.MaxAttempts == 5 && c.MaxParked == event.MaxParked
			}},
		"no config": {`{"protocol":"SIGNALBOX","config":null}`, func(s *event.Subscription) bool { return s.Config.Kind == "pull" }},
		"own sink":  {`{"protocol":"SIGNALBOX","sink":"http://localhost/v1/subscriptions/x"}`, func(*event.Subscription) bool { return true }},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := event.ParseSubscription([]byte(c.document))
			if err != nil || !c.check(&s) {
				t.Fatalf("%+v, %v", s, err)
			}
			out := s.AppendJSON(nil, true)
			again, err := event.ParseSubscription(out)
			if err != nil || !bytes.Equal(again.AppendJSON(nil, true), out) {
				t.Errorf("%s came back as %s, %v", out, again.AppendJSON(nil, true), err)
			}
		})
	}
}

func TestRefusedSubscriptions(t *testing.T) {
	const ours = `{"protocol":"SIGNALBOX",`
	for name, c := range map[string]struct{ document, field string }{
		"no object":                 {`[]`, ""},
		"text behind":               {`{"protocol":"SIGNALBOX"} x`, ""},
		"no JSON":                   {`{"protocol":}`, ""},
		"unknown member":            {ours + `"filterz":[]}`, "filterz"},
		"unknown member of null":    {ours + `"filterz":null}`, "filterz"},
		"unknown config of null":    {ours + `"config":{"topicz":null}}`, "config.topicz"},
		"protocol is not null":      {`{"protocol":null}`, "protocol"},
		"a member twice":            {ours + `"source":"/a","source":"/b"}`, "source"},
		"a member in two spellings": {ours + `"sink":"/v1/subscriptions","SINK":"/v1/subscriptions"}`, "SINK"},
		"protocol is required":      {`{}`, "protocol"},
		"unknown protocol":          {`{"protocol":"PIGEON"}`, "protocol"},
		"source is not empty":       {ours + `"source":""}`, "source"},
		"source is a URI-reference": {ours + `"source":"a b"}`, "source"},
		"types are not empty":       {ours + `"types":[""]}`, "types"},
		"types are a list":          {ours + `"types":"a"}`, "types"},
		"sink is a URI":             {ours + `"sink":"a b"}`, "sink"},
		"sink of another":           {ours + `"sink":"https://example.com/"}`, "sink"},
		"credentials are complete":  {ours + `"sinkcredential":{"credentialtype":"PLAIN","identifier":"i"}}`, "sinkcredential.secret"},
		"credential of no type":     {ours + `"sinkcredential":{"secret":"s"}}`, "sinkcredential.credentialtype"},
		"webhook without HTTP":      {ours + `"config":{"kind":"webhook"}}`, "config.kind"},
		"unknown config":            {ours + `"config":{"":1}}`, "config."},
		"unknown kind":              {ours + `"config":{"kind":"x"}}`, "config.kind"},
		"topic pattern":             {ours + `"config":{"topics":["a..b"]}}`, "config.topics"},
		"no topics":                 {ours + `"config":{"topics":[]}}`, "config.topics"},
		"view":                      {ours + `"config":{"view":"x"}}`, "config.view"},
		"order":                     {ours + `"config":{"order":"x"}}`, "config.order"},
		"start":                     {ours + `"config":{"start":"yesterday"}}`, "config.start"},
		"start cursor":              {ours + `"config":{"start":"@x"}}`, "config.start"},
		"selection":                 {ours + `"config":{"select":["A"]}}`, "config.select"},
		"visibility":                {ours + `"config":{"visibility":"13h"}}`, "config.visibility"},
		"duration":                  {ours + `"config":{"visibility":"soon"}}`, "config.visibility"},
		"expires too soon":          {ours + `"config":{"expires_after":"1s"}}`, "config.expires_after"},
		// No number of attempts that means none, or any.
		"max_attempts 0":  {ours + `"config":{"max_attempts":0}}`, "config.max_attempts"},
		"max_attempts -1": {ours + `"config":{"max_attempts":-1}}`, "config.max_attempts"},
		"too large":       {ours + `"source":"` + strings.Repeat("a", event.MaxSubscriptionBytes) + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := event.ParseSubscription([]byte(c.document))
			if err == nil {
				t.Fatalf("accepted as %+v", s)
			}
			checkRefusal(t, err)
			if e := event.AsError(err); e.Code != event.CodeSubscriptionInvalid && e.Code != event.CodeTopicInvalid && e.Code != event.CodeCursorInvalid || c.field != "" && e.Field != c.field {
				t.Errorf("code %s, field %q: %v", e.Code, e.Field, err)
			}
		})
	}
	for _, protocol := range []string{"MQTT3", "MQTT5", "AMQP", "NATS", "KAFKA"} {
		_, err := event.ParseSubscription([]byte(`{"protocol":"` + protocol + `","sink":"https://example.com/"}`))
		if err == nil || event.AsError(err).Code != event.CodeProtocolUnsupported {
			t.Errorf("%s: %v", protocol, err)
		}
	}
}

func TestSecretsAreWriteOnly(t *testing.T) {
	s := event.Subscription{Protocol: event.ProtocolHTTP, SinkCredential: []byte(`{"credentialtype":"PLAIN","identifier":"me","secret":"hush"}`)}
	if shown := s.AppendJSON(nil, false); bytes.Contains(shown, []byte("hush")) || bytes.Contains(shown, []byte("me")) || !bytes.Contains(shown, []byte(`{"credentialtype":"PLAIN"}`)) {
		t.Errorf("shown as %s", shown)
	}
	if stored := s.AppendJSON(nil, true); !bytes.Contains(stored, []byte("hush")) {
		t.Errorf("stored as %s", stored)
	}
}

// TestFiltersAreShownAsTheyWereWritten, however they are stored.
func TestFiltersAreShownAsTheyWereWritten(t *testing.T) {
	for _, filters := range []string{
		`[{"sql":"data.severity >= 4 AND source <> '\\u003e'"}]`,
		"[{\"sql\":\"source <> 'a\u2028'\"}]",
	} {
		s, err := event.ParseSubscription([]byte(`{"protocol":"SIGNALBOX","filters":` + filters + `}`))
		if err != nil {
			t.Fatal(err)
		}
		stored, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var read event.Subscription
		if err := json.Unmarshal(stored, &read); err != nil || !bytes.Contains(read.AppendJSON(nil, false), []byte(filters)) {
			t.Errorf("%s is shown as %s, %v", stored, read.AppendJSON(nil, false), err)
		}
	}
}

func TestLetterAttributesAreReserved(t *testing.T) {
	for _, name := range []string{"dlqcause", "dlqattempts", "dlqtopic", "dlqposition", "dlqerror"} {
		body := []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","` + name + `":"x"}`)
		if _, err := event.DecodeJSON(body); event.AsError(err) == nil || event.AsError(err).Code != event.CodeAttributeReserved {
			t.Errorf("%s from a producer: %v", name, err)
		}
		if _, err := event.DecodeDelivered(body); err != nil {
			t.Errorf("%s from the broker: %v", name, err)
		}
	}
}

func TestSelection(t *testing.T) {
	const delivered = `{"position":"7","topic":"a","hlc":"1.00000","specversion":"1.0","id":"1","source":"/s","type":"t","subject":"k","x":1,"datacontenttype":"application/json","data":{"a":{"b":1,"c":2},"d":[{"e":1}],"f":null,"a-b":3,"h.i":{"j[0]":4,"k":5},"'l":6,"'m'n":7}}`
	const head = `{"position":"7","topic":"a","hlc":"1.00000","specversion":"1.0","id":"1","source":"/s","type":"t"`
	const typ = `,"datacontenttype":"application/json","data":`
	for list, want := range map[string]string{
		"subject":           head + `,"subject":"k"}`,
		"data":              head + typ + `{"a":{"b":1,"c":2},"d":[{"e":1}],"f":null,"a-b":3,"h.i":{"j[0]":4,"k":5},"'l":6,"'m'n":7}}`,
		"data.a.b":          head + typ + `{"a":{"b":1}}}`,
		"data.a.b,data.a":   head + typ + `{"a":{"b":1,"c":2}}}`,
		"data.a,data.a.b":   head + typ + `{"a":{"b":1,"c":2}}}`,
		"data.f,x,data.d":   head + `,"x":1` + typ + `{"d":[{"e":1}],"f":null}}`,
		"data.none":         head + typ + `{}}`,
		"data.d.e,data.f.g": head + typ + `{}}`,
		// Quoted as in filters, and also where a name has a dot in it.
		"data.'a-b'":          head + typ + `{"a-b":3}}`,
		`data."a-b".c`:        head + typ + `{}}`,
		`data.'h.i'`:          head + typ + `{"h.i":{"j[0]":4,"k":5}}}`,
		`data."h.i".'j[0]'`:   head + typ + `{"h.i":{"j[0]":4}}}`,
		`data.'a'."b",data.f`: head + typ + `{"a":{"b":1},"f":null}}`,
		`data.'l`:             head + typ + `{"'l":6}}`, // these are parts of the name
		`data.'m'n`:           head + typ + `{"'m'n":7}}`,
	} {
		s, err := event.ParseSelection(strings.Split(list, ","))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.AppendSelected(nil, []byte(delivered)); string(got) != want {
			t.Errorf("%s selects\n%s, not\n%s", list, got, want)
		}
	}
	for _, list := range []string{"A", "data.", "data..a", "data.a[0]", `data.'a'.`, `data.'a'..b`, `data.''.x`, `data."".x`, `data.x.''`, "data.a" + strings.Repeat(".a", event.MaxPathDepth), ""} {
		if _, err := event.ParseSelection([]string{list}); err == nil {
			t.Errorf("%q is a selection", list)
		}
	}
	text := delivered[:strings.Index(delivered, `{"a"`)] + `"text"}`
	s, _ := event.ParseSelection([]string{"data.a"})
	if got := string(s.AppendSelected(nil, []byte(text))); strings.Contains(got, `"data"`) {
		t.Errorf("a path selects of a text: %s", got)
	}
}

// FuzzSubscription: whatever is accepted can be stored, shown and sent back.
func FuzzSubscription(f *testing.F) {
	f.Add([]byte(`{"protocol":"SIGNALBOX","source":"/a","types":["t"],"filters":[{"exact":{"type":"t"}}],"config":{"kind":"stream","topics":["a.>"],"select":["data.a"],"expires_after":"1d"}}`))
	f.Add([]byte(`{"protocol":"HTTP","sink":"https://a/","sinkCredential":{"credentialType":"PLAIN","identifier":"i","secret":"s"}}`))
	f.Add([]byte(`{"Protocol":"SIGNALBOX","filter":{},"protocolsettings":{"headers":{"a":"b"}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := event.ParseSubscription(b)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := event.ParseSubscription(out)
		if err != nil && len(out) <= event.MaxSubscriptionBytes {
			t.Fatalf("%s does not come back: %v", out, err)
		}
		if err == nil && !bytes.Equal(again.AppendJSON(nil, true), s.AppendJSON(nil, true)) {
			t.Fatalf("%s came back as %s", s.AppendJSON(nil, true), again.AppendJSON(nil, true))
		}
	})
}
