package bootstrap

import (
	"slices"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

// The three sets follow from the identity alone, in the order of their groups; names
// compare without regard to case, and no other name is taken for one of them.
func TestBuiltinPsetsFollowFromTheIdentity(t *testing.T) {
	for _, id := range []Identity{
		{Proc: framework.Proc{Namespace: "job", Rank: 2}, Size: 4, LocalRank: 1, LocalSize: 2, Locals: []uint32{0, 2}},
		{Proc: framework.Proc{Namespace: "alone"}, Size: 1, LocalSize: 1, Locals: []uint32{0}, Singleton: true},
	} {
		world := make([]framework.Proc, id.Size)
		for r := range world {
			world[r] = framework.Proc{Namespace: id.Proc.Namespace, Rank: uint32(r)}
		}
		var shared []framework.Proc
		for _, r := range id.Locals {
			shared = append(shared, world[r])
		}
		for ask, want := range map[string]PsetInfo{
			"mpi://WORLD":   {Name: PsetWorld, Members: world},
			"MPI://world":   {Name: PsetWorld, Members: world},
			"mpi://self":    {Name: PsetSelf, Members: []framework.Proc{id.Proc}},
			"mpix://shared": {Name: PsetShared, Members: shared},
		} {
			got, ok := BuiltinPset(id, ask)
			if !ok || got.Name != want.Name || !slices.Equal(got.Members, want.Members) || got.Dynamic {
				t.Errorf("%s of %v: %+v, %v, want %+v", ask, id.Proc, got, ok, want)
			}
		}
		if got, ok := BuiltinPset(id, "mpi://SHARED"); ok {
			t.Errorf("mpi://SHARED is %+v", got)
		}
	}
	if names := BuiltinPsets(); !slices.Equal(names, []string{"mpi://WORLD", "mpi://SELF", "mpix://SHARED"}) {
		t.Errorf("names are %q", names)
	}
}
