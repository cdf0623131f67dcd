package tuned

import "github.com/ferrympi/ferry/coll"

// gatherBinomial gathers blocks up a binomial tree. The root receives log2 n messages instead of
// n-1, and most blocks are sent several times.
func gatherBinomial(s *coll.Schedule, m coll.Member, a *coll.Args) {
	parent, children := binomial(s, m, a.Root)
	me := relative(m.Rank, a.Root, m.Size)
	if parent < 0 {
		gatherAtRoot(s, m, a, children)
		return
	}
	if len(children) == 0 {
		s.Send(a.Input(), a.Size, parent)
		return
	}
	end := subtreeEnd(me, m.Size)
	blocks := s.NewTemp((end - me) * a.Size)
	s.Copy(blocks, a.Input(), a.Size)
	size := (end - me) * a.Size
	for _, child := range children { // The largest subtree comes first and has the last blocks.
		first := relative(child, a.Root, m.Size)
		s.Recv(blocks.Plus((first-me)*a.Size), (end-first)*a.Size, child)
		end = first
	}
	s.Wait()
	s.Send(blocks, size, parent)
}

// gatherAtRoot receives the blocks of subtrees at their final positions. At most one subtree wraps
// around the last rank. It is received into working memory.
func gatherAtRoot(s *coll.Schedule, m coll.Member, a *coll.Args, children []int) {
	out := coll.Ref{Slot: coll.Out}
	if !a.IsInPlace {
		s.Copy(out.Plus(m.Rank*a.Size), a.Input(), a.Size)
	}
	var wrapped coll.Ref
	// Number of blocks of the wrapped subtree before rank 0.
	before := 0
	after := 0
	end := m.Size
	for _, child := range children {
		first := relative(child, a.Root, m.Size)
		n := end - first
		if child+n > m.Size {
			wrapped, before, after = s.NewTemp(n*a.Size), m.Size-child, child+n-m.Size
			s.Recv(wrapped, n*a.Size, child)
		} else {
			s.Recv(out.Plus(child*a.Size), n*a.Size, child)
		}
		end = first
	}
	if after > 0 {
		s.Wait()
		s.Copy(out.Plus((m.Size-before)*a.Size), wrapped, before*a.Size)
		s.Copy(out, wrapped.Plus(before*a.Size), after*a.Size)
	}
}

// allgatherDoubling requires a power of two of members. In step k, members at a distance of 2^k
// exchange all their blocks, at the final positions.
func allgatherDoubling(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	if !a.IsInPlace {
		s.Copy(out.Plus(m.Rank*a.Size), a.Input(), a.Size)
		s.Wait()
	}
	for bit := 1; bit < m.Size; bit <<= 1 {
		peer := m.Rank ^ bit
		mine, other := m.Rank&^(bit-1)*a.Size, peer&^(bit-1)*a.Size
		s.Exchange(out.Plus(mine), bit*a.Size, peer, out.Plus(other), bit*a.Size, peer)
	}
}

// linearWindow is the number of pending sends, and of pending receives, of a member in linear
// algorithms.
const linearWindow = 32

// allgatherLinear sends the own block to all members at once. Blocks may have different sizes.
func allgatherLinear(s *coll.Schedule, m coll.Member, a *coll.Args) {
	mine, size := a.RecvBlock(m.Rank)
	from := mine
	if !a.IsInPlace {
		from = a.Input()
		s.Copy(mine, from, size)
	}
	for k := 1; k < m.Size; k++ {
		in, n := a.RecvBlock(m.Plus(-k))
		s.WaitFor(len(s.Steps) - 2*linearWindow)
		s.Both(from, size, m.Plus(k), in, n, m.Plus(-k))
	}
}
