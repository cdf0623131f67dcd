package area

import "github.com/ferrympi/ferry/coll"

// Steps appends the steps of one member to a schedule. Each step begins when all before it are complete.
type Steps struct {
	*coll.Schedule
	LocalRank, LocalSize int
}

var noMemory coll.Ref

// Begin starts an operation, which End completes. It must be the first step of a schedule, so that operations
// begin in one order in all members. total must be equal in all members.
func (l *Layout) Begin(s *coll.Schedule, m coll.Member, op coll.Operation, root, total int) Steps {
	w := Steps{s, l.Index(m.Rank), l.Size(l.Node(m.Rank))}
	w.addOwn(actBegin, int(operationCode(op, root)), total, noMemory, noMemory)
	return w
}

// mergeIntoBegin merges the first phase into the step that begins the operation, which saves a step in short
// operations.
func (w Steps) mergeIntoBegin(action uint8, n int, from coll.Ref) bool {
	s := &w.Steps[len(w.Steps)-1]
	if s.Kind != coll.Own || s.Do != actBegin {
		return false
	}
	s.Do, s.Buf.At, s.N, s.From = action, s.N, n, from
	return true
}

func (w Steps) addOwn(action uint8, peer, n int, buf, from coll.Ref) {
	w.Own(action, peer, n, buf, from)
	w.Wait()
}

// End releases the segment after the last step that uses it.
func (w Steps) End() {
	i := len(w.Steps) - 1
	for w.Steps[i].Kind != coll.Own {
		i--
	}
	w.Steps[i].Do |= flagEnd
}

// Post begins a phase and posts n bytes, at most Layout.Chunk.
func (w Steps) Post(from coll.Ref, n int) {
	if !w.mergeIntoBegin(actBeginPost, n, from) {
		w.addOwn(actPost, 0, n, noMemory, from)
	}
}

// Pass begins a phase without a post. No member may wait for it.
func (w Steps) Pass() {
	if !w.mergeIntoBegin(actBeginPass, 0, noMemory) {
		w.addOwn(actPass, 0, 0, noMemory, noMemory)
	}
}

// Fill copies n bytes to an offset of the next post, which PostFilled posts with total bytes.
func (w Steps) Fill(at, total int, from coll.Ref, n int) {
	w.addOwn(actFill, total, n, coll.Ref{Slot: coll.Shared, At: at}, from)
}

// PostFilled begins a phase and posts the bytes of Fill.
func (w Steps) PostFilled(total int) {
	w.addOwn(actPost, 0, total, noMemory, coll.Ref{Slot: coll.Shared})
}

// AwaitAll waits until all members have posted in this phase.
func (w Steps) AwaitAll() { w.addOwn(actAwait, 0, 0, noMemory, noMemory) }

// Fetch copies n bytes at an offset of the post of a member in this phase.
func (w Steps) Fetch(rank, at int, to coll.Ref, n int) { w.FetchFrom(0, rank, at, to, n) }

// maxPhasesBack limits reads to the current and the previous phase.
const maxPhasesBack = 1

// FetchFrom is Fetch of the phase that lies 0 or maxPhasesBack phases back. Members may post in the meantime.
func (w Steps) FetchFrom(back, rank, at int, to coll.Ref, n int) {
	w.addOwn(actFetch, back*w.LocalSize+rank, n, to, coll.Ref{Slot: coll.Shared, At: at})
}

// Fold combines n bytes at an offset of a post into inout. The posting member must have the lower rank in
// ordered operations.
func (w Steps) Fold(back, rank, at int, inout coll.Ref, n int) {
	w.addOwn(actFold, back*w.LocalSize+rank, n, inout, coll.Ref{Slot: coll.Shared, At: at})
}
