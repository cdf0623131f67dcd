// Package ring implements a single-producer, single-consumer ring of 64-byte cells for frames
// between two processes. Its memory is a mapped segment, or the Go heap, where the race
// detector observes it.
//
// # Layout
//
// All numbers are little-endian. docs/wire.md describes the same layout with the segment around
// it. A ring has a header of two cache lines,
//
//	 0  u64 consumed   cells returned, written by the consumer
//	64  u32 waiting    1 while the producer sleeps for cells, written by the producer
//
// and a separate array of cells, a power of two of 64 bytes each.
//
// A frame starts at a cell with a word of 8 bytes. Its bytes follow, contiguous over the next
// cells:
//
//	0  u32 lap     lap in which the cell was written, starting at 1
//	4  u32 length  length of the frame in bytes, or lengthPad before a wrap
//	8  frame
//
// The store of the word publishes the frame. It is the last store and the only atomic operation
// per frame. A small frame occupies one cache line, which moves to the consumer once with word
// and bytes (cpu.Store64). The producer does not wait for the store, so that its next check
// for a sleeping consumer may precede the frame. Therefore the consumer polls again after a
// short sleep (progress.Lagging). The consumer polls the position of the next word for the
// expected lap.
//
// A frame that does not fit before the end of the ring starts at the first cell, after a padding
// word. The producer may wrap earlier (see shouldWrap).
//
// Payload in the middle of a frame may occupy the position of a word in a later lap, with
// arbitrary bytes. Therefore the producer clears the word after a frame before it publishes the
// frame, if payload may be there.
//
// The consumer owns the published cells from consumed to the producer's position. The producer
// owns all others and leaves one cell free for the cleared word.
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
	// CellSize is the size of a cell and of a cache line.
	CellSize = 64
	// HeaderSize is the size of a ring header in bytes.
	HeaderSize = 2 * CellSize
	// WordSize is the size of the word before a frame.
	WordSize = 8
	// MinCells is the smallest number of cells.
	MinCells = 64

	offConsumed = 0
	offWaiting  = 64

	lengthPad = 0xFFFFFFFF
)

// FrameLimit returns the largest frame of a ring of n cells in bytes. After all frames are
// consumed, such a frame fits despite a quarter of the ring not yet returned and a quarter of
// padding.
func FrameLimit(n int) int { return n/4*CellSize - WordSize }

type memory struct {
	base     unsafe.Pointer // First cell.
	size     uint64         // Cells in bytes.
	maxFrame uint64
	consumed *atomic.Uint64
	waiting  *atomic.Uint32
}

// Check validates the memory of a ring. Header and cells must be aligned to a cache line, and
// the number of cells must be a power of two of at least MinCells.
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

// attach panics on memory that Check rejects. The memory must stay mapped.
func attach(header, cells []byte) memory {
	if err := Check(header, cells); err != nil {
		panic(err)
	}
	n := len(cells) / CellSize
	h, p := unsafe.Pointer(unsafe.SliceData(header)), unsafe.Pointer(unsafe.SliceData(cells))
	return memory{
		base:     p,
		size:     uint64(len(cells)),
		maxFrame: uint64(FrameLimit(n)),
		consumed: (*atomic.Uint64)(unsafe.Add(h, offConsumed)),
		waiting:  (*atomic.Uint32)(unsafe.Add(h, offWaiting)),
	}
}

// word returns the word of the cell at a byte offset.
func (m *memory) word(at uint64) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Add(m.base, at)) }

// plainWord returns the word of the cell at a byte offset for non-atomic stores.
func (m *memory) plainWord(at uint64) *uint64 { return (*uint64)(unsafe.Add(m.base, at)) }

// frame returns the n bytes after the word at a byte offset. The caller checks their end
// against that of the ring.
func (m *memory) frame(at, n uint64) []byte {
	return (*[1 << 30]byte)(unsafe.Add(m.base, at+WordSize))[:n:n]
}

