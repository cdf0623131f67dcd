package basic

import "github.com/ferrympi/ferry/coll"

// reduce combines up a binomial tree. In step k, the member with relative rank v combines its sum
// of [v, v+2^k) with the sum of the range above from member v+2^k. Ranges are contiguous, which
// preserves the order of ranks if relative ranks are the real ones. The tree of an ordered
// operation therefore ends at rank 0, which sends the result to the root.
func reduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	n, out := m.Size, coll.Ref{Slot: coll.Out}
	top := a.Root
	if a.IsOrdered {
		top = 0
	}
	me := relative(m.Rank, top, n)
	children, bit := 0, 1
	for ; bit < n && me&bit == 0; bit <<= 1 {
		if me+bit < n {
			children++
		}
	}
	sum := a.Input()
	if children > 0 {
		// A child's sum is received into the buffer that does not contain this member's sum, and
		// the result replaces it there. The last one is received into the buffer of the result.
		var bufs [2]coll.Ref
		if bufs[0] = out; m.Rank != top || m.Rank != a.Root {
			bufs[0] = s.NewTemp(a.Size)
		}
		if children > 1 {
			bufs[1] = s.NewTemp(a.Size)
		}
		if sum == bufs[(children-1)%2] { // The operation is in place.
			sum = s.NewTemp(a.Size)
			s.Copy(sum, a.Input(), a.Size)
			s.Wait()
		}
		for k := 1; k < bit; k <<= 1 {
			if me+k >= n {
				continue
			}
			children--
			in := bufs[children%2]
			s.Recv(in, a.Size, absolute(me+k, top, n))
			s.Wait()
			s.Combine(in, sum, a.Size)
			s.Wait()
			sum = in
		}
	}
	switch {
	case m.Rank != top:
		s.Send(sum, a.Size, absolute(me-bit, top, n))
	case m.Rank == a.Root:
		s.Copy(out, sum, a.Size)
	default:
		s.Send(sum, a.Size, a.Root)
	}
	if m.Rank == a.Root && m.Rank != top { // The tree ends at another rank.
		s.Wait() // The source of a pending send may be here.
		s.Recv(out, a.Size, top)
	}
}

// partial is a member's growing sum of consecutive ranks.
type partial struct {
	s        *coll.Schedule
	n        int
	position coll.Ref
	// Whether the memory at position may be overwritten.
	isWritable bool
	// Free memory for another sum. The zero Ref, which is In, means none.
	spare coll.Ref
}

// newPartial returns the sum of this member alone. It uses Out and working memory.
func newPartial(s *coll.Schedule, a *coll.Args) partial {
	p := partial{s: s, n: a.Size, position: a.Input(), isWritable: a.IsInPlace}
	if !a.IsInPlace {
		p.spare.Slot = coll.Out
	}
	return p
}

func (p *partial) newBuffer() coll.Ref {
	r := p.spare
	if p.spare = (coll.Ref{}); r == p.spare {
		r = p.s.NewTemp(p.n)
	}
	return r
}

// add combines the sum of another member with adjacent ranks, lower ones if below is set. If swap is set,
// it sends its own sum there at the same time.
func (p *partial) add(rank int, below, swap bool) {
	sum := p.position
	if below && !p.isWritable { // The result is low op sum, in the memory of sum.
		p.position, p.isWritable = p.newBuffer(), true
	}
	in := p.newBuffer()
	// The order is that of Schedule.Both. Copies overlap with the messages.
	first := p.n <= coll.SendFirst
	if swap && first {
		p.s.Send(sum, p.n, rank)
	}
	if first {
		p.s.Copy(p.position, sum, p.n)
	}
	p.s.Recv(in, p.n, rank)
	if swap && !first {
		p.s.Send(sum, p.n, rank)
	}
	if !first {
		p.s.Copy(p.position, sum, p.n)
	}
	p.s.Wait()
	if below {
		p.s.Combine(p.position, in, p.n)
		p.spare = in
	} else {
		p.s.Combine(in, p.position, p.n)
		if p.isWritable {
			p.spare = p.position
		}
		p.position, p.isWritable = in, true
	}
	p.s.Wait()
}

