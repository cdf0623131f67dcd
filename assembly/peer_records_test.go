package assembly

import (
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func incarnationOf(rank uint32, nonce uint64) framework.Incarnation {
	return framework.Incarnation{ID: framework.MakeProcID(0, rank), Nonce: nonce}
}

func TestPeerRecords_NewIncarnation_ReplacesTheOld(t *testing.T) {
	k := newPeerRecords()
	k.set(incarnationOf(1, 5), peerEntry{record: record{encodedCard: []byte("old")}})
	k.set(incarnationOf(1, 6), peerEntry{record: record{encodedCard: []byte("new")}})
	if _, ok := k.get(incarnationOf(1, 5)); ok {
		t.Error("the old incarnation is still known")
	}
	if _, ok := k.owner(5); ok {
		t.Error("the old incarnation's nonce is still taken")
	}
	if known, ok := k.get(incarnationOf(1, 6)); !ok || string(known.encodedCard) != "new" {
		t.Errorf("the new incarnation has %q, %t", known.encodedCard, ok)
	}
	k.remove(incarnationOf(1, 5)) // Not the present incarnation.
	if id, ok := k.owner(6); !ok || id != framework.MakeProcID(0, 1) || k.len() != 1 {
		t.Errorf("nonce 6 is of %v, %t, of %d", id, ok, k.len())
	}
}

func TestPeerRecords_NonceOfAnother_StaysTheFirstOnes(t *testing.T) {
	k := newPeerRecords()
	k.set(incarnationOf(1, 5), peerEntry{})
	k.set(incarnationOf(2, 5), peerEntry{})
	k.remove(incarnationOf(2, 5))
	if id, ok := k.owner(5); !ok || id != framework.MakeProcID(0, 1) {
		t.Errorf("nonce 5 is of %v, %t", id, ok)
	}
}

func TestPeerRecords_Renewal_EndsWithTheRecord(t *testing.T) {
	k := newPeerRecords()
	k.set(incarnationOf(1, 5), peerEntry{epochState: epochState{epoch: 2}})
	if known, _ := k.get(incarnationOf(1, 5)); known.epoch != 2 {
		t.Errorf("reconnects: %d", known.epoch)
	}
	k.remove(incarnationOf(1, 5))
	k.set(incarnationOf(1, 5), peerEntry{})
	if known, _ := k.get(incarnationOf(1, 5)); known.epochState != (epochState{}) || len(k.epochByID) != 0 {
		t.Errorf("after its removal: %+v", known.epochState)
	}
}

func BenchmarkTaken(b *testing.B) {
	a := &Assembly{Stack: new(Stack), peers: newPeerRecords()}
	const n = 1 << 14
	for rank := range uint32(n) {
		a.peers.set(incarnationOf(rank, uint64(rank)+1), peerEntry{})
	}
	for i := 0; b.Loop(); i++ {
		if err := a.checkNonce(incarnationOf(uint32(i%n), uint64(i%n)+1)); err != nil {
			b.Fatal(err)
		}
	}
}
