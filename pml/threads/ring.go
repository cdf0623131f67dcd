package threads

import (
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/internal/cpu"
)

const (
	ringCells = 64
	// inlineMax is the longest payload in a cell, in bytes.
	inlineMax = 40
	// cellsPerRelease is the number of consumed cells that are returned to the producers by one
	// store, since each store costs the producers a cache miss.
	cellsPerRelease = 16
)

// kind is the type of a cell.
type kind uint8

const (
	// kindInline is a message with its payload in the cell.
	kindInline kind = iota
	// kindEager is a message with its payload in a pooled message.
	kindEager
	// kindOffer is a message with its payload in the buffer of a send.
	kindOffer
	// kindWithdrawn reports that the sender has withdrawn an offer, and no longer uses it.
	kindWithdrawn
	// kindAssist allows the rank to copy chunks of its own offer.
	kindAssist
	// kindReceived reports that the payload of a matched offer is in the receive's buffer.
	kindReceived
	// kindSent reports that the payload of an offer is no longer needed.
	kindSent
	// kindDropped reports that the receiver has dropped the message of an offer.
	kindDropped
	// kindReturn withdraws an offer that a watcher has.
	kindReturn
	// kindReturned reports that the receiver has returned the offer.
	kindReturned
)

// header is the word of a cell without its lap. It has the kind, the plane and the length of an inline payload.
type header uint32

func makeHeader(k kind, plane, length int) header {
	return header(k) | header(plane)<<8 | header(length)<<16
}

func (h header) kind() kind  { return kind(h) }
func (h header) plane() int  { return int(h >> 8 & 0xff) }
func (h header) length() int { return int(h >> 16) }

// cell is one cache line. It has no pointers, so that the allocator aligns a ring's cells.
type cell struct {
	// lap<<32 | header, stored last to publish the cell.
	word       uint64
	teamCommID uint64
	// The sender's rank in the communicator.
	source  int32
	tag     int32
	payload [inlineMax]byte
}

func (c *cell) header() header { return header(c.word) }

// spilled is a cell of the overflow list.
type spilled struct {
	cell
	large *message
}

// ring is a bounded queue of cells with many producers, and one consumer at a time, the holder of the
// rank's lock. Positions count cells from the ring's start and never wrap. A producer owns a cell from
// the claim to the store of word. Then the consumer owns it until consumedPosition has passed it.
//
// The store that publishes a cell is no barrier, but the claim before it is. So a consumer
// that stores a word and then finds tail equal to head knows that every producer which
// claims a cell later sees that word.
type ring struct {
	cells *[ringCells]cell
	// cellMessages has the pointers that belong to the cells of the same index.
	cellMessages *[ringCells]*message

	_ [64]byte
	// Fields of the producers. Cells before claimLimit are free to claim. claimLimit may be too low.
	tail       atomic.Uint64 // Position of the next cell to claim.
	claimLimit atomic.Uint64

	_ [64]byte
	// Position of the oldest cell in use; written by the consumer, atomic.
	consumedPosition uint64

	_ [64]byte
	// Fields of the consumer.
	head uint64 // Position of the next cell to consume.
	// Value of consumedPosition.
	releasedPosition uint64
	// Number of overflow lists.
	consumedLists uint64
	spareList     []spilled

	_ [64]byte
	// Shared and rarely written.
	isSpilling atomic.Uint32 // 1 while the overflow list is not empty, so that producers append to it.

	// A leaf, which guards overflowList.
	mu           sync.Mutex
	overflowList []spilled
}

func (q *ring) init() {
	q.cells, q.cellMessages = new([ringCells]cell), new([ringCells]*message)
	q.claimLimit.Store(ringCells)
}

// put publishes a cell. It returns false if the ring is full or messages overflow. payload is that of an
// inline message.
func (q *ring) put(h header, comm uint64, source, tag int32, payload []byte, large *message) bool {
	if q.isSpilling.Load() != 0 {
		return false
	}
	pos := q.tail.Load()
	for {
		if pos >= q.claimLimit.Load() && !q.refill(pos) {
			return false
		}
		if q.tail.CompareAndSwap(pos, pos+1) {
			break
		}
		pos = q.tail.Load()
	}
	c := &q.cells[pos%ringCells]
	c.teamCommID, c.source, c.tag = comm, source, tag
	if large != nil {
		q.cellMessages[pos%ringCells] = large
	} else {
		copy(c.payload[:], payload)
	}
	cpu.Store64(&c.word, lap(pos)<<32|uint64(h))
	return true
}

// refill raises limit to the consumer's position, and reports whether the cell at pos is free.
func (q *ring) refill(pos uint64) bool {
	limit := atomic.LoadUint64(&q.consumedPosition) + ringCells
	if pos >= limit {
		return false
	}
	q.claimLimit.Store(limit)
	return true
}

// lap distinguishes the uses of a cell. It is not 0 in the first ones, so that a zero word is an
// unused cell.
func lap(pos uint64) uint64 { return pos/ringCells + 1 }

// spill appends a cell to the overflow list. Cells that a producer puts later follow it.
func (q *ring) spill(h header, comm uint64, source, tag int32, payload []byte, large *message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.isSpilling.Store(1)
	q.overflowList = append(q.overflowList, spilled{cell: cell{word: uint64(h), teamCommID: comm, source: source, tag: tag}, large: large})
	if large == nil {
		copy(q.overflowList[len(q.overflowList)-1].payload[:], payload)
	}
}

// peek returns the next published cell, or nil.
func (q *ring) peek() *cell {
	c := &q.cells[q.head%ringCells]
	if atomic.LoadUint64(&c.word)>>32 != lap(q.head)&0xffffffff {
		return nil
	}
	return c
}

// pointer returns and clears the pointer of the cell that peek has returned.
func (q *ring) pointer() *message {
	at := &q.cellMessages[q.head%ringCells]
	m := *at
	*at = nil
	return m
}

// advance returns the cell of peek to the producers.
func (q *ring) advance() {
	if q.head++; q.head-q.releasedPosition >= cellsPerRelease {
		q.release()
	}
}

// release makes all consumed cells free to claim.
func (q *ring) release() {
	if q.head != q.releasedPosition {
		q.releasedPosition = q.head
		cpu.Store64(&q.consumedPosition, q.head)
	}
}

// takeSpilled returns the overflow list, if no cell of the ring is before it. The list is valid until
// recycle, which the caller calls next.
func (q *ring) takeSpilled() []spilled {
	if q.isSpilling.Load() == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tail.Load() != q.head {
		return nil
	}
	list := q.overflowList
	q.overflowList, q.spareList = q.spareList, nil
	q.consumedLists++
	q.isSpilling.Store(0)
	return list
}

// spareMax is the number of entries of an overflow list that are kept for reuse.
const spareMax = 1024

func (q *ring) recycle(list []spilled) {
	if cap(list) <= spareMax {
		clear(list)
		q.spareList = list[:0]
	}
}

// backlog is a position behind the cells that were claimed before a call, and behind the
// overflow list that existed then.
type backlog struct{ tail, lists uint64 }

func (q *ring) backlog() backlog {
	b := backlog{q.tail.Load(), q.consumedLists}
	if q.isSpilling.Load() != 0 {
		b.lists++
	}
	return b
}

// isConsumed reports whether the consumer has passed the backlog.
func (q *ring) isConsumed(b backlog) bool { return q.head >= b.tail && q.consumedLists >= b.lists }

// hasCells reports whether a producer has claimed a cell that is not consumed, or messages
// overflow.
func (q *ring) hasCells() bool {
	return q.tail.Load() != q.head || q.isSpilling.Load() != 0
}
