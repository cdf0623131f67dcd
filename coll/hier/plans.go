package hier

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/area"
	"github.com/ferrympi/ferry/coll/leaders"
)

// nodes plans schedules over node leaders.
type nodes struct{ *area.Layout }

// nodeLeaders are the root of the operation and the lowest rank of every other node. They exchange messages.
type nodeLeaders struct {
	nodes
	root int
}

func (l nodeLeaders) leaderOf(node int) int {
	if l.Node(l.root) == node {
		return l.root
	}
	return l.First(node)
}

// group returns the leaders from the view of the leader of a rank.
func (l nodeLeaders) group(rank int) leaders.Group {
	return leaders.Group{Size: l.Count(), Self: l.Node(rank), Rank: l.leaderOf}
}

var (
	out      = coll.Ref{Slot: coll.Out}
	noMemory coll.Ref
)

// barrier runs a dissemination barrier among the leaders after all members of their nodes have posted.
func (p nodes) barrier(s *coll.Schedule, m coll.Member, _ *coll.Args) {
	l := nodeLeaders{p, 0}
	me := p.Node(m.Rank)
	w := p.Begin(s, m, coll.Barrier, 0, 0)
	w.Post(noMemory, 0)
	if l.leaderOf(me) == m.Rank {
		w.AwaitAll()
		l.group(m.Rank).Barrier(s)
		w.Post(noMemory, 0)
	} else {
		w.Pass()
		w.Fetch(p.Index(l.leaderOf(me)), 0, noMemory, 0)
	}
	w.End()
}

// bcast sends each chunk down a binomial tree of leaders, which post it on their nodes.
func (p nodes) bcast(s *coll.Schedule, m coll.Member, a *coll.Args) {
	l := nodeLeaders{p, a.Root}
	w := p.Begin(s, m, coll.Bcast, a.Root, a.Size)
	if leader := l.leaderOf(p.Node(m.Rank)); leader != m.Rank {
		p.Bcast(w, p.Index(leader), a.Size, out)
	} else {
		area.ForEachChunk(a.Size, p.Chunk(), func(from, bytes int) {
			l.group(m.Rank).Bcast(s, p.Node(a.Root), out.Plus(from), bytes)
			w.Post(out.Plus(from), bytes)
		})
	}
	w.End()
}

// reduce combines the data of each node in its leader, and those of the leaders up a binomial tree. The ranks of a node
// are consecutive, which preserves the order of operands.
func (p nodes) reduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	l := nodeLeaders{p, a.Root}
	w := p.Begin(s, m, coll.Reduce, a.Root, a.Size)
	sum := l.reduceOnNode(w, m, a)
	w.End()
	if sum != nil {
		l.group(m.Rank).Reduce(sum, m, a, p.Node(a.Root))
	}
}

// allreduce combines the data of each node in its leader, runs recursive doubling among the leaders, and posts the
// result on each node.
func (p nodes) allreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	l := nodeLeaders{p, 0}
	w := p.Begin(s, m, coll.Allreduce, 0, a.Size)
	if sum := l.reduceOnNode(w, m, a); sum != nil {
		l.group(m.Rank).Allreduce(sum)
		s.Wait()
	}
	p.Bcast(w, p.Index(l.leaderOf(p.Node(m.Rank))), a.Size, out)
	w.End()
}

// reduceOnNode combines the data of the node in its leader. It returns nil in other members.
func (l nodeLeaders) reduceOnNode(w area.Steps, m coll.Member, a *coll.Args) *leaders.Sum {
	if l.leaderOf(l.Node(m.Rank)) != m.Rank {
		l.Reduce(w, a, 0, -1, false, noMemory)
		return nil
	}
	x := leaders.NewSum(w.Schedule, a.Size)
	l.Reduce(w, a, 0, w.LocalSize-1, true, x.At)
	return x
}
