package tuned

import (
	"math/bits"

	"github.com/ferrympi/ferry/coll"
)

// sendWindow is how many segments to one child are on their way at the same time: one
// that travels, one that is copied, and one that waits for neither.
const sendWindow = 3

// down sends a block down a tree, segment after segment: a member sends one on while it
// receives the next. parent is -1 at the root.
func down(s *coll.Schedule, block pieces, parent int, children []int) {
	out := coll.Ref{Slot: coll.Out}
	recv := func(i int) int { // returns how many steps there are then
		if i < block.parts {
			at, n := block.of(out, i, i+1)
			s.Recv(at, n, parent)
		}
		return len(s.Steps)
	}
	if parent >= 0 && len(children) == 0 {
		for i := range block.parts {
			recv(i)
		}
		return
	}
	received := 0
	if parent >= 0 {
		received = recv(0)
	}
	for i := range block.parts {
		ready := received
		if parent >= 0 {
			received = recv(i + 1)
		} else {
			ready = len(s.Steps) - sendWindow*len(children)
		}
		s.WaitFor(ready)
		at, n := block.of(out, i, i+1)
		for _, child := range children {
			s.Send(at, n, child)
		}
	}
}

// binomial is a binomial tree whose ranks count from the root.
func binomial(s *coll.Schedule, m coll.Member, root int) (parent int, children []int) {
	me := relative(m.Rank, root, m.Size)
	bit := 1
	for ; bit < m.Size && me&bit == 0; bit <<= 1 {
	}
	parent = -1
	if me != 0 { // bit is the lowest one of me: the parent lacks it
		parent = absolute(me-bit, root, m.Size)
	}
	children = s.Numbers(bits.Len(uint(bit)))[:0]
	for bit >>= 1; bit > 0; bit >>= 1 {
		if me+bit < m.Size {
			children = append(children, absolute(me+bit, root, m.Size))
		}
	}
	return parent, children
}

// bcastBinomial sends segments down a binomial tree: few steps, and the root sends the
// block log2 n times.
func (p *params) bcastBinomial(s *coll.Schedule, m coll.Member, a *coll.Args) {
	parent, children := binomial(s, m, a.Root)
	down(s, segments(a.Size, 1, int(p.BcastSegment)), parent, children)
}

// bcastChain sends segments from each member to the next: every member sends the block
// once, but the first segment takes n-1 steps.
func (p *params) bcastChain(s *coll.Schedule, m coll.Member, a *coll.Args) {
	parent, children := -1, s.Numbers(1)[:0]
	me := relative(m.Rank, a.Root, m.Size)
	if me > 0 {
		parent = m.Plus(-1)
	}
	if me < m.Size-1 {
		children = append(children, m.Plus(1))
	}
	down(s, segments(a.Size, 1, int(p.BcastSegment)), parent, children)
}

// bcastScatter scatters the block down a binomial tree, and gathers the pieces in all
// members round a ring (van de Geijn): each member sends the block twice at most, and
// nobody waits for a chain. What a member has of its subtree does not come again.
func bcastScatter(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	block := cut(a.Size, 1, m.Size) // piece i is that of the member i above the root
	me := relative(m.Rank, a.Root, m.Size)
	parent, children := binomial(s, m, a.Root)
	end := subtree(me, m.Size)
	if parent >= 0 {
		at, n := block.of(out, me, end)
		s.Recv(at, n, parent)
		s.Wait()
	}
	last := end
	for _, child := range children { // the largest subtree comes first, and has the upper part
		first := relative(child, a.Root, m.Size)
		at, n := block.of(out, first, last)
		s.Send(at, n, child)
		last = first
	}
	next := (me + 1) % m.Size
	for step := range m.Size - 1 {
		send := relative(me, step, m.Size)
		if send < next || send >= subtree(next, m.Size) {
			at, n := block.of(out, send, send+1)
			s.Send(at, n, m.Plus(1))
		}
		recv := relative(me, step+1, m.Size)
		if recv < me || recv >= end {
			at, n := block.of(out, recv, recv+1)
			s.Recv(at, n, m.Plus(-1))
			s.Wait()
		}
	}
}

// subtree is where the relative ranks end that begin with me, and are below it in a
// binomial tree.
func subtree(me, n int) int {
	if me == 0 {
		return n
	}
	return min(n, me+me&-me)
}
