package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/coll/leaders"
)

// openingOn returns the two groups of a rank that merge verdicts.
func openingOn(p coll.Placement, rank int) (near, top leaders.Group) {
	k := State{env: Env{Rank: rank}, resources: &resources{nodes: p}}
	return k.near(), first(p, rank)
}

// TestVerdicts_AnyNodesAndFailures_AreEqualInAllMembers merges random verdicts on random placements
// of ranks.
func TestVerdicts_AnyNodesAndFailures_AreEqualInAllMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 12).Draw(t, "nodes")
		verdicts, want := make([]verdict, len(nodes)), verdict{lowestTerms: ^uint32(0)}
		for rank := range verdicts {
			terms := rapid.Uint32Range(7, 8).Draw(t, "terms")
			verdicts[rank] = verdict{lowestTerms: terms, highestTerms: terms}
			if kind := rapid.IntRange(-3, int(differentTerms)).Draw(t, "failure"); kind > 0 {
				verdicts[rank].fail(failureKind(kind), rank)
			}
			want.merge(verdicts[rank])
		}
		p := coll.PlacementOf(nodes...)
		w := colltest.NewWorld(len(nodes), colltest.Options{})
		errs := w.Run(context.Background(), func(ctx context.Context, peer *colltest.Peer) error {
			var s coll.Schedule
			near, top := openingOn(p, peer.Rank())
			exchangeAllVerdicts(&s, near, top)
			b := verdicts[peer.Rank()].encode()
			err := s.Inline(ctx, peer, &coll.Buffers{Out: b, Temp: make([]byte, s.Temp)}, &mergeVerdicts)
			if got := decodeVerdict(b); err == nil && got != want {
				return fmt.Errorf("rank %d has %+v, want %+v", peer.Rank(), got, want)
			}
			return err
		})
		if err := errors.Join(append(errs, w.CheckIdle())...); err != nil {
			t.Fatalf("nodes %v: %v", nodes, err)
		}
	})
}

// Members receive the records of their node, and no message leaves it.
func TestExchangeCards_AnyNodes_StayOnTheNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 10).Draw(t, "nodes")
		p := coll.PlacementOf(nodes...)
		w := colltest.NewWorld(len(nodes), colltest.Options{})
		errs := w.Run(context.Background(), func(ctx context.Context, peer *colltest.Peer) error {
			var s coll.Schedule
			near, _ := openingOn(p, peer.Rank())
			exchangeCards(&s, near)
			for _, step := range s.Steps {
				if p.Node(int(step.Peer)) != p.Node(peer.Rank()) {
					return fmt.Errorf("rank %d exchanges cards with rank %d of another node", peer.Rank(), step.Peer)
				}
			}
			records := make([]byte, near.Size*openRecord)
			records[0] = byte(peer.Rank())
			if err := s.Inline(ctx, peer, &coll.Buffers{Out: records}, nil); err != nil {
				return err
			}
			var from []int
			for i := range near.Size {
				from = append(from, int(records[i*openRecord]))
			}
			slices.Sort(from)
			if want := p.Ranks(p.Node(peer.Rank())); !slices.Equal(from, want) {
				return fmt.Errorf("rank %d has the records of %v, want %v", peer.Rank(), from, want)
			}
			return nil
		})
		if err := errors.Join(append(errs, w.CheckIdle())...); err != nil {
			t.Fatalf("nodes %v: %v", nodes, err)
		}
	})
}

// A member that cannot open its part makes others unable to join, and the lowest rank is named.
func TestVerdict_SeveralFailures_ReportsTheCause(t *testing.T) {
	v := verdict{lowestTerms: 1, highestTerms: 1}
	if err := v.err("shm"); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		kind failureKind
		rank int
		want string
	}{
		{cannotJoin, 2, "rank 2 could not join the parts of its node"},
		{cannotOpen, 9, "rank 9 could not open its part"},
		{cannotOpen, 5, "rank 5 could not open its part"},
		{cannotOpen, 6, "rank 5 could not open its part"},
		{differentTerms, 7, "ranks on the node of rank 7 have different values of coll.shm's parameters: all ranks need the same"},
	} {
		if v.fail(c.kind, c.rank); v.err("shm").Error() != c.want {
			t.Errorf("after %v of rank %d: %v", c.kind, c.rank, v.err("shm"))
		}
	}
	if err := (verdict{lowestTerms: 1, highestTerms: 2}).err("hier"); err == nil || err.Error() != "nodes have different values of coll.hier's parameters: all ranks need the same" {
		t.Error(err)
	}
}

// A record that makes no sense may come from a member that reports no failure.
func TestVerdict_RecordIsRefused_FailsInAllMembers(t *testing.T) {
	own := make([]byte, openRecord)
	for name, c := range map[string]struct {
		record []byte
		want   string
	}{
		"no card":          {make([]byte, openRecord), "rank 5 could not open its part"},
		"length of a card": {append([]byte{0xff}, make([]byte, openRecord-1)...), "rank 5 could not open its part"},
		"different terms":  {append(make([]byte, openRecord-1), 1), "ranks on the node of rank 2 have different values of coll.shm's parameters: all ranks need the same"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeRecord(c.record, own, 5, "shm")
			v := verdict{lowestTerms: 1, highestTerms: 1}
			v.failJoin(2, err)
			if got := v.err("shm"); got == nil || got.Error() != c.want {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
}

// FuzzVerdict merges verdicts of other processes. No verdict panics, and no failure is lost.
func FuzzVerdict(f *testing.F) {
	f.Add(make([]byte, verdictSize), make([]byte, verdictSize))
	f.Add([]byte{}, []byte{8: 1})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		inout, in := make([]byte, verdictSize), make([]byte, verdictSize)
		copy(inout, a)
		copy(in, b)
		isFailed := decodeVerdict(inout).err("shm") != nil || decodeVerdict(in).err("shm") != nil
		mergeVerdicts.Apply(inout, in)
		if err := decodeVerdict(inout).err("shm"); isFailed && err == nil {
			t.Errorf("%x and %x are usable together", a, b)
		}
	})
}
