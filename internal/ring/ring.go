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
// the only atomic operation per frame, and a small frame needs one cache line, which
// goes to the consumer once: word and bytes leave together (cpu.Store64). The producer does not
// wait for that. When it looks next whether the consumer sleeps, what it sees may be older than
// the frame; so the consumer looks once more when it has slept for a moment (progress.Lagging).
// The consumer knows the position where the next word will be, and that it is
// there when its lap is right.
//
// A frame is contiguous: one that doesn't fit before the end of the ring is
// preceded by a padding word and begins at the first cell. The producer may go to
// the first cell earlier (see turn).
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
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/ferrympi/ferry/internal/cpu"
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

// FrameLimit returns the largest frame that a ring of n cells carries: with a
// quarter that the consumer has not given back yet, and as much padding before the
// end of the ring, a frame always fits when everything has been read.
func FrameLimit(n int) int { return n/4*CellSize - WordSize }

type memory struct {
	base     unsafe.Pointer // first cell
	size     uint64         // bytes of cells
	limit    uint64         // largest frame
	consumed *atomic.Uint64
	waiting  *atomic.Uint32
}

// Check says what keeps memory from being a ring: header and cells are aligned to a
// cache line; the number of cells is a power of two, and at least MinCells.
func Check(header, cells []byte) error {
	n := len(cells) / CellSize
	if len(cells)%CellSize != 0 || n < MinCells || n&(n-1) != 0 {
		return fmt.Errorf("ring: %d bytes of cells: not a power of two of at least %d", len(cells), MinCells*CellSize)
	}
	if len(header) < HeaderSize {
		return fmt.Errorf("ring: a header of %d bytes, not %d", len(header), HeaderSize)
	}
	h, p := unsafe.Pointer(unsafe.SliceData(header)), unsafe.Pointer(unsafe.SliceData(cells))
	if uintptr(h)%CellSize != 0 || uintptr(p)%CellSize != 0 {
		return errors.New("ring: memory is not aligned to a cell")
	}
	return nil
}

// attach panics if Check finds something. The memory must stay mapped.
func attach(header, cells []byte) memory {
	if err := Check(header, cells); err != nil {
		panic(err)
	}
	n := len(cells) / CellSize
	h, p := unsafe.Pointer(unsafe.SliceData(header)), unsafe.Pointer(unsafe.SliceData(cells))
	return memory{
		base:     p,
		size:     uint64(len(cells)),
		limit:    uint64(FrameLimit(n)),
		consumed: (*atomic.Uint64)(unsafe.Add(h, offConsumed)),
		waiting:  (*atomic.Uint32)(unsafe.Add(h, offWaiting)),
	}
}

// word returns the word of the cell that begins at a byte of the ring.
func (m *memory) word(at uint64) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(m.base, at)) }

// at64 returns the word of the cell that begins at a byte of the ring, for plain stores.
func (m *memory) at64(at uint64) *uint64 { return (*uint64)(unsafe.Add(m.base, at)) }

// frame returns the n bytes behind the word at a byte of the ring. The caller
// knows that they end before the ring does.
func (m *memory) frame(at, n uint64) []byte {
	return (*[1 << 30]byte)(unsafe.Add(m.base, at+WordSize))[:n:n]
}

// nextLap returns the number of the lap behind lap. 0 is no lap: it is what a
// cleared word says.
func nextLap(lap uint32) uint32 { return max(lap+1, 1) }

// span returns the bytes of the cells that a frame of n bytes takes.
func span(n uint64) uint64 { return (n + WordSize + CellSize - 1) &^ (CellSize - 1) }

// Producer is the sending end. One goroutine at a time uses it. Positions count
// the bytes of all cells since the beginning; at is where in the ring that is.
type Producer struct {
	memory
	head uint64 // position of the next frame's word
	at   uint64
	lap  uint32
	room uint32 // bytes reserved; 0: nothing
	pad  uint64 // bytes before the reservation that are skipped
	end  uint64 // position that may not be written yet, as far as we know
	edge uint64 // place in the ring behind which large frames think of its beginning

	quick uint64 // larger frames that are Put go by putSlowly
	stores

	// From where to where in the ring there may be cells that hold payload in place of a
	// word: those behind the first one of a frame, until a frame begins there.
	dirtyFrom, dirtyTo uint64
}

// NewProducer attaches the sending end to an empty ring (zeroed memory).
// It must stay mapped as long as the Producer is used.
func NewProducer(header, cells []byte) *Producer {
	m := attach(header, cells)
	return &Producer{memory: m, lap: 1, end: m.size, edge: m.hot(), quick: min(m.limit, choiceFrom)}
}

