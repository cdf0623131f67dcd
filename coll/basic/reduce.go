package basic

import "github.com/ferrympi/ferry/coll"

// reduce goes up a binomial tree. The member with relative rank v combines, in
// step k, what it has for [v, v+2^k) with what v+2^k brings for the range above.
// Ranges are contiguous, so that the order of ranks is kept if relative ranks
// are the real ones. That is the case for an operation that does not commute:
// its tree ends at rank 0, which sends the result to the root.
func reduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	n, out := m.Size, coll.Ref{Slot: coll.Out}
	top := a.Root
	if a.Ordered {
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
		// A child's part comes to the buffer that does not hold the sum, and becomes the
		// sum there. The last one comes to where the result belongs.
		var bufs [2]coll.Ref
		if bufs[0] = out; m.Rank != top || m.Rank != a.Root {
			bufs[0] = s.NewTemp(a.Size)
		}
		if children > 1 {
			bufs[1] = s.NewTemp(a.Size)
		}
		if sum == bufs[(children-1)%2] { // in place
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
	if m.Rank == a.Root && m.Rank != top { // of a tree that ends elsewhere
		s.Wait() // what was sent may lie here
		s.Recv(out, a.Size, top)
	}
}

// partial is a member's sum of consecutive ranks, as it grows.
type partial struct {
	s     *coll.Schedule
	n     int
	at    coll.Ref
	mine  bool     // it lies where it may be overwritten
	spare coll.Ref // room that nothing lies in; the zero Ref, which is In, is none
}

// newPartial is the sum of this member alone. It grows in Out and working memory.
func newPartial(s *coll.Schedule, a *coll.Args) partial {
	p := partial{s: s, n: a.Size, at: a.Input(), mine: a.InPlace}
	if !a.InPlace {
		p.spare.Slot = coll.Out
	}
	return p
}

func (p *partial) room() coll.Ref {
	r := p.spare
	if p.spare = (coll.Ref{}); r == p.spare {
		r = p.s.NewTemp(p.n)
	}
	return r
}

// add takes in the sum of another member, which is of the ranks just below or just
// above; swap: it sends its own there meanwhile.
func (p *partial) add(rank int, below, swap bool) {
	sum := p.at
	if below && !p.mine { // the sum will be low op sum, in its place
		p.at, p.mine = p.room(), true
	}
	in := p.room()
	// As in Schedule.Both; what is copied here is copied meanwhile.
	first := p.n <= coll.SendFirst
	if swap && first {
		p.s.Send(sum, p.n, rank)
	}
	if first {
		p.s.Copy(p.at, sum, p.n)
	}
	p.s.Recv(in, p.n, rank)
	if swap && !first {
		p.s.Send(sum, p.n, rank)
	}
	if !first {
		p.s.Copy(p.at, sum, p.n)
	}
	p.s.Wait()
	if below {
		p.s.Combine(p.at, in, p.n)
		p.spare = in
	} else {
		p.s.Combine(in, p.at, p.n)
		if p.mine {
			p.spare = p.at
		}
		p.at, p.mine = in, true
	}
	p.s.Wait()
}

// allreduce is recursive doubling: in step k members 2^k apart exchange what
// they have and both combine it, lower ranks first. If the size isn't a power of
// two, the first pairs of neighbours act as one member: so every partial result
// covers consecutive ranks, and the order is kept.
func allreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	actors := 1
	for actors*2 <= m.Size {
		actors *= 2
	}
	pairs := m.Size - actors // the ranks below 2*pairs form pairs
	if m.Rank < 2*pairs && m.Rank%2 == 0 {
		// The neighbour acts for this one too.
		s.Send(a.Input(), a.Size, m.Rank+1)
		if a.InPlace {
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
	s.Copy(out, sum.at, a.Size)
	if m.Rank < 2*pairs {
		s.Send(sum.at, a.Size, m.Rank-1)
	}
}

// scan is recursive doubling over distances (Hillis and Steele 1986): before step k a
// member has the sum of the 2^k ranks up to its own, and takes in that of the member
// 2^k below.
func scan(s *coll.Schedule, m coll.Member, a *coll.Args) {
	sum := coll.Ref{Slot: coll.Out}
	s.Copy(sum, a.Input(), a.Size)
	s.Wait()
	in := s.NewTemp(a.Size)
	for k := 1; k < m.Size; k <<= 1 {
		climb(s, m, a, sum, in, k)
		if m.Rank-k >= 0 {
			s.Combine(sum, in, a.Size)
			s.Wait()
		}
	}
}

// climb sends the sum k up, and receives that of k below, as far as there are such ranks.
func climb(s *coll.Schedule, m coll.Member, a *coll.Args, sum, in coll.Ref, k int) {
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

// exscan is scan that keeps the sum of the ranks below apart.
func exscan(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	sum, in := s.NewTemp(a.Size), s.NewTemp(a.Size)
	s.Copy(sum, a.Input(), a.Size)
	s.Wait()
	for k := 1; k < m.Size; k <<= 1 {
		climb(s, m, a, sum, in, k)
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

// reduceScatter has each member combine its own block of all: in step k it sends the
// block of the member k above there, and takes in its own from the member k below. So
// the ranks below come from the next one down to 0, and then those above from the last
// one down: each is put before what is there, in a sum for either side.
func reduceScatter(s *coll.Schedule, m coll.Member, a *coll.Args) {
	mine, size := a.SendBlock(m.Rank)
	out := coll.Ref{Slot: coll.Out}
	low := out
	if a.InPlace { // other blocks lie there
		low = s.NewTemp(size)
	}
	s.Copy(low, mine, size)
	var high coll.Ref
	in := s.NewTemp(size)
	for k := 1; k < m.Size; k++ {
		to, from := m.Plus(k), m.Plus(-k)
		block, n := a.SendBlock(to)
		first := from == m.Size-1 // of those above
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
