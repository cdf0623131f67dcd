// Package leaders writes the messages that one rank of each node, or of each process, exchanges
// with the others, its fellow leaders. Collective components do the rest in shared memory.
//
// It stands on package coll alone.
package leaders

import "github.com/ferrympi/ferry/coll"

// Group is the leaders of a communicator, as one of them sees it. Leaders are numbered as
// their nodes or processes are.
type Group struct {
	Size int
	// This leader's number.
	Self int
	Rank func(leader int) int
}

var (
	out     = coll.Ref{Slot: coll.Out}
	nothing coll.Ref
)

// relative counts leaders from top; absolute returns the rank of one of them.
func (g Group) relative(top int) int           { return (g.Self - top + g.Size) % g.Size }
func (g Group) absolute(relative, top int) int { return g.Rank((relative + top) % g.Size) }

// Barrier is a dissemination barrier.
func (g Group) Barrier(s *coll.Schedule) {
	for k := 1; k < g.Size; k <<= 1 {
		s.Exchange(nothing, 0, g.absolute(k, g.Self), nothing, 0, g.absolute(g.Size-k, g.Self))
	}
}

// Bcast receives n bytes from the parent in a binomial tree, which begins at leader top, waits for them,
// and starts to send them to the children.
func (g Group) Bcast(s *coll.Schedule, top int, buf coll.Ref, n int) {
	self := g.relative(top)
	up := 1
	for ; up < g.Size && self&up == 0; up <<= 1 {
	}
	if self != 0 { // up is the lowest bit of self, which the parent lacks
		s.Recv(buf, n, g.absolute(self-up, top))
		s.Wait()
	}
	for bit := up >> 1; bit > 0; bit >>= 1 {
		if self+bit < g.Size {
			s.Send(buf, n, g.absolute(self+bit, top))
		}
	}
}

// Sum is the combination of the contributions of consecutive leaders.
type Sum struct {
	// Changes as other leaders' contributions are combined with it.
	At coll.Ref

	s     *coll.Schedule
	n     int
	spare coll.Ref
}

// NewSum returns a sum of n bytes, which the caller fills with its own contribution.
func NewSum(s *coll.Schedule, n int) *Sum {
	return &Sum{At: s.NewTemp(n), s: s, n: n, spare: s.NewTemp(n)}
}

// take combines the sum with that of another leader, which covers the leaders just below, or
// else just above. If swap is set, that leader receives this sum meanwhile.
func (x *Sum) take(rank int, below, swap bool) {
	if swap {
		x.s.Exchange(x.At, x.n, rank, x.spare, x.n, rank)
	} else {
		x.s.Recv(x.spare, x.n, rank)
		x.s.Wait()
	}
	if below {
		x.s.Combine(x.At, x.spare, x.n)
	} else {
		x.s.Combine(x.spare, x.At, x.n)
		x.At, x.spare = x.spare, x.At
	}
	x.s.Wait()
}

// Reduce combines sums up a binomial tree. The result comes to Out of the root, which is the
// leader with number top. The order is kept if leaders count from 0. For an operation that
// does not commute the tree ends there, and its leader sends the result to the root.
func (g Group) Reduce(x *Sum, m coll.Member, a *coll.Args, top int) {
	if a.IsOrdered {
		top = 0
	}
	self := g.relative(top)
	for bit := 1; bit < g.Size; bit <<= 1 {
		if self&bit != 0 {
			x.s.Send(x.At, x.n, g.absolute(self-bit, top))
			break
		}
		if self+bit < g.Size {
			x.take(g.absolute(self+bit, top), false, false)
		}
	}
	switch {
	case self == 0 && m.Rank == a.Root:
		x.s.Copy(out, x.At, x.n)
	case self == 0:
		x.s.Send(x.At, x.n, a.Root)
	case m.Rank == a.Root: // of a tree that ends elsewhere
		x.s.Wait()
		x.s.Recv(out, x.n, g.absolute(0, top))
	}
}

// Allreduce combines the sums of all leaders by recursive doubling. The result comes to Out of each.
// If their number isn't a power of two, the first pairs of neighbors act as one.
func (g Group) Allreduce(x *Sum) {
	actors := 1
	for actors*2 <= g.Size {
		actors *= 2
	}
	pairs := g.Size - actors // leaders below 2*pairs form pairs
	if g.Self < 2*pairs && g.Self%2 == 0 {
		x.s.Send(x.At, x.n, g.Rank(g.Self+1))
		x.s.Wait()
		x.s.Recv(out, x.n, g.Rank(g.Self+1))
		return
	}
	actor := g.Self - pairs
	if g.Self < 2*pairs {
		actor = g.Self / 2
		x.take(g.Rank(g.Self-1), true, false)
	}
	for bit := 1; bit < actors; bit <<= 1 {
		peer := actor ^ bit
		other := peer + pairs
		if peer < pairs {
			other = peer*2 + 1
		}
		x.take(g.Rank(other), peer < actor, true)
	}
	if g.Self < 2*pairs {
		x.s.Send(x.At, x.n, g.Rank(g.Self-1))
	}
	x.s.Copy(out, x.At, x.n)
}
