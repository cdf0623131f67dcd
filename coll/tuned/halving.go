package tuned

import "github.com/ferrympi/ferry/coll"

// halving is the first half of Rabenseifner's reductions. In step k, actors at a distance of 2^k
// split the range of which both have a sum, and each continues with one half. A sum always covers
// consecutive ranks, so that the operation need not commute. (Halving between the most distant
// actors first is equally fast, and would require that.)
type halving struct {
	schedule *coll.Schedule
	args     *coll.Args
	actors   actors
	ownActor int
	// Division into as many fragments as there are actors.
	block division
	// Memory of the sums, with each fragment at its final position.
	sumMemory coll.Ref
	// The actor's initial operand, either sumMemory or memory that is not modified.
	operand coll.Ref
}

// sumRange returns the range of fragments of which an actor has the sum after the step of a bit. Bit 0
// is the state before the first step.
func (h *halving) sumRange(actor, bit int) (lo, hi int) {
	lo, hi = 0, h.actors.count
	for b := 1; b <= bit; b <<= 1 {
		if middle := (lo + hi) / 2; actor&b == 0 {
			hi = middle
		} else {
			lo = middle
		}
	}
	return lo, hi
}

// halve leaves the complete sums of fragments sumRange(actor, n/2) in sum.
func (h *halving) halve() {
	s := h.schedule
	var temp coll.Ref
	for bit := 1; bit < h.actors.count; bit <<= 1 {
		peer := h.ownActor ^ bit
		rank := h.actors.rankOf(peer)
		lo, hi := h.sumRange(peer, bit)
		out, nOut := h.block.slice(h.operand, lo, hi)
		lo, hi = h.sumRange(h.ownActor, bit)
		mine, n := h.block.slice(h.operand, lo, hi)
		sum, _ := h.block.slice(h.sumMemory, lo, hi)
		if below := peer < h.ownActor; mine != sum && !(below && h.args.IsOrdered) {
			// The received operand becomes the sum without a copy.
			s.Exchange(out, nOut, rank, sum, n, rank)
			s.Combine(sum, mine, n)
		} else {
			if temp == (coll.Ref{}) {
				temp = s.NewTemp(h.largestRange(bit))
			}
			s.Both(out, nOut, rank, temp, n, rank)
			s.Copy(sum, mine, n)
			s.Wait()
			if below || !h.args.IsOrdered {
				s.Combine(sum, temp, n)
			} else {
				s.Combine(temp, sum, n)
				s.Wait()
				s.Copy(sum, temp, n)
			}
		}
		s.Wait()
		h.operand = h.sumMemory
	}
	s.Copy(h.sumMemory, h.operand, h.block.blockSize) // A single actor has no step.
	s.Wait()
}

// largestRange returns the size of the largest range after the step of a bit.
func (h *halving) largestRange(bit int) int {
	lo, hi := h.sumRange(h.ownActor, bit)
	_, n := h.block.slice(coll.Ref{}, lo, hi)
	return n
}

// foldPair combines the operand of the lower member of a pair at the upper one, and reports whether
// this member acts. The lower member has sent its input then. The sum of two is in sum.
func (h *halving) foldPair(m coll.Member) (acts bool) {
	s, size := h.schedule, h.block.blockSize
	h.ownActor, acts = h.actors.actorOf(m.Rank)
	switch {
	case !acts:
		s.Send(h.operand, size, m.Rank+1)
	case h.ownActor < h.actors.pairCount:
		temp := s.NewTemp(size)
		s.Recv(temp, size, m.Rank-1)
		s.Copy(h.sumMemory, h.operand, size)
		s.Wait()
		s.Combine(h.sumMemory, temp, size)
		s.Wait()
		h.operand = h.sumMemory
	}
	return acts
}

// newHalving returns the halving of a reduction whose sums are in sum.
func newHalving(s *coll.Schedule, m coll.Member, a *coll.Args, sum coll.Ref) halving {
	all := actorsOf(m.Size)
	return halving{schedule: s, args: a, actors: all, block: divide(a.Size, a.ElemSize, all.count), sumMemory: sum, operand: a.Input()}
}

