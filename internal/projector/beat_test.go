// SPDX-License-Identifier: Apache-2.0

package projector_test

import (
	"testing"

	"signalbox/internal/store"
	"signalbox/ticket"
)

// TestRegisteredAgainIsExpectedAgain: whoever is revoked is nobody's concern, silent or
// not; whoever is registered under that name later is expected from the first execute on,
// as one that was never heard. A restart takes nothing from that.
func TestRegisteredAgainIsExpectedAgain(t *testing.T) {
	for _, c := range []struct {
		name    string
		revoked int64 // when
		owed    string
	}{
		{"revoked while it is heard", 5_000, ""},
		{"revoked while it is silent", 40_000, "heartbeats_missed warning to platform-ops about 20 of -"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := bussed(t)
			defer r.close()
			r.say(beat(20, "net", 0, ">=2"))
			r.do(tick(epoch + c.revoked))
			if got := r.owing(); got != c.owed {
				t.Fatalf("before it is revoked %q", got)
			}
			revoke := ticket.Change{Revision: 6, Op: ticket.ChangeRevoke, Agent: "net"}
			if result := r.do(changeAgent(t, revoke, "admin")); result.Err != nil {
				t.Fatal(result.Err)
			}
			r.reopen()
			checkSound(t, r)
			if n := r.projector.Bus().Silent; n != 0 {
				t.Errorf("%d agents are silent, of whom none is registered", n)
			}
			r.do(tick(epoch + 50_000))
			if got := r.owing(); got != "" {
				t.Errorf("of one that is revoked %q", got)
			}
			if result := r.do(changeAgent(t, addAgent(7, "net", "net again"), "admin")); result.Err != nil {
				t.Fatal(result.Err)
			}
			steps := untilExecute()
			for i := range steps {
				steps[i].at = 60_000
				if steps[i].From == "net" {
					steps[i].Key = agentPublic("net again")
				}
			}
			steps[5].Deadlines, steps[5].Version = nil, "1.0.0"
			r.say(steps...)
			if n := r.projector.Bus().Withheld; n != 0 {
				t.Error("what it reads is told by a heartbeat of the one before")
			}
			r.reopen()
			checkSound(t, r)
			r.do(tick(epoch + 89_999))
			if got := r.owing(); got != "" {
				t.Errorf("too early: %q", got)
			}
			r.reopen()
			r.do(tick(epoch + 90_000))
			if got, want := r.owing(), "heartbeats_missed warning to platform-ops about 6 of -"; got != want {
				t.Errorf("it says nothing, and that is %q, want %q", got, want)
			}
			checkSound(t, r)
		})
	}
}

// TestNobodyWatchesNobodyIsWatchedAgain: a row that says neither that somebody looks
// nor that a silence was told, as earlier levels left it of who was registered again.
func TestNobodyWatchesNobodyIsWatchedAgain(t *testing.T) {
	r := bussed(t)
	defer r.close()
	r.say(beat(20, "net", 0, ">=1"))
	r.projector = nil
	var row store.BeatRow
	b := r.store.NewBatch()
	err := r.store.MessagesOfKind(store.MessageBeat, "net", func(_ string, value []byte) (bool, error) {
		return false, store.DecodeMessage(store.MessageBeat, value, &row)
	})
	if err != nil {
		t.Fatal(err)
	}
	b.DeleteTimer(store.Timer{DueMillis: row.Timer, Topic: row.Index, Position: row.Armed, Kind: store.TimerSilence, Key: "net"})
	row.Timer = 0
	value, err := store.EncodeMessage(row)
	if err != nil {
		t.Fatal(err)
	}
	b.SetMessage(store.MessageBeat, "net", value)
	if err := r.store.Commit(b, func() {}); err != nil {
		t.Fatal(err)
	}
	b.Close()
	r.reopen()
	steps := untilExecute()
	steps[5].Deadlines, steps[5].at = nil, 60_000
	r.say(steps[:5]...)
	r.do(tick(epoch + 60_000))
	r.say(steps[5])
	r.do(tick(epoch + 90_000))
	if got, want := r.owing(), "heartbeats_missed warning to platform-ops about 6 of -"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	checkSound(t, r)
}
