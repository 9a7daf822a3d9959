// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"net/http"

	"signalbox/event"
)

// TopicInfo is a topic's policy and its figures.
type TopicInfo struct {
	Name       string       `json:"name"`
	Policy     event.Policy `json:"policy"`
	Published  uint64       `json:"published"` // events that were ever accepted, whether or not they are still there
	Events     uint64       `json:"events"`
	Bytes      uint64       `json:"bytes"`
	Keys       uint64       `json:"keys"`
	Tombstones uint64       `json:"tombstones"`
	Oldest     event.Cursor `json:"oldest"`         // where what is still retained begins
	Head       event.Cursor `json:"head"`           // the last event
	Floor      event.HLC    `json:"floor,omitzero"` // an event at or below it is refused for a key that is not known
}

// Topic returns one topic.
func (c *Client) Topic(ctx context.Context, name string) (TopicInfo, error) {
	var t TopicInfo
	_, _, err := c.do(ctx, call{method: http.MethodGet, url: c.topicPath(name)}, &t)
	return t, err
}

// Topics returns all topics, by name.
func (c *Client) Topics(ctx context.Context) ([]TopicInfo, error) {
	var ts []TopicInfo
	_, _, err := c.do(ctx, call{method: http.MethodGet, url: c.base + "/v1/topics"}, &ts)
	return ts, err
}

// PutTopic sets a topic's whole policy, and creates the topic if need be. Start from event.DefaultPolicy or from the
// policy that Topic returned.
func (c *Client) PutTopic(ctx context.Context, name string, p event.Policy) (_ TopicInfo, created bool, err error) {
	body, err := json.Marshal(p)
	if err != nil {
		return TopicInfo{}, false, err
	}
	var t TopicInfo
	h := http.Header{"Content-Type": {"application/json"}}
	status, _, err := c.do(ctx, call{method: http.MethodPut, url: c.topicPath(name), header: h, body: body}, &t)
	return t, status == http.StatusCreated, err
}

// DeleteTopic removes a topic with its events and its state.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	_, _, err := c.do(ctx, call{method: http.MethodDelete, url: c.topicPath(name)}, nil)
	return err
}

// Ready asks the broker to prove that it can write, and waits for it as patiently as any other call: a program may call
// it before its first publish instead of a loop of its own.
func (c *Client) Ready(ctx context.Context) error {
	_, _, err := c.do(ctx, call{method: http.MethodGet, url: c.base + "/readyz"}, nil)
	return err
}

// Alive asks the broker for any answer.
func (c *Client) Alive(ctx context.Context) error {
	_, _, err := c.do(ctx, call{method: http.MethodGet, url: c.base + "/healthz"}, nil)
	return err
}
