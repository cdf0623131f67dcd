// Package ring carries frames from one sender to one receiver, through Go memory or
// through memory that processes share: a single-producer, single-consumer ring of
// 64-byte cells. docs/wire.md has it byte by byte.
//
// A ring is a header and cells, both aligned to a cache line and zero at first. Cells
// that hold published frames belong to the consumer until it gives them back, in
// batches; all others are the producer's. A frame that is read in place is shared
// memory: whoever writes there can change its bytes at any time.
//
// A frame costs one atomic store, and a small one one cache line. Nothing blocks, and
// nobody is woken: whoever sleeps is rung by other means (progress.Bell).
package ring

import (
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/ring"
)

const (
	// CellSize is the size of a cell in bytes: a cache line.
	CellSize = ring.CellSize
	// HeaderSize is the size of a ring's header in bytes.
	HeaderSize = ring.HeaderSize
	// MinCells is the number of cells of the smallest ring; all have a power of two.
	MinCells = ring.MinCells
)

// FrameLimit returns the size in bytes of the largest frame that a ring of that many
// cells carries.
func FrameLimit(cells int) int { return ring.FrameLimit(cells) }

// New makes a ring in Go memory, for frames within one process. cells is a power of two,
// and at least MinCells.
func New(cells int) (*Producer, *Consumer) {
	header, memory := ring.OnHeap(cells)
	return (*Producer)(ring.NewProducer(header, memory)), (*Consumer)(ring.NewConsumer(header, memory))
}

// Producer is the sending end. One goroutine at a time uses it.
type Producer ring.Producer

// NewProducer attaches the sending end to an empty ring. The memory stays where it is
// as long as the Producer is used. An error says what is wrong with it.
func NewProducer(header, cells []byte) (*Producer, error) {
	if err := ring.Check(header, cells); err != nil {
		return nil, err
	}
	return (*Producer)(ring.NewProducer(header, cells)), nil
}

// Reserve returns n bytes (1 <= n <= FrameLimit) for the next frame, which are the
// caller's until Commit or another Reserve; nil while the consumer has not given back
// enough cells.
func (p *Producer) Reserve(n int) []byte { return (*ring.Producer)(p).Reserve(n) }

// ReserveWide is Reserve for one of a stream of large frames, which goes through all of the
// ring. Reserve takes large frames to the beginning early, if the consumer keeps up: that is
// faster on some processors and slower on others.
func (p *Producer) ReserveWide(n int) []byte { return (*ring.Producer)(p).ReserveWide(n) }

// Commit publishes the first n bytes of the last reservation. They are the consumer's
// then. A producer that checks after it whether the consumer sleeps can't miss one that
// does. It panics without a reservation of that size.
func (p *Producer) Commit(n int) {
	(*ring.Producer)(p).Commit(n)
	cpu.Barrier()
}

// SendShort is Reserve and Commit of a header of three words and a payload, which is
// copied. It reports false, and nothing has happened, if there is no room.
func (p *Producer) SendShort(h btl.ShortHeader, payload []byte) bool {
	ok := (*ring.Producer)(p).Put(h.First, h.Second, h.Third, payload)
	cpu.Barrier()
	return ok
}

// Wait has the consumer's Release say once that it gave cells back, so that a producer
// can sleep for them. It reports false if n bytes can be reserved already.
func (p *Producer) Wait(n int) bool { return (*ring.Producer)(p).Wait(n) }

// Consumer is the receiving end. One goroutine at a time uses it.
type Consumer ring.Consumer

// NewConsumer attaches the receiving end, before or after the producer. The memory stays
// where it is as long as the Consumer is used.
func NewConsumer(header, cells []byte) (*Consumer, error) {
	if err := ring.Check(header, cells); err != nil {
		return nil, err
	}
	return (*Consumer)(ring.NewConsumer(header, cells)), nil
}

// Ready reports whether there is a frame, or something damaged.
func (c *Consumer) Ready() bool { return (*ring.Consumer)(c).Ready() }

// Next returns the next frame, which is the caller's until Release; nil if there is
// none. An error says that the producer wrote nonsense: the ring can't be used any more.
func (c *Consumer) Next() ([]byte, error) { return (*ring.Consumer)(c).Next() }

// Peek is Next that looks up to that many times, with a pause in between, and leaves it
// to Next to tell of damage.
func (c *Consumer) Peek(looks int) []byte { return (*ring.Consumer)(c).Peek(looks) }

// Release gives back the frame that Next or Peek has returned. It reports whether the
// producer waits for cells and is to be woken now.
func (c *Consumer) Release() (wake bool) { return (*ring.Consumer)(c).Release() }
