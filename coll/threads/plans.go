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
	layout     *layout
	opCode     int
	totalBytes int
	localRank  int
}

func (l *layout) newSteps(s *coll.Schedule, m coll.Member, op coll.Operation, root, total int) steps {
	return steps{s, l, codeOf(op, root), total, l.Index(m.Rank)}
}

// addOwn adds a step that depends on all previous ones.
func (w steps) addOwn(what uint8, buf, from coll.Ref) {
	w.Own(what, w.opCode, w.totalBytes, buf, from)
	w.Wait()
}

// awaitPost waits until a rank has published ready bytes in the next phase.
func (w steps) awaitPost(localRank, ready int) {
	w.Own(awaitPost, localRank, w.totalBytes, coll.Ref{At: ready}, coll.Ref{At: w.opCode})
	w.Wait()
}

// endOperation ends the operation.
func (w steps) endOperation() {
	last := len(w.Steps) - 1
	if w.Steps[last].Kind != coll.Own {
		w.Wait()
		w.addOwn(leave, nothing, nothing)
		last++
	}
	w.Steps[last].Do |= leaves
}

// isInline reports whether the operands are in posts, so that a rank may leave while others read
// them.
func (w steps) isInline() bool { return w.totalBytes <= maxInline }

// group returns the leaders of all processes from the viewpoint of a rank's process.
func (l *layout) group(rank, root int) leaders.Group {
	return leaders.Group{Size: l.Count(), Self: l.Node(rank), Rank: func(proc int) int { return l.leader(proc, root) }}
}

// barrier completes when all ranks of a process have arrived and the leaders have exchanged
// messages.
func (l *layout) barrier(s *coll.Schedule, m coll.Member, _ *coll.Args) {
	w := l.newSteps(s, m, coll.Barrier, 0, 0)
	switch several := l.Count() > 1; {
	case l.isFlat:
		w.addOwn(arrive|thenComplete, nothing, nothing)
		w.addOwn(awaitAll, nothing, nothing)
	case several && l.leader(l.Node(m.Rank), 0) == m.Rank:
		w.addOwn(arrive|thenGather, nothing, nothing)
		w.addOwn(awaitGathered, nothing, nothing)
		l.group(m.Rank, 0).Barrier(s)
		w.addOwn(complete, nothing, nothing)
	case several:
		w.addOwn(arrive|thenGather, nothing, nothing)
		w.addOwn(awaitComplete, nothing, nothing)
	default:
		w.addOwn(arrive|thenComplete, nothing, nothing)
		w.addOwn(awaitComplete, nothing, nothing)
	}
	w.endOperation()
}

// bcast sends segments down a binomial tree of leaders. Each leader publishes its slice, from which
// the other ranks of its process copy.
func (l *layout) bcast(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := l.newSteps(s, m, coll.Bcast, a.Root, a.Size)
	proc := l.Node(m.Rank)
	leader := l.leader(proc, a.Root)
	switch {
	case leader != m.Rank:
		w.fetchOut(l.Index(leader))
	case l.Count() == 1:
		w.publishOut(thenComplete)
	default:
		w.addOwn(enter, nothing, nothing)
		group, top := l.group(m.Rank, a.Root), l.Node(a.Root)
		for at := 0; at == 0 || at < a.Size; at += segment {
			n := min(segment, a.Size-at)
			group.Bcast(s, top, out.Plus(at), n)
			if a.Size > segment {
				w.addOwn(publish, coll.Ref{At: at + n}, nothing)
			}
		}
		w.publishOut(thenComplete)
	}
	w.endOperation()
}

// segment is the size in bytes of a segment of a broadcast among processes. The leader of a process
// forwards it, and its ranks copy it, while the next one is received.
const segment = 64 << 10

