package coll

import (
	"cmp"
	"iter"
	"slices"
)

// A Placement maps the ranks of a communicator to nodes or processes. Nodes are numbered from 0 in
// the order of their lowest ranks. Its memory grows with the irregularities. Nodes with equal numbers
// of consecutive ranks form one run, and so does each round of ranks that are placed node by node.
// Equal placements have equal runs. A Placement is immutable, and nil is empty.
type Placement []PlacementRun

// A PlacementRun is a range of ranks. RanksPerNode of them are on one node, the next ones on the node with
// the next number, and so on.
type PlacementRun struct {
	FirstRank uint32
	// At least 1.
	RankCount uint32
	// That of FirstRank.
	FirstNode    uint32
	RanksPerNode uint32 // At least 1.
	// Number of nodes that the runs before this one have.
	EarlierNodes uint32
}

// nodeOf returns the node of the rank at an index of the run.
func (r PlacementRun) nodeOf(index uint32) uint32 { return r.FirstNode + index/r.RanksPerNode }

// ranksOn returns the ranks of the run on a node, which are first to end-1.
func (r PlacementRun) ranksOn(node uint32) (first, end uint32) {
	if node < r.FirstNode || node > r.nodeOf(r.RankCount-1) {
		return r.FirstRank, r.FirstRank
	}
	index := (node - r.FirstNode) * r.RanksPerNode
	return r.FirstRank + index, r.FirstRank + min(index+r.RanksPerNode, r.RankCount)
}

// nodeCount returns the number of nodes of the runs up to this one.
func (r PlacementRun) nodeCount() uint32 { return max(r.EarlierNodes, r.nodeOf(r.RankCount-1)+1) }

// MakePlacement returns the placement of ranks. Ranks with equal keys are on one node.
func MakePlacement[K comparable](keys iter.Seq[K]) Placement {
	var b placementBuilder
	numbers := map[K]uint32{}
	var last K
	var node uint32
	for key := range keys {
		if len(numbers) == 0 || key != last {
			known := false
			if node, known = numbers[key]; !known {
				node = uint32(len(numbers))
				numbers[key] = node
			}
			last = key
		}
		b.add(node)
	}
	return b.placement()
}

// PlacementOf returns the placement of ranks on the given nodes, which may have any numbers.
func PlacementOf(nodes ...int) Placement { return MakePlacement(slices.Values(nodes)) }

// OnOneNode returns the placement of size ranks on one node.
func OnOneNode(size int) Placement {
	return Placement{{RankCount: uint32(size), RanksPerNode: uint32(size)}}
}

// placementBuilder appends ranks in ascending order.
type placementBuilder struct {
	runs Placement
	// Last ranks, which are not in runs yet.
	latestRun PlacementRun
	// Whether all ranks of latestRun are on one node, so that its RanksPerNode may still grow.
	isOpen bool
}

func (b *placementBuilder) add(node uint32) {
	r := &b.latestRun
	switch next := r.FirstRank + r.RankCount; {
	case r.RankCount == 0:
		b.beginRun(0, node, 1)
	case b.isOpen && node == r.FirstNode:
		r.RankCount++
		r.RanksPerNode++
	case node == r.FirstNode+r.RankCount/r.RanksPerNode: // The run continues.
		r.RankCount++
		b.isOpen = false
	case node == r.nodeOf(r.RankCount-1): // The latest node has more ranks than the others. It begins another run.
		width := r.RanksPerNode
		r.RankCount -= width
		b.flushRun()
		b.beginRun(next-width, node, width+1)
	default:
		b.flushRun()
		b.beginRun(next, node, 1)
	}
}

func (b *placementBuilder) beginRun(first, node, count uint32) {
	b.latestRun, b.isOpen = PlacementRun{FirstRank: first, RankCount: count, FirstNode: node, RanksPerNode: count}, true
}

func (b *placementBuilder) flushRun() {
	if n := len(b.runs); n > 0 {
		b.latestRun.EarlierNodes = b.runs[n-1].nodeCount()
	}
	b.runs = append(b.runs, b.latestRun)
}

func (b *placementBuilder) placement() Placement {
	if b.latestRun.RankCount > 0 {
		b.flushRun()
	}
	return append(make(Placement, 0, len(b.runs)), b.runs...) // slices.Clone may leave spare capacity.
}

// Len returns the number of ranks.
func (p Placement) Len() int {
	if len(p) == 0 {
		return 0
	}
	last := p[len(p)-1]
	return int(last.FirstRank + last.RankCount)
}

// Count returns the number of nodes.
func (p Placement) Count() int {
	if len(p) == 0 {
		return 0
	}
	return int(p[len(p)-1].nodeCount())
}

// Node returns the node of a rank, which is in range.
func (p Placement) Node(rank int) int {
	i, found := slices.BinarySearchFunc(p, uint32(rank), func(r PlacementRun, rank uint32) int { return cmp.Compare(r.FirstRank, rank) })
	if !found {
		i--
	}
	return int(p[i].nodeOf(uint32(rank) - p[i].FirstRank))
}

// First returns the lowest rank on a node, which is in range.
func (p Placement) First(node int) int {
	i, _ := slices.BinarySearchFunc(p, uint32(node)+1, func(r PlacementRun, known uint32) int { return cmp.Compare(r.EarlierNodes, known) })
	first, _ := p[i-1].ranksOn(uint32(node))
	return int(first)
}

// Size returns the number of ranks on a node.
func (p Placement) Size(node int) (n int) {
	for _, r := range p {
		first, end := r.ranksOn(uint32(node))
		n += int(end - first)
	}
	return n
}

// Index returns the index of a rank among those on its node.
func (p Placement) Index(rank int) (n int) {
	node := uint32(p.Node(rank))
	for _, r := range p {
		if int(r.FirstRank) > rank {
			break
		}
		first, end := r.ranksOn(node)
		n += max(0, min(int(end), rank)-int(first))
	}
	return n
}

// Ranks returns the ranks on a node in ascending order.
func (p Placement) Ranks(node int) []int {
	ranks := make([]int, 0, p.Size(node))
	for _, r := range p {
		for rank, end := r.ranksOn(uint32(node)); rank < end; rank++ {
			ranks = append(ranks, int(rank))
		}
	}
	return ranks
}

// Largest returns the largest number of ranks on a node.
func (p Placement) Largest() int {
	if len(p) == 1 {
		return int(min(p[0].RanksPerNode, p[0].RankCount))
	}
	sizes := make([]uint32, p.Count())
	for _, r := range p {
		for node := r.FirstNode; node <= r.nodeOf(r.RankCount-1); node++ {
			first, end := r.ranksOn(node)
			sizes[node] += end - first
		}
	}
	return int(slices.Max(append(sizes, 0)))
}

// IsSorted reports whether the ranks of each node are consecutive.
func (p Placement) IsSorted() bool {
	for i := 1; i < len(p); i++ {
		if before := p[i-1]; p[i].FirstNode < before.nodeOf(before.RankCount-1) {
			return false
		}
	}
	return true
}
