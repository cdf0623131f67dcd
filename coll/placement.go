package coll

import (
	"cmp"
	"iter"
	"slices"
)

// A Placement divides the ranks of a communicator among nodes, or among processes. Nodes are numbered from 0 in the order of their
// lowest ranks. Its memory grows with the irregularities. Nodes with equal numbers of consecutive ranks are one run, and so is each
// round of ranks that are placed node by node. Equal placements have equal runs. It is not changed, and nil is empty.
type Placement []PlacementRun

// A PlacementRun is consecutive ranks. Width of them are on one node, the next ones on the node with the next number, and so on.
type PlacementRun struct {
	First uint32 // Lowest rank.
	Count uint32 // Number of ranks, at least 1.
	Node  uint32 // Node of the lowest rank.
	Width uint32 // At least 1.
	Known uint32 // Number of nodes that the runs before this one have.
}

// node returns the node of the rank at an index of the run.
func (r PlacementRun) node(index uint32) uint32 { return r.Node + index/r.Width }

// on returns the ranks of the run on a node, which are from first to end-1.
func (r PlacementRun) on(node uint32) (first, end uint32) {
	if node < r.Node || node > r.node(r.Count-1) {
		return r.First, r.First
	}
	index := (node - r.Node) * r.Width
	return r.First + index, r.First + min(index+r.Width, r.Count)
}

// nodes returns the number of nodes of the runs up to this one.
func (r PlacementRun) nodes() uint32 { return max(r.Known, r.node(r.Count-1)+1) }

// MakePlacement returns the placement of ranks. Those with equal keys are on one node.
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

// PlacementOf returns the placement of ranks on these nodes, which it numbers.
func PlacementOf(nodes ...int) Placement { return MakePlacement(slices.Values(nodes)) }

// OnOneNode returns the placement of size ranks on one node.
func OnOneNode(size int) Placement {
	return Placement{{Count: uint32(size), Width: uint32(size)}}
}

// placementBuilder adds one rank after the other.
type placementBuilder struct {
	runs   Placement
	run    PlacementRun // Last ranks, which are not in runs yet.
	isOpen bool         // All ranks of run are on one node, so that its width grows with them.
}

func (b *placementBuilder) add(node uint32) {
	r := &b.run
	switch next := r.First + r.Count; {
	case r.Count == 0:
		b.begin(0, node, 1)
	case b.isOpen && node == r.Node:
		r.Count++
		r.Width++
	case node == r.Node+r.Count/r.Width: // The run continues.
		r.Count++
		b.isOpen = false
	case node == r.node(r.Count-1): // Its last node has more ranks than the others, and begins another run.
		width := r.Width
		r.Count -= width
		b.flush()
		b.begin(next-width, node, width+1)
	default:
		b.flush()
		b.begin(next, node, 1)
	}
}

func (b *placementBuilder) begin(first, node, count uint32) {
	b.run, b.isOpen = PlacementRun{First: first, Count: count, Node: node, Width: count}, true
}

func (b *placementBuilder) flush() {
	if n := len(b.runs); n > 0 {
		b.run.Known = b.runs[n-1].nodes()
	}
	b.runs = append(b.runs, b.run)
}

func (b *placementBuilder) placement() Placement {
	if b.run.Count > 0 {
		b.flush()
	}
	return slices.Clone(b.runs) // Without spare capacity.
}

// Len returns the number of ranks.
func (p Placement) Len() int {
	if len(p) == 0 {
		return 0
	}
	last := p[len(p)-1]
	return int(last.First + last.Count)
}

// Count returns the number of nodes.
func (p Placement) Count() int {
	if len(p) == 0 {
		return 0
	}
	return int(p[len(p)-1].nodes())
}

// Node returns the node of a rank, which is in range.
func (p Placement) Node(rank int) int {
	i, found := slices.BinarySearchFunc(p, uint32(rank), func(r PlacementRun, rank uint32) int { return cmp.Compare(r.First, rank) })
	if !found {
		i--
	}
	return int(p[i].node(uint32(rank) - p[i].First))
}

// First returns the lowest rank on a node, which is in range.
func (p Placement) First(node int) int {
	i, _ := slices.BinarySearchFunc(p, uint32(node)+1, func(r PlacementRun, known uint32) int { return cmp.Compare(r.Known, known) })
	first, _ := p[i-1].on(uint32(node))
	return int(first)
}

// Size returns the number of ranks on a node.
func (p Placement) Size(node int) (n int) {
	for _, r := range p {
		first, end := r.on(uint32(node))
		n += int(end - first)
	}
	return n
}

// Index returns the index of a rank among those on its node.
func (p Placement) Index(rank int) (n int) {
	node := uint32(p.Node(rank))
	for _, r := range p {
		if int(r.First) > rank {
			break
		}
		first, end := r.on(node)
		n += max(0, min(int(end), rank)-int(first))
	}
	return n
}

// Ranks returns the ranks on a node, ascending.
func (p Placement) Ranks(node int) []int {
	ranks := make([]int, 0, p.Size(node))
	for _, r := range p {
		for rank, end := r.on(uint32(node)); rank < end; rank++ {
			ranks = append(ranks, int(rank))
		}
	}
	return ranks
}

// Largest returns the largest number of ranks on a node.
func (p Placement) Largest() int {
	if len(p) == 1 {
		return int(min(p[0].Width, p[0].Count))
	}
	sizes := make([]uint32, p.Count())
	for _, r := range p {
		for node := r.Node; node <= r.node(r.Count-1); node++ {
			first, end := r.on(node)
			sizes[node] += end - first
		}
	}
	return int(slices.Max(append(sizes, 0)))
}

// IsSorted reports whether the ranks of each node are consecutive.
func (p Placement) IsSorted() bool {
	for i := 1; i < len(p); i++ {
		if before := p[i-1]; p[i].Node < before.node(before.Count-1) {
			return false
		}
	}
	return true
}
