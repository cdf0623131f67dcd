// Package ring is the single-producer, single-consumer ring of 64-byte cells
// that carries frames from one process to another. It works on any memory: a
// mapped segment, or the Go heap (where the race detector can see it).
//
// # Layout
//
// All numbers little-endian. docs/wire.md has the same, with the segment around
// it. A ring is a header of two cache lines,
//
//	 0  u64 consumed   cells given back, written by the consumer
//	64  u32 waiting    1 while the producer sleeps for cells, written by the producer
//
// and, elsewhere, its cells: a power of two of them, 64 bytes each.
//
// A frame begins at a cell with a word of 8 bytes, and its bytes follow, into
// the next cells if need be:
//
//	0  u32 lap     number of the lap, starting at 1, in which the cell was written
//	4  u32 length  of the frame in bytes; lengthPad: skip to the first cell
//	8  frame
//
// The word is stored last, at once, atomically: that publishes the frame. It is
// the only atomic operation per frame, and a small frame needs one cache line.
// The consumer knows the position where the next word will be, and that it is
// there when its lap is right.
//
// A frame is contiguous: one that doesn't fit before the end of the ring is
// preceded by a padding word and begins at the first cell.
//
// A cell in the middle of a frame holds payload where a word may be looked for
// in a later lap, and payload can look like anything. So before the producer
// publishes a frame it clears the word behind it, if payload may lie there.
//
// Who owns what: cells from consumed to the producer's position are the
// consumer's if published; all others are the producer's. The producer always
// leaves one cell free, for the cleared word.
package ring

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

const (
	// CellSize is a cache line.
	CellSize = 64
	// HeaderSize is the number of bytes of a ring's header.
	HeaderSize = 2 * CellSize
	// WordSize is the number of bytes before a frame.
	WordSize = 8
	// MinCells is the smallest ring.
	MinCells = 64

	offConsumed = 0
	offWaiting  = 64

	lengthPad = 0xFFFFFFFF
)

// FrameLimit returns the largest frame that a ring of n cells carries. A frame
// and the padding before it take at most half of the ring, so that a producer
// never waits for cells that the consumer has not given back yet only because
// they are few.
func FrameLimit(n int) int { return n/4*CellSize - WordSize }

type memory struct {
	base     unsafe.Pointer // first cell
	n        uint64         // cells
	shift    uint           // log2(n)
	limit    uint64         // largest frame
	consumed *atomic.Uint64
	waiting  *atomic.Uint32
}

// attach takes a header and cells, both aligned to a cache line; the number of
// cells is a power of two, and at least MinCells. Their memory must stay mapped.
func attach(header, cells []byte) memory {
	n := len(cells) / CellSize
	if len(cells)%CellSize != 0 || n < MinCells || n&(n-1) != 0 {
		panic(fmt.Sprintf("ring: %d bytes of cells", len(cells)))
	}
	if len(header) < HeaderSize {
		panic("ring: short header")
	}
	h, p := unsafe.Pointer(unsafe.SliceData(header)), unsafe.Pointer(unsafe.SliceData(cells))
	if uintptr(h)%CellSize != 0 || uintptr(p)%CellSize != 0 {
		panic("ring: memory is not aligned to a cell")
	}
	return memory{
		base:     p,
		n:        uint64(n),
		shift:    uint(bits.TrailingZeros(uint(n))),
		limit:    uint64(FrameLimit(n)),
		consumed: (*atomic.Uint64)(unsafe.Add(h, offConsumed)),
		waiting:  (*atomic.Uint32)(unsafe.Add(h, offWaiting)),
	}
}

// cell returns the address of the cell at a position.
func (m *memory) cell(pos uint64) unsafe.Pointer {
	return unsafe.Add(m.base, (pos&(m.n-1))*CellSize)
}

// word returns the word of the cell at a position.
func (m *memory) word(pos uint64) *atomic.Uint64 { return (*atomic.Uint64)(m.cell(pos)) }

func (m *memory) lap(pos uint64) uint32 { return uint32(pos>>m.shift) + 1 }

// frame returns the n bytes of the frame whose word is at pos. The caller knows
// that they end before the ring does.
func (m *memory) frame(pos uint64, n uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(m.cell(pos), WordSize)), n)
}

// cellsOf returns how many cells a frame of n bytes takes.
func cellsOf(n uint64) uint64 { return (n + WordSize + CellSize - 1) / CellSize }

// Producer is the sending end. One goroutine at a time uses it.
type Producer struct {
	memory
	head     uint64 // position of the next frame's word
	end      uint64 // position that may not be written yet, as far as we know
	dirty    uint64 // position behind the last cell that held payload without a word
	reserved uint64 // position of the reservation
	size     uint64 // its length in bytes
}

// NewProducer attaches the sending end to an empty ring (zeroed memory).
// It must stay mapped as long as the Producer is used.
func NewProducer(header, cells []byte) *Producer {
	m := attach(header, cells)
	return &Producer{memory: m, end: m.n}
}