// allreduceHalving is Rabenseifner's allreduce. After halving, the same steps in reverse order
// exchange the complete sums.
func allreduceHalving(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	h := newHalving(s, m, a, out)
	if !h.foldPair(m) {
		if a.IsInPlace {
			s.Wait()
		}
		s.Recv(out, a.Size, m.Rank+1)
		return
	}
	h.halve()
	for bit := h.actors.count / 2; bit > 0; bit >>= 1 {
		lo, hi := h.sumRange(h.ownActor, bit)
		mine, n := h.block.slice(out, lo, hi)
		lo, hi = h.sumRange(h.ownActor^bit, bit)
		other, nOther := h.block.slice(out, lo, hi)
		rank := h.actors.rankOf(h.ownActor ^ bit)
		s.Exchange(mine, n, rank, other, nOther, rank)
	}
	if h.ownActor < h.actors.pairCount {
		s.Send(out, a.Size, m.Rank-1)
	}
}

// reduceHalving is Rabenseifner's reduce. After halving, it gathers the sums at the root in a binomial tree. The neighbor of a root that does
// not act takes its role.
func reduceHalving(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	sum := out
	top, rootActs := actorsOf(m.Size).actorOf(a.Root)
	_, acts := actorsOf(m.Size).actorOf(m.Rank)
	if acts && m.Rank != a.Root {
		sum = s.NewTemp(a.Size)
	}
	h := newHalving(s, m, a, sum)
	if !h.foldPair(m) {
		if m.Rank == a.Root {
			if a.IsInPlace {
				s.Wait()
			}
			s.Recv(out, a.Size, m.Rank+1)
		}
		return
	}
	h.halve()
	for bit := h.actors.count / 2; bit > 0; bit >>= 1 {
		actor := h.ownActor
		if actor&bit == top&bit { // This actor continues, and the peer sends its sums.
			actor ^= bit
		}
		lo, hi := h.sumRange(actor, bit)
		part, n := h.block.slice(sum, lo, hi)
		if actor == h.ownActor {
			s.Send(part, n, h.actors.rankOf(h.ownActor^bit))
			return
		}
		s.Recv(part, n, h.actors.rankOf(actor))
		s.Wait()
	}
	if !rootActs {
		s.Send(sum, a.Size, a.Root)
	}
}

// reduceScatterHalving ends after halving, where each actor has the sum of one fragment, the blocks
// of its members. The fragments are packed in bit-reversed order of the actors, so that each actor
// ends with its own.
func reduceScatterHalving(s *coll.Schedule, m coll.Member, a *coll.Args) {
	all := actorsOf(m.Size)
	places := s.Scratch(all.count + 1) // Offsets of the fragments in bytes.
	packed := s.Scratch(m.Size)        // Offsets of the ranks' blocks in bytes.
	total := 0
	for place := range all.count {
		places[place] = total
		actor := reversed(place, all.count)
		rank := all.rankOf(actor)
		if actor < all.pairCount {
			packed[rank-1] = total
			_, n := a.SendBlock(rank - 1)
			total += n
		}
		packed[rank] = total
		_, n := a.SendBlock(rank)
		total += n
	}
	places[all.count] = total
	me, acts := all.actorOf(m.Rank)
	out := coll.Ref{Slot: coll.Out}
	if !acts {
		s.Send(a.Input(), total, m.Rank+1)
		if a.IsInPlace {
			s.Wait()
		}
		s.Recv(out, a.OwnSize, m.Rank+1)
		return
	}
	sum := s.NewTemp(total)
	var low coll.Ref
	if me < all.pairCount {
		low = s.NewTemp(total)
		s.Recv(low, total, m.Rank-1)
	}
	for rank := range m.Size {
		at, n := a.SendBlock(rank)
		s.Copy(sum.Plus(packed[rank]), at, n)
	}
	s.Wait()
	for rank := 0; rank < m.Size && me < all.pairCount; rank++ {
		at, n := a.SendBlock(rank)
		s.Combine(sum.Plus(packed[rank]), low.Plus(at.At), n)
	}
	s.Wait()
	h := halving{schedule: s, args: a, actors: all, ownActor: me, block: division{partCount: all.count, boundaries: places}, sumMemory: sum, operand: sum}
	h.halve()
	if me < all.pairCount {
		_, n := a.SendBlock(m.Rank - 1)
		s.Send(sum.Plus(packed[m.Rank-1]), n, m.Rank-1)
	}
	s.Copy(out, sum.Plus(packed[m.Rank]), a.OwnSize)
}

// reversed returns i, below the power of two n, with its bits in reverse order.
func reversed(i, n int) (r int) {
	for b := 1; b < n; b <<= 1 {
		r <<= 1
		if i&b != 0 {
			r |= 1
		}
	}
	return r
}
