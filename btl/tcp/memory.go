package tcp

import "math/bits"

// Memory for frames that are built here, and for those that come in pieces. It is taken
// when it is needed and given back when it is not: what a connection that is idle keeps is
// the first chunk, if that is all it has needed, and a ring of a few KiB.

// chunk is memory for frames that are committed one after another.
type chunk struct {
	bytes []byte
	used  int
	last  uint64 // the number of the last frame in it
}

// pool keeps memory that is free, by the power of two that is its size.
type pool struct {
	free [32][][]byte
	kept int // bytes
}

// mostKept is what a process keeps of it for the next use, in bytes: two windows.
const mostKept = 8 << 20

// get returns memory of at least n bytes.
func (p *pool) get(n int) []byte {
	class := bits.Len(uint(n - 1))
	if free := p.free[class]; len(free) > 0 {
		b := free[len(free)-1]
		p.free[class] = free[:len(free)-1]
		p.kept -= len(b)
		return b
	}
	return make([]byte, 1<<class)
}

// put takes back what get returned.
func (p *pool) put(b []byte) {
	if p.kept+len(b) > mostKept {
		return
	}
	class := bits.Len(uint(len(b) - 1))
	p.free[class] = append(p.free[class], b)
	p.kept += len(b)
}

// trim gives half of it back.
func (p *pool) trim() {
	for class, free := range p.free {
		n := len(free) / 2
		for i := n; i < len(free); i++ {
			p.kept -= len(free[i])
			free[i] = nil
		}
		p.free[class] = free[:n]
	}
}

// outbox is the memory of the frames to one peer: the chunk that is being filled is the
// last one.
type outbox struct {
	pool   *pool
	chunks []*chunk
	held   bool // a reservation lies behind what is used of the last one
}

// The first chunk is for a peer that says little. Those of a burst grow. What an idle
// connection keeps is enough for a frame of some KiB.
const (
	firstChunk  = 1 << 10
	chunkGrowth = 4
	mostChunk   = 64 << 10
	keptChunk   = 4 << 10
)

// reserve returns n bytes, and where they lie. They stay free until they are used.
func (o *outbox) reserve(n int) (*chunk, []byte) {
	o.held = true
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
	size := firstChunk
	if k := len(o.chunks); k > 0 {
		size = min(mostChunk, chunkGrowth*len(o.chunks[k-1].bytes))
	}
	c := &chunk{bytes: o.pool.get(max(n, size))}
	o.chunks = append(o.chunks, c)
	return c, c.bytes[:n:n]
}

// use says that n bytes of the last reservation are frame number.
func (o *outbox) use(n int, number uint64) {
	c := o.chunks[len(o.chunks)-1]
	c.used += n
	c.last = number
	o.held = false
}

// free says that no frame before first is kept any more.
func (o *outbox) free(first uint64) {
	for len(o.chunks) > 0 && o.chunks[0].last < first {
		c := o.chunks[0]
		if last := len(o.chunks) == 1; last && o.held {
			return
		} else if last && len(c.bytes) <= keptChunk {
			c.used = 0
			return
		}
		o.pool.put(c.bytes)
		o.chunks = o.chunks[1:]
	}
}

// drop gives everything back.
func (o *outbox) drop() {
	for _, c := range o.chunks {
		o.pool.put(c.bytes)
	}
	o.chunks = nil
}
