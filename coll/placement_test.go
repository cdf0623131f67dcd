package coll

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// All queries agree with a list of nodes by rank.
func TestPlacement_AnyNodes_EqualsTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var drawn []int
		for range rapid.IntRange(1, 6).Draw(t, "stretches") {
			node, count, step := rapid.IntRange(0, 5).Draw(t, "node"), rapid.IntRange(1, 6).Draw(t, "count"), rapid.IntRange(0, 1).Draw(t, "step")
			for i := range count {
				drawn = append(drawn, node+i*step)
			}
		}
		var nodes []int // Numbered in the order of the lowest ranks.
		var ranks [][]int
		numbers := map[int]int{}
		for rank, key := range drawn {
			node, ok := numbers[key]
			if !ok {
				node = len(numbers)
				numbers[key] = node
				ranks = append(ranks, nil)
			}
			nodes = append(nodes, node)
			ranks[node] = append(ranks[node], rank)
		}
		checkPlacement(t, PlacementOf(drawn...), nodes, ranks)
		if again := PlacementOf(nodes...); !slices.Equal(again, PlacementOf(drawn...)) {
			t.Fatalf("equal placements have the runs %v and %v", again, PlacementOf(drawn...))
		}
	})
}

func checkPlacement(t *rapid.T, p Placement, nodes []int, ranks [][]int) {
	largest, stretches := 0, 1
	for node, list := range ranks {
		largest = max(largest, len(list))
		if p.First(node) != list[0] || p.Size(node) != len(list) || !slices.Equal(p.Ranks(node), list) {
			t.Fatalf("%v: node %d of %v: first %d, size %d, ranks %v", p, node, nodes, p.First(node), p.Size(node), p.Ranks(node))
		}
		for i, rank := range list {
			if p.Node(rank) != node || p.Index(rank) != i {
				t.Fatalf("%v: rank %d of %v: node %d, index %d", p, rank, nodes, p.Node(rank), p.Index(rank))
			}
		}
	}
	for rank := 1; rank < len(nodes); rank++ {
		if nodes[rank] != nodes[rank-1] {
			stretches++
		}
	}
	if p.Len() != len(nodes) || p.Count() != len(ranks) || p.Largest() != largest || p.IsSorted() != slices.IsSorted(nodes) {
		t.Fatalf("%v: %v: %d nodes, largest %d, sorted %v", p, nodes, p.Count(), p.Largest(), p.IsSorted())
	}
	if len(p) > stretches || cap(p) != len(p) {
		t.Fatalf("%d runs with room for %d, for %d stretches of ranks: %v", len(p), cap(p), stretches, nodes)
	}
}

// 13 runs do not fill the size class of the allocator.
func TestPlacement_ThirteenRuns_HasNoSpareCapacity(t *testing.T) {
	if p := PlacementOf(0, 1, 2, 0, 3, 1, 4, 2, 5, 0, 3, 1, 4, 2, 5); len(p) != 13 || cap(p) != 13 {
		t.Errorf("%d runs with room for %d, want 13 with room for 13", len(p), cap(p))
	}
}

// A process has one such placement for each shape of a communicator.
func TestPlacement_LargeJobs_TakeFewRuns(t *testing.T) {
	const nodes, perNode = 2048, 96
	for name, c := range map[string]struct {
		node func(rank int) int
		size int
		want int
	}{
		"blocks":           {func(rank int) int { return rank / perNode }, nodes * perNode, 1},
		"rounds":           {func(rank int) int { return rank % nodes }, nodes * perNode, perNode},
		"roots":            {func(rank int) int { return rank }, nodes, 1},
		"second ranks":     {func(rank int) int { return rank * 2 / perNode }, nodes * perNode / 2, 1},
		"first is smaller": {func(rank int) int { return (rank + 1) / perNode }, nodes*perNode - 1, 2},
	} {
		p := MakePlacement(func(yield func(int) bool) {
			for rank := range c.size {
				if !yield(c.node(rank)) {
					return
				}
			}
		})
		if len(p) != c.want || p.Node(c.size-1) != c.node(c.size-1) {
			t.Errorf("%s: %d runs, want %d; the last rank is on node %d", name, len(p), c.want, p.Node(c.size-1))
		}
	}
}
