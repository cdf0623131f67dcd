package shm

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/area"
)

// node plans schedules for communicators on one node, where ranks are local ranks.
type node struct{ *area.Layout }

var (
	out      = coll.Ref{Slot: coll.Out}
	noMemory coll.Ref
)

func (p node) barrier(s *coll.Schedule, m coll.Member, _ *coll.Args) {
	w := p.Begin(s, m, coll.Barrier, 0, 0)
	w.Post(noMemory, 0)
	w.AwaitAll()
	w.End()
}

func (p node) bcast(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := p.Begin(s, m, coll.Bcast, a.Root, a.Size)
	p.Bcast(w, a.Root, a.Size, out)
	w.End()
}

func (p node) gather(s *coll.Schedule, m coll.Member, a *coll.Args) {
	p.exchangeBlocks(s, m, a, coll.Gather, a.Root, m.Rank == a.Root, m.Rank == a.Root)
}

func (p node) allgather(s *coll.Schedule, m coll.Member, a *coll.Args) {
	p.exchangeBlocks(s, m, a, coll.Allgather, 0, true, false)
}

// exchangeBlocks posts the blocks of all members, and receivers copy them.
func (p node) exchangeBlocks(s *coll.Schedule, m coll.Member, a *coll.Args, op coll.Operation, root int, isReceiver, isSole bool) {
	w := p.Begin(s, m, op, root, a.Size)
	own := a.Input()
	if a.IsInPlace {
		own = out.Plus(m.Rank * a.Size)
	}
	p.Gather(w, a.Size, own, isReceiver, a.IsInPlace, isSole, out)
	w.End()
}

// alltoall posts a chunk for each member.
func (p node) alltoall(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := p.Begin(s, m, coll.Alltoall, 0, a.Size)
	isPair := m.Size == 2
	limit := max(1, p.Chunk()/m.Size)
	if isPair { // The own block is not posted.
		limit = p.Chunk()
	}
	area.PipelineChunks(a.Size, limit, func(at, n int) {
		switch {
		case isPair:
			w.Post(a.Input().Plus(m.Plus(1)*a.Size+at), n)
		case n == a.Size: // The blocks are contiguous.
			w.Post(a.Input(), n*m.Size)
		default:
			for rank := range m.Size {
				w.Fill(rank*n, n*m.Size, a.Input().Plus(rank*a.Size+at), n)
			}
			w.PostFilled(n * m.Size)
		}
		if mine := m.Rank*a.Size + at; !a.IsInPlace {
			w.Copy(out.Plus(mine), a.Input().Plus(mine), n)
			w.Wait()
		}
	}, func(back, at, n int) {
		offset := m.Rank * n // In a post.
		if isPair {
			offset = 0
		}
		for k := 1; k < m.Size; k++ {
			rank := m.Plus(-k)
			w.FetchFrom(back, rank, offset, out.Plus(rank*a.Size+at), n)
		}
	})
	w.End()
}

// reduce combines all posts in the root.
func (p node) reduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	last := -1
	if m.Rank == a.Root {
		last = m.Size - 1
	}
	p.reduceRange(s, m, a, coll.Reduce, a.Root, last, m.Rank == a.Root)
}

// allreduce combines all posts in every member in one order, which yields equal bits.
func (p node) allreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	p.reduceRange(s, m, a, coll.Allreduce, 0, m.Size-1, false)
}

// scan combines the posts of the ranks up to this one, exscan those of the ranks below it.
func (p node) scan(s *coll.Schedule, m coll.Member, a *coll.Args) {
	p.reduceRange(s, m, a, coll.Scan, 0, m.Rank, m.Rank == m.Size-1)
}

func (p node) exscan(s *coll.Schedule, m coll.Member, a *coll.Args) {
	p.reduceRange(s, m, a, coll.Exscan, 0, m.Rank-1, m.Rank == m.Size-1)
}

