package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// NodeRun is a run of consecutive ranks on one node.
type NodeRun struct {
	// Lowest rank.
	First uint32
	// Number of ranks, at least 1.
	Count uint32
	// Number of the node, equal in all processes of the job.
	Node uint32
}

// A NodeMap is the map of the nodes of mpi://WORLD. It has each rank once, in ascending runs, of
// which no two neighbors are on one node, so equal maps have equal runs. An empty map is unknown.
// Maps are immutable.
type NodeMap []NodeRun

// MakeNodeMap returns the map of ranks first to first+size-1 from runs in any order. The error has
// the first rank that is missing, outside or listed twice.
func MakeNodeMap(first, size int, runs []NodeRun) (NodeMap, error) {
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b NodeRun) int { return cmp.Compare(a.First, b.First) })
	var m NodeMap
	next, end := int64(first), int64(first)+int64(size)
	for _, r := range sorted {
		switch {
		case r.Count == 0:
			return nil, fmt.Errorf("node %d has an empty run of ranks", r.Node)
		case int64(r.First) < int64(first):
			return nil, fmt.Errorf("rank %d is below the lowest rank, %d", r.First, first)
		case int64(r.First) < next:
			return nil, fmt.Errorf("rank %d is listed twice", r.First)
		case int64(r.First) > next && next < end:
			return nil, fmt.Errorf("rank %d is missing", next)
		case int64(r.First)+int64(r.Count) > end:
			return nil, fmt.Errorf("rank %d is above the highest rank, %d", max(int64(r.First), end), end-1)
		}
		next += int64(r.Count)
		if n := len(m); n > 0 && m[n-1].Node == r.Node {
			m[n-1].Count += r.Count
			continue
		}
		m = append(m, r)
	}
	if next < end {
		return nil, fmt.Errorf("rank %d is missing", next)
	}
	return slices.Clip(m), nil
}

// Node returns the number of the node of a rank. ok is false for a rank outside the map.
func (m NodeMap) Node(rank uint32) (node uint32, ok bool) {
	i, found := slices.BinarySearchFunc(m, rank, func(r NodeRun, rank uint32) int { return cmp.Compare(r.First, rank) })
	if !found {
		i--
	}
	if i < 0 || rank-m[i].First >= m[i].Count {
		return 0, false
	}
	return m[i].Node, true
}

// Ranks returns the ranks on a node, ascending.
func (m NodeMap) Ranks(node uint32) []uint32 {
	var ranks []uint32
	for _, r := range m {
		if r.Node != node {
			continue
		}
		for i := range r.Count {
			ranks = append(ranks, r.First+i)
		}
	}
	return slices.Clip(ranks)
}

// Roots returns the members of mpix://ROOTS, which are the lowest rank of each node, ascending.
func (m NodeMap) Roots() []uint32 {
	var roots []uint32
	seen := map[uint32]bool{}
	for _, r := range m {
		if !seen[r.Node] {
			seen[r.Node] = true
			roots = append(roots, r.First)
		}
	}
	return roots
}

// OnNode returns the identity with Nodes, LocalRank, LocalSize and LocalRanks from the map.
func (id Identity) OnNode(m NodeMap) Identity {
	node, _ := m.Node(id.Proc.Rank)
	id.Nodes, id.LocalRanks = m, m.Ranks(node)
	id.LocalSize = len(id.LocalRanks)
	id.LocalRank, _ = slices.BinarySearch(id.LocalRanks, id.Proc.Rank)
	return id
}

// brokenMap returns a rule of the contract that Nodes breaks, or "".
func (id Identity) brokenMap() string {
	if len(id.Nodes) == 0 {
		return ""
	}
	m, err := MakeNodeMap(id.FirstRank, id.Size, id.Nodes)
	if err != nil {
		return "Identity.Nodes is no map: " + err.Error()
	}
	if !slices.Equal(m, id.Nodes) {
		return "Identity.Nodes has two neighboring runs on one node"
	}
	if node, _ := m.Node(id.Proc.Rank); !slices.Equal(m.Ranks(node), id.LocalRanks) {
		return fmt.Sprintf("Identity.LocalRanks are not the ranks of node %d in Identity.Nodes", node)
	}
	return ""
}

// A NodeMapper returns the map of the nodes from a request to the launcher. Clients implement it
// whose Identity.Nodes is empty although there may be a map, because opening a session avoids this
// request.
type NodeMapper interface {
	// NodeMap returns the map of the nodes of mpi://WORLD, which is the same in each call. The map
	// is empty if the launcher has no valid one, and the client has logged the reason. Errors are
	// those of a launcher that does not answer.
	NodeMap(ctx context.Context) (NodeMap, error)
}

// NodeMapOf returns the map of the nodes of a client's mpi://WORLD, empty if it is not known.
func NodeMapOf(ctx context.Context, c Client) (NodeMap, error) {
	if m := c.Identity().Nodes; len(m) > 0 {
		return m, nil
	}
	if mapper, ok := framework.As[NodeMapper](c); ok {
		return mapper.NodeMap(ctx)
	}
	return nil, nil
}
