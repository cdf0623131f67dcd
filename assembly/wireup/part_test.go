package wireup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"pgregory.net/rapid"
)

func name(rank uint32) framework.Proc { return framework.Proc{Namespace: "job", Rank: rank} }

// chooseFromLists is the choice among the lists of all members.
func chooseFromLists(lists [][]pml.Capabilities) (best pml.Capabilities, isFirst, ok bool) {
	bestSum := -1
candidates:
	for _, candidate := range lists[0] {
		sum := 0
		for _, list := range lists {
			at := slices.IndexFunc(list, func(o pml.Capabilities) bool { return Same(o, candidate) })
			if at < 0 {
				continue candidates
			}
			sum += at
		}
		if bestSum < 0 || sum < bestSum || sum == bestSum && candidate.PML < best.PML {
			best, bestSum = candidate, sum
		}
	}
	isFirst = bestSum >= 0
	for _, list := range lists {
		isFirst = isFirst && Same(list[0], best)
	}
	return best, isFirst, bestSum >= 0
}

// drawPayload draws the payload of a member. Cards, capabilities and ids are often those of others.
func drawPayload(t *rapid.T, rank, size int) (Payload, []pml.Capabilities) {
	all := []pml.Capabilities{{PML: "ob1", Version: 1}, {PML: "cm", Version: 1, Detail: "ofi"}, {PML: "cm", Version: 2, Detail: "ofi"}, {PML: "xx", Version: 1}}
	offers := rapid.Permutation(all).Draw(t, "offers")[:rapid.IntRange(2, 4).Draw(t, "number")]
	capabilities, err := EncodeCapabilities(offers)
	if err != nil {
		t.Fatal(err)
	}
	card := framework.Card{{Component: "node", Blob: []byte{byte(rank)}}}
	if rapid.IntRange(0, 3).Draw(t, "failure") == 0 {
		card = append(card, framework.FailureAddress(fmt.Sprintf("mtl.ofi %d", rank)))
	}
	encoded, err := EncodeCard(card)
	if err != nil {
		t.Fatal(err)
	}
	table := cid.NewTable(3)
	for range rapid.IntRange(0, 2).Draw(t, "used") {
		table.WithholdCandidates(cid.PolicyGather, 2, 100)
	}
	policy := rapid.SampledFrom([]cid.Policy{cid.PolicyAgree, cid.PolicyAgree, cid.PolicyAgree, cid.PolicyGather, cid.PolicyLazy}).Draw(t, "policy")
	p := Payload{Nonce: uint64(rank + 1), Capabilities: capabilities, Card: encoded, GroupIDs: table.WithholdCandidates(policy, 2, 100).Bytes(), Edition: uint32(rank)}
	for range rapid.IntRange(0, 2).Draw(t, "ended") {
		other := rapid.IntRange(0, size-1).Draw(t, "other")
		p.GroupEnded = append(p.GroupEnded, Ended{Rank: uint32(other), Nonce: uint64(other + rapid.IntRange(0, 1).Draw(t, "stale") + 1), Epoch: uint32(rapid.IntRange(0, 3).Draw(t, "times"))})
	}
	return p, offers
}

// Parts that are merged in any tree, over their encoding, decide as the full lists do, and the table has the payload of each member.
func TestPartMerge_AnyTree_DecidesAsTheLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 10).Draw(t, "members")
		var payloads []Payload
		var lists [][]pml.Capabilities
		var ids [][]byte
		var parts []Part
		for rank := range size {
			p, offers := drawPayload(t, rank, size)
			part, err := NewPart(rank, p)
			if err != nil {
				t.Fatal(err)
			}
			payloads, lists, ids, parts = append(payloads, p), append(lists, offers), append(ids, p.GroupIDs), append(parts, part)
		}
		table, err := mergeRandomly(t, parts, size).Decide(77, size, name)
		offer, isFirst, ok := chooseFromLists(lists)
		want := cid.Decision{Policy: cid.PolicyLazy}
		var wantErr error
		if isFirst {
			want, wantErr = cid.Decide(ids)
		}
		if !ok || wantErr != nil {
			if !errors.Is(err, framework.ErrUnsupported) {
				t.Fatalf("%v in place of an error (%v)", err, wantErr)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		checkTable(t, table, payloads, Decision{ChosenCapabilities: offer, IsFirst: isFirst, IDs: want, ReconnectPairs: wantPairs(payloads)})
	})
}

