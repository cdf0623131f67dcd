package tuned

import (
	"math/bits"

	"github.com/ferrympi/ferry/coll"
)

// sendWindow is the number of pending segments to one child. One is in flight, one is copied, and
// one is ready.
const sendWindow = 3

// sendDown sends a block down a tree in segments. A member forwards one segment while it receives the
// next. parent is -1 at the root.
func sendDown(s *coll.Schedule, block division, parent int, children []int) {
	out := coll.Ref{Slot: coll.Out}
	recv := func(i int) int { // Returns the number of steps after the receive.
		if i < block.partCount {
			at, n := block.slice(out, i, i+1)
			s.Recv(at, n, parent)
		}
		return len(s.Steps)
	}
	if parent >= 0 && len(children) == 0 {
		for i := range block.partCount {
			recv(i)
		}
		return
	}
	received := 0
	if parent >= 0 {
		received = recv(0)
	}
	for i := range block.partCount {
		ready := received
		if parent >= 0 {
			received = recv(i + 1)
		} else {
			ready = len(s.Steps) - sendWindow*len(children)
		}
		s.WaitFor(ready)
		at, n := block.slice(out, i, i+1)
		for _, child := range children {
			s.Send(at, n, child)
		}
	}
}

// binomial returns the parent and the children in a binomial tree of relative ranks.
func binomial(s *coll.Schedule, m coll.Member, root int) (parent int, children []int) {
	me := relative(m.Rank, root, m.Size)
	bit := 1
	for ; bit < m.Size && me&bit == 0; bit <<= 1 {
	}
	parent = -1
	if me != 0 { // bit is the lowest one of me. The parent's rank is me without it.
		parent = absolute(me-bit, root, m.Size)
	}
	children = s.Scratch(bits.Len(uint(bit)))[:0]
	for bit >>= 1; bit > 0; bit >>= 1 {
		if me+bit < m.Size {
			children = append(children, absolute(me+bit, root, m.Size))
		}
	}
	return parent, children
}

// bcastBinomial sends segments down a binomial tree. It has few steps, and the root sends the block
// log2 n times.
func (p *params) bcastBinomial(s *coll.Schedule, m coll.Member, a *coll.Args) {
	parent, children := binomial(s, m, a.Root)
	sendDown(s, segments(a.Size, 1, int(p.BcastSegment)), parent, children)
}

// bcastChain sends segments from each member to the next. Every member sends the block once, but
// the first segment takes n-1 steps.
func (p *params) bcastChain(s *coll.Schedule, m coll.Member, a *coll.Args) {
	parent, children := -1, s.Scratch(1)[:0]
	me := relative(m.Rank, a.Root, m.Size)
	if me > 0 {
		parent = m.Plus(-1)
	}
	if me < m.Size-1 {
		children = append(children, m.Plus(1))
	}
	sendDown(s, segments(a.Size, 1, int(p.BcastSegment)), parent, children)
}

// bcastScatter scatters the block down a binomial tree and gathers the fragments in all members
// around a ring (van de Geijn). Each member sends the block at most twice, and no member waits for
// a chain. Fragments of a member's own subtree are not sent to it again.
func bcastScatter(s *coll.Schedule, m coll.Member, a *coll.Args) {
	out := coll.Ref{Slot: coll.Out}
	block := divide(a.Size, 1, m.Size) // Fragment i belongs to the member i above the root.
	me := relative(m.Rank, a.Root, m.Size)
	parent, children := binomial(s, m, a.Root)
	end := subtreeEnd(me, m.Size)
	if parent >= 0 {
		at, n := block.slice(out, me, end)
		s.Recv(at, n, parent)
		s.Wait()
	}
	last := end
	for _, child := range children { // The largest subtree comes first and has the last fragments.
		first := relative(child, a.Root, m.Size)
		at, n := block.slice(out, first, last)
		s.Send(at, n, child)
		last = first
	}
	next := (me + 1) % m.Size
	for step := range m.Size - 1 {
		send := relative(me, step, m.Size)
		if send < next || send >= subtreeEnd(next, m.Size) {
			at, n := block.slice(out, send, send+1)
			s.Send(at, n, m.Plus(1))
		}
		recv := relative(me, step+1, m.Size)
		if recv < me || recv >= end {
			at, n := block.slice(out, recv, recv+1)
			s.Recv(at, n, m.Plus(-1))
			s.Wait()
		}
	}
}

// subtreeEnd returns the end of the relative ranks that start at me and are below it in a binomial
// tree.
func subtreeEnd(me, n int) int {
	if me == 0 {
		return n
	}
	return min(n, me+me&-me)
}
