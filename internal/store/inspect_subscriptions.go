// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"encoding/json"
)

// SubscriptionCount returns how many subscriptions there are said to be.
func (in *Inspector) SubscriptionCount() (n Subscriptions, err error) {
	_, err = get(in.snapshot, appendNameKey(nil, prefixMeta, metaSubscriptions), func(b []byte) error {
		if err := json.Unmarshal(b, &n); err != nil {
			return Damagedf("subscriptions: %w", err)
		}
		return nil
	})
	return n, err
}

// SubscriptionIDAt is a u row.
type SubscriptionIDAt struct {
	ID     string
	Number uint32
}

// SubscriptionIDs walks the u rows.
func (in *Inspector) SubscriptionIDs(each func(SubscriptionIDAt, error) error) error {
	return walk(in, prefixSubscriptionID, func(key, value []byte) (s SubscriptionIDAt, err error) {
		s.ID = string(key[1:])
		s.Number, err = decodeSubscriptionID(value)
		return s, err
	}, each)
}

// SubscriptionConfigAt is a U row.
type SubscriptionConfigAt struct {
	Number uint32
	SubscriptionConfig
}

// SubscriptionConfigs walks the U rows.
func (in *Inspector) SubscriptionConfigs(each func(SubscriptionConfigAt, error) error) error {
	return walk(in, prefixSubscription, func(key, value []byte) (s SubscriptionConfigAt, err error) {
		if len(key) != 1+4 {
			return s, badKey("subscription", key)
		}
		s.Number = binary.BigEndian.Uint32(key[1:])
		s.SubscriptionConfig, err = decodeSubscriptionConfig(value)
		return s, err
	}, each)
}

// SubscriptionStateAt is a V row.
type SubscriptionStateAt struct {
	Number uint32
	SubscriptionState
}

// SubscriptionStates walks the V rows.
func (in *Inspector) SubscriptionStates(each func(SubscriptionStateAt, error) error) error {
	return walk(in, prefixSubscriptionState, func(key, value []byte) (s SubscriptionStateAt, err error) {
		if len(key) != 1+4 {
			return s, badKey("subscription state", key)
		}
		s.Number = binary.BigEndian.Uint32(key[1:])
		s.SubscriptionState, err = DecodeSubscriptionState(value)
		return s, err
	}, each)
}

// DeliveryAt is a W row; which of its parts is set depends on its kind.
type DeliveryAt struct {
	Number   uint32
	Epoch    uint32 // 0 of a dead letter
	Position uint64 // of a pending event or a dead letter
	Parked   bool   // the pending event is stored as a parked one
	Pending  *Pending
	Key      [16]byte
	List     *KeyList
	Letter   *Letter
}

// Deliveries walks the W rows, those of one subscription behind each other.
func (in *Inspector) Deliveries(each func(DeliveryAt, error) error) error {
	return walk(in, prefixDelivery, decodeDelivery, each)
}

func decodeDelivery(key, value []byte) (d DeliveryAt, err error) {
	if len(key) < 1+4+1 {
		return d, badKey("delivery", key)
	}
	d.Number = binary.BigEndian.Uint32(key[1:])
	kind, rest := key[5], key[6:]
	if kind == letterRow && len(rest) == 8 {
		d.Position = binary.BigEndian.Uint64(rest)
		letter, err := DecodeLetter(value)
		d.Letter = &letter
		return d, err
	}
	if len(rest) < 4 {
		return d, badKey("delivery", key)
	}
	d.Epoch = binary.BigEndian.Uint32(rest)
	switch rest = rest[4:]; {
	case kind == keyRow && len(rest) == 16:
		copy(d.Key[:], rest)
		list, err := decodeKeyList(value)
		d.List = &list
		return d, err
	case (kind == pendingRow || kind == parkedRow) && len(rest) == 8:
		d.Position, d.Parked = binary.BigEndian.Uint64(rest), kind == parkedRow
		pending, err := DecodePending(value)
		d.Pending = &pending
		return d, err
	}
	return d, badKey("delivery", key)
}
