package basic

import "github.com/ferrympi/ferry/coll"

// gather sends the blocks of all members to the root, which posts all receives at once. Blocks may
// have different sizes.
func gather(s *coll.Schedule, m coll.Member, a *coll.Args) {
	if m.Rank != a.Root {
		s.Send(a.Input(), a.OwnSize, a.Root)
		return
	}
	for rank := range m.Size {
		if at, n := a.RecvBlock(rank); rank != m.Rank {
			s.Recv(at, n, rank)
		} else if !a.IsInPlace {
			s.Copy(at, a.Input(), n)
		}
	}
}

// scatter is the inverse of gather. Each member has the size of its own block only. Its receive
// fails if the root sends another size.
func scatter(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	if m.Rank != a.Root {
		s.Recv(out, a.OwnSize, a.Root)
		return
	}
	for rank := range m.Size {
		if at, n := a.SendBlock(rank); rank != m.Rank {
			s.Send(at, n, rank)
		} else if !a.IsInPlace {
			s.Copy(out, at, n)
		}
	}
}

// bruck fills working memory, in which blocks are ordered by their distance from this member, in
// ceil(log2 n) steps (Bruck et al. 1997). Each step doubles the number of blocks that every member
// has.
func bruck(s *coll.Schedule, m coll.Member, a *coll.Args) {
	size := a.Size
	mine, _ := a.RecvBlock(m.Rank)
	from := mine
	if !a.IsInPlace {
		from = a.Input()
	}
	if m.Size == 1 {
		s.Copy(mine, from, size)
		return
	}
	blocks := s.NewTemp(m.Size * size)
	s.Copy(blocks, from, size)
	s.Wait()
	for have := 1; have < m.Size; have *= 2 {
		n := min(have, m.Size-have) * size
		s.Exchange(blocks, n, m.Plus(-have), blocks.Plus(have*size), n, m.Plus(have))
	}
	for i := range m.Size {
		at, _ := a.RecvBlock(m.Plus(i))
		s.Copy(at, blocks.Plus(i*size), size)
	}
}

// ring passes every block around the ring of ranks in n-1 steps. Each member sends each byte once.
// Blocks may have different sizes.
func ring(s *coll.Schedule, m coll.Member, a *coll.Args) {
	mine, size := a.RecvBlock(m.Rank)
	if !a.IsInPlace {
		s.Copy(mine, a.Input(), size)
		s.Wait()
	}
	for step := range m.Size - 1 {
		out, nOut := a.RecvBlock(m.Plus(-step))
		in, nIn := a.RecvBlock(m.Plus(-step - 1))
		s.Exchange(out, nOut, m.Plus(1), in, nIn, m.Plus(-1))
	}
}

// alltoall exchanges blocks with the members k above and k below in step k. Blocks may have
// different sizes. In place it sends from a copy.
func alltoall(s *coll.Schedule, m coll.Member, a *coll.Args) {
	var saved coll.Ref
	if a.IsInPlace {
		extent := 0
		for rank := range m.Size {
			at, n := a.RecvBlock(rank)
			extent = max(extent, at.At+n)
		}
		saved = s.NewTemp(extent)
		for rank := range m.Size {
			at, n := a.RecvBlock(rank)
			s.Copy(saved.Plus(at.At), at, n)
		}
		s.Wait()
	} else {
		from, n := a.SendBlock(m.Rank)
		to, _ := a.RecvBlock(m.Rank)
		s.Copy(to, from, n)
	}
	for k := 1; k < m.Size; k++ {
		out, nOut := a.SendBlock(m.Plus(k))
		if a.IsInPlace {
			out, nOut = a.RecvBlock(m.Plus(k))
			out = saved.Plus(out.At)
		}
		in, nIn := a.RecvBlock(m.Plus(-k))
		s.Exchange(out, nOut, m.Plus(k), in, nIn, m.Plus(-k))
	}
}
