package shm

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/area"
)

// node writes schedules for communicators on one node, where ranks are seats.
type node struct{ *area.Layout }

var (
	out     = coll.Ref{Slot: coll.Out}
	nothing coll.Ref
)

func (p node) barrier(s *coll.Schedule, m coll.Member, _ *coll.Args) {
	w := p.In(s, m, coll.Barrier, 0, 0)
	w.Post(nothing, 0)
	w.Await()
	w.Leave()
}

func (p node) bcast(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := p.In(s, m, coll.Bcast, a.Root, a.Size)
	p.Bcast(w, a.Root, a.Size, out)
	w.Leave()
}

func (p node) gather(s *coll.Schedule, m coll.Member, a *coll.Args) {
	p.blocks(s, m, a, coll.Gather, a.Root, m.Rank == a.Root, m.Rank == a.Root)
}

func (p node) allgather(s *coll.Schedule, m coll.Member, a *coll.Args) {
	p.blocks(s, m, a, coll.Allgather, 0, true, false)
}

// blocks: all post their blocks, and who wants them reads them. In place its own lies where
// it belongs.
func (p node) blocks(s *coll.Schedule, m coll.Member, a *coll.Args, op coll.Operation, root int, wanted, alone bool) {
	w := p.In(s, m, op, root, a.Size)
	mine := a.Input()
	if a.InPlace {
		mine = out.Plus(m.Rank * a.Size)
	}
	p.Gather(w, a.Size, mine, wanted, a.InPlace, alone, out)
	w.Leave()
}

// alltoall: each posts a piece for each, and reads what is for it.
func (p node) alltoall(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := p.In(s, m, coll.Alltoall, 0, a.Size)
	pair := m.Size == 2
	most := max(1, p.Chunk()/m.Size)
	if pair { // a member's own block is not posted
		most = p.Chunk()
	}
	area.Rounds(a.Size, most, func(at, n int) {
		switch {
		case pair:
			w.Post(a.Input().Plus(m.Plus(1)*a.Size+at), n)
		case n == a.Size: // the blocks lie one behind the other
			w.Post(a.Input(), n*m.Size)
		default:
			for rank := range m.Size {
				w.Fill(rank*n, n*m.Size, a.Input().Plus(rank*a.Size+at), n)
			}
			w.Filled(n * m.Size)
		}
		if mine := m.Rank*a.Size + at; !a.InPlace {
			w.Copy(out.Plus(mine), a.Input().Plus(mine), n)
			w.Wait()
		}
	}, func(back, at, n int) {
		place := m.Rank * n // in what each posts
		if pair {
			place = 0
		}
		for k := 1; k < m.Size; k++ {
			rank := m.Plus(-k)
			w.FetchBack(back, rank, place, out.Plus(rank*a.Size+at), n)
		}
	})
	w.Leave()
}

// reduce: the root combines what the others have posted.
func (p node) reduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	last := -1
	if m.Rank == a.Root {
		last = m.Size - 1
	}
	p.upTo(s, m, a, coll.Reduce, a.Root, last, m.Rank == a.Root)
}

// allreduce: all do, in one order, and get the same bits.
func (p node) allreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	p.upTo(s, m, a, coll.Allreduce, 0, m.Size-1, false)
}

// scan combines what ranks up to this one have posted; exscan leaves this one out.
func (p node) scan(s *coll.Schedule, m coll.Member, a *coll.Args) {
	p.upTo(s, m, a, coll.Scan, 0, m.Rank, m.Rank == m.Size-1)
}

func (p node) exscan(s *coll.Schedule, m coll.Member, a *coll.Args) {
	p.upTo(s, m, a, coll.Exscan, 0, m.Rank-1, m.Rank == m.Size-1)
}

func (p node) upTo(s *coll.Schedule, m coll.Member, a *coll.Args, op coll.Operation, root, last int, alone bool) {
	w := p.In(s, m, op, root, a.Size)
	p.Reduce(w, a, 0, last, alone, out)
	w.Leave()
}

// shares is an allreduce in which each member combines a share of every piece for all, and
// posts what comes of it.
func (p node) shares(s *coll.Schedule, m coll.Member, a *coll.Args) {
	unit := p.Unit(a)
	switch {
	case unit == 0 || a.Size == 0:
		p.allreduce(s, m, a)
		return
	case m.Size == 2:
		p.halves(s, m, a)
		return
	}
	w := p.In(s, m, coll.Allreduce, 0, a.Size)
	temp := w.Spare(a, (min(unit, a.Size)/a.Elem+m.Size-1)/m.Size*a.Elem)
	area.Pieces(a.Size, unit, func(at, n int) {
		in := a.Input().Plus(at)
		w.Post(in, n)
		from, size := share(m.Rank, m.Size, n, a.Elem)
		mine := out.Plus(at + from)
		if size > 0 {
			w.Combined(0, a, in, 0, m.Size-1, from, mine, size, temp)
		}
		w.Post(mine, size)
		for k := 1; k < m.Size; k++ {
			rank := m.Plus(-k)
			if from, size := share(rank, m.Size, n, a.Elem); size > 0 {
				w.Fetch(rank, 0, out.Plus(at+from), size)
			}
		}
	})
	w.Leave()
}

// halves is shares of two members: neither posts what it combines itself. Two pieces of two
// shares are under way at a time.
func (p node) halves(s *coll.Schedule, m coll.Member, a *coll.Args) {
	unit, you := p.Unit(a), 1-m.Rank
	w := p.In(s, m, coll.Allreduce, 0, a.Size)
	quick := a.Quick && (m.Rank == 1 || !a.Ordered)
	var temp coll.Ref
	if !quick {
		temp = w.NewTemp(min(unit, a.Size))
	}
	area.Pieces(a.Size, 4*unit, func(base, n int) {
		each := func(f func(back, mine, bytes, yours, others int)) {
			area.Pieces(n, 2*unit, func(at, bytes int) {
				back := 0
				if at == 0 && n > 2*unit {
					back = 1
				}
				from, size := share(m.Rank, 2, bytes, a.Elem)
				other, rest := share(you, 2, bytes, a.Elem)
				f(back, base+at+from, size, base+at+other, rest)
			})
		}
		each(func(_, _, _, yours, n int) { w.Post(a.Input().Plus(yours), n) })
		each(func(back, mine, n, _, _ int) {
			in, sum := a.Input().Plus(mine), out.Plus(mine)
			switch {
			case n == 0:
			case quick:
				w.Copy(sum, in, n)
				w.Wait()
				w.Fold(back, you, 0, sum, n)
			default: // the upper one becomes the sum
				w.FetchBack(back, you, 0, temp, n)
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
		each(func(_, mine, n, _, _ int) { w.Post(out.Plus(mine), n) })
		each(func(back, _, _, yours, n int) { w.FetchBack(back, you, 0, out.Plus(yours), n) })
	})
	w.Leave()
}

// share is a rank's part of n bytes.
func share(rank, size, n, elem int) (from, bytes int) {
	elems := n / elem
	from = elems * rank / size
	return from * elem, (elems*(rank+1)/size - from) * elem
}