// Reserve returns n bytes for the next frame, or nil if the consumer has not
// given back enough cells yet. 1 <= n <= FrameLimit.
func (p *Producer) Reserve(n int) []byte {
	need := span(uint64(n))
	end := p.at + need
	return p.reserve(n, need, end > p.size || end > p.edge && (need <= smallFrame || need >= largeFrame) && p.turn(need))
}

// ReserveWide is Reserve that goes to the end of the ring, whatever the frame's size. Small
// frames between such do not turn, either.
func (p *Producer) ReserveWide(n int) []byte {
	need := span(uint64(n))
	if p.at+need > p.edge {
		p.edge = p.size // until the next lap
	}
	return p.reserve(n, need, p.at+need > p.size)
}

// reserve is Reserve of need bytes of cells, at the beginning of the ring if the frame turns.
func (p *Producer) reserve(n int, need uint64, turns bool) []byte {
	at, pad := p.at, uint64(0)
	if turns {
		pad, at = p.size-at, 0
	}
	// One cell more, for the word behind.
	if p.head+pad+need >= p.end && !p.refresh(p.head+pad+need) {
		return nil
	}
	if uint64(n)-1 >= p.limit {
		panic("ring: frame too large")
	}
	p.pad, p.room = pad, uint32(n)
	return p.frame(at, uint64(n))
}

// Large frames come in streams, and go faster through memory that the caches of
// both cores hold on some processors: 64 KiB messages at 55 GB/s instead of 40 (EPYC of
// family 26). On others taking a line out of another core's cache costs more than to get it
// from where it goes when it has left that: 8 GB/s instead of 40 (family 25). So a large frame
// that is reserved (one that is Put is eager, and alone as a rule), and would end
// behind the edge, goes to the beginning of the ring if the consumer has given back
// enough there, and the ring is as short as the consumer is quick. So do the
// smallest, for the sake of short runs: the first lap through a long ring is the
// slow one. Those in between use all of it: they are faster in lines that nobody
// has looked at for long. ReserveWide is for a large frame that had better do so, too.
const (
	smallFrame = 1 << 10 // bytes
	largeFrame = 12 << 10
	hotBytes   = 256 << 10 // where the edge is at first
)

// hot returns where the edge is at the beginning of a lap.
func (m *memory) hot() uint64 { return min(m.size, hotBytes) }

// turn reports whether the next frame, a large one that would end behind the edge,
// goes to the beginning. If not, the edge moves on.
func (p *Producer) turn(need uint64) bool {
	p.end = p.consumed.Load()*CellSize + p.size
	// From the beginning of the next lap to the end: more than the frame, so that it
	// need not wait there for a consumer who has nothing left to give back.
	if room := int64(p.end - p.size + p.at - p.head); room > int64(need) && room >= int64(p.hot()/2) {
		return true
	}
	for p.edge < p.at+need {
		p.edge = min(p.edge+p.hot()/4, p.size)
	}
	return false
}

// Put is Reserve and Commit of a frame of three words, little-endian, and a
// payload. It reports false if there is no room.
func (p *Producer) Put(first, second, third uint64, payload []byte) bool {
	n := uint64(len(payload)) + 3*WordSize
	need := span(n)
	if p.at+need > p.size || p.at+need > p.edge && need <= smallFrame || p.head+need >= p.end || n > p.quick {
		return p.putSlowly(first, second, third, payload)
	}
	b := p.frame(p.at, n)
	h := (*[3 * WordSize]byte)(b)
	binary.LittleEndian.PutUint64(h[0:], first)
	binary.LittleEndian.PutUint64(h[WordSize:], second)
	binary.LittleEndian.PutUint64(h[2*WordSize:], third)
	cpu.CopyShared(b[3*WordSize:], payload)
	p.room = 0
	p.soil(p.at, need)
	p.publish(n)
	return true
}

// putSlowly is Put where the ring ends, the consumer has to be asked for room, or there is a
// choice of how to store the payload: that lies in all of the ring by turns.
func (p *Producer) putSlowly(first, second, third uint64, payload []byte) bool {
	n := len(payload) + 3*WordSize
	var b []byte
	if n > choiceFrom {
		b = p.ReserveWide(n)
	} else {
		b = p.Reserve(n)
	}
	if b == nil {
		return false
	}
	binary.LittleEndian.PutUint64(b[0:], first)
	binary.LittleEndian.PutUint64(b[WordSize:], second)
	binary.LittleEndian.PutUint64(b[2*WordSize:], third)
	p.store(b[3*WordSize:], payload)
	p.Commit(n)
	return true
}

// refresh looks how much the consumer has given back, and reports whether
// positions up to end can be written.
func (p *Producer) refresh(end uint64) bool {
	p.end = p.consumed.Load()*CellSize + p.size
	return end < p.end
}