func (p node) reduceRange(s *coll.Schedule, m coll.Member, a *coll.Args, op coll.Operation, root, last int, isSole bool) {
	w := p.Begin(s, m, op, root, a.Size)
	p.Reduce(w, a, 0, last, isSole, out)
	w.End()
}

// reduceScatterAllreduce combines a share of every chunk in each member, which posts the result.
func (p node) reduceScatterAllreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	unit := p.Unit(a)
	switch {
	case unit == 0 || a.Size == 0:
		p.allreduce(s, m, a)
		return
	case m.Size == 2:
		p.allreduceOfTwo(s, m, a)
		return
	}
	w := p.Begin(s, m, coll.Allreduce, 0, a.Size)
	temp := w.NewOperand(a, (min(unit, a.Size)/a.ElemSize+m.Size-1)/m.Size*a.ElemSize)
	area.ForEachChunk(a.Size, unit, func(at, n int) {
		in := a.Input().Plus(at)
		w.Post(in, n)
		from, size := share(m.Rank, m.Size, n, a.ElemSize)
		mine := out.Plus(at + from)
		if size > 0 {
			w.CombineRange(0, a, in, 0, m.Size-1, from, mine, size, temp)
		}
		w.Post(mine, size)
		for k := 1; k < m.Size; k++ {
			rank := m.Plus(-k)
			if from, size := share(rank, m.Size, n, a.ElemSize); size > 0 {
				w.Fetch(rank, 0, out.Plus(at+from), size)
			}
		}
	})
	w.End()
}

// allreduceOfTwo is reduceScatterAllreduce of two members. Each posts only the share of the other, for two chunks at
// a time.
func (p node) allreduceOfTwo(s *coll.Schedule, m coll.Member, a *coll.Args) {
	unit, peer := p.Unit(a), 1-m.Rank
	w := p.Begin(s, m, coll.Allreduce, 0, a.Size)
	isQuick := a.IsQuick && (m.Rank == 1 || !a.IsOrdered)
	var temp coll.Ref
	if !isQuick {
		temp = w.NewTemp(min(unit, a.Size))
	}
	area.ForEachChunk(a.Size, 4*unit, func(base, n int) {
		forEachChunk := func(f func(back, mine, bytes, theirs, others int)) {
			area.ForEachChunk(n, 2*unit, func(at, bytes int) {
				back := 0
				if at == 0 && n > 2*unit {
					back = 1
				}
				from, size := share(m.Rank, 2, bytes, a.ElemSize)
				other, rest := share(peer, 2, bytes, a.ElemSize)
				f(back, base+at+from, size, base+at+other, rest)
			})
		}
		forEachChunk(func(_, _, _, theirs, n int) { w.Post(a.Input().Plus(theirs), n) })
		forEachChunk(func(back, mine, n, _, _ int) {
			in, sum := a.Input().Plus(mine), out.Plus(mine)
			switch {
			case n == 0:
			case isQuick:
				w.Copy(sum, in, n)
				w.Wait()
				w.Fold(back, peer, 0, sum, n)
			default: // The operand of the higher rank becomes the sum.
				w.FetchFrom(back, peer, 0, temp, n)
				if m.Rank == 0 {
					w.Combine(temp, in, n)
					w.Wait()
					w.Copy(sum, temp, n)
				} else {
					w.Copy(sum, in, n)
					w.Wait()
					w.Combine(sum, temp, n)
				}
				w.Wait()
			}
		})
		forEachChunk(func(_, mine, n, _, _ int) { w.Post(out.Plus(mine), n) })
		forEachChunk(func(back, _, _, theirs, n int) { w.FetchFrom(back, peer, 0, out.Plus(theirs), n) })
	})
	w.End()
}

// share returns the share of a rank in n bytes.
func share(rank, size, n, elem int) (from, bytes int) {
	elems := n / elem
	from = elems * rank / size
	return from * elem, (elems*(rank+1)/size - from) * elem
}
