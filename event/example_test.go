// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"fmt"
	"net/http"

	"signalbox/event"
)

func ExampleDraft() {
	e, err := event.Draft{
		ID:      "0190b5f2",
		Source:  "/agents/beta",
		Type:    "task.completed",
		Subject: "T-998",
		Data:    []byte(`{"state":"COMPLETED"}`),
	}.Event()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(e.AppendJSON(nil)))
	// Output: {"specversion":"1.0","id":"0190b5f2","source":"/agents/beta","type":"task.completed","subject":"T-998","datacontenttype":"application/json","data":{"state":"COMPLETED"}}
}

func ExampleDecodeBinary() {
	h := http.Header{}
	h.Set("ce-specversion", "1.0")
	h.Set("ce-id", "1")
	h.Set("ce-source", "/agents/beta")
	h.Set("ce-type", "task.completed")
	h.Set("ce-subject", "B%C3%A4r")
	e, err := event.DecodeBinary(h, nil)
	fmt.Println(e.Subject(), err)

	_, err = event.DecodeBinary(http.Header{"Ce-Id": {"100%"}}, nil)
	fmt.Println(event.AsError(err).Code, event.AsError(err).Field)
	// Output:
	// Bär <nil>
	// header_invalid Ce-Id
}

func ExampleHLC_Next() {
	local, received := event.NewHLC(1764422645000, 5), event.NewHLC(1764422645000, 9)
	fmt.Println(max(local, received).Next(1764422644000))
	// Output: 1764422645000.00010
}
