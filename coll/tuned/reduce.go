package tuned

import "github.com/ferrympi/ferry/coll"

// reduceBuffers is the number of segment buffers of a member of a chain. One is received, one is
// combined, and one is sent.
const reduceBuffers = 3

// reduceChain passes sums along a chain in segments. Each member combines a segment from the next
// one and forwards it while it receives another one. The chain ends at the root. For an ordered
// operation it ends at rank 0, which sends the result to the root.
func (p *params) reduceChain(s *coll.Schedule, m coll.Member, a *coll.Args) {
	top, out := a.Root, coll.Ref{Slot: coll.Out}
	if a.IsOrdered {
		top = 0
	}
	if m.Size == 1 {
		s.Copy(out, a.Input(), a.Size)
		return
	}
	c := chain{schedule: s, args: a, block: segments(a.Size, a.ElemSize, int(p.ReduceSegment)), nextRank: m.Plus(1), prevRank: m.Plus(-1)}
	switch relative(m.Rank, top, m.Size) {
	case m.Size - 1:
		c.sendOperand()
	case 0:
		if m.Rank != a.Root {
			out = s.NewTemp(a.Size)
		}
		c.combineResult(out)
	default:
		c.combineAndForward()
	}
	if a.Root == top {
		return
	}
	s.Wait() // The source of a pending send may be the buffer of the result.
	switch m.Rank {
	case top:
		s.Send(out, a.Size, a.Root)
	case a.Root:
		s.Recv(out, a.Size, top)
	}
}

type chain struct {
	schedule           *coll.Schedule
	args               *coll.Args
	block              division
	nextRank, prevRank int
}

// sendOperand sends its operand.
func (c *chain) sendOperand() {
	for i := range c.block.partCount {
		c.schedule.WaitFor(len(c.schedule.Steps) - sendWindow)
		at, n := c.block.slice(c.args.Input(), i, i+1)
		c.schedule.Send(at, n, c.prevRank)
	}
}

// combineAndForward combines its operand with received segments and forwards them.
func (c *chain) combineAndForward() {
	s, a := c.schedule, c.args
	room := c.block.largestPart()
	temp := s.NewTemp(room * reduceBuffers)
	buf := func(i int) coll.Ref { return temp.Plus(i % reduceBuffers * room) }
	_, n := c.block.slice(coll.Ref{}, 0, 1)
	s.Recv(buf(0), n, c.nextRank)
	received := len(s.Steps)
	for i := range c.block.partCount {
		s.WaitFor(received) // This also implies that the segment before the previous one has been sent.
		own, n := c.block.slice(a.Input(), i, i+1)
		s.Combine(buf(i), own, n)
		combined := len(s.Steps)
		if i+1 < c.block.partCount {
			_, more := c.block.slice(coll.Ref{}, i+1, i+2)
			s.Recv(buf(i+1), more, c.nextRank)
		}
		received = len(s.Steps)
		s.WaitFor(combined)
		s.Send(buf(i), n, c.prevRank)
	}
}

// combineResult combines its operand with received segments in out. All receives start at once if they go
// directly to the result.
func (c *chain) combineResult(out coll.Ref) {
	s, a := c.schedule, c.args
	if !a.IsInPlace {
		for i := range c.block.partCount {
			at, n := c.block.slice(out, i, i+1)
			s.Recv(at, n, c.nextRank)
		}
		for i := range c.block.partCount {
			s.WaitFor(i + 1)
			at, n := c.block.slice(out, i, i+1)
			own, _ := c.block.slice(a.Input(), i, i+1)
			s.Combine(at, own, n)
		}
		return
	}
	room := c.block.largestPart()
	temp := s.NewTemp(2 * room)
	for i := range c.block.partCount {
		in := temp.Plus(i % 2 * room)
		at, n := c.block.slice(out, i, i+1)
		s.Recv(in, n, c.nextRank) // The previous segment is combined at the same time.
		s.Wait()
		if a.IsOrdered {
			s.Combine(in, at, n)
			s.Wait()
			s.Copy(at, in, n)
		} else {
			s.Combine(at, in, n)
		}
	}
}

// ringAllreduce passes sums of fragments around the ring until each member has the complete sum of
// one, and then the complete sums (Patarasuk and Yuan 2009). Each member sends and receives the
// block twice less two fragments, and only from and to its neighbors. Each sum starts at another
// rank, so that an ordered operation uses halving instead.
func ringAllreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	if a.IsOrdered || m.Size == 1 {
		allreduceHalving(s, m, a)
		return
	}
	out := coll.Ref{Slot: coll.Out}
	block := divide(a.Size, a.ElemSize, m.Size)
	piece := func(base coll.Ref, k int) (coll.Ref, int) {
		k = relative(m.Rank, k%m.Size, m.Size)
		return block.slice(base, k, k+1)
	}
	var temp coll.Ref
	if a.IsInPlace {
		temp = s.NewTemp(block.largestPart())
	}
	send := a.Input()
	for step := range m.Size - 1 {
		from, nFrom := piece(send, step)
		sum, n := piece(out, step+1)
		own, _ := piece(a.Input(), step+1)
		in := sum
		if a.IsInPlace {
			in = temp
		}
		s.Exchange(from, nFrom, m.Plus(1), in, n, m.Plus(-1))
		if a.IsInPlace {
			own = temp
		}
		s.Combine(sum, own, n)
		s.Wait()
		send = out
	}
	for step := range m.Size - 1 {
		from, nFrom := piece(out, step+m.Size-1)
		to, n := piece(out, step)
		s.Exchange(from, nFrom, m.Plus(1), to, n, m.Plus(-1))
	}
}
