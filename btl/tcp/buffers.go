package tcp

import "math/bits"

// Memory for frames that are built here, and for those that come in pieces. It is taken
// when it is needed and given back when it is not: what a connection that is idle keeps is
// the first chunk, if that is all it has needed, and a ring of a few KiB.

// chunk is memory for frames that are committed one after another.
type chunk struct {
	bytes     []byte
	used      int
	lastFrame uint64 // the number of the last frame in it
}

// bufferPool keeps memory that is free, by the power of two that is its size.
type bufferPool struct {
	free      [32][][]byte
	bytesFree int // bytes
}

// maxPooledBytes is what a process keeps of it for the next use, in bytes: two windows.
const maxPooledBytes = 8 << 20

// get returns memory of at least n bytes.
func (p *bufferPool) get(n int) []byte {
	class := bits.Len(uint(n - 1))
	if free := p.free[class]; len(free) > 0 {
		b := free[len(free)-1]
		p.free[class] = free[:len(free)-1]
		p.bytesFree -= len(b)
		return b
	}
	return make([]byte, 1<<class)
}

// put takes back what get returned.
func (p *bufferPool) put(b []byte) {
	if p.bytesFree+len(b) > maxPooledBytes {
		return
	}
	class := bits.Len(uint(len(b) - 1))
	p.free[class] = append(p.free[class], b)
	p.bytesFree += len(b)
}

// trim gives half of it back.
func (p *bufferPool) trim() {
	for class, free := range p.free {
		n := len(free) / 2
		for i := n; i < len(free); i++ {
			p.bytesFree -= len(free[i])
			free[i] = nil
		}
		p.free[class] = free[:n]
	}
}

// sendBuffer is the memory of the frames to one peer: the chunk that is being filled is the
// last one.
type sendBuffer struct {
	pool       *bufferPool
	chunks     []*chunk
	isReserved bool // a reservation lies behind what is used of the last one
}

// The first chunk is for a peer that says little. Those of a burst grow. What an idle
// connection keeps is enough for a frame of some KiB.
const (
	minChunkSize  = 1 << 10
	chunkGrowth   = 4
	maxChunkSize  = 64 << 10
	keptChunkSize = 4 << 10
)

// reserve returns n bytes, and where they lie. They stay free until they are used.
func (o *sendBuffer) reserve(n int) (*chunk, []byte) {
	o.isReserved = true
	if k := len(o.chunks); k > 0 {
		c := o.chunks[k-1]
		if n <= len(c.bytes)-c.used {
			return c, c.bytes[c.used : c.used+n : c.used+n]
		}
		if c.used == 0 { // too small for this one
			o.pool.put(c.bytes)
			o.chunks = o.chunks[:k-1]
		}
	}
	size := minChunkSize
	if k := len(o.chunks); k > 0 {
		size = min(maxChunkSize, chunkGrowth*len(o.chunks[k-1].bytes))
	}
	c := &chunk{bytes: o.pool.get(max(n, size))}
	o.chunks = append(o.chunks, c)
	return c, c.bytes[:n:n]
}

// commit says that n bytes of the last reservation are frame number.
func (o *sendBuffer) commit(n int, number uint64) {
	c := o.chunks[len(o.chunks)-1]
	c.used += n
	c.lastFrame = number
	o.isReserved = false
}

// freeBefore says that no frame before first is kept any more.
func (o *sendBuffer) freeBefore(first uint64) {
	for len(o.chunks) > 0 && o.chunks[0].lastFrame < first {
		c := o.chunks[0]
		if last := len(o.chunks) == 1; last && o.isReserved {
			return
		} else if last && len(c.bytes) <= keptChunkSize {
			c.used = 0
			return
		}
		o.pool.put(c.bytes)
		o.chunks = o.chunks[1:]
	}
}

// release gives everything back.
func (o *sendBuffer) release() {
	for _, c := range o.chunks {
		o.pool.put(c.bytes)
	}
	o.chunks = nil
}
