package area

import "github.com/ferrympi/ferry/coll"

// Steps writes the steps of one member that go through an area, into a schedule. Each
// begins when all before are complete.
type Steps struct {
	*coll.Schedule
	Seat, Seats int // this member's, and how many there are on its node
}

// nowhere is for steps that name no memory.
var nowhere coll.Ref

// In begins the steps of an operation, which Leave ends. It is the first thing that a
// schedule does, so that operations begin in one order in all members. total is equal in
// all members, and those of others that differ are an error.
func (l *Layout) In(s *coll.Schedule, m coll.Member, op coll.Operation, root, total int) Steps {
	w := Steps{s, l.Index(m.Rank), l.Size(l.Node(m.Rank))}
	w.own(enter, int(code(op, root)), total, nowhere, nowhere)
	return w
}

// begins puts an operation's beginning and its first round into one step: what an operation
// of a few bytes does is little more than its steps.
func (w Steps) begins(what uint8, n int, from coll.Ref) bool {
	s := &w.Steps[len(w.Steps)-1]
	if s.Kind != coll.Own || s.Do != enter {
		return false
	}
	s.Do, s.Buf.At, s.N, s.From = what, s.N, n, from
	return true
}

func (w Steps) own(what uint8, peer, n int, buf, from coll.Ref) {
	w.Own(what, peer, n, buf, from)
	w.Wait()
}

// Leave ends the operation's steps: with the last one that needs the area.
func (w Steps) Leave() {
	i := len(w.Steps) - 1
	for w.Steps[i].Kind != coll.Own {
		i--
	}
	w.Steps[i].Do |= leave
}

// Post begins a round in which this member gives n bytes, or none: at most Layout.Chunk.
func (w Steps) Post(from coll.Ref, n int) {
	if !w.begins(enterPost, n, from) {
		w.own(post, 0, n, nowhere, from)
	}
}

// Pass begins a round in which this member gives nothing, and nobody waits for it.
func (w Steps) Pass() {
	if !w.begins(enterPass, 0, nowhere) {
		w.own(pass, 0, 0, nowhere, nowhere)
	}
}

// Fill puts n bytes at a place of what Filled will post, of total bytes.
func (w Steps) Fill(at, total int, from coll.Ref, n int) {
	w.own(fill, total, n, coll.Ref{Slot: coll.Shared, At: at}, from)
}

// Filled is Post of what was filled in.
func (w Steps) Filled(total int) { w.own(post, 0, total, nowhere, coll.Ref{Slot: coll.Shared}) }

// Await waits until all have posted in this round.
func (w Steps) Await() { w.own(await, 0, 0, nowhere, nowhere) }

// Fetch copies n bytes at a place of what a member posts in this round.
func (w Steps) Fetch(seat, at int, to coll.Ref, n int) { w.FetchBack(0, seat, at, to, n) }

// mostBack is how many rounds before its last one a member reads at most.
const mostBack = 1

// FetchBack is Fetch of the round that lies so many back: 0 or mostBack. Meanwhile the others
// write the next one.
func (w Steps) FetchBack(back, seat, at int, to coll.Ref, n int) {
	w.own(fetch, back*w.Seats+seat, n, to, coll.Ref{Slot: coll.Shared, At: at})
}

// Fold combines n bytes at a place of what a member posts in the round that lies so many back,
// which has the lower ranks, with what is at inout, where the result comes.
func (w Steps) Fold(back, seat, at int, inout coll.Ref, n int) {
	w.own(fold, back*w.Seats+seat, n, inout, coll.Ref{Slot: coll.Shared, At: at})
}
