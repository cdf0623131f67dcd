package wire

import (
	"fmt"
	"math"

	"github.com/ferrympi/ferry/bootstrap"
)

// NodeRun is a bootstrap.NodeRun. Its first rank follows the last one of the run before.
type NodeRun struct {
	_     struct{} `cbor:",toarray"`
	Count uint32
	Node  uint32
}

// NodeRuns returns the runs of a map.
func NodeRuns(m bootstrap.NodeMap) []NodeRun {
	runs := make([]NodeRun, len(m))
	for i, r := range m {
		runs[i] = NodeRun{Count: r.Count, Node: r.Node}
	}
	return runs
}

// NodeMap returns the map of the nodes of the receiver's WORLD, or an error if Nodes is not a map of all its ranks.
func (b WelcomeBody) NodeMap() (bootstrap.NodeMap, error) {
	runs := make([]bootstrap.NodeRun, len(b.Nodes))
	next := uint64(b.First)
	for i, r := range b.Nodes {
		if next > math.MaxUint32 {
			return nil, fmt.Errorf("rank %d is above the highest rank", next)
		}
		runs[i] = bootstrap.NodeRun{First: uint32(next), Count: r.Count, Node: r.Node}
		next += uint64(r.Count)
	}
	return bootstrap.MakeNodeMap(int(b.First), int(b.Size), runs)
}
