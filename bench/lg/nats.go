// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const natsStall = 20 * time.Second

// natsOps publishes the same data to a fresh JetStream file stream, the key as
// the last token of the subject.
func (c *pubConfig) natsOps() ([]op, func() error, error) {
	ctx := context.Background()
	admin, err := dialJetStream(c.addr, 0)
	if err != nil {
		return nil, nil, err
	}
	_ = admin.DeleteStream(ctx, c.stream) // It may not be there.
	_, err = admin.CreateStream(ctx, jetstream.StreamConfig{
		Name: c.stream, Subjects: []string{c.subjects + ".>"}, Storage: jetstream.FileStorage,
		MaxMsgsPerSubject: c.maxPerSubject, AllowDirect: true,
	})
	if err != nil {
		return nil, nil, err
	}
	data, err := newRequest(requestSpec{Mode: "plain", Data: c.spec.Data, Size: c.spec.Size, Run: c.spec.Run})
	if err != nil {
		return nil, nil, err
	}
	payload := data.buf[len(data.buf)-c.spec.Size:]
	subjects := make([]string, c.spec.Keys)
	for i := range subjects {
		subjects[i] = c.subjects + "." + strconv.Itoa(i)
	}
	var ops []op
	var all []jetstream.JetStream
	for range c.n {
		js, err := dialJetStream(c.addr, c.inflight)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, js)
		ops = append(ops, c.natsOp(ctx, js, subjects, payload))
	}
	return ops, func() error { return c.natsFinish(ctx, admin, all) }, nil
}

func dialJetStream(addr string, inflight int) (jetstream.JetStream, error) {
	nc, err := nats.Connect("nats://" + addr)
	if err != nil {
		return nil, err
	}
	return jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(max(1, inflight)))
}

func (c *pubConfig) natsOp(ctx context.Context, js jetstream.JetStream, subjects []string, payload []byte) op {
	if c.target == "nats" {
		return func(post int, _ time.Time) error {
			_, err := js.Publish(ctx, subjects[keyOf(post, len(subjects))], payload)
			return err
		}
	}
	return func(post int, _ time.Time) error {
		_, err := js.PublishAsync(subjects[keyOf(post, len(subjects))], payload, jetstream.WithStallWait(natsStall))
		return err
	}
}

// natsFinish waits for the acknowledgements that are outstanding.
func (c *pubConfig) natsFinish(ctx context.Context, admin jetstream.JetStream, all []jetstream.JetStream) error {
	for _, js := range all {
		select {
		case <-js.PublishAsyncComplete():
		case <-time.After(natsStall):
			return fmt.Errorf("%d publishes were never acknowledged", js.PublishAsyncPending())
		}
	}
	if c.keep {
		return nil
	}
	return admin.DeleteStream(ctx, c.stream)
}

// readJetStream reads count stored messages with a fresh consumer: an ordered
// one, or a pull consumer without acknowledgements.
func readJetStream(js jetstream.JetStream, stream string, pull bool, count int) (n int, first, all time.Duration, err error) {
	ctx := context.Background()
	begin := time.Now()
	var consumer jetstream.Consumer
	if pull {
		consumer, err = js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true,
		})
	} else {
		consumer, err = js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	}
	if err != nil {
		return 0, 0, 0, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1000))
	if err != nil {
		return 0, 0, 0, err
	}
	defer messages.Stop()
	for n < count {
		if _, err := messages.Next(); err != nil {
			return n, first, 0, err
		}
		if n == 0 {
			first = time.Since(begin)
		}
		n++
	}
	return n, first, time.Since(begin), nil
}
