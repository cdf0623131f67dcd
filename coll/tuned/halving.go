package tuned

import "github.com/ferrympi/ferry/coll"

// halving is the first half of Rabenseifner's reductions: in step k actors 2^k apart
// share what both have a sum of, and each goes on with one half. A sum covers
// consecutive ranks always, so that an operation need not commute. (To halve between the
// actors that are farthest apart first is as fast, and would need that.)
type halving struct {
	s     *coll.Schedule
	a     *coll.Args
	all   actors
	me    int      // actor
	block pieces   // as many as there are actors
	sum   coll.Ref // where the sums come to lie, each piece at its place
	own   coll.Ref // what the actor begins with: sum, or memory that stays as it is
}

// has is the range of pieces of which an actor has the sum after the step with a bit;
// bit 0: before the first.
func (h *halving) has(actor, bit int) (lo, hi int) {
	lo, hi = 0, h.all.n
	for b := 1; b <= bit; b <<= 1 {
		if middle := (lo + hi) / 2; actor&b == 0 {
			hi = middle
		} else {
			lo = middle
		}
	}
	return lo, hi
}

// run leaves the sum of all in pieces has(me, n/2), at sum.
func (h *halving) run() {
	s := h.s
	var temp coll.Ref
	for bit := 1; bit < h.all.n; bit <<= 1 {
		peer := h.me ^ bit
		rank := h.all.rank(peer)
		lo, hi := h.has(peer, bit)
		out, nOut := h.block.of(h.own, lo, hi)
		lo, hi = h.has(h.me, bit)
		mine, n := h.block.of(h.own, lo, hi)
		sum, _ := h.block.of(h.sum, lo, hi)
		if below := peer < h.me; mine != sum && !(below && h.a.Ordered) {
			// What comes becomes the sum, and nothing is copied.
			s.Exchange(out, nOut, rank, sum, n, rank)
			s.Combine(sum, mine, n)
		} else {
			if temp == (coll.Ref{}) {
				temp = s.NewTemp(h.longest(bit))
			}
			s.Both(out, nOut, rank, temp, n, rank)
			s.Copy(sum, mine, n)
			s.Wait()
			if below || !h.a.Ordered {
				s.Combine(sum, temp, n)
			} else {
				s.Combine(temp, sum, n)
				s.Wait()
				s.Copy(sum, temp, n)
			}
		}
		s.Wait()
		h.own = h.sum
	}
	s.Copy(h.sum, h.own, h.block.size) // of one actor alone
	s.Wait()
}

// longest is the most that an actor has after the step with a bit.
func (h *halving) longest(bit int) int {
	lo, hi := h.has(h.me, bit)
	_, n := h.block.of(coll.Ref{}, lo, hi)
	return n
}

// begin has the upper one of a pair of neighbours take in what the lower one gives, and
// reports whether this member acts. The lower one has sent its input then. A sum of two
// lies at sum.
func (h *halving) begin(m coll.Member) (acts bool) {
	s, size := h.s, h.block.size
	h.me, acts = h.all.number(m.Rank)
	switch {
	case !acts:
		s.Send(h.own, size, m.Rank+1)
	case h.me < h.all.pairs:
		temp := s.NewTemp(size)
		s.Recv(temp, size, m.Rank-1)
		s.Copy(h.sum, h.own, size)
		s.Wait()
		s.Combine(h.sum, temp, size)
		s.Wait()
		h.own = h.sum
	}
	return acts
}

// newHalving is one of a reduction whose sums come to lie at sum.
func newHalving(s *coll.Schedule, m coll.Member, a *coll.Args, sum coll.Ref) halving {
	all := actorsOf(m.Size)
	return halving{s: s, a: a, all: all, block: cut(a.Size, a.Elem, all.n), sum: sum, own: a.Input()}
}

