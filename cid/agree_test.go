package cid

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"pgregory.net/rapid"
)

func offerOf(policy Policy, entries ...Local) []byte {
	o := Candidates{policy: policy, entries: entries}
	return o.Bytes()
}

func TestUnusedGen_AnyHistory_DiffersFromAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Clusters anywhere on the ring, its seam included.
		var lasts []uint32
		for range rapid.IntRange(0, 4).Draw(t, "clusters") {
			at := rapid.Uint32Range(1, MaxGen).Draw(t, "at")
			for range rapid.IntRange(1, 8).Draw(t, "members") {
				lasts = append(lasts, (at-1+rapid.Uint32Range(0, 5).Draw(t, "ahead"))%MaxGen+1)
			}
		}
		given := slices.Clone(lasts)
		gen, ok := unusedGen(lasts)
		if !ok || gen < 1 || gen > MaxGen || slices.Contains(given, gen) {
			t.Fatalf("%d, %v after %v", gen, ok, given)
		}
		rand.New(rand.NewPCG(1, uint64(len(given)))).Shuffle(len(given), func(i, j int) { given[i], given[j] = given[j], given[i] })
		if again, _ := unusedGen(given); again != gen {
			t.Fatalf("%d, and %d in another order", gen, again)
		}
	})
}

func TestUnusedGen_AtSeam_FollowsForemostMember(t *testing.T) {
	all := make([]uint32, MaxGen)
	for i := range all {
		all[i] = uint32(i + 1)
	}
	for _, c := range []struct {
		lasts []uint32
		want  uint32
	}{
		{nil, 1},
		{[]uint32{1}, 2},
		{[]uint32{MaxGen}, 1},
		{[]uint32{7, 7, 7}, 8},
		{[]uint32{MaxGen, 1}, 2}, // the maximum's successor would be 1 again
		{[]uint32{MaxGen - 1, MaxGen, 2, 3}, 4},
		{[]uint32{5, 9}, 10},
		{[]uint32{1, 1 + MaxGen/3, 1 + 2*MaxGen/3}, 2}, // three equal stretches
		{all[:MaxGen-1], MaxGen},
		{all[1:], 1},
	} {
		if got, ok := unusedGen(slices.Clone(c.lasts)); !ok || got != c.want {
			t.Errorf("after %v: %d, %v, want %d", c.lasts[:min(len(c.lasts), 5)], got, ok, c.want)
		}
	}
	if gen, ok := unusedGen(all); ok {
		t.Errorf("all generations are in use, and %d is given", gen)
	}
}

// agreed returns the id that candidate ids agree on.
func agreed(offers [][]byte) (Local, bool, error) {
	os, err := decodeAllCandidates(offers)
	if err != nil {
		return NoLocal, false, err
	}
	l, ok := agree(os)
	return l, ok, nil
}

func TestDecide_IndexWithoutUnusedGeneration_IsSkipped(t *testing.T) {
	offers := make([][]byte, MaxGen)
	for i := range offers {
		offers[i] = offerOf(PolicyAgree, MakeLocal(3, uint32(i+1)), MakeLocal(8, 0))
	}
	if l, ok, err := agreed(offers); err != nil || !ok || l != MakeLocal(8, 1) {
		t.Errorf("%v, %v, %v", l, ok, err)
	}
}

func TestDecide_CommonIndices_UsesLowest(t *testing.T) {
	a := offerOf(PolicyAgree, MakeLocal(1, 4), MakeLocal(4, 2), MakeLocal(6, MaxGen), MakeLocal(9, 0))
	b := offerOf(PolicyAgree, MakeLocal(2, 1), MakeLocal(6, 1), MakeLocal(9, 3))
	c := offerOf(PolicyAgree, MakeLocal(0, 1), MakeLocal(1, 1), MakeLocal(6, 0), MakeLocal(9, 3))
	for _, offers := range [][][]byte{{a, b, c}, {c, b, a}, {b, a, c}} {
		if l, ok, err := agreed(offers); err != nil || !ok || l != MakeLocal(6, 2) {
			t.Errorf("%v, %v, %v", l, ok, err)
		}
	}
	if _, ok, err := agreed([][]byte{a, offerOf(PolicyAgree, MakeLocal(2, 1), MakeLocal(3, 1))}); ok || err != nil {
		t.Errorf("nothing is common: %v, %v", ok, err)
	}
}

