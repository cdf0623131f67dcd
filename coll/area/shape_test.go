package area

import (
	"testing"

	"github.com/ferrympi/ferry/coll"
)

func TestShapeFor_ProcessWithTooManyRanks_IsRefused(t *testing.T) {
	for _, ranks := range []int{MaxMembers, MaxMembers + 1} {
		s, ok := ShapeFor(coll.Shape{Size: ranks + 1, Procs: coll.PlacementOf(append(make([]int, ranks), 1)...)})
		if ok != (ranks <= MaxMembers) || ok && s.Node(ranks) != 1 {
			t.Errorf("%d ranks of a process: ok %v, nodes %v", ranks, ok, s.Nodes)
		}
	}
}
