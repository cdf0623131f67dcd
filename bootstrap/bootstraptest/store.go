package bootstraptest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func storeCases() claimList {
	return claimList{
		kittest.New("Identity", Want{Size: 4, Timeout: longTimeout}, (*job).identity),
		kittest.New("PutIsVisibleAfterFence", Want{Size: 4, Timeout: longTimeout}, (*job).putIsSeenAfterFence),
		kittest.New("PutIsVisibleAfterConstruct", Want{Size: 3, Timeout: longTimeout}, (*job).putIsSeenAfterConstruct),
		kittest.New("PutCopiesAndReplaces", Want{Size: 1, Timeout: longTimeout}, (*job).putCopies),
		kittest.New("GetWaitsForPut", Want{Size: 2, Timeout: longTimeout}, (*job).getWaits),
		kittest.New("GetOfProcessOutsideJob", Want{Size: 1, Timeout: longTimeout}, (*job).getOfOutsider),
		kittest.New("GetNamesMissingOwner", Want{Size: 1, Timeout: shortTimeout}, (*job).getTimesOut),
		kittest.New("NamesAreAnyBytes", Want{Size: 2, Timeout: longTimeout}, (*job).anyBytes),
		kittest.New("ValuesUpToTheLimit", Want{Size: 2, Timeout: longTimeout}, (*job).limits),
	}
}

func (j *job) identity() {
	for r, c := range j.Clients {
		id := c.Identity()
		switch {
		case id.Proc.Rank != uint32(r) || id.Size != len(j.Clients) || id.Proc.Namespace == "":
			j.Fatalf("rank %d of %d has %+v", r, len(j.Clients), id)
		case id.Proc.Namespace != j.Clients[0].Identity().Proc.Namespace:
			j.Fatalf("rank %d is in namespace %q", r, id.Proc.Namespace)
		case len(id.LocalRanks) != id.LocalSize || !slices.IsSorted(id.LocalRanks):
			j.Fatalf("rank %d: LocalSize %d, Locals %v", r, id.LocalSize, id.LocalRanks)
		case id.LocalRank < 0 || id.LocalRank >= id.LocalSize || id.LocalRanks[id.LocalRank] != uint32(r):
			j.Fatalf("rank %d: LocalRank %d in Locals %v", r, id.LocalRank, id.LocalRanks)
		}
		j.nodes(r, c)
	}
}

// nodes checks the map of the nodes, which may be unknown.
func (j *job) nodes(rank int, c bootstrap.Client) {
	id := c.Identity()
	m, err := bootstrap.NodeMapOf(j.Context(), c)
	if err != nil {
		j.Fatalf("rank %d: map of the nodes: %v", rank, err)
	}
	if len(m) == 0 {
		return
	}
	if again, err := bootstrap.MakeNodeMap(id.FirstRank, id.Size, m); err != nil || !slices.Equal(again, m) {
		j.Fatalf("rank %d: map of the nodes %v: %v", rank, m, err)
	}
	if on := id.OnNode(m); !slices.Equal(on.LocalRanks, id.LocalRanks) {
		j.Fatalf("rank %d: map of the nodes %v, Locals %v", rank, m, id.LocalRanks)
	}
	if first, err := bootstrap.NodeMapOf(j.Context(), j.Clients[0]); err != nil || !slices.Equal(first, m) {
		j.Fatalf("rank %d: map of the nodes %v, but rank 0 has %v, %v", rank, m, first, err)
	}
}

// seeAll puts a card, synchronizes and gets every card, in rounds. Every key is used in two rounds,
// so waiting for a first value is not enough.
func (j *job) seeAll(meet func(rank, round int)) {
	card := func(round, rank int) string { return fmt.Sprintf("card %d of %d", round, rank) }
	j.onAllRanks(func(r int) {
		for round := range 20 {
			key := fmt.Sprintf("card.%d", round/2)
			j.put(r, key, card(round, r))
			meet(r, 2*round)
			for q := range j.Clients {
				j.get(r, q, key, card(round, q))
			}
			meet(r, 2*round+1) // Values are replaced after all reads.
		}
	})
}

