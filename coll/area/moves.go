package area

import "github.com/ferrympi/ferry/coll"

// ForEachChunk calls f for chunks of at most most bytes, and once with n = 0 if size is 0, so that members with
// different sizes detect the mismatch.
func ForEachChunk(size, limit int, f func(at, n int)) {
	for at := 0; at == 0 || at < size; at += limit {
		f(at, min(limit, size-at))
	}
}

// PipelineChunks posts each chunk and then reads the previous one, while other members write the next.
func PipelineChunks(size, limit int, post func(at, n int), read func(back, at, n int)) {
	last, bytes := 0, 0
	ForEachChunk(size, limit, func(at, n int) {
		post(at, n)
		if at > 0 {
			read(maxPhasesBack, last, bytes)
		}
		last, bytes = at, n
	})
	read(0, last, bytes)
}

// Bcast sends size bytes from the local rank root to all others. The root may be ahead by the number of slots.
func (l *Layout) Bcast(w Steps, root, size int, buf coll.Ref) {
	ForEachChunk(size, l.chunk, func(at, n int) {
		if w.LocalRank == root {
			w.Post(buf.Plus(at), n)
		} else {
			w.Pass()
			w.Fetch(root, 0, buf.Plus(at), n)
		}
	})
}

// Gather posts the block of each member, and copies all blocks to to if isReceiver is set. isInPlace is set if the own
// block is there already. A sole receiver passes.
func (l *Layout) Gather(w Steps, size int, mine coll.Ref, isReceiver, isInPlace, isSole bool, to coll.Ref) {
	PipelineChunks(size, l.chunk, func(at, n int) {
		if isSole {
			w.Pass()
		} else {
			w.Post(mine.Plus(at), n)
		}
		if isReceiver && !isInPlace {
			w.Copy(to.Plus(w.LocalRank*size+at), mine.Plus(at), n)
			w.Wait()
		}
	}, func(back, at, n int) {
		for k := 1; isReceiver && k < w.LocalSize; k++ { // Spread over the members.
			rank := w.RankAt(-k)
			w.FetchFrom(back, rank, 0, to.Plus(rank*size+at), n)
		}
	})
}

// RankAt returns the local rank at a distance of k, modulo the number of members.
func (w Steps) RankAt(k int) int { return (w.LocalRank + k + w.LocalSize) % w.LocalSize }

// Unit returns the largest post of whole elements in bytes, 0 if an element is larger than a chunk.
func (l *Layout) Unit(a *coll.Args) int {
	elem := max(1, a.ElemSize)
	return l.chunk / elem * elem
}

// Reduce posts the input of each member, and combines those of the local ranks first to last into out. The range
// may be empty. isSole is set if no other member combines.
func (l *Layout) Reduce(w Steps, a *coll.Args, first, last int, isSole bool, out coll.Ref) {
	unit := l.Unit(a)
	if unit == 0 {
		l.reduceWhole(w, a, first, last, out)
		return
	}
	temp := w.NewOperand(a, min(unit, a.Size))
	// The own input is the first operand, copied while the others post.
	startsWithOwn := isSole && a.IsQuick && !a.IsOrdered && first <= w.LocalRank && w.LocalRank <= last
	ForEachChunk(a.Size, unit, func(at, n int) {
		in := a.Input().Plus(at)
		if startsWithOwn {
			w.Pass()
			w.Copy(out.Plus(at), in, n)
			w.Wait()
			for rank := last; rank >= first; rank-- {
				if rank != w.LocalRank {
					w.Fold(0, rank, 0, out.Plus(at), n)
				}
			}
			return
		}
		if isSole && !a.IsInPlace {
			w.Pass()
		} else {
			w.Post(in, n)
		}
		w.CombineRange(0, a, in, first, last, 0, out.Plus(at), n, temp)
	})
}

// NewOperand returns working memory for CombineRange. User-defined operations need it, because they run without the
// engine's lock.
func (w Steps) NewOperand(a *coll.Args, n int) coll.Ref {
	if a.IsQuick {
		return noMemory
	}
	return w.NewTemp(n)
}

// CombineRange combines n bytes at an offset of the posts of the local ranks first to last into out. It runs from
// last to first, because the lower rank is the left operand.
func (w Steps) CombineRange(back int, a *coll.Args, in coll.Ref, first, last, at int, out coll.Ref, n int, temp coll.Ref) {
	for rank := last; rank >= first; rank-- {
		switch own := rank == w.LocalRank && !a.IsInPlace; { // In place, out may overlap the input.
		case rank == last && own:
			w.Copy(out, in.Plus(at), n)
			w.Wait()
		case rank == last:
			w.FetchFrom(back, rank, at, out, n)
		case own:
			w.Combine(out, in.Plus(at), n)
			w.Wait()
		case a.IsQuick:
			w.Fold(back, rank, at, out, n)
		default:
			w.FetchFrom(back, rank, at, temp, n)
			w.Combine(out, temp, n)
			w.Wait()
		}
	}
}

// reduceWhole is Reduce for elements larger than a chunk. It gathers them first.
func (l *Layout) reduceWhole(w Steps, a *coll.Args, first, last int, out coll.Ref) {
	all := w.NewTemp(w.LocalSize * a.Size)
	l.Gather(w, a.Size, a.Input(), last >= first, false, false, all)
	if last < first {
		return
	}
	w.Copy(out, all.Plus(last*a.Size), a.Size)
	w.Wait()
	for rank := last - 1; rank >= first; rank-- {
		w.Combine(out, all.Plus(rank*a.Size), a.Size)
		w.Wait()
	}
}
