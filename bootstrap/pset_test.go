package bootstrap

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ferrympi/ferry/framework"
)

// The sets follow from the identity alone, in the order of their groups; names
// compare without regard to case, and no other name is taken for one of them.
func TestBuiltinPset_FollowsFromIdentity(t *testing.T) {
	for _, id := range []Identity{
		{Proc: framework.Proc{Namespace: "job", Rank: 2}, Size: 4, LocalRank: 1, LocalSize: 2, LocalRanks: []uint32{0, 2}, Nodes: NodeMap{{0, 1, 0}, {1, 1, 1}, {2, 1, 0}, {3, 1, 2}}},
		{Proc: framework.Proc{Namespace: "alone"}, Size: 1, LocalSize: 1, LocalRanks: []uint32{0}, Nodes: NodeMap{{0, 1, 0}}, IsSingleton: true},
	} {
		world := make([]framework.Proc, id.Size)
		for r := range world {
			world[r] = framework.Proc{Namespace: id.Proc.Namespace, Rank: uint32(r)}
		}
		var shared []framework.Proc
		for _, r := range id.LocalRanks {
			shared = append(shared, world[r])
		}
		for ask, want := range map[string]PsetInfo{
			"mpi://WORLD":   {Name: PsetWorld, Members: framework.ProcsOf(world...)},
			"MPI://world":   {Name: PsetWorld, Members: framework.ProcsOf(world...)},
			"mpi://self":    {Name: PsetSelf, Members: framework.ProcsOf(id.Proc)},
			"mpix://shared": {Name: PsetShared, Members: framework.ProcsOf(shared...)},
			"mpix://Roots":  {Name: PsetRoots, Members: framework.ProcsOf(id.Procs(id.Nodes.Roots())...)},
		} {
			got, ok, err := BuiltinPset(id, ask)
			if !ok || err != nil || got.Name != want.Name || !got.Members.Equal(want.Members) || got.Dynamic {
				t.Errorf("%s of %v: %+v, %v, want %+v", ask, id.Proc, got, ok, want)
			}
		}
		if got, ok, err := BuiltinPset(id, "mpi://SHARED"); ok || err != nil {
			t.Errorf("mpi://SHARED is %+v, %v", got, err)
		}
		if names := id.Psets(); !slices.Equal(names, BuiltinPsets()) {
			t.Errorf("names are %q", names)
		}
	}
	if names := BuiltinPsets(); !slices.Equal(names, []string{"mpi://WORLD", "mpi://SELF", "mpix://SHARED", "mpix://ROOTS"}) {
		t.Errorf("names are %q", names)
	}
}

// A set without members, or with the caller alone, would be wrong.
func TestBuiltinPset_UnknownNode_IsErrPset(t *testing.T) {
	id := Identity{Proc: framework.Proc{Namespace: "job", Rank: 2}, Size: 4}
	got, ok, err := BuiltinPset(id, "MPIX://shared")
	if !ok || !errors.Is(err, framework.ErrPset) || got.Members.Len() > 0 || !strings.Contains(err.Error(), "SplitShared") {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if names := id.Psets(); !slices.Equal(names, []string{"mpi://WORLD", "mpi://SELF"}) {
		t.Errorf("names are %q", names)
	}
}

// WORLD begins at FirstRank.
func TestBuiltinPset_AddedProcess_IsItsDelta(t *testing.T) {
	id := Identity{Proc: framework.Proc{Namespace: "job", Rank: 5}, FirstRank: 4, Size: 2, LocalRank: 1, LocalSize: 2, LocalRanks: []uint32{4, 5}}
	want := framework.ProcsOf(id.Procs([]uint32{4, 5})...)
	for _, name := range []string{PsetWorld, PsetShared} {
		if got, ok, err := BuiltinPset(id, name); !ok || err != nil || !got.Members.Equal(want) {
			t.Errorf("%s is %+v, %v, %v", name, got, ok, err)
		}
	}
}

func TestPsetKey_CaseAndInvalidBytes_AreDistinguished(t *testing.T) {
	for _, same := range [][]string{{"Ocean", "OCEAN", "ocean"}, {"Ä", "ä"}, {"k", "K", "\u212a"}, {"s", "S", "\u017f"}, {"ΣΣ", "σς"}} {
		for _, name := range same {
			if PsetKey(name) != PsetKey(same[0]) {
				t.Errorf("%q and %q are two sets", name, same[0])
			}
		}
	}
	for _, differ := range [][2]string{{"a\xff", "a\xfe"}, {"a\xff", "a\ufffd"}, {"a\x00", "a"}, {"a", "b"}} {
		if PsetKey(differ[0]) == PsetKey(differ[1]) {
			t.Errorf("%q and %q are one set", differ[0], differ[1])
		}
	}
	for name, want := range map[string]bool{"MPI://x": true, "mpiX://": true, "mpi:/x": false, "ferry://set/1": true} {
		if IsReserved(name) != want {
			t.Errorf("%q: reserved is %t", name, !want)
		}
	}
}

func FuzzPsetKey(f *testing.F) {
	f.Add("Ocean\xff\u212a")
	f.Fuzz(func(t *testing.T, name string) {
		key := PsetKey(name)
		if PsetKey(key) != key || utf8.ValidString(name) && !strings.EqualFold(name, key) {
			t.Errorf("the key of %q is %q", name, key)
		}
	})
}
