package tuned

import "github.com/ferrympi/ferry/coll"

// alltoallLinear exchanges with all members at once. Blocks may have different sizes. In place, a
// received block must not overwrite an unsent one, so the exchange is pairwise.
func alltoallLinear(s *coll.Schedule, m coll.Member, a *coll.Args) {
	if a.IsInPlace {
		alltoallPairs(s, m, a)
		return
	}
	mine, n := a.SendBlock(m.Rank)
	at, _ := a.RecvBlock(m.Rank)
	s.Copy(at, mine, n)
	for k := 1; k < m.Size; k++ {
		out, nOut := a.SendBlock(m.Plus(k))
		in, nIn := a.RecvBlock(m.Plus(-k))
		s.WaitFor(len(s.Steps) - 2*linearWindow)
		s.Both(out, nOut, m.Plus(k), in, nIn, m.Plus(-k))
	}
}

// alltoallPairs is pairwise exchange. In each of n steps every member exchanges with its partner,
// or copies its own block. Blocks may have different sizes. In place it needs working memory for
// one block.
func alltoallPairs(s *coll.Schedule, m coll.Member, a *coll.Args) {
	room := 0
	for rank := range m.Size {
		if _, n := a.RecvBlock(rank); a.IsInPlace && rank != m.Rank {
			room = max(room, n)
		}
	}
	var temp coll.Ref
	if room > 0 {
		temp = s.NewTemp(room)
	}
	for step := range m.Size {
		peer := relative(step, m.Rank, m.Size)
		in, nIn := a.RecvBlock(peer)
		out, nOut := a.SendBlock(peer)
		switch {
		case a.IsInPlace && peer != m.Rank:
			if room == 0 {
				temp = in // The block is empty.
			}
			s.Exchange(in, nIn, peer, temp, nIn, peer)
			s.Copy(in, temp, nIn)
			s.Wait()
		case a.IsInPlace:
		case peer == m.Rank:
			s.Copy(in, out, nIn)
		default:
			s.Exchange(out, nOut, peer, in, nIn, peer)
		}
	}
}

// alltoallBruck takes log2 n steps, in which most blocks are sent several times (Bruck et al.
// 1997). Step k moves the blocks by 2^k ranks whose remaining distance has that bit.
func alltoallBruck(s *coll.Schedule, m coll.Member, a *coll.Args) {
	blocks := s.NewTemp(m.Size * a.Size) // Ordered by distance.
	for k := range m.Size {
		from := a.Input().Plus(m.Plus(k) * a.Size)
		s.Copy(blocks.Plus(k*a.Size), from, a.Size)
	}
	s.Wait()
	out := s.NewTemp((m.Size + 1) / 2 * a.Size)
	in := s.NewTemp((m.Size + 1) / 2 * a.Size)
	for bit := 1; bit < m.Size; bit <<= 1 {
		n := 0
		for k := range m.Size {
			if k&bit != 0 {
				s.Copy(out.Plus(n*a.Size), blocks.Plus(k*a.Size), a.Size)
				n++
			}
		}
		s.Wait()
		s.Exchange(out, n*a.Size, m.Plus(bit), in, n*a.Size, m.Plus(-bit))
		n = 0
		for k := range m.Size {
			if k&bit != 0 {
				s.Copy(blocks.Plus(k*a.Size), in.Plus(n*a.Size), a.Size)
				n++
			}
		}
		s.Wait()
	}
	for k := range m.Size {
		at, n := a.RecvBlock(m.Plus(-k))
		s.Copy(at, blocks.Plus(k*a.Size), n)
	}
}
