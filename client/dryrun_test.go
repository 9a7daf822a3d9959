// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"signalbox/client"
	"signalbox/event"
)

func TestDryRun(t *testing.T) {
	var asked string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = r.Method + " " + r.URL.Path + " " + string(body)
		if strings.Contains(asked, "bad") {
			problem(w, event.CodeFilterInvalid, false, map[string]any{"column": 4, "caret": "bad\n   ^"})
			return
		}
		_, _ = io.WriteString(w, `{"canonical":"n > 3","cursor":"@30.k3f9x0ab","complete":true,"events":30,"matched":1,"errors":2,
			"error_kinds":{"CastError":2},"matches":[{"cursor":"@7.k3f9x0ab","topic":"a","source":"/s","id":"x"}],
			"failures":[{"clause":"n > 3","events":27},{"clause":"n > 3","errors":["CastError"],"events":2}],
			"explained":{"cursor":"@30.k3f9x0ab","source":"/s","id":"y","passes":false,
			"explanation":{"clause":"n > 3","passes":false,"reached":true,"parts":[{"clause":"n","passes":false,"reached":true,"value":"1"}]}}}`)
	})
	e, err := event.Draft{ID: "1", Source: "/s", Type: "t"}.Event()
	if err != nil {
		t.Fatal(err)
	}
	const post = `POST /v1/filters/dry-run `
	for _, tt := range []struct {
		run  client.DryRun
		want string
	}{
		{client.DryRun{Filter: "n>3"}, `{"filter":"n\u003e3"}`},
		{client.DryRun{Filters: json.RawMessage(`[]`), Strict: true, Topics: []string{"a.*", "b"}, Last: 5, Latest: true},
			`{"filters":[],"strict":true,"topics":["a.*","b"],"last":5,"event":"latest"}`},
		{client.DryRun{Filter: "n", Cursor: at(7)}, `{"filter":"n","event":"@7.k3f9x0ab"}`},
		{client.DryRun{Filter: "n", Event: e}, `{"filter":"n","event":` + string(e.AppendJSON(nil)) + `}`},
	} {
		r, err := c.DryRun(t.Context(), tt.run)
		if err != nil || asked != post+tt.want {
			t.Errorf("asked %s, want %s; %v", asked, tt.want, err)
		}
		if r.Cursor != at(30) || r.Events != 30 || r.ErrorKinds["CastError"] != 2 || r.Matches[0].Cursor != at(7) || r.Failures[1].Errors[0] != "CastError" ||
			r.Explained.ID != "y" || r.Explained.Explanation.Parts[0].Value != "1" {
			t.Errorf("%+v", r)
		}
	}
	_, err = c.DryRun(t.Context(), client.DryRun{Filter: "bad"})
	var refused *event.Error
	if !errors.As(err, &refused) || refused.Code != event.CodeFilterInvalid || refused.Facts["caret"] != "bad\n   ^" {
		t.Errorf("%v", err)
	}
}