// mergeRandomly merges neighbors in a random order. Each part passes its encoding.
func mergeRandomly(t *rapid.T, parts []Part, size int) *Part {
	for len(parts) > 1 {
		i := rapid.IntRange(0, len(parts)-2).Draw(t, "merge")
		for k := range 2 {
			b, err := parts[i+k].encode(nil)
			if err != nil {
				t.Fatal(err)
			}
			if parts[i+k], err = decodePart(b, size); err != nil {
				t.Fatal(err)
			}
		}
		if err := parts[i].Merge(parts[i+1]); err != nil {
			t.Fatal(err)
		}
		parts = slices.Delete(parts, i+1, i+2)
	}
	return &parts[0]
}

// wantPairs returns the pairs that the members of a construct list of each other.
func wantPairs(payloads []Payload) []Pair {
	times := map[[2]int]uint32{}
	for i, p := range payloads {
		for _, e := range p.GroupEnded {
			if j := int(e.Rank); j != i && payloads[j].Nonce == e.Nonce {
				key := [2]int{min(i, j), max(i, j)}
				times[key] = max(times[key], e.Epoch)
			}
		}
	}
	var pairs []Pair
	for key, n := range times {
		pairs = append(pairs, Pair{LowerRank: uint32(key[0]), HigherRank: uint32(key[1]), ReconnectCount: n})
	}
	slices.SortFunc(pairs, comparePair)
	return pairs
}

func checkTable(t *rapid.T, b []byte, payloads []Payload, want Decision) {
	table, err := OpenTable(b, len(payloads))
	if err != nil {
		t.Fatal(err)
	}
	got := table.Decision()
	if got.IDs.Policy == cid.PolicyGather {
		for i := range payloads {
			r, err := table.Record(i, nil)
			if err != nil {
				t.Fatal(err)
			}
			got.IDs.MemberIDs = append(got.IDs.MemberIDs, r.LocalID)
		}
	}
	if len(got.ReconnectPairs) == 0 {
		got.ReconnectPairs = nil
	}
	if table.ID() != 77 || !reflect.DeepEqual(got, want) {
		t.Fatalf("decision %+v, want %+v", got, want)
	}
	for i, p := range payloads {
		r, err := table.Record(i, nil)
		if err != nil || r.Nonce != p.Nonce || r.CardEdition != p.Edition || !bytes.Equal(r.Card, p.Card) || !bytes.Equal(r.Capabilities, p.Capabilities) {
			t.Fatalf("record %d is %+v, %v", i, r, err)
		}
		if rank := table.Find(p.Nonce); rank != i || table.Nonce(i) != p.Nonce {
			t.Fatalf("nonce %#x of rank %d is at rank %d, and that of the rank is %#x", p.Nonce, i, rank, table.Nonce(i))
		}
	}
	if rank := table.Find(0); rank >= 0 {
		t.Fatalf("no nonce is at rank %d", rank)
	}
}

func TestPartDecide_TwoMembersWithOneNonce_Fails(t *testing.T) {
	part := *somePart(t, 3)
	same, err := NewPart(3, somePayload(t)) // That of rank 0.
	if err == nil {
		err = part.Merge(same)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.Decide(5, 4, name); !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "rank 0 and rank 3") {
		t.Error(err)
	}
}

