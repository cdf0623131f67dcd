package tuned

import "github.com/ferrympi/ferry/coll"

// reduceBuffers is how many segments a member of a chain has room for: one that comes,
// one that is combined, and one that goes.
const reduceBuffers = 3

// reduceChain passes sums along a chain, segment after segment: each member takes in
// what comes from the next one, and sends it on while the next segment comes. The chain
// ends at the root or, if the operation does not commute, at rank 0, which sends the
// result there.
func (p *params) reduceChain(s *coll.Schedule, m coll.Member, a *coll.Args) {
	top, out := a.Root, coll.Ref{Slot: coll.Out}
	if a.Ordered {
		top = 0
	}
	if m.Size == 1 {
		s.Copy(out, a.Input(), a.Size)
		return
	}
	c := chain{s: s, a: a, block: segments(a.Size, a.Elem, int(p.ReduceSegment)), next: m.Plus(1), prev: m.Plus(-1)}
	switch relative(m.Rank, top, m.Size) {
	case m.Size - 1:
		c.last()
	case 0:
		if m.Rank != a.Root {
			out = s.NewTemp(a.Size)
		}
		c.first(out)
	default:
		c.inner()
	}
	if a.Root == top {
		return
	}
	s.Wait() // what was sent may lie where the result comes
	switch m.Rank {
	case top:
		s.Send(out, a.Size, a.Root)
	case a.Root:
		s.Recv(out, a.Size, top)
	}
}

type chain struct {
	s          *coll.Schedule
	a          *coll.Args
	block      pieces
	next, prev int // ranks
}

// last sends what it has.
func (c *chain) last() {
	for i := range c.block.parts {
		c.s.WaitFor(len(c.s.Steps) - sendWindow)
		at, n := c.block.of(c.a.Input(), i, i+1)
		c.s.Send(at, n, c.prev)
	}
}

// inner adds what it has to what comes, and sends it on.
func (c *chain) inner() {
	s, a := c.s, c.a
	room := c.block.longest()
	temp := s.NewTemp(room * reduceBuffers)
	buf := func(i int) coll.Ref { return temp.Plus(i % reduceBuffers * room) }
	_, n := c.block.of(coll.Ref{}, 0, 1)
	s.Recv(buf(0), n, c.next)
	received := len(s.Steps)
	for i := range c.block.parts {
		s.WaitFor(received) // and until the segment has gone that was two before
		own, n := c.block.of(a.Input(), i, i+1)
		s.Combine(buf(i), own, n)
		combined := len(s.Steps)
		if i+1 < c.block.parts {
			_, more := c.block.of(coll.Ref{}, i+1, i+2)
			s.Recv(buf(i+1), more, c.next)
		}
		received = len(s.Steps)
		s.WaitFor(combined)
		s.Send(buf(i), n, c.prev)
	}
}

// first adds what it has to what comes, and keeps it in out. All receives may start at
// once where what comes becomes the result.
func (c *chain) first(out coll.Ref) {
	s, a := c.s, c.a
	if !a.InPlace {
		for i := range c.block.parts {
			at, n := c.block.of(out, i, i+1)
			s.Recv(at, n, c.next)
		}
		for i := range c.block.parts {
			s.WaitFor(i + 1)
			at, n := c.block.of(out, i, i+1)
			own, _ := c.block.of(a.Input(), i, i+1)
			s.Combine(at, own, n)
		}
		return
	}
	room := c.block.longest()
	temp := s.NewTemp(2 * room)
	for i := range c.block.parts {
		in := temp.Plus(i % 2 * room)
		at, n := c.block.of(out, i, i+1)
		s.Recv(in, n, c.next) // meanwhile the one before is combined
		s.Wait()
		if a.Ordered {
			s.Combine(in, at, n)
			s.Wait()
			s.Copy(at, in, n)
		} else {
			s.Combine(at, in, n)
		}
	}
}

// ringAllreduce passes sums of pieces round until each member has the sum of all of one,
// and then those (Patarasuk and Yuan 2009): each member sends and receives the block
// twice, less two pieces, and only to and from its neighbours. Sums begin with every
// rank, so that an operation which does not commute takes halving.
func ringAllreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	if a.Ordered || m.Size == 1 {
		allreduceHalving(s, m, a)
		return
	}
	out := coll.Ref{Slot: coll.Out}
	block := cut(a.Size, a.Elem, m.Size)
	piece := func(base coll.Ref, k int) (coll.Ref, int) {
		k = relative(m.Rank, k%m.Size, m.Size)
		return block.of(base, k, k+1)
	}
	var temp coll.Ref
	if a.InPlace {
		temp = s.NewTemp(block.longest())
	}
	send := a.Input()
	for step := range m.Size - 1 {
		from, nFrom := piece(send, step)
		sum, n := piece(out, step+1)
		own, _ := piece(a.Input(), step+1)
		in := sum
		if a.InPlace {
			in = temp
		}
		s.Exchange(from, nFrom, m.Plus(1), in, n, m.Plus(-1))
		if a.InPlace {
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
