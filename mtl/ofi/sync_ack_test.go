package ofi

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// moduleWithUnackedSends returns a module with unacked synchronous sends of these tags to the peer with nonce 7, and
// the sends in their order.
func moduleWithUnackedSends(tags []int) (m *module, sends []*slot) {
	m = &module{tagLayout: layout{hasSourceData: true}, peerTable: peerTable{peersByEndpoint: make([]peer, 2), byNonce: map[uint64]mtl.Endpoint{7: 1}}}
	for _, tag := range tags {
		s := &slot{Slot: base.Slot{Kind: base.SlotSyncSend, Peer: 1}, tag: uint64(tag)}
		s.queueEntry.Owner = s
		m.awaitAck(s)
		sends = append(sends, s)
	}
	return m, sends
}

// The result is compared with a linear search.
func TestSyncAck_AnyOrderOfTags_CompletesOldestSendOfTag(t *testing.T) {
	var tags []int
	for range 500 {
		tags = append(tags, rand.IntN(100))
	}
	m, sends := moduleWithUnackedSends(tags)
	for _, tag := range slices.Concat(rand.Perm(110), rand.Perm(110), tags) {
		want := slices.IndexFunc(sends, func(s *slot) bool { return int(s.tag) == tag && !s.isAcked })
		m.receiveSyncAck(7, uint64(tag))
		for i, s := range sends {
			if !s.isAcked && i == want {
				t.Fatalf("an ack with tag %d did not complete send %d", tag, i)
			}
		}
		if n := len(slices.DeleteFunc(slices.Clone(sends), func(s *slot) bool { return !s.isAcked })); want >= 0 {
			sends = slices.Delete(sends, want, want+1)
		} else if n > 0 {
			t.Fatalf("an ack with tag %d completed %d sends, and there is none with that tag", tag, n)
		}
	}
	m.receiveSyncAck(7, 1<<64-2) // from an unknown process; AnyTag as an int
	m.receiveSyncAck(8, 1)
	for _, s := range sends {
		if s.isAcked {
			t.Fatalf("an ack of an unknown process completed the send with tag %d", s.tag)
		}
	}
}

func TestSyncAck_ManyUnackedSends_TakesConstantTime(t *testing.T) {
	timePerAck := func(n int) time.Duration {
		var tags []int
		for i := range n {
			tags = append(tags, i)
		}
		best := time.Hour
		for range 5 {
			m, _ := moduleWithUnackedSends(tags)
			begin := time.Now()
			for i := range n {
				m.receiveSyncAck(7, uint64(n-1-i))
			}
			best = min(best, time.Since(begin)/time.Duration(n))
		}
		return best
	}
	few, many := timePerAck(100), timePerAck(20_000)
	if t.Log(few, many); many > 20*few {
		t.Errorf("an ack takes %v with 20000 unacked sends, and %v with 100", many, few)
	}
}
