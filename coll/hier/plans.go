package hier

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/area"
	"github.com/ferrympi/ferry/coll/leaders"
)

// nodes writes schedules.
type nodes struct{ *area.Layout }

// roots are the ranks that exchange messages, one of each node: the lowest, or on the
// root's node the root.
type roots struct {
	nodes
	root int // none: the first leader is
}

func (l roots) of(node int) int {
	if l.Node(l.root) == node {
		return l.root
	}
	return l.First(node)
}

// group returns the leaders as that of a rank's node sees them.
func (l roots) group(rank int) leaders.Group {
	return leaders.Group{Size: l.Count(), Self: l.Node(rank), Rank: l.of}
}

var (
	out     = coll.Ref{Slot: coll.Out}
	nothing coll.Ref
)

// barrier: when all of a node are there, leaders go through a dissemination barrier, and
// then the others of the node go on.
func (p nodes) barrier(s *coll.Schedule, m coll.Member, _ *coll.Args) {
	l := roots{p, 0}
	me := p.Node(m.Rank)
	w := p.In(s, m, coll.Barrier, 0, 0)
	w.Post(nothing, 0)
	if l.of(me) == m.Rank {
		w.Await()
		l.group(m.Rank).Barrier(s)
		w.Post(nothing, 0)
	} else {
		w.Pass()
		w.Fetch(p.Index(l.of(me)), 0, nothing, 0)
	}
	w.Leave()
}

// bcast goes down a binomial tree of leaders, piece by piece, and each gives every piece to
// its node.
func (p nodes) bcast(s *coll.Schedule, m coll.Member, a *coll.Args) {
	l := roots{p, a.Root}
	w := p.In(s, m, coll.Bcast, a.Root, a.Size)
	if leader := l.of(p.Node(m.Rank)); leader != m.Rank {
		p.Bcast(w, p.Index(leader), a.Size, out)
	} else {
		area.Pieces(a.Size, p.Chunk(), func(from, bytes int) {
			l.group(m.Rank).Bcast(s, p.Node(a.Root), out.Plus(from), bytes)
			w.Post(out.Plus(from), bytes)
		})
	}
	w.Leave()
}

// reduce: each leader combines what its node gives, and they go up a binomial tree. Ranks of
// a node are consecutive, and so the order of ranks is kept.
func (p nodes) reduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	l := roots{p, a.Root}
	w := p.In(s, m, coll.Reduce, a.Root, a.Size)
	sum := l.onNode(w, m, a)
	w.Leave()
	if sum != nil {
		l.group(m.Rank).Reduce(sum, m, a, p.Node(a.Root))
	}
}

// allreduce: each leader combines what its node gives, they exchange that by recursive
// doubling, and give the result to their nodes.
func (p nodes) allreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	l := roots{p, 0}
	w := p.In(s, m, coll.Allreduce, 0, a.Size)
	if sum := l.onNode(w, m, a); sum != nil {
		l.group(m.Rank).Allreduce(sum)
		s.Wait()
	}
	p.Bcast(w, p.Index(l.of(p.Node(m.Rank))), a.Size, out)
	w.Leave()
}

// onNode combines what this member's node gives, in its leader. It returns nil in the others.
func (l roots) onNode(w area.Steps, m coll.Member, a *coll.Args) *leaders.Sum {
	if l.of(l.Node(m.Rank)) != m.Rank {
		l.Reduce(w, a, 0, -1, false, nothing)
		return nil
	}
	x := leaders.NewSum(w.Schedule, a.Size)
	l.Reduce(w, a, 0, w.Seats-1, true, x.At)
	return x
}
