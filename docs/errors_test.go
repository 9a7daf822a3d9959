// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"signalbox/docs"
	"signalbox/event"
)

var update = flag.Bool("update", false, "write errors.md anew")

// TestErrorsPageIsTheTable keeps the page in agreement with the table that the
// broker answers from.
func TestErrorsPageIsTheTable(t *testing.T) {
	want := render()
	if *update {
		if err := os.WriteFile("errors.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(docs.Errors) != want {
		t.Error("errors.md differs from the table in package event; run: go test ./docs -update")
	}
}

func render() string {
	var b strings.Builder
	b.WriteString(`# Error codes

Every refusal is an ` + "`application/problem+json`" + ` document (RFC 9457) with a stable ` + "`code`" + ` from this
list. The list is closed, and codes are only ever added. Beside ` + "`title`, `status` and `detail`" + ` (a sentence
for people) it may have ` + "`field`" + ` (the attribute, header, parameter or policy field at fault), ` + "`retryable`" + `,
and facts that belong to the code, such as ` + "`drift_ms`, `etag` or `oldest`" + `.

Retryable means that the same request may succeed later without a change. The command line exits with the
status in the last column.

This page is made from the table in package event.

| code | HTTP | retry | what it means | what to do | exit |
|---|---|---|---|---|---|
`)
	for _, code := range event.Codes() {
		c := code.Class()
		retry := "no"
		if c.Retryable {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| <a id=%q></a>`%s` | %d | %s | %s. | %s | %d |\n", code, code, c.HTTP, retry, c.Title, c.Action, c.Exit)
	}
	return b.String()
}
