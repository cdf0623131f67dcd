package area

import "github.com/ferrympi/ferry/coll"

// Pieces calls f with the pieces in which size bytes go, of at most most; with one that is
// empty if there is nothing, so that members that pass different sizes hear of it.
func Pieces(size, most int, f func(at, n int)) {
	for at := 0; at == 0 || at < size; at += most {
		f(at, min(most, size-at))
	}
}

// Rounds is Pieces where each is posted, and then read: the one before while the others write.
func Rounds(size, most int, post func(at, n int), read func(back, at, n int)) {
	last, bytes := 0, 0
	Pieces(size, most, func(at, n int) {
		post(at, n)
		if at > 0 {
			read(mostBack, last, bytes)
		}
		last, bytes = at, n
	})
	read(0, last, bytes)
}

// Bcast has one member give size bytes to all others. It may be ahead by as many pieces as
// its slots hold.
func (l *Layout) Bcast(w Steps, root, size int, buf coll.Ref) {
	Pieces(size, l.chunk, func(at, n int) {
		if w.Seat == root {
			w.Post(buf.Plus(at), n)
		} else {
			w.Pass()
			w.Fetch(root, 0, buf.Plus(at), n)
		}
	})
}

// Gather has each member give a block of size bytes, which lies at mine, and reads all, block
// after block, if this one wants them; its own only if that is not there already. alone: the
// others don't want this one's.
func (l *Layout) Gather(w Steps, size int, mine coll.Ref, wanted, there, alone bool, to coll.Ref) {
	Rounds(size, l.chunk, func(at, n int) {
		if alone {
			w.Pass()
		} else {
			w.Post(mine.Plus(at), n)
		}
		if wanted && !there {
			w.Copy(to.Plus(w.Seat*size+at), mine.Plus(at), n)
			w.Wait()
		}
	}, func(back, at, n int) {
		for k := 1; wanted && k < w.Seats; k++ { // not all from the same one at the same time
			seat := w.Plus(-k)
			w.FetchBack(back, seat, 0, to.Plus(seat*size+at), n)
		}
	})
}

// Plus returns the seat k further round the node.
func (w Steps) Plus(k int) int { return (w.Seat + k + w.Seats) % w.Seats }

// Unit returns how many bytes of whole elements are posted at a time; 0: an element is
// larger than that.
func (l *Layout) Unit(a *coll.Args) int {
	elem := max(1, a.Elem)
	return l.chunk / elem * elem
}

// Reduce has each member give its input, and combines what the seats from first to last have
// given, if there are such. It comes to out. alone: the others don't want this one's, and
// nobody else combines the same.
func (l *Layout) Reduce(w Steps, a *coll.Args, first, last int, alone bool, out coll.Ref) {
	unit := l.Unit(a)
	if unit == 0 {
		l.whole(w, a, first, last, out)
		return
	}
	temp := w.Spare(a, min(unit, a.Size))
	// In any order its own is there before the others', and is copied while it waits for them.
	anyhow := alone && a.Quick && !a.Ordered && first <= w.Seat && w.Seat <= last
	Pieces(a.Size, unit, func(at, n int) {
		in := a.Input().Plus(at)
		if anyhow {
			w.Pass()
			w.Copy(out.Plus(at), in, n)
			w.Wait()
			for seat := last; seat >= first; seat-- {
				if seat != w.Seat {
					w.Fold(0, seat, 0, out.Plus(at), n)
				}
			}
			return
		}
		if alone && !a.InPlace {
			w.Pass()
		} else {
			w.Post(in, n)
		}
		w.Combined(0, a, in, first, last, 0, out.Plus(at), n, temp)
	})
}

// Spare is working memory for Combined. What the program's operations combine lies in it:
// they don't run with the engine's lock held.
func (w Steps) Spare(a *coll.Args, n int) coll.Ref {
	if a.Quick {
		return nowhere
	}
	return w.NewTemp(n)
}

// Combined combines n bytes at a place of what the seats from first to last posted so many rounds
// back (FetchBack); this one gives in. It goes down, because the lower one comes before what is there.
func (w Steps) Combined(back int, a *coll.Args, in coll.Ref, first, last, at int, out coll.Ref, n int, temp coll.Ref) {
	for seat := last; seat >= first; seat-- {
		switch own := seat == w.Seat && !a.InPlace; { // in place it may be overwritten
		case seat == last && own:
			w.Copy(out, in.Plus(at), n)
			w.Wait()
		case seat == last:
			w.FetchBack(back, seat, at, out, n)
		case own:
			w.Combine(out, in.Plus(at), n)
			w.Wait()
		case a.Quick:
			w.Fold(back, seat, at, out, n)
		default:
			w.FetchBack(back, seat, at, temp, n)
			w.Combine(out, temp, n)
			w.Wait()
		}
	}
}

// whole is Reduce for elements that are larger than what is posted at a time: they are put
// together first.
func (l *Layout) whole(w Steps, a *coll.Args, first, last int, out coll.Ref) {
	all := w.NewTemp(w.Seats * a.Size)
	l.Gather(w, a.Size, a.Input(), last >= first, false, false, all)
	if last < first {
		return
	}
	w.Copy(out, all.Plus(last*a.Size), a.Size)
	w.Wait()
	for seat := last - 1; seat >= first; seat-- {
		w.Combine(out, all.Plus(seat*a.Size), a.Size)
		w.Wait()
	}
}