// Without a common PML, the error names members of both sides and the transports that did not open, and counts the others.
func TestPartDecide_NoCommonPML_NamesBothSides(t *testing.T) {
	var part Part
	for rank := range 12 {
		offer := pml.Capabilities{PML: "ob1", Version: 1, Priority: rank % 2}
		if rank >= 6 {
			offer = pml.Capabilities{PML: "cm", Version: 1, Detail: "ofi"}
		}
		capabilities, err := EncodeCapabilities([]pml.Capabilities{offer})
		if err != nil {
			t.Fatal(err)
		}
		card, err := EncodeCard(framework.Card{framework.FailureAddress(fmt.Sprintf("mtl.ofi %d", rank))})
		if err != nil {
			t.Fatal(err)
		}
		one, err := NewPart(rank, Payload{Nonce: 1, Capabilities: capabilities, Card: card, GroupIDs: cid.NewTable(3).WithholdCandidates(cid.PolicyAgree, 2, 100).Bytes()})
		if err == nil {
			err = part.Merge(one)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := part.Decide(1, 12, name)
	want := "not supported: the members have no pml in common: ob1 (wire version 1): offered by rank 0, rank 1, rank 2, rank 3, and 2 more; " +
		"cm (wire version 1, ofi): offered by rank 6, rank 7, rank 8, rank 9, and 2 more; " +
		"rank 0 could not open mtl.ofi 0; rank 1 could not open mtl.ofi 1; rank 2 could not open mtl.ofi 2; rank 3 could not open mtl.ofi 3; and 8 more"
	if !errors.Is(err, framework.ErrUnsupported) || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// Records that are missing or doubled are errors, as only a defective root sends them.
func TestPartDecide_RanksNotOnce_ReturnsError(t *testing.T) {
	p := somePayload(t)
	for _, ranks := range [][]int{{0, 0}, {0}, {1}} {
		var part Part
		for _, rank := range ranks {
			one, err := NewPart(rank, p)
			if err == nil {
				err = part.Merge(one)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := part.Decide(1, 2, name); !errors.Is(err, framework.ErrTransport) {
			t.Errorf("%v: %v", ranks, err)
		}
	}
}

// A card that a table has no room for is an error that names the parameter.
func TestNewPart_LongCard_ReturnsErrUnsupported(t *testing.T) {
	p := somePayload(t)
	p.Card, _ = EncodeCard(framework.Card{{Component: "btl.tcp", Blob: make([]byte, MaxMember)}})
	if _, err := NewPart(0, p); !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "btl.tcp.if_include") {
		t.Error(err)
	}
}

func somePayload(t testing.TB) Payload {
	capabilities, err := EncodeCapabilities([]pml.Capabilities{{PML: "ob1", Version: 1, Priority: 20}})
	if err != nil {
		t.Fatal(err)
	}
	card, err := EncodeCard(framework.Card{{Component: "btl.shm", Blob: []byte("segment")}})
	if err != nil {
		t.Fatal(err)
	}
	ids := cid.NewTable(10).WithholdCandidates(cid.PolicyAgree, 2, 1<<10).Bytes()
	return Payload{Nonce: 7, Capabilities: capabilities, Card: card, IDs: ids, GroupIDs: ids}
}

// somePart returns the part of some members.
func somePart(t testing.TB, members int) *Part {
	var part Part
	for rank := range members {
		p := somePayload(t)
		p.Nonce += uint64(rank)
		p.GroupEnded = []Ended{{Rank: 0, Nonce: 7}}
		one, err := NewPart(rank, p)
		if err == nil {
			err = part.Merge(one)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return &part
}

// Of too many pairs the lowest ones are kept, in whatever order the parts are merged.
func TestPartMerge_TooManyPairs_KeepsTheLowest(t *testing.T) {
	const size = 8
	part := func(rank int) Part {
		p := somePayload(t)
		for i := range MaxEnded {
			p.GroupEnded = append(p.GroupEnded, Ended{Rank: uint32(i % size), Nonce: uint64(i)})
		}
		one, err := NewPart(rank, p)
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	var up, down Part
	for rank := range size {
		if err := errors.Join(up.Merge(part(rank)), down.Merge(part(size-1-rank))); err != nil {
			t.Fatal(err)
		}
	}
	if len(up.EndedPairs) != maxPairs || !slices.Equal(up.EndedPairs, down.EndedPairs) || up.EndedPairs[maxPairs-1].FromRank != 3 {
		t.Errorf("%d and %d pairs, the last %+v", len(up.EndedPairs), len(down.EndedPairs), up.EndedPairs[len(up.EndedPairs)-1])
	}
}

func TestOpenTable_OverLimit_ReturnsError(t *testing.T) {
	good, err := somePart(t, 2).Decide(5, 2, name)
	if err != nil {
		t.Fatal(err)
	}
	long := append(slices.Clone(good), make([]byte, 3*MaxMember)...)
	binary.LittleEndian.PutUint64(long[16:], uint64(len(long)))
	for text, b := range map[string][]byte{
		"over 4096 per member": long,
		"version 6":            append([]byte{6}, good[1:]...),
		"in place of 2":        append([]byte{Version, 0, 0, 0, 3}, good[5:]...),
		"a table of 5 bytes":   good[:5],
	} {
		if _, err := OpenTable(b, 2); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A rank that has failed is not reported late, whichever fault comes first, and faults are merged in any order.
func TestFaultsMerge_AnyOrder_KeepsTheHighestKind(t *testing.T) {
	a, b, c := fault(7, Missing, ""), fault(7, Failed, ""), fault(2, Garbage, "text")
	want := Faults{c[0], b[0]}
	for _, got := range []Faults{a.merge(b).merge(c), c.merge(b.merge(a)), b.merge(c.merge(a))} {
		if !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
	}
	var many Faults
	for rank := range uint32(3 * maxFaults) {
		many = many.merge(fault(rank, Missing, ""))
	}
	if len(many) != maxFaults || many.check() != nil {
		t.Errorf("%d faults, %v", len(many), many.check())
	}
}
