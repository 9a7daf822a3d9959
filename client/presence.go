// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"

	"signalbox/event"
)

// Presence is who is connected, as the broker says it on the ephemeral topic $presence: an agent that gave its name, or
// a connection that gave none.
type Presence struct {
	Key         string          `json:"key"`             // the agent's name, or one for the connection
	Agent       string          `json:"agent,omitempty"` // "" if none was given
	Connections int             `json:"connections"`
	Since       time.Time       `json:"since,omitzero"`    // of the first stream; zero while there is none
	Streams     []Stream        `json:"streams,omitempty"` // the newest few
	Status      json.RawMessage `json:"status,omitempty"`  // what the agent says of itself; nil if nothing
	Reported    time.Time       `json:"reported,omitzero"`
	Until       time.Time       `json:"until,omitzero"` // when Status lapses
}

// Stream is one connection that follows.
type Stream struct {
	Door   string    `json:"door"`
	Since  time.Time `json:"since"`
	Topics []string  `json:"topics"`
	Remote string    `json:"remote,omitempty"`
}

// PresenceTopic is the broker's topic, which may be followed as any other.
const PresenceTopic = "$presence"

// PresenceOf reads an event of $presence. It is the zero value, but for the key, of one that says that somebody has left.
func PresenceOf(ev *event.Event) (Presence, error) {
	p := Presence{}
	if ev.Data() != nil {
		if err := json.Unmarshal(ev.Data(), &p); err != nil {
			return Presence{}, err
		}
	}
	p.Key, _ = ev.Key()
	return p, nil
}

// Present reads who is connected now, in the order in which the last of each was said.
func (c *Client) Present(ctx context.Context) iter.Seq2[Presence, error] {
	return func(yield func(Presence, error) bool) {
		s, err := c.State(ctx, PresenceTopic)
		if err != nil {
			yield(Presence{}, err)
			return
		}
		for ev, err := range s.Events() {
			var p Presence
			if err == nil {
				p, err = PresenceOf(ev)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// Report shows others, on $presence, what an agent says of itself: a JSON object, such as its ledger's verdict. It stands
// for ttl (0 is the broker's five minutes), at most until the agent's last stream has ended.
func (c *Client) Report(ctx context.Context, agent string, status any, ttl time.Duration) error {
	if agent == "" {
		return errors.New("client: a status needs the name of its agent")
	}
	body, err := json.Marshal(status)
	if err != nil {
		return err
	}
	where := c.base + "/v1/presence/" + url.PathEscape(agent)
	if ttl != 0 {
		where += "?ttl=" + url.QueryEscape(event.Duration(ttl).String())
	}
	h := http.Header{"Content-Type": {"application/json"}}
	_, _, err = c.do(ctx, call{method: http.MethodPut, url: where, header: h, body: body}, nil)
	return err
}
