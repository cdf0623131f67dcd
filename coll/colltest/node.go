package colltest

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/heap"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/progress"
)

// nodes returns the coll.Node of each rank of a communicator whose members are goroutines of this
// process. Members share memory within their process if processes have several ranks, and otherwise
// within their node.
func nodes(shape coll.Shape) []coll.Node {
	bells := make([]progress.RemoteBell, shape.Size)
	for rank := range bells {
		bells[rank] = progress.BellAt(ring.Aligned(progress.BellSize))
	}
	shape = shape.ProcsAsNodes()
	all := make([]coll.Node, shape.Size)
	for rank := range all {
		if all[rank] != nil {
			continue
		}
		mates := shape.NodeMates(shape.Node(rank))
		node := heap.New(mates, func(rank int) progress.RemoteBell { return bells[rank] })
		for _, mate := range mates {
			all[mate] = node.NodeOf(mate)
		}
	}
	return all
}
