package tcp

import "math/bits"

// chunk is memory for consecutive frames.
type chunk struct {
	bytes      []byte
	usedBytes  int
	lastNumber uint64
}

// bufferPool has free buffers by power of two.
type bufferPool struct {
	freeByClass [32][][]byte
	bytesFree   int
}

// maxPooledBytes is the limit of free memory in a process, two windows.
const maxPooledBytes = 8 << 20

// get returns a buffer of at least n bytes.
func (p *bufferPool) get(n int) []byte {
	class := bits.Len(uint(n - 1))
	if free := p.freeByClass[class]; len(free) > 0 {
		b := free[len(free)-1]
		p.freeByClass[class] = free[:len(free)-1]
		p.bytesFree -= len(b)
		return b
	}
	return make([]byte, 1<<class)
}

// put returns a buffer to the pool.
func (p *bufferPool) put(b []byte) {
	if p.bytesFree+len(b) <= maxPooledBytes {
		free := &p.freeByClass[bits.Len(uint(len(b)-1))]
		*free = append(*free, b)
		p.bytesFree += len(b)
	}
}

// trim frees half of the pool.
func (p *bufferPool) trim() {
	for class, free := range p.freeByClass {
		n := len(free) / 2
		for i := n; i < len(free); i++ {
			p.bytesFree -= len(free[i])
			free[i] = nil
		}
		p.freeByClass[class] = free[:n]
	}
}

// sendBuffer is the memory of the unacked frames to one peer. The last chunk is being filled.
type sendBuffer struct {
	pool           *bufferPool
	chunks         []*chunk
	hasReservation bool
}

// The first chunk suits a peer with little traffic. Chunks grow in a burst. An idle peer keeps at most
// keptChunkSize.
const (
	minChunkSize  = 1 << 10
	chunkGrowth   = 4
	maxChunkSize  = 64 << 10
	keptChunkSize = 4 << 10
)

// reserve returns n bytes with their chunk. They stay free until commit.
func (o *sendBuffer) reserve(n int) (*chunk, []byte) {
	o.hasReservation = true
	if k := len(o.chunks); k > 0 {
		c := o.chunks[k-1]
		if n <= len(c.bytes)-c.usedBytes {
			return c, c.bytes[c.usedBytes : c.usedBytes+n : c.usedBytes+n]
		}
		// The chunk is too small.
		if c.usedBytes == 0 {
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

// commit makes n bytes of the last reservation the frame number.
func (o *sendBuffer) commit(n int, number uint64) {
	c := o.chunks[len(o.chunks)-1]
	c.usedBytes += n
	c.lastNumber = number
	o.hasReservation = false
}

// freeBefore frees all frames before first.
func (o *sendBuffer) freeBefore(first uint64) {
	for len(o.chunks) > 0 && o.chunks[0].lastNumber < first {
		c := o.chunks[0]
		if last := len(o.chunks) == 1; last && o.hasReservation {
			return
		} else if last && len(c.bytes) <= keptChunkSize {
			c.usedBytes = 0
			return
		}
		o.pool.put(c.bytes)
		o.chunks = o.chunks[1:]
	}
}

// release frees all memory.
func (o *sendBuffer) release() {
	for _, c := range o.chunks {
		o.pool.put(c.bytes)
	}
	o.chunks = nil
}
