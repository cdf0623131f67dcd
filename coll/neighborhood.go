package coll

// Neighborhood has the neighbors of a member in a topology, for operations among neighbors (MPI-4.1
// section 8.6). A negative rank is no neighbor, and its block is neither sent nor written. With
// several blocks from one member to another, the n-th of Destinations matches the n-th of Sources
// in the order of ReceiveOrder. A Neighborhood is immutable.
type Neighborhood struct {
	Sources, Destinations []int
	// Order of the receives, as indices of Sources. Nil is the order of Sources.
	ReceiveOrder []int
}

// Algorithm returns the algorithm of an operation among neighbors, which sends a message to each.
func (n *Neighborhood) Algorithm(op Operation) Algorithm {
	gathers := op == NeighborAllgather || op == NeighborAllgatherv
	return Algorithm{Op: op, Name: "linear", Plan: func(s *Schedule, _ Member, a *Args) { n.planMessages(s, a, gathers) }}
}

// planMessages writes the messages of an operation. Sends of small blocks precede the receives, as in Both.
func (n *Neighborhood) planMessages(s *Schedule, a *Args, gathers bool) {
	block := a.SendBlock
	if gathers { // All destinations receive the same block.
		block = func(int) (Ref, int) { return a.Input(), a.OwnSize }
	}
	largest := 0
	for i := range n.Destinations {
		_, size := block(i)
		largest = max(largest, size)
	}
	if largest > SendFirst {
		n.planReceives(s, a)
	}
	for i, to := range n.Destinations {
		if to >= 0 {
			ref, size := block(i)
			s.Send(ref, size, to)
		}
	}
	if largest <= SendFirst {
		n.planReceives(s, a)
	}
}

// planReceives writes the receives of an operation.
func (n *Neighborhood) planReceives(s *Schedule, a *Args) {
	each := func(i int) {
		if from := n.Sources[i]; from >= 0 {
			ref, size := a.RecvBlock(i)
			s.Recv(ref, size, from)
		}
	}
	if n.ReceiveOrder != nil {
		for _, i := range n.ReceiveOrder {
			each(i)
		}
		return
	}
	for i := range n.Sources {
		each(i)
	}
}

// SwapPairs returns the order of receives in a Cartesian topology, where neighbors form pairs. The
// block for the preceding neighbor is received as that of the following one. The order matters if
// both are the same process, in periodic dimensions of size 1 and 2.
func SwapPairs(sources int) []int {
	order := make([]int, sources)
	for i := range order {
		order[i] = i ^ 1
	}
	return order
}
