package coll

// Neighborhood is the neighbors of a member in a topology, for operations among neighbors (MPI-4.1 section 8.6). A negative
// rank is none, and its block is neither sent nor written. Of several blocks from one member to another, the first
// of Destinations goes to the first of Sources in the order of Receives, and so on. It is immutable.
type Neighborhood struct {
	Sources, Destinations []int
	Receives              []int // Indices of Sources; nil is their order.
}

// Algorithm returns the algorithm of an operation among neighbors, a message for each.
func (n *Neighborhood) Algorithm(op Operation) Algorithm {
	gathers := op == NeighborAllgather || op == NeighborAllgatherv
	return Algorithm{Op: op, Name: "linear", Plan: func(s *Schedule, _ Member, a *Args) { n.plan(s, a, gathers) }}
}

// plan writes the messages of an operation. Small blocks are sent before the receives start, as in Both.
func (n *Neighborhood) plan(s *Schedule, a *Args, gathers bool) {
	block := a.SendBlock
	if gathers { // The same one for all.
		block = func(int) (Ref, int) { return a.Input(), a.Own }
	}
	largest := 0
	for i := range n.Destinations {
		_, size := block(i)
		largest = max(largest, size)
	}
	if largest > SendFirst {
		n.receive(s, a)
	}
	for i, to := range n.Destinations {
		if to >= 0 {
			ref, size := block(i)
			s.Send(ref, size, to)
		}
	}
	if largest <= SendFirst {
		n.receive(s, a)
	}
}

// receive writes the receives of an operation.
func (n *Neighborhood) receive(s *Schedule, a *Args) {
	each := func(i int) {
		if from := n.Sources[i]; from >= 0 {
			ref, size := a.RecvBlock(i)
			s.Recv(ref, size, from)
		}
	}
	if n.Receives != nil {
		for _, i := range n.Receives {
			each(i)
		}
		return
	}
	for i := range n.Sources {
		each(i)
	}
}

// SwapPairs returns the order of receives in a Cartesian topology, where neighbors stand in pairs. The block for
// the neighbor before is received as that of the neighbor behind. It matters where both are
// one process, in periodic dimensions of size 1 and 2.
func SwapPairs(sources int) []int {
	order := make([]int, sources)
	for i := range order {
		order[i] = i ^ 1
	}
	return order
}
