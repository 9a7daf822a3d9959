// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"signalbox/ticket"
)

// said are the members of payloads that a line about a message has, in order. What a
// payload does not have is left out.
var said = map[string][]string{
	ticket.TypeOpen:            {"op", "title", "requester", "priority"},
	ticket.TypePlanRequest:     {"slice_id", "objective"},
	ticket.TypeProposal:        {"slice_id", "suggested_tier"},
	ticket.TypePlan:            {"plan_id", "tier", "tier_reason"},
	ticket.TypeApprovalRequest: {"kind", "tier", "target", "summary", "options"},
	ticket.TypeApprovalGrant:   {"plan_id", "choice"},
	ticket.TypeApprovalDeny:    {"reason_code", "reason"},
	ticket.TypeExecute:         {"slice_id", "mode", "approval_ids"},
	ticket.TypeResult:          {"slice_id", "outcome"},
	ticket.TypeEscalation:      {"reason_code", "severity", "asks"},
	ticket.TypeState:           {"reason_code", "resolution"},
}

// messageLine is a message for people: what it is, from whom to whom, and what they
// have to know of its payload.
func messageLine(raw []byte) string {
	m, err := ticket.Parse(raw)
	if err != nil {
		return "a message that cannot be read"
	}
	h := m.Header()
	var payload map[string]json.RawMessage
	_ = json.Unmarshal(m.Payload(), &payload) // Parse has decoded it
	var b strings.Builder
	fmt.Fprintf(&b, "%-16s  %s → %s", h.Type, h.From, h.To)
	if h.Type == ticket.TypeState {
		fmt.Fprintf(&b, "  %s → %s", plainJSON(payload["from"]), plainJSON(payload["to"]))
	}
	for _, name := range said[h.Type] {
		if text := plainJSON(payload[name]); text != "" && text != "null" && text != "[]" {
			fmt.Fprintf(&b, "  %s %s", name, text)
		}
	}
	return b.String()
}

// plainJSON is a value as it is written in a line: texts without quotation marks,
// nothing longer than a line has room for.
func plainJSON(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	return clipped(text, 80)
}
