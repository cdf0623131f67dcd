package coll

import (
	"slices"
	"testing"
)

func TestShape_Processes_AreFoundByRank(t *testing.T) {
	s := Shape{Size: 5, Nodes: PlacementOf(0, 0, 1, 1, 1), Procs: PlacementOf(0, 0, 1, 2, 1)}
	if s.Proc(4) != 1 || !slices.Equal(s.ProcMates(1), []int{2, 4}) || s.MaxPerProc() != 2 || !s.HasSharedProcs() {
		t.Errorf("process of rank 4: %d; ranks of process 1: %v; most: %d", s.Proc(4), s.ProcMates(1), s.MaxPerProc())
	}
	if got := s.ProcsAsNodes(); !slices.Equal(got.Nodes, s.Procs) {
		t.Errorf("nodes %v, want the processes", got.Nodes)
	}
}

func TestShape_OneRankPerProcess_StaysAsItIs(t *testing.T) {
	nodes := PlacementOf(0, 0, 1)
	for _, s := range []Shape{{Size: 3, Nodes: nodes}, {Size: 3, Nodes: nodes, Procs: PlacementOf(0, 1, 2)}} {
		if s.HasSharedProcs() || s.MaxPerProc() != 1 || s.Proc(2) != 2 || !slices.Equal(s.ProcsAsNodes().Nodes, nodes) || !slices.Equal(s.ProcMates(2), []int{2}) {
			t.Errorf("%+v shares processes: %v", s, s.HasSharedProcs())
		}
	}
}

func TestShape_OneProcess_IsOneNode(t *testing.T) {
	if s := (Shape{Size: 2, Nodes: PlacementOf(0, 1), Procs: PlacementOf(0, 0)}); s.ProcsAsNodes().Nodes != nil {
		t.Errorf("nodes %v", s.ProcsAsNodes().Nodes)
	}
}
