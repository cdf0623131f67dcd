package server

import "github.com/ferrympi/ferry/bootstrap"

// blockNodes returns the nodes of the first ranks of a divided job, in blocks. The first blocks
// have one rank more if the number of ranks is no multiple.
func blockNodes(ranks, nodes int) []uint32 {
	of := make([]uint32, 0, ranks)
	for node := range nodes {
		size := ranks / nodes
		if node < ranks%nodes {
			size++
		}
		for range size {
			of = append(of, uint32(node))
		}
	}
	return of
}

// isDivided reports whether the nodes of the job share no memory, on one machine.
func (s *Server) isDivided() bool { return s.opt.Nodes > 1 }

// assignNodesLocked assigns nodes to n further ranks of a divided job. Each gets the node with the fewest processes that have not
// ended, the lowest of these.
func (s *Server) assignNodesLocked(n int) {
	if !s.isDivided() {
		return
	}
	if s.nodeOfRank == nil {
		s.nodeOfRank = blockNodes(n, s.opt.Nodes)
		return
	}
	used := make([]int, s.opt.Nodes)
	for rank, p := range s.procs {
		if !p.hasEnded {
			used[s.nodeOfRank[rank]]++
		}
	}
	for range n {
		least := 0
		for node, count := range used {
			if count < used[least] {
				least = node
			}
		}
		used[least]++
		s.nodeOfRank = append(s.nodeOfRank, uint32(least))
	}
}

// nodeMapLocked returns the map of the nodes of a mpi://WORLD.
func (s *Server) nodeMapLocked(first, size int) bootstrap.NodeMap {
	runs := []bootstrap.NodeRun{{First: uint32(first), Count: uint32(size)}}
	if s.isDivided() {
		runs = runs[:0]
		for rank := first; rank < first+size; rank++ {
			runs = append(runs, bootstrap.NodeRun{First: uint32(rank), Count: 1, Node: s.nodeOfRank[rank]})
		}
	}
	m, _ := bootstrap.MakeNodeMap(first, size, runs) // Each rank is there once.
	return m
}