// publishOut publishes Out and waits until the other ranks of the process have copied it.
func (w steps) publishOut(mode uint8) {
	w.addOwn(arriveWith|mode, nothing, out)
	switch {
	case w.isInline():
	case w.layout.isFlat:
		w.addOwn(awaitAll, nothing, nothing)
	default:
		w.Own(awaitComplete, w.opCode, w.totalBytes, nothing, nothing)
		w.Wait()
	}
}

// fetchOut copies the memory that a rank publishes to Out. It does not wait for the others.
func (w steps) fetchOut(localRank int) {
	step := segment
	if w.layout.Count() == 1 {
		step = max(1, w.totalBytes)
	}
	for at := 0; at == 0 || at < w.totalBytes; at += step {
		n := min(step, w.totalBytes-at)
		w.awaitPost(localRank, at+n)
		w.Work(fetch, localRank, n, out.Plus(at), coll.Ref{At: at})
		w.Wait()
	}
	w.addOwn(arrive|thenComplete, nothing, nothing)
}

// reduce combines the operands of each process, and then those of the leaders up a binomial tree.
func (l *layout) reduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := l.newSteps(s, m, coll.Reduce, a.Root, a.Size)
	proc := l.Node(m.Rank)
	leads := l.leader(proc, a.Root) == m.Rank
	switch {
	case l.Count() == 1 && leads:
		w.combine(a, out, true)
		w.endOperation()
	case !leads:
		w.combine(a, nothing, false)
		w.endOperation()
	default:
		sum := leaders.NewSum(s, a.Size)
		w.combine(a, sum.At, true)
		w.endOperation()
		l.group(m.Rank, a.Root).Reduce(sum, m, a, l.Node(a.Root))
	}
}

// allreduce combines the operands of each process. The leaders exchange the results and publish the
// total to their processes.
func (l *layout) allreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := l.newSteps(s, m, coll.Allreduce, 0, a.Size)
	leader := l.leader(l.Node(m.Rank), 0)
	switch {
	case l.Count() == 1:
		w.combine(a, out, true)
	case leader == m.Rank:
		sum := leaders.NewSum(s, a.Size)
		w.combine(a, sum.At, true)
		l.group(m.Rank, 0).Allreduce(sum)
		s.Wait()
		w.publishOut(thenComplete)
	default:
		w.combine(a, nothing, false)
		w.fetchOut(l.Index(leader))
	}
	w.endOperation()
}

// combine combines the operands of the process. The result is copied to the members for which wants
// is set.
func (w steps) combine(a *coll.Args, to coll.Ref, wants bool) {
	if !wants {
		to = nothing
	}
	temp := w.NewTemp(min(a.Size, w.layout.unit(a.ElemSize, w.layout.chunkSize)))
	operand := a.Input().Slot
	if to.Slot == coll.Temp {
		operand = coll.In // Do not accumulate the result in an operand.
	}
	fold := func(what uint8) {
		w.Work(what, a.ElemSize, a.Size*w.layout.Len(), temp, coll.Ref{Slot: operand, At: a.Size})
		w.Wait()
	}
	switch {
	case w.layout.isFlat && w.isInline():
		w.addOwn(arriveWith, to, a.Input())
		if wants {
			w.addOwn(awaitAll, nothing, nothing)
			w.Work(foldInline, 0, a.Size, to, nothing)
			w.Wait()
		}
	case w.layout.isFlat:
		w.addOwn(arriveWith, to, a.Input())
		w.addOwn(awaitAll, nothing, nothing)
		fold(foldShare)
		w.addOwn(arrive, nothing, nothing)
		w.addOwn(awaitAll, nothing, nothing)
	default:
		w.addOwn(arriveWith|thenWork, to, a.Input())
		waits := wants || !w.isInline()
		if waits {
			w.addOwn(awaitWork, nothing, nothing)
		}
		fold(foldChunks)
		if !w.isInline() { // The result is already in its buffer.
			to = nothing
		}
		if waits {
			w.addOwn(awaitComplete, to, nothing)
		}
	}
}
