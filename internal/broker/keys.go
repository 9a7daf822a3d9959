// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"signalbox/event"
	"signalbox/internal/eventlog"
	"signalbox/internal/identity"
	"signalbox/internal/signature"
)

// keysMax bounds the keys that are in use at one time, and so the signatures of
// one request.
const keysMax = 4

// SigningKey is a key with which webhooks are signed.
type SigningKey struct {
	Key   signature.Key
	Until time.Time // of one that was replaced: from when on it is not used any more
}

// signingKeys are those of the settings, as they were stored last.
type signingKeys struct {
	rotating sync.Mutex // held while one is replaced
	mu       sync.Mutex
	settings eventlog.Settings // guarded by mu
	list     []SigningKey      // guarded by mu
}

func (k *signingKeys) load(s eventlog.Settings) error {
	var list []SigningKey
	for text := range strings.FieldsSeq(s.WebhookKeys) {
		text, until, replaced := strings.Cut(text, "@")
		key, err := signature.Parse(text)
		if err != nil {
			return fmt.Errorf("broker: a key for webhooks: %w", err)
		}
		sk := SigningKey{Key: key}
		if replaced {
			ms, err := strconv.ParseInt(until, 10, 64)
			if err != nil {
				return fmt.Errorf("broker: the time of a key for webhooks: %w", err)
			}
			sk.Until = time.UnixMilli(ms)
		}
		list = append(list, sk)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settings, k.list = s, list
	return nil
}

// WebhookKeys returns the keys that are in use, the newest first.
func (b *Broker) WebhookKeys() []SigningKey {
	b.keys.mu.Lock()
	defer b.keys.mu.Unlock()
	now := time.UnixMilli(b.clock.Millis())
	var list []SigningKey
	for _, k := range b.keys.list {
		if k.Until.IsZero() || now.Before(k.Until) {
			list = append(list, k)
		}
	}
	return list
}

// RotateWebhookKey draws a new key. Webhooks are signed with those before it, too,
// until the overlap is over, so that receivers have time to learn of it.
func (b *Broker) RotateWebhookKey(ctx context.Context, p identity.Principal, overlap time.Duration) ([]SigningKey, error) {
	if overlap < 0 || overlap > 90*24*time.Hour {
		return nil, event.Errorf(event.CodeParameterInvalid, "The overlap must be from 0s to 90d.").With("overlap")
	}
	b.keys.rotating.Lock()
	defer b.keys.rotating.Unlock()
	b.keys.mu.Lock()
	settings := b.keys.settings
	b.keys.mu.Unlock()
	now := b.clock.Millis()
	texts := []string{signature.NewPrivate()}
	for text := range strings.FieldsSeq(settings.WebhookKeys) {
		key, until, replaced := strings.Cut(text, "@")
		ends := now + overlap.Milliseconds()
		if replaced {
			ms, err := strconv.ParseInt(until, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("broker: the time of a key for webhooks: %w", err)
			}
			ends = min(ends, ms)
		}
		if ends > now && len(texts) < keysMax {
			texts = append(texts, fmt.Sprintf("%s@%d", key, ends))
		}
	}
	settings.WebhookKeys = strings.Join(texts, " ")
	proposal := &eventlog.Proposal{Kind: eventlog.KindControl, AdmittedMillis: now, Principal: p.Subject(),
		Control: eventlog.Control{Op: eventlog.OpConfigure, Settings: &settings}}
	result, err := b.propose(ctx, proposal)
	if err == nil && result.Err != nil {
		err = result.Err
	}
	if err != nil {
		return nil, err
	}
	if err := b.keys.load(settings); err != nil {
		return nil, err
	}
	b.logger.Info("webhooks are signed with a new key", "public", b.WebhookKeys()[0].Key.Public(), "overlap", overlap)
	return b.WebhookKeys(), nil
}