// allreduceHalving is Rabenseifner's: halving, and then the same way back, in which
// actors exchange the sums that they have.
func allreduceHalving(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	h := newHalving(s, m, a, out)
	if !h.begin(m) {
		if a.InPlace {
			s.Wait()
		}
		s.Recv(out, a.Size, m.Rank+1)
		return
	}
	h.run()
	for bit := h.all.n / 2; bit > 0; bit >>= 1 {
		lo, hi := h.has(h.me, bit)
		mine, n := h.block.of(out, lo, hi)
		lo, hi = h.has(h.me^bit, bit)
		other, nOther := h.block.of(out, lo, hi)
		rank := h.all.rank(h.me ^ bit)
		s.Exchange(mine, n, rank, other, nOther, rank)
	}
	if h.me < h.all.pairs {
		s.Send(out, a.Size, m.Rank-1)
	}
}

// reduceHalving is the same for one root: the sums are gathered there, in a binomial
// tree. A root that does not act has its neighbour act for it.
func reduceHalving(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	sum := out
	top, rootActs := actorsOf(m.Size).number(a.Root)
	_, acts := actorsOf(m.Size).number(m.Rank)
	if acts && m.Rank != a.Root {
		sum = s.NewTemp(a.Size)
	}
	h := newHalving(s, m, a, sum)
	if !h.begin(m) {
		if m.Rank == a.Root {
			if a.InPlace {
				s.Wait()
			}
			s.Recv(out, a.Size, m.Rank+1)
		}
		return
	}
	h.run()
	for bit := h.all.n / 2; bit > 0; bit >>= 1 {
		actor := h.me
		if actor&bit == top&bit { // it goes on, and the other one gives what it has
			actor ^= bit
		}
		lo, hi := h.has(actor, bit)
		part, n := h.block.of(sum, lo, hi)
		if actor == h.me {
			s.Send(part, n, h.all.rank(h.me^bit))
			return
		}
		s.Recv(part, n, h.all.rank(actor))
		s.Wait()
	}
	if !rootActs {
		s.Send(sum, a.Size, a.Root)
	}
}

// reduceScatterHalving ends after halving, where each actor has the sum of one piece:
// its members' blocks. They lie packed in an order in which actors next to each other in
// the first step have the two halves, so that each ends with its own.
func reduceScatterHalving(s *coll.Schedule, m coll.Member, a *coll.Args) {
	all := actorsOf(m.Size)
	places := s.Numbers(all.n + 1) // of pieces, in bytes
	packed := s.Numbers(m.Size)    // of ranks' blocks
	total := 0
	for place := range all.n {
		places[place] = total
		actor := reversed(place, all.n)
		rank := all.rank(actor)
		if actor < all.pairs {
			packed[rank-1] = total
			_, n := a.SendBlock(rank - 1)
			total += n
		}
		packed[rank] = total
		_, n := a.SendBlock(rank)
		total += n
	}
	places[all.n] = total
	me, acts := all.number(m.Rank)
	out := coll.Ref{Slot: coll.Out}
	if !acts {
		s.Send(a.Input(), total, m.Rank+1)
		if a.InPlace {
			s.Wait()
		}
		s.Recv(out, a.Own, m.Rank+1)
		return
	}
	sum := s.NewTemp(total)
	var low coll.Ref
	if me < all.pairs {
		low = s.NewTemp(total)
		s.Recv(low, total, m.Rank-1)
	}
	for rank := range m.Size {
		at, n := a.SendBlock(rank)
		s.Copy(sum.Plus(packed[rank]), at, n)
	}
	s.Wait()
	for rank := 0; rank < m.Size && me < all.pairs; rank++ {
		at, n := a.SendBlock(rank)
		s.Combine(sum.Plus(packed[rank]), low.Plus(at.At), n)
	}
	s.Wait()
	h := halving{s: s, a: a, all: all, me: me, block: pieces{parts: all.n, ends: places}, sum: sum, own: sum}
	h.run()
	if me < all.pairs {
		_, n := a.SendBlock(m.Rank - 1)
		s.Send(sum.Plus(packed[m.Rank-1]), n, m.Rank-1)
	}
	s.Copy(out, sum.Plus(packed[m.Rank]), a.Own)
}

// reversed is a number below n, a power of two, with its bits in reverse order.
func reversed(i, n int) (r int) {
	for b := 1; b < n; b <<= 1 {
		r <<= 1
		if i&b != 0 {
			r |= 1
		}
	}
	return r
}
