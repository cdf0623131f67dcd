package cid

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawOffer draws candidate ids of few indices and generations, so that members often have some in common.
func drawOffer(t *rapid.T) []byte {
	o := Candidates{policy: rapid.SampledFrom([]Policy{PolicyAgree, PolicyAgree, PolicyAgree, PolicyAgree, PolicyAgree, PolicyGather, PolicyLazy}).Draw(t, "policy")}
	for index := range uint32(6) {
		if rapid.IntRange(0, 5).Draw(t, "has") > 0 {
			o.entries = append(o.entries, MakeLocal(index, rapid.SampledFrom([]uint32{0, 1, 2, 7, MaxGen - 1, MaxGen}).Draw(t, "gen")))
		}
	}
	switch {
	case o.policy == PolicyLazy || rapid.IntRange(0, 30).Draw(t, "full") == 0:
		o.entries = nil
	case o.policy == PolicyGather && len(o.entries) > 1:
		o.entries = o.entries[:1]
	}
	return o.Bytes()
}

// mergeRandomly merges neighbors in a random order.
func mergeRandomly(t *rapid.T, all []Summary) Summary {
	all = slices.Clone(all)
	for len(all) > 1 {
		i := rapid.IntRange(0, len(all)-2).Draw(t, "merge")
		all[i] = all[i].Merge(all[i+1])
		all = slices.Delete(all, i+1, i+2)
	}
	return all[0]
}

// Merging all members' summaries in any tree decides as Decide does for the list of candidate ids.
func TestSummaryMerge_AnyTree_DecidesAsTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "members")
		var offers [][]byte
		var all []Summary
		var own []Local
		for i := range n {
			offers = append(offers, drawOffer(t))
			s, local, err := Summarize(uint32(i), offers[i])
			if err != nil {
				t.Fatal(err)
			}
			all, own = append(all, s), append(own, local)
		}
		merged := mergeRandomly(t, all)
		if err := merged.Check(); err != nil {
			t.Fatal(err)
		}
		got, gotErr := merged.Decide(n)
		want, wantErr := Decide(offers)
		if got.Policy == PolicyGather {
			got.MemberIDs = own
		}
		if !reflect.DeepEqual(got, want) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("merged %+v, %v; list %+v, %v", got, gotErr, want, wantErr)
		}
	})
}

// An index with all generations in use is skipped, as in Decide.
func TestSummaryDecide_GenerationsInUse_UsesNextIndex(t *testing.T) {
	full := CommonIndex{Index: 2}
	for gen := uint32(1); gen <= MaxGen; gen++ {
		full.UsedGens = append(full.UsedGens, gen)
	}
	s := Summary{Policy: PolicyAgree, LowestFullRank: NoRank, CommonIndices: []CommonIndex{full, {Index: 4, UsedGens: []uint32{9}}}}
	d, err := s.Decide(MaxGen)
	if err != nil || d.CommonID != MakeLocal(4, 10) {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := (Summary{Policy: PolicyAgree, LowestFullRank: NoRank, CommonIndices: []CommonIndex{full}}).Decide(MaxGen); err != nil || d.Policy != PolicyGather {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestSummarize_BadOffer_ReturnsError(t *testing.T) {
	if _, _, err := Summarize(3, []byte{9, 9, 9, 9}); err == nil {
		t.Error("accepted")
	}
}

func TestSummaryCheck_NotFromMerge_ReturnsError(t *testing.T) {
	for name, s := range map[string]Summary{
		"auto":               {LowestFullRank: NoRank},
		"policy above":       {Policy: PolicyLazy + 1},
		"lazy with indices":  {Policy: PolicyLazy, CommonIndices: []CommonIndex{{Index: 1}}},
		"index too large":    {Policy: PolicyAgree, CommonIndices: []CommonIndex{{Index: 1 << IndexBits}}},
		"indices descending": {Policy: PolicyAgree, CommonIndices: []CommonIndex{{Index: 2}, {Index: 1}}},
		"generation 0":       {Policy: PolicyAgree, CommonIndices: []CommonIndex{{Index: 2, UsedGens: []uint32{0}}}},
		"generation twice":   {Policy: PolicyAgree, CommonIndices: []CommonIndex{{Index: 2, UsedGens: []uint32{3, 3}}}},
	} {
		if s.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