// nextLap returns the lap after lap. It skips 0, the lap of a cleared word.
func nextLap(lap uint32) uint32 { return max(lap+1, 1) }

// span returns the size of the cells of a frame of n bytes, in bytes.
func span(n uint64) uint64 { return (n + WordSize + CellSize - 1) &^ (CellSize - 1) }

// Producer is the sending end. It is not safe for concurrent use. Positions count the bytes of
// all laps; offsets are relative to the first cell.
type Producer struct {
	memory
	// Position of the next word.
	head uint64
	// Offset of the next word.
	offset uint64
	lap    uint32
	// Reserved bytes, 0 without a reservation.
	reserved uint32
	// Bytes skipped before the reservation.
	padding uint64
	// First position that the consumer is not known to have returned.
	writableEnd uint64
	// Offset from which small and large frames prefer to wrap.
	softEnd uint64

	// Largest frame of the fast path of Put.
	fastPutLimit uint64
	storeSelector

	// Cells between these offsets may hold payload in place of a word.
	dirtyFrom, dirtyTo uint64
}

// NewProducer attaches the sending end to zeroed memory, which must stay mapped during the use
// of the Producer.
func NewProducer(header, cells []byte) *Producer {
	m := attach(header, cells)
	return &Producer{memory: m, lap: 1, writableEnd: m.size, softEnd: m.hotSize(), fastPutLimit: min(m.maxFrame, selectFrom)}
}

// Reserve returns n bytes for the next frame, or nil if the consumer has not returned enough
// cells. 1 <= n <= FrameLimit.
func (p *Producer) Reserve(n int) []byte {
	need := span(uint64(n))
	end := p.offset + need
	return p.reserve(n, need, end > p.size || end > p.softEnd && (need <= smallFrame || need >= largeFrame) && p.shouldWrap(need))
}

// ReserveWide is Reserve through the whole ring for any size of frame. Small frames in the same
// lap do not wrap early either.
func (p *Producer) ReserveWide(n int) []byte {
	need := span(uint64(n))
	if p.offset+need > p.softEnd {
		p.softEnd = p.size // Until the next lap.
	}
	return p.reserve(n, need, p.offset+need > p.size)
}

// reserve reserves need bytes of cells, from the first cell if the frame wraps.
func (p *Producer) reserve(n int, need uint64, wraps bool) []byte {
	at, pad := p.offset, uint64(0)
	if wraps {
		pad, at = p.size-at, 0
	}
	// One more cell holds the next word.
	if p.head+pad+need >= p.writableEnd && !p.pollConsumed(p.head+pad+need) {
		return nil
	}
	if uint64(n)-1 >= p.maxFrame {
		panic("ring: frame too large")
	}
	p.padding, p.reserved = pad, uint32(n)
	return p.frame(at, uint64(n))
}

// Reserved large frames wrap at softEnd if the consumer has returned enough cells, so that the
// working set follows the speed of the consumer. Streams are faster through memory in the caches
// of both cores on some processors, with 55 instead of 40 GB/s for messages of 64 KiB (EPYC of
// family 26). On others a line in another core's cache costs more than a line from memory, with
// 8 instead of 40 GB/s (family 25); ReserveWide is for those. Small frames wrap too, since the
// first lap through a long ring is slow. Frames of other sizes, and large ones of Put, use the
// whole ring. They are faster in lines that were not accessed recently. Sizes are in bytes.
const (
	smallFrame = 1 << 10
	largeFrame = 12 << 10
	hotBytes   = 256 << 10
)

// hotSize returns softEnd at the start of a lap.
func (m *memory) hotSize() uint64 { return min(m.size, hotBytes) }

// shouldWrap reports whether a frame that ends after softEnd starts at the first cell.
// Otherwise it advances softEnd.
func (p *Producer) shouldWrap(need uint64) bool {
	p.writableEnd = p.consumed.Load()*CellSize + p.size
	// The room at the start of the next lap exceeds the frame. Otherwise the producer could
	// wait there for a consumer without cells to return.
	if room := int64(p.writableEnd - p.size + p.offset - p.head); room > int64(need) && room >= int64(p.hotSize()/2) {
		return true
	}
	for p.softEnd < p.offset+need {
		p.softEnd = min(p.softEnd+p.hotSize()/4, p.size)
	}
	return false
}