// Commit publishes the first n bytes of the reservation. One store, and no barrier.
func (p *Producer) Commit(n int) {
	if uint(n)-1 >= uint(p.room) {
		panic("ring: commit without reservation")
	}
	written := span(uint64(p.room)) // perhaps more than is committed
	p.room = 0
	if p.pad != 0 {
		p.commitPadded(uint64(n), written)
		return
	}
	p.soil(p.at, written)
	p.publish(uint64(n))
}

// publish stores the word of a frame at the head, and moves the head behind it.
func (p *Producer) publish(n uint64) {
	at, lap := p.at, p.lap
	k := span(n)
	p.head += k
	if p.at += k; p.at == p.size {
		p.at, p.edge = 0, p.hot()
		p.lap = nextLap(p.lap)
	}
	// Payload may lie where the consumer will look for the next word.
	if p.at-p.dirtyFrom < p.dirtyTo-p.dirtyFrom {
		cpu.Store64(p.at64(p.at), 0)
	}
	if at == p.dirtyFrom {
		p.dirtyFrom = min(at+CellSize, p.dirtyTo)
	}
	cpu.Store64(p.at64(at), n<<32|uint64(lap))
	if k > CellSize {
		// The word that the next frame of this size clears: a store that waits for its line
		// keeps those behind it waiting. Frames of one cell clear nothing.
		cpu.PrefetchWrite(p.at64((p.at + k) & (p.size - 1)))
	}
}

// soil says that a frame's bytes lie in the k bytes of cells at a place.
func (p *Producer) soil(at, k uint64) {
	if k <= CellSize {
		return
	}
	from, to := at+CellSize, at+k
	if p.dirtyFrom < p.dirtyTo {
		from, to = min(p.dirtyFrom, from), max(p.dirtyTo, to)
	}
	p.dirtyFrom, p.dirtyTo = from, to
}

// commitPadded publishes a frame at the first cell, and then the padding that
// leads to it.
func (p *Producer) commitPadded(n, written uint64) {
	word, lap := p.word(p.at), p.lap
	p.head += p.pad
	p.at, p.lap, p.edge = 0, nextLap(p.lap), p.hot()
	p.soil(0, written)
	p.publish(n)
	word.Store(lengthPad<<32 | uint64(lap))
}

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
	at       uint64         // its place in the ring
	tail     uint64         // its position, in bytes since the beginning
	returned uint64         // the position that was given back
	taken    uint64         // bytes of cells of the frame that Next returned
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
	if f := c.take(w >> 32); f != nil {
		return f, nil
	}
	return c.skip(w >> 32)
}

// take returns the next frame, which has n bytes, or nil if none has so many.
func (c *Consumer) take(n uint64) []byte {
	// One comparison for both: lengths begin at 1, and padding is beyond limit.
	k := span(n)
	if n-1 >= c.limit || c.at+k > c.size {
		return nil
	}
	c.taken = k
	return c.frame(c.at, n)
}

// Peek is Next that looks up to that many times, a Pause apart, and leaves it to Next to tell
// of damage.
func (c *Consumer) Peek(looks int) []byte {
	for range looks {
		if w := c.current.Load(); uint32(w) == c.want {
			if f := c.take(w >> 32); f != nil {
				return f
			}
			frame, _ := c.skip(w >> 32)
			return frame
		}
		cpu.Pause()
	}
	return nil
}

// skip is Next for a word that is padding, or damaged.
func (c *Consumer) skip(n uint64) ([]byte, error) {
	if n != lengthPad || c.at == 0 {
		return nil, fmt.Errorf("ring: cell %d claims a frame of %d bytes", c.at/CellSize, n)
	}
	if uint32(c.word(0).Load()) != nextLap(c.want) {
		return nil, fmt.Errorf("ring: padding at cell %d leads to no frame", c.at/CellSize)
	}
	c.taken = c.size - c.at
	c.advance()
	return c.Next()
}

// advance moves behind the frame.
func (c *Consumer) advance() {
	c.tail += c.taken
	if c.at += c.taken; c.at == c.size {
		c.at, c.want = 0, nextLap(c.want)
	}
	c.current = c.word(c.at)
}

// Release gives the frame that Next returned back. It reports whether the
// producer sleeps and must be rung now. Cells are given back a quarter of the
// ring at a time, or of what is hot: one atomic store per that many.
func (c *Consumer) Release() (ring bool) {
	c.advance()
	return c.tail-c.returned >= c.hot()/4 && c.giveBack()
}

func (c *Consumer) giveBack() (ring bool) {
	c.returned = c.tail
	c.consumed.Store(c.tail / CellSize)
	if c.waiting.Load() == 0 {
		return false
	}
	c.waiting.Store(0)
	return true
}
