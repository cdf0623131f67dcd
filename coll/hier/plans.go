package hier

import (
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/area"
)

// nodes writes schedules.
type nodes struct {
	*area.Layout
	shape coll.Shape
}

// leaders are the ranks that exchange messages, one of each node: the lowest, or on the
// root's node the root.
type leaders struct {
	nodes
	root int // none: the first leader is
}

func (l leaders) of(node int) int {
	if l.Node(l.root) == node {
		return l.root
	}
	return l.Seats(node)[0]
}

var (
	out     = coll.Ref{Slot: coll.Out}
	nothing coll.Ref
)

// barrier: when all of a node are there, leaders go through a dissemination barrier, and
// then the others of the node go on.
func (p nodes) barrier(s *coll.Schedule, m coll.Member, _ *coll.Args) {
	l := leaders{p, 0}
	me := p.Node(m.Rank)
	w := p.In(s, m, coll.Barrier, 0, 0)
	w.Post(nothing, 0)
	if l.of(me) == m.Rank {
		w.Await()
		for k := 1; k < p.Nodes(); k <<= 1 {
			s.Exchange(nothing, 0, l.of((me+k)%p.Nodes()), nothing, 0, l.of((me-k+p.Nodes())%p.Nodes()))
		}
		w.Post(nothing, 0)
	} else {
		w.Pass()
		w.Fetch(p.Seat(l.of(me)), 0, nothing, 0)
	}
	w.Leave()
}

// bcast goes down a binomial tree of leaders, piece by piece, and each gives every piece to
// its node.
func (p nodes) bcast(s *coll.Schedule, m coll.Member, a *coll.Args) {
	w := p.In(s, m, coll.Bcast, a.Root, a.Size)
	leaders{p, a.Root}.bcast(w, m, a.Size)
	w.Leave()
}

func (l leaders) bcast(w area.Steps, m coll.Member, size int) {
	n, node := l.Nodes(), l.Node(m.Rank)
	top := l.Node(l.root)
	me := (node - top + n) % n // counted from the root's
	at := func(relative int) int { return l.of((relative + top) % n) }
	if l.of(node) != m.Rank {
		l.Bcast(w, l.Seat(l.of(node)), size, out)
		return
	}
	up := 1
	for ; up < n && me&up == 0; up <<= 1 {
	}
	area.Pieces(size, l.Chunk(), func(from, bytes int) {
		buf := out.Plus(from)
		if me != 0 { // up is the lowest bit of me: the parent lacks it
			w.Recv(buf, bytes, at(me-up))
			w.Wait()
		}
		for bit := up >> 1; bit > 0; bit >>= 1 {
			if me+bit < n {
				w.Send(buf, bytes, at(me+bit))
			}
		}
		w.Post(buf, bytes)
	})
}

// reduce: each leader combines what its node gives, and they go up a binomial tree. Ranks of
// a node are consecutive, and so the order of ranks is kept if nodes count from 0: for an
// operation that does not commute the tree ends there.
func (p nodes) reduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	l := leaders{p, a.Root}
	w := p.In(s, m, coll.Reduce, a.Root, a.Size)
	sum, ok := l.onNode(w, m, a)
	w.Leave()
	if !ok {
		return
	}
	n, node, top := p.Nodes(), p.Node(m.Rank), p.Node(a.Root)
	if a.Ordered {
		top = 0
	}
	me := (node - top + n) % n
	at := func(relative int) int { return l.of((relative + top) % n) }
	for bit := 1; bit < n; bit <<= 1 {
		if me&bit != 0 {
			s.Send(sum.at, a.Size, at(me-bit))
			break
		}
		if me+bit < n {
			sum.take(at(me+bit), false, false)
		}
	}
	switch {
	case me == 0 && m.Rank == a.Root:
		s.Copy(out, sum.at, a.Size)
	case me == 0:
		s.Send(sum.at, a.Size, a.Root)
	case m.Rank == a.Root: // of a tree that ends elsewhere
		s.Wait()
		s.Recv(out, a.Size, at(0))
	}
}

// allreduce: each leader combines what its node gives, they exchange that by recursive
// doubling, and give the result to their nodes. If their number isn't a power of two,
// the first pairs of neighbours act as one.
func (p nodes) allreduce(s *coll.Schedule, m coll.Member, a *coll.Args) {
	l := leaders{p, 0}
	w := p.In(s, m, coll.Allreduce, 0, a.Size)
	node := p.Node(m.Rank)
	sum, ok := l.onNode(w, m, a)
	if ok {
		actors := 1
		for actors*2 <= p.Nodes() {
			actors *= 2
		}
		pairs := p.Nodes() - actors // nodes below 2*pairs form pairs
		if node < 2*pairs && node%2 == 0 {
			s.Send(sum.at, a.Size, l.of(node+1))
			s.Wait()
			s.Recv(out, a.Size, l.of(node+1))
		} else {
			actor := node - pairs
			if node < 2*pairs {
				actor = node / 2
				sum.take(l.of(node-1), true, false)
			}
			for bit := 1; bit < actors; bit <<= 1 {
				peer := actor ^ bit
				other := peer + pairs
				if peer < pairs {
					other = peer*2 + 1
				}
				sum.take(l.of(other), peer < actor, true)
			}
			if node < 2*pairs {
				s.Send(sum.at, a.Size, l.of(node-1))
			}
			s.Copy(out, sum.at, a.Size)
		}
		s.Wait()
	}
	p.Bcast(w, p.Seat(l.of(node)), a.Size, out)
	w.Leave()
}

// sum is what a leader has combined: of consecutive nodes.
type sum struct {
	s         *coll.Schedule
	n         int
	at, spare coll.Ref
}

// onNode combines what this member's node gives, in its leader: ok.
func (l leaders) onNode(w area.Steps, m coll.Member, a *coll.Args) (x *sum, ok bool) {
	if l.of(l.Node(m.Rank)) != m.Rank {
		l.Reduce(w, a, 0, -1, false, nothing)
		return nil, false
	}
	x = &sum{w.Schedule, a.Size, w.NewTemp(a.Size), w.NewTemp(a.Size)}
	l.Reduce(w, a, 0, w.Seats-1, true, x.at)
	return x, true
}

// take takes in the sum of another leader, which is of the nodes just below, or else just
// above; swap: it gets this one meanwhile.
func (x *sum) take(rank int, below, swap bool) {
	if swap {
		x.s.Exchange(x.at, x.n, rank, x.spare, x.n, rank)
	} else {
		x.s.Recv(x.spare, x.n, rank)
		x.s.Wait()
	}
	if below {
		x.s.Combine(x.at, x.spare, x.n)
	} else {
		x.s.Combine(x.spare, x.at, x.n)
		x.at, x.spare = x.spare, x.at
	}
	x.s.Wait()
}