// allreduce is recursive doubling. In step k, members at a distance of 2^k exchange their sums and
// both combine them, lower ranks first. If the size is not a power of two, the first pairs of
// neighbors act as one member each. Every partial sum therefore covers consecutive ranks, which
// preserves the order.
func allreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	actors := 1
	for actors*2 <= m.Size {
		actors *= 2
	}
	pairs := m.Size - actors // The ranks below 2*pairs form pairs.
	if m.Rank < 2*pairs && m.Rank%2 == 0 {
		// The neighbor also acts for this member.
		s.Send(a.Input(), a.Size, m.Rank+1)
		if a.IsInPlace {
			s.Wait()
		}
		s.Recv(out, a.Size, m.Rank+1)
		return
	}
	sum := newPartial(s, a)
	actor := m.Rank - pairs
	if m.Rank < 2*pairs {
		actor = m.Rank / 2
		sum.add(m.Rank-1, true, false)
	}
	for bit := 1; bit < actors; bit <<= 1 {
		peer := actor ^ bit
		rank := peer + pairs
		if peer < pairs {
			rank = peer*2 + 1
		}
		sum.add(rank, peer < actor, true)
	}
	s.Copy(out, sum.position, a.Size)
	if m.Rank < 2*pairs {
		s.Send(sum.position, a.Size, m.Rank-1)
	}
}

// scan is recursive doubling over distances (Hillis and Steele 1986). Before step k a member has
// the sum of the 2^k ranks up to its own. It then combines that of the member 2^k below.
func scan(s *coll.Schedule, m coll.Member, a *coll.Args) {
	sum := coll.Ref{Slot: coll.Out}
	s.Copy(sum, a.Input(), a.Size)
	s.Wait()
	in := s.NewTemp(a.Size)
	for k := 1; k < m.Size; k <<= 1 {
		shiftSum(s, m, a, sum, in, k)
		if m.Rank-k >= 0 {
			s.Combine(sum, in, a.Size)
			s.Wait()
		}
	}
}

// shiftSum sends the sum to the member k above and receives that of the member k below, if they exist.
func shiftSum(s *coll.Schedule, m coll.Member, a *coll.Args, sum, in coll.Ref, k int) {
	up, down := m.Rank+k < m.Size, m.Rank-k >= 0
	switch {
	case up && down:
		s.Exchange(sum, a.Size, m.Rank+k, in, a.Size, m.Rank-k)
	case up:
		s.Send(sum, a.Size, m.Rank+k)
	case down:
		s.Recv(in, a.Size, m.Rank-k)
	}
	s.Wait()
}

// exscan is scan with a separate sum of the ranks below.
func exscan(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	sum, in := s.NewTemp(a.Size), s.NewTemp(a.Size)
	s.Copy(sum, a.Input(), a.Size)
	s.Wait()
	for k := 1; k < m.Size; k <<= 1 {
		shiftSum(s, m, a, sum, in, k)
		if m.Rank-k < 0 {
			continue
		}
		if k == 1 {
			s.Copy(out, in, a.Size)
		} else {
			s.Combine(out, in, a.Size)
		}
		s.Combine(sum, in, a.Size)
		s.Wait()
	}
}

// reduceScatter combines the own block of each member from all members. In step k it sends the
// block of the member k above, and combines its own from the member k below. It therefore receives
// from the lower ranks in descending order down to 0, and then from the higher ones in descending
// order. Each block is combined before the existing sum of its side.
func reduceScatter(s *coll.Schedule, m coll.Member, a *coll.Args) {
	mine, size := a.SendBlock(m.Rank)
	out := coll.Ref{Slot: coll.Out}
	low := out
	if a.IsInPlace { // Out contains other blocks.
		low = s.NewTemp(size)
	}
	s.Copy(low, mine, size)
	var high coll.Ref
	in := s.NewTemp(size)
	for k := 1; k < m.Size; k++ {
		to, from := m.Plus(k), m.Plus(-k)
		block, n := a.SendBlock(to)
		first := from == m.Size-1 // The first of the higher ranks to be received.
		if first {
			high = s.NewTemp(size)
		}
		into := in
		if first {
			into = high
		}
		s.Exchange(block, n, to, into, size, from)
		switch {
		case from < m.Rank:
			s.Combine(low, in, size)
		case !first:
			s.Combine(high, in, size)
		}
		s.Wait()
	}
	if m.Rank < m.Size-1 {
		s.Combine(high, low, size)
		low = high
	}
	s.Wait()
	s.Copy(out, low, size)
}
