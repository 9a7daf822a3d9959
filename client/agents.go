// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"signalbox/event"
)

// Registry is the registry of the agents of a space, who take part in the ticket protocol.
type Registry struct {
	Space         string  `json:"space"`         // "": the space was not founded
	Administrator string  `json:"administrator"` // the public key that signs changes
	Revision      int64   `json:"revision"`      // a change is signed for the one that follows it
	Agents        []Agent `json:"agents"`
	Next          string  `json:"next,omitempty"` // of a part of the registry: the agent after which it goes on
}

// Agent is a registered agent.
type Agent struct {
	Name     string     `json:"agent"`
	Active   bool       `json:"active"` // one of its keys is in use
	Roles    []string   `json:"roles"`
	Domains  []string   `json:"domains"`
	Keys     []AgentKey `json:"keys"`
	Revision int64      `json:"revision"` // that changed it last
	Updated  time.Time  `json:"updated"`

	// What follows is not in the list of all agents.
	Registry int64       `json:"registry,omitzero"` // the revision of the registry that this is from
	MaySend  []SendRight `json:"may_send,omitzero"`
	MayRead  []string    `json:"may_read,omitzero"` // patterns of topics
}

// AgentKey is a public key of an agent.
type AgentKey struct {
	Key   string       `json:"key"`
	From  event.Cursor `json:"from"`           // it counts for what comes after this
	Until event.Cursor `json:"until,omitzero"` // and, once it was revoked, up to this
}

// SendRight is a type of message that an agent may send, and patterns of the topics that it may send it to.
type SendRight struct {
	Type   string   `json:"type"`
	Topics []string `json:"topics"`
}

// Agents returns the registry of all agents.
func (c *Client) Agents(ctx context.Context) (Registry, error) {
	r, err := c.agentsAfter(ctx, "", 0)
	for err == nil && r.Next != "" {
		var more Registry
		if more, err = c.agentsAfter(ctx, r.Next, 0); err == nil {
			r.Revision, r.Agents, r.Next = more.Revision, append(r.Agents, more.Agents...), more.Next
		}
	}
	return r, err
}

// Space returns what there is to say of the agents of the broker's space as a whole, without the agents.
func (c *Client) Space(ctx context.Context) (Registry, error) {
	r, err := c.agentsAfter(ctx, "", 1)
	r.Agents, r.Next = nil, ""
	return r, err
}

func (c *Client) agentsAfter(ctx context.Context, after string, limit int) (r Registry, err error) {
	q := url.Values{}
	if after != "" {
		q.Set("after", after)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	_, _, err = c.do(ctx, call{method: http.MethodGet, url: c.base + "/v1/agents?" + q.Encode()}, &r)
	return r, err
}

// Agent returns an agent and what it may send and read.
func (c *Client) Agent(ctx context.Context, name string) (Agent, error) {
	var a Agent
	_, _, err := c.do(ctx, call{method: http.MethodGet, url: c.base + "/v1/agents/" + url.PathEscape(name)}, &a)
	return a, err
}

// ChangeAgents has the registry changed. The change is one that the administrator signed, see package ticket.
func (c *Client) ChangeAgents(ctx context.Context, signed []byte) (Agent, error) {
	var a Agent
	h := http.Header{"Content-Type": {"application/json"}}
	_, _, err := c.do(ctx, call{method: http.MethodPost, url: c.base + "/v1/agents", header: h, body: signed}, &a)
	return a, err
}
