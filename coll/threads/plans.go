package threads

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/leaders"
)

var (
	out     = coll.Ref{Slot: coll.Out}
	nothing coll.Ref
)

// steps writes the steps of one member in an operation.
type steps struct {
	*coll.Schedule
	l     *layout
	code  int
	total int
	seat  int
}

func (l *layout) begin(s *coll.Schedule, m coll.Member, op coll.Operation, root, total int) steps {
	return steps{s, l, codeOf(op, root), total, l.Index(m.Rank)}
}

// own adds a step that begins when all before are complete.
func (w steps) own(what uint8, buf, from coll.Ref) {
	w.Own(what, w.code, w.total, buf, from)
	w.Wait()
}

// awaitPost waits until a seat has published so many bytes in the next round.
func (w steps) awaitPost(seat, ready int) {
	w.Own(awaitPost, seat, w.total, coll.Ref{At: ready}, coll.Ref{At: w.code})
	w.Wait()
}

// leave ends the operation.
func (w steps) leave() {
	last := len(w.Steps) - 1
	if w.Steps[last].Kind != coll.Own {
		w.Wait()
		w.own(leave, nothing, nothing)
		last++
	}
	w.Steps[last].Do |= leaves
}

// isInline reports whether the operands lie in lines, so that a rank may leave while others read
// them.
func (w steps) isInline() bool { return w.total <= inlineMost }

// group returns the leaders of all processes as that of a rank's process sees them.
func (l *layout) group(rank, root int) leaders.Group {
	return leaders.Group{Size: l.Count(), Self: l.Node(rank), Rank: func(proc int) int { return l.leader(proc, root) }}
}

// barrier completes when all ranks of a process have arrived and the leaders have exchanged messages.
func (l *layout) barrier(s *coll.Schedule, m coll.Member, _ *coll.Args) {
	w := l.begin(s, m, coll.Barrier, 0, 0)
	switch several := l.Count() > 1; {
	case l.flat:
		w.own(arrive|thenComplete, nothing, nothing)
		w.own(awaitAll, nothing, nothing)
	case several && l.leader(l.Node(m.Rank), 0) == m.Rank:
		w.own(arrive|thenGather, nothing, nothing)
		w.own(awaitGathered, nothing, nothing)
		l.group(m.Rank, 0).Barrier(s)
		w.own(complete, nothing, nothing)
	case several:
		w.own(arrive|thenGather, nothing, nothing)
		w.own(awaitComplete, nothing, nothing)
	default:
		w.own(arrive|thenComplete, nothing, nothing)
		w.own(awaitComplete, nothing, nothing)
	}
	w.leave()
}

// bcast goes down a binomial tree of leaders, in segments. Each publishes its slice, and the others
// of its process copy from there.
func (l *layout) bcast(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := l.begin(s, m, coll.Bcast, a.Root, a.Size)
	proc := l.Node(m.Rank)
	leader := l.leader(proc, a.Root)
	switch {
	case leader != m.Rank:
		w.take(l.Index(leader))
	case l.Count() == 1:
		w.give(thenComplete)
	default:
		w.own(enter, nothing, nothing)
		group, top := l.group(m.Rank, a.Root), l.Node(a.Root)
		for at := 0; at == 0 || at < a.Size; at += segment {
			n := min(segment, a.Size-at)
			group.Bcast(s, top, out.Plus(at), n)
			if a.Size > segment {
				w.own(publish, coll.Ref{At: at + n}, nothing)
			}
		}
		w.give(thenComplete)
	}
	w.leave()
}

// segment is the size of a segment of a broadcast among processes, in bytes. The leader of a process
// sends one on, and its ranks copy it, while it receives the next one.
const segment = 64 << 10

// give publishes Out, and waits until the other ranks of the process have copied it.
func (w steps) give(mode uint8) {
	w.own(arriveWith|mode, nothing, out)
	switch {
	case w.isInline():
	case w.l.flat:
		w.own(awaitAll, nothing, nothing)
	default:
		w.Own(awaitComplete, w.code, w.total, nothing, nothing)
		w.Wait()
	}
}

// take copies what a seat publishes to Out. It does not wait for the others.
func (w steps) take(seat int) {
	step := segment
	if w.l.Count() == 1 {
		step = max(1, w.total)
	}
	for at := 0; at == 0 || at < w.total; at += step {
		n := min(step, w.total-at)
		w.awaitPost(seat, at+n)
		w.Work(fetch, seat, n, out.Plus(at), coll.Ref{At: at})
		w.Wait()
	}
	w.own(arrive|thenComplete, nothing, nothing)
}

// reduce combines the operands of each process, and then those of the leaders up a binomial tree.
func (l *layout) reduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := l.begin(s, m, coll.Reduce, a.Root, a.Size)
	proc := l.Node(m.Rank)
	leads := l.leader(proc, a.Root) == m.Rank
	switch {
	case l.Count() == 1 && leads:
		w.combine(a, out, true)
		w.leave()
	case !leads:
		w.combine(a, nothing, false)
		w.leave()
	default:
		sum := leaders.NewSum(s, a.Size)
		w.combine(a, sum.At, true)
		w.leave()
		l.group(m.Rank, a.Root).Reduce(sum, m, a, l.Node(a.Root))
	}
}

// allreduce combines the operands of each process. The leaders exchange the results, and give what comes of
// it to their processes.
func (l *layout) allreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := l.begin(s, m, coll.Allreduce, 0, a.Size)
	leader := l.leader(l.Node(m.Rank), 0)
	switch {
	case l.Count() == 1:
		w.combine(a, out, true)
	case leader == m.Rank:
		sum := leaders.NewSum(s, a.Size)
		w.combine(a, sum.At, true)
		l.group(m.Rank, 0).Allreduce(sum)
		s.Wait()
		w.give(thenComplete)
	default:
		w.combine(a, nothing, false)
		w.take(l.Index(leader))
	}
	w.leave()
}

// combine combines the operands of the process. The result comes to the members that want it.
func (w steps) combine(a *coll.Args, to coll.Ref, wants bool) {
	if !wants {
		to = nothing
	}
	temp := w.NewTemp(min(a.Size, w.l.unit(a.Elem, w.l.chunk)))
	operand := a.Input().Slot
	if to.Slot == coll.Temp {
		operand = coll.In // the result is not accumulated in an operand
	}
	fold := func(what uint8) {
		w.Work(what, a.Elem, a.Size*w.l.Len(), temp, coll.Ref{Slot: operand, At: a.Size})
		w.Wait()
	}
	switch {
	case w.l.flat && w.isInline():
		w.own(arriveWith, to, a.Input())
		if wants {
			w.own(awaitAll, nothing, nothing)
			w.Work(foldInline, 0, a.Size, to, nothing)
			w.Wait()
		}
	case w.l.flat:
		w.own(arriveWith, to, a.Input())
		w.own(awaitAll, nothing, nothing)
		fold(foldShare)
		w.own(arrive, nothing, nothing)
		w.own(awaitAll, nothing, nothing)
	default:
		w.own(arriveWith|thenWork, to, a.Input())
		waits := wants || !w.isInline()
		if waits {
			w.own(awaitWork, nothing, nothing)
		}
		fold(foldChunks)
		if !w.isInline() {
			to = nothing // it is there
		}
		if waits {
			w.own(awaitComplete, to, nothing)
		}
	}
}