func TestDecide_NoCommonIndex_BecomesGather(t *testing.T) {
	d, err := Decide([][]byte{offerOf(PolicyAgree, MakeLocal(2, MaxGen), MakeLocal(4, 0)), offerOf(PolicyAgree, MakeLocal(6, 0))})
	if err != nil || d.Policy != PolicyGather || d.Local(0) != MakeLocal(2, 1) || d.Local(1) != MakeLocal(6, 1) {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestDecide_DifferentPolicies_UsesLeastDemanding(t *testing.T) {
	e := MakeLocal(2, 0)
	for _, c := range []struct {
		a, b []byte
		want Policy
	}{
		{offerOf(Auto, e), offerOf(Auto, e), PolicyAgree},
		{offerOf(Auto, e), offerOf(PolicyAgree, e), PolicyAgree},
		{offerOf(PolicyGather, e), offerOf(PolicyAgree, e), PolicyGather},
		{offerOf(PolicyLazy), offerOf(PolicyGather, e), PolicyLazy},
	} {
		d, err := Decide([][]byte{c.a, c.b})
		if err != nil || d.Policy != c.want || (d.Local(1) == NoLocal) != (c.want == PolicyLazy) {
			t.Errorf("%+v, %v, want %v", d, err, c.want)
		}
		if swapped, err := Decide([][]byte{c.b, c.a}); err != nil || swapped.Policy != d.Policy {
			t.Errorf("%v, the other way round %v (%v)", d.Policy, swapped.Policy, err)
		}
	}
}

func TestDecide_MemberWithoutIndex_FailsAllAlike(t *testing.T) {
	_, err := Decide([][]byte{offerOf(PolicyAgree, MakeLocal(2, 0)), offerOf(PolicyAgree)})
	if !errors.Is(err, framework.ErrUnsupported) || !strings.Contains(err.Error(), "member 1 of 2") {
		t.Error(err)
	}
	if _, err := Decide(nil); err == nil {
		t.Error("no offers decided something")
	}
}

func TestDecide_DamagedCandidates_ErrorNamesMember(t *testing.T) {
	good := offerOf(PolicyAgree, MakeLocal(2, 1), MakeLocal(4, 1))
	flip := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for name, bad := range map[string][]byte{
		"empty":             nil,
		"short header":      good[:3],
		"cut":               good[:len(good)-1],
		"one too long":      append(bytes.Clone(good), 0),
		"version":           flip(0, 2),
		"policy":            flip(1, 4),
		"count":             flip(3, 3),
		"index not ascends": flip(len(good)-1, 2),
	} {
		_, ok, err := agreed([][]byte{good, bad})
		if ok || !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "member 1 of 2") {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
		if _, err := Decide([][]byte{bad, good}); err == nil || !strings.Contains(err.Error(), "member 0 of 2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithholdCandidates_ManyLazyCommunicators_CandidatesStayCommon(t *testing.T) {
	busy, idle := NewTable(IndexBits), NewTable(IndexBits)
	for range 1000 {
		reserve(t, busy)
	}
	d, err := Decide([][]byte{busy.WithholdCandidates(Auto, 2, 1024).Bytes(), idle.WithholdCandidates(Auto, 2, 1024).Bytes()})
	if err != nil || d.Policy != PolicyAgree {
		t.Errorf("%+v, %v", d, err)
	}
}

// Decide must not panic on arbitrary input, must return only ids that follow from all candidate
// ids, and must accept only encodings that Bytes returns.
func FuzzDecide(f *testing.F) {
	table := NewTable(IndexBits)
	for range 3 {
		table.Close(mustAccept(f, table))
	}
	f.Add(table.withhold(Auto, 4).Bytes(), table.withhold(Auto, 0).Bytes())
	f.Add(NewTable(2).withhold(Auto, 4).Bytes(), NewTable(3).withhold(Auto, 5).Bytes())
	f.Add(offerOf(PolicyGather, MakeLocal(1, MaxGen)), offerOf(PolicyAgree, MakeLocal(1, 1), MakeLocal(1<<IndexBits-1, 1)))
	f.Add([]byte{1, 0, 0xff, 0xff}, []byte{})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, x := range [][]byte{a, b} {
			if o, err := decodeCandidates(x); err == nil && !bytes.Equal(o.Bytes(), x) {
				t.Errorf("%x was accepted and is %x", x, o.Bytes())
			}
		}
		d, err := Decide([][]byte{a, b})
		if err != nil || d.Policy == PolicyLazy {
			return
		}
		for i, x := range [][]byte{a, b} {
			o, err := decodeCandidates(x)
			if err != nil {
				t.Fatalf("decided on a malformed offer: %v", err)
			}
			l := d.Local(i)
			at, ok := slices.BinarySearchFunc(o.entries, l, byIndex)
			if !ok || !l.Valid() || o.entries[at].Gen() == l.Gen() {
				t.Errorf("member %d gets %v from %v", i, l, o.entries)
			}
		}
	})
}

func mustAccept(f *testing.F, table *Table) Local {
	o := table.withhold(Auto, 1)
	l, _, err := agreed([][]byte{o.Bytes()})
	if err == nil {
		err = table.Accept(o, l)
	}
	if err != nil {
		f.Fatal(err)
	}
	return l
}
