package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/framework"
)

func TestMakeNodeMap_RunsInAnyOrder_AreAscendingAndMerged(t *testing.T) {
	m, err := MakeNodeMap(4, 6, []NodeRun{{8, 2, 7}, {4, 1, 3}, {6, 2, 7}, {5, 1, 3}})
	if err != nil || !slices.Equal(m, NodeMap{{4, 2, 3}, {6, 4, 7}}) {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestMakeNodeMap_NoMap_NamesTheRank(t *testing.T) {
	for want, runs := range map[string][]NodeRun{
		"rank 4 is missing":                      nil,
		"rank 7 is missing":                      {{4, 3, 0}},
		"rank 6 is missing":                      {{4, 2, 0}, {7, 1, 1}},
		"rank 5 is listed twice":                 {{4, 2, 0}, {5, 3, 0}},
		"rank 4 is listed twice":                 {{4, 4, 0}, {4, 4, 0}},
		"rank 3 is below the lowest rank, 4":     {{3, 5, 0}},
		"rank 8 is above the highest rank, 7":    {{4, 5, 0}},
		"rank 9 is above the highest rank, 7":    {{4, 4, 0}, {9, 1, 0}},
		"rank 8 is above the highest rank, 7 ":   {{4, 1<<32 - 1, 0}},
		"node 2 has an empty run of ranks":       {{4, 4, 0}, {8, 0, 2}},
		"rank 4294967295 is above the highest r": {{4, 4, 0}, {1<<32 - 1, 1<<32 - 1, 0}},
	} {
		if m, err := MakeNodeMap(4, 4, runs); err == nil || !strings.HasPrefix(err.Error()+" ", want) {
			t.Errorf("%v is %v, %v, want %q", runs, m, err, want)
		}
	}
}

func TestNodeMap_Queries_FollowFromTheRuns(t *testing.T) {
	m := NodeMap{{2, 2, 5}, {4, 1, 1}, {5, 2, 5}, {7, 1, 9}}
	for rank, want := range map[uint32]string{0: "0 false", 1: "0 false", 2: "5 true", 3: "5 true", 4: "1 true", 6: "5 true", 7: "9 true", 8: "0 false", 1<<32 - 1: "0 false"} {
		if node, ok := m.Node(rank); fmt.Sprint(node, ok) != want {
			t.Errorf("rank %d: %d, %v, want %s", rank, node, ok, want)
		}
	}
	if ranks := m.Ranks(5); !slices.Equal(ranks, []uint32{2, 3, 5, 6}) {
		t.Errorf("node 5 has %v", ranks)
	}
	if roots := m.Roots(); !slices.Equal(roots, []uint32{2, 4, 7}) {
		t.Errorf("roots are %v", roots)
	}
	if _, ok := (NodeMap{}).Node(0); ok || len(NodeMap{}.Roots()) > 0 {
		t.Error("an empty map has ranks")
	}
}

func TestRoots_Map_IsTheLowestRankOfEachNode(t *testing.T) {
	id := Identity{Proc: framework.Proc{Namespace: "job", Rank: 5}, FirstRank: 4, Size: 4}.OnNode(NodeMap{{4, 2, 2}, {6, 1, 0}, {7, 1, 2}})
	if id.LocalRank != 1 || id.LocalSize != 3 || !slices.Equal(id.LocalRanks, []uint32{4, 5, 7}) {
		t.Errorf("got %+v", id)
	}
	got, ok, err := BuiltinPset(id, "MPIX://roots")
	if !ok || err != nil || got.Name != PsetRoots || !got.Dynamic || !got.Members.Equal(framework.ProcsOf(id.Procs([]uint32{4, 6})...)) {
		t.Errorf("got %+v, %v, %v", got, ok, err)
	}
}

func TestRoots_NoMap_IsErrPsetWithARemedy(t *testing.T) {
	id := Identity{Proc: framework.Proc{Namespace: "job"}, Size: 2, LocalSize: 1, LocalRanks: []uint32{0}}
	got, ok, err := BuiltinPset(id, PsetRoots)
	if !ok || !errors.Is(err, framework.ErrPset) || got.Members.Len() > 0 || !strings.Contains(err.Error(), "SplitShared") {
		t.Errorf("got %+v, %v, %v", got, ok, err)
	}
	if names := id.Psets(); !slices.Equal(names, []string{PsetWorld, PsetSelf, PsetShared}) {
		t.Errorf("names are %q", names)
	}
}

// client has an identity.
type client struct {
	Client
	id     Identity
	closed *bool
}

func (c client) Identity() Identity { return c.id }
func (c client) Close() error       { *c.closed = true; return nil }

func TestCheckedClient_MapIsBroken_NamesTheRule(t *testing.T) {
	good := Identity{Proc: framework.Proc{Namespace: "job", Rank: 1}, Size: 4}.OnNode(NodeMap{{0, 2, 0}, {2, 2, 1}})
	for want, nodes := range map[string]NodeMap{
		"":                              good.Nodes,
		"rank 3 is missing":             {{0, 2, 0}, {2, 1, 1}},
		"neighboring runs on one node":  {{0, 1, 0}, {1, 1, 0}, {2, 2, 1}},
		"not the ranks of node 0":       {{0, 3, 0}, {3, 1, 1}},
		"rank 4 is above the highest r": {{0, 5, 0}},
	} {
		id, closed := good, false
		id.Nodes = nodes
		_, err := CheckedClient("some", client{id: id, closed: &closed})
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), want) || !closed) {
			t.Errorf("%v: got %v, want %q", nodes, err, want)
		}
	}
}

// mapper is a client that is asked for its map.
type mapper struct{ client }

func (mapper) NodeMap(context.Context) (NodeMap, error) { return NodeMap{{0, 4, 0}}, nil }

func TestNodeMapOf_IdentityHasNone_AsksTheClient(t *testing.T) {
	own := NodeMap{{0, 2, 0}, {2, 2, 1}}
	for _, c := range []struct {
		client Client
		want   NodeMap
	}{
		{client{}, nil}, {client{id: Identity{Nodes: own}}, own}, {mapper{}, NodeMap{{0, 4, 0}}}, {mapper{client{id: Identity{Nodes: own}}}, own},
	} {
		if m, err := NodeMapOf(t.Context(), c.client); err != nil || !slices.Equal(m, c.want) {
			t.Errorf("%T: got %v, %v, want %v", c.client, m, err, c.want)
		}
	}
}
