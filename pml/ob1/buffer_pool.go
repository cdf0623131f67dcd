package ob1

import "math/bits"

// bufferPool keeps buffers of unexpected messages by size class, so that a steady stream of
// them does not allocate. The engine's lock guards it.
type bufferPool struct {
	classes   [poolClasses][][]byte
	bytesKept int
}

const (
	// poolSmallest is the binary logarithm of the smallest buffer, which is as large as a cell.
	poolSmallest = 6
	// poolClasses is the number of size classes. The largest has buffers of 2 MiB.
	poolClasses = 16
	// poolLimit bounds bytesKept.
	poolLimit = 4 << 20
)

func poolClass(n int) int { return max(0, bits.Len(uint(n-1))-poolSmallest) }

// get returns a buffer of n bytes, or nil for 0.
func (p *bufferPool) get(n int) []byte {
	if n == 0 {
		return nil
	}
	k := poolClass(n)
	if k >= poolClasses {
		return make([]byte, n)
	}
	free := p.classes[k]
	if len(free) == 0 {
		return make([]byte, n, 1<<(k+poolSmallest))
	}
	b := free[len(free)-1]
	p.classes[k] = free[:len(free)-1]
	p.bytesKept -= cap(b)
	return b[:n]
}

// put returns a buffer to the pool, or leaves it to the garbage collector.
func (p *bufferPool) put(b []byte) {
	n := cap(b)
	if n == 0 || n&(n-1) != 0 || p.bytesKept+n > poolLimit {
		return
	}
	k := poolClass(n)
	if k >= poolClasses {
		return
	}
	p.classes[k] = append(p.classes[k], b)
	p.bytesKept += n
}