func (j *job) putIsSeenAfterFence() {
	j.seeAll(func(rank, round int) { j.fence(rank, fmt.Sprint(round), j.ranks()...) })
}

func (j *job) putIsSeenAfterConstruct() {
	var seen ids
	j.seeAll(func(rank, round int) { j.construct(rank, j.ranks(), fmt.Sprint(round), &seen, fmt.Sprint(round)) })
}

func (j *job) putCopies() {
	c := j.Clients[0]
	for _, text := range []string{"first", "again", ""} {
		v := []byte(text)
		j.Check(c.Put(j.Context(), "k", v))
		clear(v) // Put has copied the value.
		for range 2 {
			got, err := c.Get(j.Context(), c.Identity().Proc, "k")
			if err != nil || string(got) != text {
				j.Fatalf("got %q, %v, want %q", got, err, text)
			}
			clear(got) // The caller owns the result.
		}
	}
}

func (j *job) getWaits() {
	got := j.Go(func() { j.get(1, 0, "late", "here") })
	j.fenceAll("start") // The Get has probably started.
	j.put(0, "late", "here")
	got()
}

func (j *job) getOfOutsider() {
	c := j.Clients[0]
	ns := c.Identity().Proc.Namespace
	_, err := c.Get(j.Context(), framework.Proc{Namespace: ns, Rank: 1 << 20}, "k")
	j.Is("rank beyond the job", err, framework.ErrRank)
	_, err = c.Get(j.Context(), framework.Proc{Namespace: ns + "x"}, "k")
	j.Is("other job", err, framework.ErrRank)
}

func (j *job) getTimesOut() {
	_, err := j.Clients[0].Get(j.Context(), j.group(0)[0], "never")
	j.Is("get", err, framework.ErrTimeout)
	j.checkMissing("get", err, j.group(0), nil)
}

// Go strings may have bytes that are no UTF-8, and zero bytes.
func (j *job) anyBytes() {
	names := []string{"", "\xff\xfe", "a\x00b", "a\x00c", "a=b c\n", "\u20ac"}
	j.onAllRanks(func(r int) {
		for _, name := range names {
			j.put(r, name, name+"!")
		}
		for _, name := range names {
			j.fence(r, name, j.ranks()...)
			j.get(r, 1-r, name, name+"!")
		}
	})
}

func (j *job) limits() {
	name := func(n int) string { return strings.Repeat("n", n) }
	j.onAllRanks(func(r int) {
		c, ctx := j.Clients[r], j.Context()
		j.put(r, name(bootstrap.MaxName), name(bootstrap.MaxValue))
		cons, err := c.Construct(ctx, j.world(), name(bootstrap.MaxName), bytes.Repeat([]byte{byte(r)}, bootstrap.MaxPayload))
		j.Check(err)
		for q, p := range cons.Payloads {
			j.Same(fmt.Sprint("payload of rank ", q), p, bytes.Repeat([]byte{byte(q)}, bootstrap.MaxPayload))
		}
		j.get(r, 1-r, name(bootstrap.MaxName), name(bootstrap.MaxValue))
		_, err1 := c.Construct(ctx, j.world(), "t", make([]byte, bootstrap.MaxPayload+1))
		_, err2 := c.Construct(ctx, j.world(), name(bootstrap.MaxName+1), nil)
		_, err3 := c.Get(ctx, j.group(r)[0], name(bootstrap.MaxName+1))
		for what, err := range map[string]error{
			"value over the limit":     c.Put(ctx, "k", make([]byte, bootstrap.MaxValue+1)),
			"key over the limit":       c.Put(ctx, name(bootstrap.MaxName+1), nil),
			"payload over the limit":   err1,
			"tag over the limit":       err2,
			"get over the limit":       err3,
			"fence tag over the limit": c.Fence(ctx, j.world(), name(bootstrap.MaxName+1)),
		} {
			j.Is(what, err, framework.ErrUnsupported)
		}
		j.fence(r, "after", j.ranks()...) // The connection is unaffected.
	})
}

// errCause is the cause of contexts that a case ends.
var errCause = errors.New("the kit's own reason")