// Reserve returns n bytes for the next frame, or nil if the consumer has not
// given back enough cells yet. 1 <= n <= FrameLimit.
func (p *Producer) Reserve(n int) []byte {
	pos, need := p.head, cellsOf(uint64(n))
	if at := pos & (p.n - 1); at+need > p.n {
		pos += p.n - at // padding up to the first cell
	}
	if pos+need >= p.end { // one cell more, for the word behind
		p.end = p.consumed.Load() + p.n
		if pos+need >= p.end {
			return nil
		}
	}
	if uint64(n)-1 >= p.limit {
		panic("ring: frame too large")
	}
	p.reserved, p.size = pos, uint64(n)
	return p.frame(pos, uint64(n))
}

// Commit publishes the first n bytes of the reservation. One atomic store.
func (p *Producer) Commit(n int) {
	if uint64(n)-1 >= p.size {
		panic("ring: commit without reservation")
	}
	p.size = 0
	pos := p.reserved
	next := pos + cellsOf(uint64(n))
	// Payload may lie where the consumer will look for the next word: in a cell
	// that was the middle of a frame in the last lap.
	if next < p.dirty+p.n {
		p.word(next).Store(0)
	}
	if next > pos+1 {
		p.dirty = next
	}
	p.word(pos).Store(uint64(n)<<32 | uint64(p.lap(pos)))
	if pos != p.head {
		// The frame is there before the padding that leads to it.
		p.word(p.head).Store(lengthPad<<32 | uint64(p.lap(p.head)))
	}
	p.head = next
}

// Sent returns the position: the number of cells used so far.
func (p *Producer) Sent() uint64 { return p.head }

// Wait tells the consumer to ring when it gives cells back. It reports false if
// n bytes can be reserved already.
func (p *Producer) Wait(n int) bool {
	p.waiting.Store(1)
	if p.Reserve(n) != nil {
		p.waiting.Store(0)
		return false
	}
	return true
}

// Consumer is the receiving end. One goroutine at a time uses it.
type Consumer struct {
	memory
	current  *atomic.Uint64 // the next word
	want     uint32         // its lap, when it is there
	tail     uint64         // its position
	returned uint64         // what consumed says
	next     uint64         // position behind the frame that Next returned
}

// NewConsumer attaches the receiving end. It may come before or after the
// producer; the memory was zero when the ring was made.
func NewConsumer(header, cells []byte) *Consumer {
	c := &Consumer{memory: attach(header, cells), want: 1}
	c.current = c.word(0)
	return c
}

// Ready reports whether there is a frame, or something damaged. One load of a
// cache line that nobody writes while there is nothing.
func (c *Consumer) Ready() bool { return uint32(c.current.Load()) == c.want }

// Next returns the next frame, or nil if there is none. The frame is valid until
// Release. An error means that the producer wrote nonsense: the ring can't be
// used any more.
func (c *Consumer) Next() ([]byte, error) {
	w := c.current.Load()
	if uint32(w) != c.want {
		return nil, nil
	}
	length := w >> 32
	// One comparison for both: lengths begin at 1, and padding is beyond limit.
	if length-1 >= c.limit || c.tail&(c.n-1)+cellsOf(length) > c.n {
		return c.nextAfterPadding(length)
	}
	c.next = c.tail + cellsOf(length)
	return c.frame(c.tail, length), nil
}

// nextAfterPadding is Next for a word that is padding, or damaged.
func (c *Consumer) nextAfterPadding(length uint64) ([]byte, error) {
	pos := c.tail
	if length == lengthPad {
		pos = (pos | (c.n - 1)) + 1
		w := c.word(pos).Load()
		if uint32(w) != c.lap(pos) {
			return nil, fmt.Errorf("ring: padding at cell %d leads to no frame", c.tail&(c.n-1))
		}
		length = w >> 32
	}
	if length-1 >= c.limit || pos&(c.n-1)+cellsOf(length) > c.n {
		return nil, fmt.Errorf("ring: cell %d claims a frame of %d bytes", pos&(c.n-1), length)
	}
	c.next = pos + cellsOf(length)
	return c.frame(pos, length), nil
}

// Release gives the frame that Next returned back. It reports whether the
// producer sleeps and must be rung now. Cells are given back a quarter of the
// ring at a time: one atomic store per that many.
func (c *Consumer) Release() (ring bool) {
	c.tail = c.next
	c.current, c.want = c.word(c.tail), c.lap(c.tail)
	if c.tail-c.returned < c.n/4 {
		return false
	}
	return c.giveBack()
}

func (c *Consumer) giveBack() (ring bool) {
	c.returned = c.tail
	c.consumed.Store(c.tail)
	if c.waiting.Load() == 0 {
		return false
	}
	c.waiting.Store(0)
	return true
}
