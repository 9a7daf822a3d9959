// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ticketOps are publishers of ticket messages. Each opens a ticket of its own, so
// that no message is a repetition. All are signed before anything is measured, and a
// run that needs more than were signed fails.
func (c *pubConfig) ticketOps() ([]op, error) {
	u, err := url.Parse(c.spec.URL)
	if err != nil {
		return nil, err
	}
	key, err := readSigner(c.key)
	if err != nil {
		return nil, err
	}
	signed := c.signed
	if c.events > 0 {
		signed = c.events + c.n
	}
	requests := make([]*request, signed)
	var signing sync.WaitGroup
	for i := range c.n {
		signing.Go(func() {
			for post := i; post < signed; post += c.n {
				body := openTicket(key, c.agent, c.spec.Run, post, c.spec.Size, time.Now().UTC())
				head := "POST /v1/messages HTTP/1.1\r\nHost: " + u.Host + "\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
				requests[post] = &request{buf: append([]byte(head), body...), events: 1}
			}
		})
	}
	signing.Wait()
	var ops []op
	for range c.n {
		h, err := dialRaw(u.Host, c.expect)
		if err != nil {
			return nil, err
		}
		ops = append(ops, func(post int, _ time.Time) error {
			if post >= signed {
				return fmt.Errorf("all %d messages that were signed are sent: sign more with -signed", signed)
			}
			return h.post(requests[post])
		})
	}
	return ops, nil
}

// readSigner reads the key of an agent, in the form PKCS #8.
func readSigner(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is no key in PEM form", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("it is no Ed25519 key")
	}
	return signer, nil
}

// openTicket is a signed ticket.open of so many bytes. Its members stand in the order
// of the canonical form (RFC 8785) and have nothing in them that it would spell in
// another way, so what is signed is what is sent but for sig. The deadline is a day
// off: the tickets stay open.
func openTicket(key ed25519.PrivateKey, agent, run string, post, size int, at time.Time) []byte {
	ticket := fmt.Sprintf("%s-%012d", run, post)
	stamp := at.Format(time.RFC3339)
	make := func(pad int, sig string) []byte {
		return fmt.Appendf(nil, `{"causation_id":"-","from":%q,"id":%q,"idempotency_key":%q,"nonce":"nonce-%s","payload":{"ack_by":%q,"body_ref":"bench:%s",`+
			`"op":"open","priority":3,"requester":"bench","source_ref":"bench:%s","title":"The web is slow"},"schema_version":"1.0.0",%s"ticket_id":%q,"to":"orchestrator","trace_id":%q,"ts":%q,"type":"ticket.open"}`,
			agent, messageID(at, post, run), ticket, ticket, at.Add(24*time.Hour).Format(time.RFC3339), strings.Repeat("p", pad), ticket, sig, ticket, ticket, stamp)
	}
	const sigMembers = len(`"sig":"ed25519:",`) + 86
	pad := max(0, size-len(make(0, ""))-sigMembers)
	signature := ed25519.Sign(key, make(pad, ""))
	return make(pad, `"sig":"ed25519:`+base64.RawURLEncoding.EncodeToString(signature)+`",`)
}

// messageID is msg_ and a ULID: the time, and bits that are this run's and the
// message's alone.
func messageID(at time.Time, post int, run string) string {
	const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	out := []byte("msg_")
	millis := uint64(at.UnixMilli())
	for shift := 45; shift >= 0; shift -= 5 {
		out = append(out, crockford[millis>>shift&31])
	}
	seed, _ := strconv.ParseUint(run, 36, 64) // newRun made it
	for shift := 35; shift >= 0; shift -= 5 {
		out = append(out, crockford[seed>>shift&31])
	}
	for shift := 35; shift >= 0; shift -= 5 {
		out = append(out, crockford[uint64(post)>>shift&31])
	}
	return string(out)
}
