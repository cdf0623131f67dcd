package ob1

import "time"

// The receiver of a large message that is alone can't see how long its sender has packed the part that comes
// with the RTS. So the RTS says it.

// packing is how long the first parts of messages of one class take to be packed into lines of one
// kind.
type packing struct {
	n    uint64
	last [3]time.Duration // of those that were timed, in a ring
	took time.Duration    // as a rule
}

// timedOf is of how many such parts one is timed, but for the first ones: a clock takes as long as 2 KiB.
const timedOf = 16

// timed reports whether the next part is to be timed.
func (k *packing) timed() bool {
	k.n++
	return k.n <= uint64(len(k.last)) || k.n%timedOf == 0
}

// add takes in what one part took. The middle of the last three counts: one that was interrupted says nothing, nor does
// the very first one, which meets memory that no core knows yet, and takes ten times as long.
func (k *packing) add(took time.Duration) {
	if k.n <= uint64(len(k.last)) {
		k.last[k.n-1] = took
	} else {
		k.last[k.n/timedOf%uint64(len(k.last))] = took
	}
	a, b, c := k.last[0], k.last[1], k.last[2]
	switch k.n {
	case 1:
		k.took = a
	case 2:
		k.took = min(a, b)
	default:
		k.took = max(min(a, b), min(max(a, b), c))
	}
}

// packPart packs the part that goes with the RTS, and returns how long that takes as a
// rule. In a window the time between two messages shows it, and nobody asks.
func (r *request) packPart(dst []byte) time.Duration {
	if len(dst) == 0 || r.depth != alone || !r.described {
		r.pack(dst, 0)
		return 0
	}
	k := &r.p.proc.packing[r.lines][classOf(r.buf.Len())]
	if !k.timed() {
		r.pack(dst, 0)
		return k.took
	}
	began := r.m.now()
	r.pack(dst, 0)
	k.add(r.m.now() - began)
	return k.took
}
