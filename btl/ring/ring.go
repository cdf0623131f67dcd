// Package ring implements a single-producer, single-consumer ring of 64-byte cells for frames, in
// Go memory or in shared memory. docs/wire.md describes the layout byte by byte.
//
// A ring has a header and cells, both zeroed and aligned to a cache line. The consumer owns the
// cells of published frames until it returns them in batches; the producer owns all others. A
// frame in shared memory is read in place, and a malicious peer may change its bytes at any time.
//
// A frame costs one atomic store, and a small frame one cache line. No call blocks or wakes the
// other end; see progress.Bell for sleeping processes.
package ring

import (
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/ring"
)

const (
	// CellSize is the size of a cell, a cache line, in bytes.
	CellSize = ring.CellSize
	// HeaderSize is the size of a ring's header in bytes.
	HeaderSize = ring.HeaderSize
	// MinCells is the smallest number of cells. The number of cells is a power of two.
	MinCells = ring.MinCells
)

// FrameLimit returns the size of the largest frame of a ring with that many cells, in bytes.
func FrameLimit(cells int) int { return ring.FrameLimit(cells) }

// New returns a ring in Go memory, for frames within one process. cells is a power of two of at
// least MinCells.
func New(cells int) (*Producer, *Consumer) {
	header, memory := ring.OnHeap(cells)
	return (*Producer)(ring.NewProducer(header, memory)), (*Consumer)(ring.NewConsumer(header, memory))
}

// Producer is the sending end. It is not safe for concurrent use.
type Producer ring.Producer

// NewProducer attaches the sending end to an empty ring. The memory must outlive the Producer. An
// error describes invalid memory.
func NewProducer(header, cells []byte) (*Producer, error) {
	if err := ring.Check(header, cells); err != nil {
		return nil, err
	}
	return (*Producer)(ring.NewProducer(header, cells)), nil
}

// Reserve returns n bytes (1 <= n <= FrameLimit) for the next frame, or nil if the consumer has not
// returned enough cells. The caller owns the bytes until Commit or the next Reserve.
func (p *Producer) Reserve(n int) []byte { return (*ring.Producer)(p).Reserve(n) }

// ReserveWide is Reserve for a stream of large frames through the whole ring. Reserve wraps early
// for large frames if the consumer keeps up, which is faster on some processors and slower on
// others.
func (p *Producer) ReserveWide(n int) []byte { return (*ring.Producer)(p).ReserveWide(n) }

// Commit publishes the first n bytes of the last reservation, which then belong to the consumer. A
// later check for a sleeping consumer is ordered after it. It panics without a reservation of at
// least n bytes.
func (p *Producer) Commit(n int) {
	(*ring.Producer)(p).Commit(n)
	cpu.Barrier()
}

// SendShort sends a frame of a header and a copy of payload. It reports false without effect if
// there is no room.
func (p *Producer) SendShort(h btl.ShortHeader, payload []byte) bool {
	ok := (*ring.Producer)(p).Put(h.First, h.Second, h.Third, payload)
	cpu.Barrier()
	return ok
}

// Wait makes the next Release that returns cells report true, so that the producer can sleep. It
// reports false if n bytes are available.
func (p *Producer) Wait(n int) bool { return (*ring.Producer)(p).Wait(n) }

// Consumer is the receiving end. It is not safe for concurrent use.
type Consumer ring.Consumer

// NewConsumer attaches the receiving end, before or after the producer. The memory must outlive the
// Consumer.
func NewConsumer(header, cells []byte) (*Consumer, error) {
	if err := ring.Check(header, cells); err != nil {
		return nil, err
	}
	return (*Consumer)(ring.NewConsumer(header, cells)), nil
}

// Ready reports whether Next returns a frame or an error.
func (c *Consumer) Ready() bool { return (*ring.Consumer)(c).Ready() }

// Next returns the next frame, valid until Release, or nil if there is none. After an error, the
// result of an invalid word of the producer, the ring is unusable.
func (c *Consumer) Next() ([]byte, error) { return (*ring.Consumer)(c).Next() }

// Peek is Next with up to that many polls and a pause in between. It leaves errors to Next.
func (c *Consumer) Peek(polls int) []byte { return (*ring.Consumer)(c).Peek(polls) }

// Release ends the use of the frame of the last Next or Peek. It reports whether the producer sleeps
// for cells and must be woken.
func (c *Consumer) Release() (wake bool) { return (*ring.Consumer)(c).Release() }