// Put sends a frame of three little-endian words and a payload. It reports false if there is no
// room.
func (p *Producer) Put(first, second, third uint64, payload []byte) bool {
	n := uint64(len(payload)) + 3*WordSize
	need := span(n)
	if p.offset+need > p.size || p.offset+need > p.softEnd && need <= smallFrame || p.head+need >= p.writableEnd || n > p.fastPutLimit {
		return p.putSlow(first, second, third, payload)
	}
	b := p.frame(p.offset, n)
	h := (*[3 * WordSize]byte)(b)
	binary.LittleEndian.PutUint64(h[0:], first)
	binary.LittleEndian.PutUint64(h[WordSize:], second)
	binary.LittleEndian.PutUint64(h[2*WordSize:], third)
	cpu.CopyShared(b[3*WordSize:], payload)
	p.reserved = 0
	p.markDirty(p.offset, need)
	p.publish(n)
	return true
}

// putSlow is Put at the end of the ring, without known room, or with a selectable kind of
// stores, which uses the whole ring.
func (p *Producer) putSlow(first, second, third uint64, payload []byte) bool {
	n := len(payload) + 3*WordSize
	var b []byte
	if n > selectFrom {
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
	p.copyPayload(b[3*WordSize:], payload)
	p.Commit(n)
	return true
}

// pollConsumed loads the returned cells and reports whether positions up to end are writable.
func (p *Producer) pollConsumed(end uint64) bool {
	p.writableEnd = p.consumed.Load()*CellSize + p.size
	return end < p.writableEnd
}

// Commit publishes the first n bytes of the reservation, with one store and no barrier.
func (p *Producer) Commit(n int) {
	if uint(n)-1 >= uint(p.reserved) {
		panic("ring: commit without reservation")
	}
	written := span(uint64(p.reserved)) // The caller may commit less than it wrote.
	p.reserved = 0
	if p.padding != 0 {
		p.commitPadded(uint64(n), written)
		return
	}
	p.markDirty(p.offset, written)
	p.publish(uint64(n))
}

// publish stores the word of a frame at head and advances head.
func (p *Producer) publish(n uint64) {
	at, lap := p.offset, p.lap
	k := span(n)
	p.head += k
	if p.offset += k; p.offset == p.size {
		p.offset, p.softEnd = 0, p.hotSize()
		p.lap = nextLap(p.lap)
	}
	// Clear payload at the position of the next word.
	if p.offset-p.dirtyFrom < p.dirtyTo-p.dirtyFrom {
		cpu.Store64(p.plainWord(p.offset), 0)
	}
	if at == p.dirtyFrom {
		p.dirtyFrom = min(at+CellSize, p.dirtyTo)
	}
	cpu.Store64(p.plainWord(at), n<<32|uint64(lap))
	if k > CellSize {
		// Prefetch the word that the next frame of this size clears. A store that waits for its
		// line delays later stores. Frames of one cell clear no word.
		cpu.PrefetchWrite(p.plainWord((p.offset + k) & (p.size - 1)))
	}
}

// markDirty records payload in the k bytes of cells at an offset.
func (p *Producer) markDirty(at, k uint64) {
	if k <= CellSize {
		return
	}
	from, to := at+CellSize, at+k
	if p.dirtyFrom < p.dirtyTo {
		from, to = min(p.dirtyFrom, from), max(p.dirtyTo, to)
	}
	p.dirtyFrom, p.dirtyTo = from, to
}

// commitPadded publishes a frame at the first cell, then the padding before it.
func (p *Producer) commitPadded(n, written uint64) {
	word, lap := p.word(p.offset), p.lap
	p.head += p.padding
	p.offset, p.lap, p.softEnd = 0, nextLap(p.lap), p.hotSize()
	p.markDirty(0, written)
	p.publish(n)
	word.Store(lengthPad<<32 | uint64(lap))
}

// Wait requests a ring of the doorbell when the consumer returns cells. It reports false if n
// bytes are available.
func (p *Producer) Wait(n int) bool {
	p.waiting.Store(1)
	if p.Reserve(n) != nil {
		p.waiting.Store(0)
		return false
	}
	return true
}

// Consumer is the receiving end. It is not safe for concurrent use.
type Consumer struct {
	memory
	nextWord *atomic.Uint64
	// Lap of the next word once it is published.
	lap uint32
	// Offset of the next word.
	offset uint64
	// Position of the next word.
	tail uint64
	// Position up to which cells are returned.
	returned uint64
	// Cells of the frame that Next returned, in bytes.
	frameSpan uint64
}

// NewConsumer attaches the receiving end, before or after the producer.
func NewConsumer(header, cells []byte) *Consumer {
	c := &Consumer{memory: attach(header, cells), lap: 1}
	c.nextWord = c.word(0)
	return c
}

// Ready reports whether the next word is published. It costs one load of a cache line that is
// not written in between.
func (c *Consumer) Ready() bool { return uint32(c.nextWord.Load()) == c.lap }

// Next returns the next frame, or nil if there is none. The frame is valid until Release. After
// an error, the result of an invalid word of the producer, the ring is unusable.
func (c *Consumer) Next() ([]byte, error) {
	w := c.nextWord.Load()
	if uint32(w) != c.lap {
		return nil, nil
	}
	if f := c.takeFrame(w >> 32); f != nil {
		return f, nil
	}
	return c.skipPadding(w >> 32)
}

// takeFrame returns the next frame of n bytes, or nil if n is invalid.
func (c *Consumer) takeFrame(n uint64) []byte {
	// One comparison rejects 0 and lengthPad.
	k := span(n)
	if n-1 >= c.maxFrame || c.offset+k > c.size {
		return nil
	}
	c.frameSpan = k
	return c.frame(c.offset, n)
}

// Peek is Next with a number of polls, a cpu.Pause apart. It leaves errors to Next.
func (c *Consumer) Peek(polls int) []byte {
	for range polls {
		if w := c.nextWord.Load(); uint32(w) == c.lap {
			if f := c.takeFrame(w >> 32); f != nil {
				return f
			}
			frame, _ := c.skipPadding(w >> 32)
			return frame
		}
		cpu.Pause()
	}
	return nil
}

// skipPadding is Next for a word with padding or an invalid length.
func (c *Consumer) skipPadding(n uint64) ([]byte, error) {
	if n != lengthPad || c.offset == 0 {
		return nil, fmt.Errorf("ring: cell %d claims a frame of %d bytes", c.offset/CellSize, n)
	}
	if uint32(c.word(0).Load()) != nextLap(c.lap) {
		return nil, fmt.Errorf("ring: padding at cell %d leads to no frame", c.offset/CellSize)
	}
	c.frameSpan = c.size - c.offset
	c.advance()
	return c.Next()
}

// advance moves to the next word.
func (c *Consumer) advance() {
	c.tail += c.frameSpan
	if c.offset += c.frameSpan; c.offset == c.size {
		c.offset, c.lap = 0, nextLap(c.lap)
	}
	c.nextWord = c.word(c.offset)
}

// Release ends the use of the frame that Next returned. It reports whether the producer sleeps
// and must be woken. Cells are returned in batches of a quarter of the hot part of the ring,
// with one atomic store per batch.
func (c *Consumer) Release() (mustRing bool) {
	c.advance()
	return c.tail-c.returned >= c.hotSize()/4 && c.returnCells()
}

func (c *Consumer) returnCells() (mustRing bool) {
	c.returned = c.tail
	c.consumed.Store(c.tail / CellSize)
	if c.waiting.Load() == 0 {
		return false
	}
	c.waiting.Store(0)
	return true
}
