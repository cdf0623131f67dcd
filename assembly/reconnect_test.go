package assembly

import (
	"testing"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Both ends derive equal pairs from equal payloads, whichever end lists the other. Entries for other incarnations are ignored.
func TestDisconnectedPairs_BothEnds_AreEqual(t *testing.T) {
	group := make([]framework.Proc, 4)
	payloads := []wireup.Payload{
		{Nonce: 10, Ended: []wireup.Ended{{Rank: 1, Nonce: 11, Epoch: 2}, {Rank: 3, Nonce: 99}, {Rank: 1 << 31, Nonce: 1}}},
		{Nonce: 11, Ended: []wireup.Ended{{Rank: 0, Nonce: 10, Epoch: 3}, {Rank: 1, Nonce: 11}}},
		{Nonce: 12, Ended: []wireup.Ended{{Rank: 3, Nonce: 13}}},
		{Nonce: 13},
	}
	for rank, want := range []map[int]uint32{{1: 3}, {0: 3}, {3: 0}, {2: 0}} {
		a := &Assembly{Stack: &Stack{env: progress.Env{Self: framework.Incarnation{Nonce: payloads[rank].Nonce}}}}
		got := a.disconnectedPairs(group, rank, payloads)
		if len(got) != len(want) {
			t.Errorf("rank %d: %v, want %v", rank, got, want)
		}
		for i, times := range want {
			if at, ok := got[i]; !ok || at != times {
				t.Errorf("rank %d: %v, want %v", rank, got, want)
			}
		}
	}
}

func TestPayload_MaxEnded_FitsBootstrapLimit(t *testing.T) {
	a := &Assembly{Stack: &Stack{env: progress.Env{Self: framework.Incarnation{Nonce: 7}}}}
	good, err := wireup.DecodePayload(somePayload(t))
	if err != nil {
		t.Fatal(err)
	}
	a.encodedCapabilities, a.ownCard.encodedCard = good.Capabilities, good.Card
	ended := make([]wireup.Ended, wireup.MaxEnded)
	for i := range ended {
		ended[i] = wireup.Ended{Rank: 1 << 31, Nonce: 1 << 63, Epoch: 1 << 31}
	}
	b, err := a.encodePayload(a.ownCard, wireup.Payload{Ended: ended, IDs: cid.NewTable(10).WithholdCandidates(cid.PolicyAgree, 2, 1<<10).Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	p, err := wireup.DecodePayload(b)
	if err != nil || len(p.Ended) != wireup.MaxEnded || p.Ended[5] != ended[5] {
		t.Errorf("%d, %v", len(p.Ended), err)
	}
	if less := len(b) - len(somePayload(t)); less > wireup.MaxEnded*wireup.EndedSize {
		t.Errorf("they take %d bytes, more than EndedSize", less)
	}
}
