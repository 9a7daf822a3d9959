// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"signalbox/event"
)

// TicketQuery says which tickets are wanted; what is zero asks for nothing.
type TicketQuery struct {
	States  []string
	Domain  string    // one of its slices is of it
	Agent   string    // has sent a message of it
	Updated time.Time // its last message is not older
	After   string    // the ticket before the first one, by name
	Limit   int       // 0: as many as the broker gives at a time
}

// TicketSummary is a ticket among others.
type TicketSummary struct {
	ID       string       `json:"ticket_id"`
	Trace    string       `json:"trace_id"`
	State    string       `json:"state"`
	Terminal bool         `json:"terminal"`
	Revision int          `json:"revision"`
	Tier     *int         `json:"tier"` // of the plan in force
	Domains  []string     `json:"domains"`
	Opened   time.Time    `json:"opened"`
	Moved    time.Time    `json:"moved"`
	Updated  time.Time    `json:"updated"` // log time of its last message
	Cursor   event.Cursor `json:"cursor"`  // of its last message
}

// Tickets returns the tickets that the caller may see, by name. Next is the ticket after which to go on, "" at the end.
func (c *Client) Tickets(ctx context.Context, q TicketQuery) (tickets []TicketSummary, next string, err error) {
	v := url.Values{}
	for name, value := range map[string]string{"domain": q.Domain, "agent": q.Agent, "after": q.After} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if len(q.States) > 0 {
		v.Set("state", strings.Join(q.States, ","))
	}
	if !q.Updated.IsZero() {
		v.Set("updated", q.Updated.UTC().Format(time.RFC3339Nano))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var page struct {
		Tickets []TicketSummary `json:"tickets"`
		Next    string          `json:"next"`
	}
	_, _, err = c.do(ctx, call{method: http.MethodGet, url: c.base + "/v1/tickets?" + v.Encode()}, &page)
	return page.Tickets, page.Next, err
}

// Ticket is a ticket as its reader may see it.
type Ticket struct {
	TicketSummary
	MovedBy    string           `json:"moved_by"` // id of the message that moved it last
	ResumeTo   string           `json:"resume_to,omitempty"`
	Requesters []string         `json:"requesters"` // in lower case; none of them approves
	Plan       *TicketPlan      `json:"plan"`       // in force
	Slices     []TicketSlice    `json:"slices"`
	Approvals  []TicketApproval `json:"approvals"`
	Breakers   []TicketBreaker  `json:"breakers"`
	Amended    string           `json:"amended_by,omitempty"`
	Cancelled  string           `json:"cancelled_by,omitempty"`
	Missed     string           `json:"missed,omitempty"`
	Deadlines  []TicketDeadline `json:"deadlines"` // that are open, the next one first
	Messages   []TicketMessage  `json:"messages"`  // that may be read, in order
	Next       event.Cursor     `json:"next,omitzero"`
}

// TicketPlan is a plan in force.
type TicketPlan struct {
	ID         string    `json:"plan_id"`
	Hash       string    `json:"plan_hash"`
	Tier       int       `json:"tier"`
	Message    string    `json:"message"`
	ValidUntil time.Time `json:"valid_until"`
}

// TicketSlice is a slice of a ticket. Of another domain's there is only what every plan says.
type TicketSlice struct {
	ID       string `json:"slice_id"`
	Domain   string `json:"domain"`
	State    string `json:"state"`
	Tier     *int   `json:"tier"`
	Hash     string `json:"slice_hash,omitempty"`
	Proposal string `json:"proposal,omitempty"` // ids of messages, as Execute and RollbackExecute
	Execute  string `json:"execute,omitempty"`
	Rollback string `json:"rollback,omitempty"` // the state of its rollback
	Verified string `json:"verified,omitempty"`

	RollbackExecute string `json:"rollback_execute,omitempty"`
}

// TicketApproval is a request for approval.
type TicketApproval struct {
	ID        string        `json:"request_id"`
	Kind      string        `json:"kind"`
	PlanHash  string        `json:"plan_hash,omitempty"`
	Target    string        `json:"target,omitempty"`
	Options   []string      `json:"options,omitempty"`
	Approvers int           `json:"approvers_required"` // by the rules of the broker, whatever was asked for
	Missing   int           `json:"missing"`            // how many more have to grant it; 0: it waits for nobody
	Expires   time.Time     `json:"expires_at"`
	Denied    string        `json:"denied_by,omitempty"`
	Void      string        `json:"void_by,omitempty"` // id of the message since which nothing comes of it
	Grants    []TicketGrant `json:"grants"`
}

// TicketGrant is a grant.
type TicketGrant struct {
	ID       string    `json:"id"`
	Approver string    `json:"approver"`
	Choice   string    `json:"choice,omitempty"`
	Expires  time.Time `json:"expires_at"`
	Bound    string    `json:"bound_by,omitempty"`
	Counts   bool      `json:"counts"` // its time is not over, and its approver does not ask for the ticket
}

// TicketBreaker is an open breaker of a target.
type TicketBreaker struct {
	Target string    `json:"target"`
	Opened time.Time `json:"opened"`
}

// TicketDeadline is a deadline that is open.
type TicketDeadline struct {
	Member  string    `json:"deadline"`
	Message string    `json:"message"`
	Due     time.Time `json:"due"`
}

// TicketMessage is a message of a ticket, as its sender signed it.
type TicketMessage struct {
	Cursor  event.Cursor    `json:"cursor"`
	Topic   string          `json:"topic"`
	Time    time.Time       `json:"time"`
	Message json.RawMessage `json:"message"` // nil: an operator's retention has removed it
}

// Ticket returns a ticket with all of its messages that the caller may read.
func (c *Client) Ticket(ctx context.Context, id string) (Ticket, error) {
	return c.TicketAfter(ctx, id, event.Cursor{})
}

// TicketAfter is Ticket with those messages only that came after a cursor. All else that it says is as of then, or
// later.
func (c *Client) TicketAfter(ctx context.Context, id string, after event.Cursor) (Ticket, error) {
	t, err := c.ticketPage(ctx, id, after)
	for err == nil && t.Next != (event.Cursor{}) {
		var more Ticket
		if more, err = c.ticketPage(ctx, id, t.Next); err == nil {
			more.Messages = append(t.Messages, more.Messages...)
			t = more
		}
	}
	return t, err
}

func (c *Client) ticketPage(ctx context.Context, id string, after event.Cursor) (t Ticket, err error) {
	at := c.base + "/v1/tickets/" + url.PathEscape(id)
	if after != (event.Cursor{}) {
		at += "?after=" + url.QueryEscape(after.String())
	}
	_, _, err = c.do(ctx, call{method: http.MethodGet, url: at}, &t)
	return t, err
}

// Verbs returns the catalogue of verbs that is in force, as package ticket reads it.
func (c *Client) Verbs(ctx context.Context) (json.RawMessage, error) {
	var text json.RawMessage
	_, _, err := c.do(ctx, call{method: http.MethodGet, url: c.base + "/v1/verbs"}, &text)
	return text, err
}

// FollowTicket follows the messages of a ticket that the caller may read, from the first one on or from a cursor, as
// [Client.Follow] does.
func (c *Client) FollowTicket(ctx context.Context, id string, o FollowOptions) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		f := &follower{c: c, topics: []string{">"}, ticket: id, opts: o, cursor: o.Cursor, started: o.Cursor != event.Cursor{}}
		err := f.run(ctx, yield)
		if err != nil && !errors.Is(err, errStopped) {
			yield(Item{Cursor: f.cursor}, err)
		}
	}
}
