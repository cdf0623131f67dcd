package ob1

import "time"

// The receiver of a large message that is alone can't see how long its sender took to pack the part that comes
// with the RTS. So the RTS says it.

// packing is how long the first parts of messages of one class take to be packed into lines of one
// kind.
type packing struct {
	n      int
	at     uint64 // how many parts the process had got when one of these was timed last
	unsure bool   // that one differed from those before
	last   [3]time.Duration
	took   time.Duration // as a rule
}

const (
	// timedOf is of how many parts to a process one is timed, when it is known what they take: reading the clock takes as
	// long as copying 2 KiB.
	timedOf = 16
	// timedFirst is how many are timed before: the first lap through memory that no core knows yet takes ten times as long.
	timedFirst = 64
	// differs is by which factor a part differs from those before that may have become others.
	differs = 1.5
)

// timed reports whether the next part is to be timed, which is the count-th to that process.
func (k *packing) timed(count uint64) bool {
	k.n = min(k.n+1, timedFirst+1)
	return k.n <= timedFirst || k.unsure || count-k.at >= timedOf
}

// add takes in what that part took. The middle of the last three counts: one that was interrupted says nothing, nor does
// the very first one.
func (k *packing) add(count uint64, took time.Duration) {
	k.at = count
	k.unsure = float64(took) > differs*float64(k.took) || float64(k.took) > differs*float64(took)
	k.last = [3]time.Duration{k.last[1], k.last[2], took}
	a, b := k.last[0], k.last[1]
	switch k.n {
	case 1:
		k.took = took
	case 2:
		k.took = min(b, took)
	default:
		k.took = max(min(a, b), min(max(a, b), took))
	}
}

// packPart packs the part that goes with the RTS, and returns how long that takes as a
// rule. In a window the time between two messages shows it, and nobody asks.
func (r *request) packPart(dst []byte) time.Duration {
	if len(dst) == 0 || r.depth != alone || !r.described {
		r.pack(dst, 0)
		return 0
	}
	p := r.p.proc
	p.packed++
	if p.packing == nil {
		p.packing = new([linesKinds][classes]packing)
	}
	k := &p.packing[r.lines][classOf(r.buf.Len())]
	if !k.timed(p.packed) {
		r.pack(dst, 0)
		return k.took
	}
	began := r.m.now()
	r.pack(dst, 0)
	k.add(p.packed, r.m.now()-began)
	return k.took
}
