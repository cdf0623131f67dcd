package ob1

import "math/bits"

// pool keeps buffers of unexpected messages by size, so that a steady stream of
// them allocates nothing. Guarded by the engine's lock.
type pool struct {
	classes [poolClasses][][]byte
	kept    int // bytes in classes
}

const (
	poolSmallest = 6       // log2 of the smallest buffer: a cell
	poolClasses  = 16      // up to 2 MiB
	poolLimit    = 4 << 20 // bytes that are kept; what is more goes to the collector
)

func class(n int) int { return max(0, bits.Len(uint(n-1))-poolSmallest) }

// get returns a buffer of n bytes; nil for 0.
func (p *pool) get(n int) []byte {
	if n == 0 {
		return nil
	}
	k := class(n)
	if k >= poolClasses {
		return make([]byte, n)
	}
	free := p.classes[k]
	if len(free) == 0 {
		return make([]byte, n, 1<<(k+poolSmallest))
	}
	b := free[len(free)-1]
	p.classes[k] = free[:len(free)-1]
	p.kept -= cap(b)
	return b[:n]
}

// put takes a buffer back.
func (p *pool) put(b []byte) {
	n := cap(b)
	if n == 0 || n&(n-1) != 0 || p.kept+n > poolLimit {
		return
	}
	k := class(n)
	if k >= poolClasses {
		return
	}
	p.classes[k] = append(p.classes[k], b)
	p.kept += n
}
