package pml_test

import (
	"testing"

	"github.com/ferrympi/ferry/pml"
)

func TestRankSet_Complement_HasTheOthers(t *testing.T) {
	const n = 130
	set := pml.NewRankSet(n)
	others := set.Complement()
	for _, rank := range []int{0, 63, 64, 129} {
		set.Add(rank)
	}
	for rank := range n {
		want := rank == 0 || rank == 63 || rank == 64 || rank == 129
		if set.Has(rank) != want || others.Has(rank) == want || others.Complement().Has(rank) != want {
			t.Errorf("rank %d: in the set %t, in the complement %t", rank, set.Has(rank), others.Has(rank))
		}
	}
	if others.Len() != n || (*pml.RankSet)(nil).Has(5) {
		t.Errorf("the complement is of %d members", others.Len())
	}
}
