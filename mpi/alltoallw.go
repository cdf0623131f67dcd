package mpi

import (
	"context"
	"fmt"
	"math"
)

// At returns the layout moved by offset bytes. A negative offset is an error of the operation that
// uses the layout.
func (l Layout) At(offset int) Layout {
	switch {
	case l.err != nil || l.shape == nil || offset == 0:
		return l
	case offset < 0 || l.shape.Extent() > int64(math.MaxInt-offset):
		return Layout{err: fmt.Errorf("%w: a layout of %d bytes moved by %d", ErrUnsupported, l.shape.Extent(), offset)}
	}
	return newLayout(moved{l.shape, int64(offset)}, l.overlaps)
}

// moved is a shape behind by bytes.
type moved struct {
	shape
	by int64
}

func (m moved) Extent() int64 { return m.by + m.shape.Extent() }

func (m moved) Pack(dst, buf []byte, offset int64) { m.shape.Pack(dst, buf[m.by:], offset) }

func (m moved) Unpack(buf, src []byte, offset int64) { m.shape.Unpack(buf[m.by:], src, offset) }

func (m moved) contiguous() (from, to int64, ok bool) {
	from, to, ok = m.shape.contiguous()
	return m.by + from, m.by + to, ok
}

// Alltoallw is Alltoallv with a layout for each rank (MPI_Alltoallw). The bytes of send that
// sendLayouts[i] names go to rank i, and the bytes from there go to the places in recv that
// recvLayouts[i] names. Layout.At places a layout in a buffer. The layouts of a pair
// have one size. To work in place all members pass nil for send and sendLayouts. ErrTruncate
// for a layout that its buffer does not hold, ErrUnsupported if blocks of a receive layout overlap.
func Alltoallw(ctx context.Context, c *Comm, send []byte, sendLayouts []Layout, recv []byte, recvLayouts []Layout) error {
	isInPlace := send == nil && sendLayouts == nil
	if isInPlace {
		send, sendLayouts = recv, recvLayouts
	}
	out, sendCounts, err := c.layoutBlocks("sendLayouts", send, sendLayouts, false)
	if err != nil {
		return err
	}
	in, recvCounts, err := c.layoutBlocks("recvLayouts", recv, recvLayouts, true)
	if err != nil {
		return err
	}
	at := 0
	for i, l := range sendLayouts {
		if l.shape != nil {
			l.shape.Pack(out[at:at+sendCounts[i]], send, 0)
		}
		at += sendCounts[i]
	}
	if isInPlace {
		in = out
		err = Alltoallv(ctx, c, nil, nil, nil, in, recvCounts, nil)
	} else {
		err = Alltoallv(ctx, c, out, sendCounts, nil, in, recvCounts, nil)
	}
	if err != nil {
		return err
	}
	at = 0
	for i, l := range recvLayouts {
		if l.shape != nil {
			l.shape.Unpack(recv, in[at:at+recvCounts[i]], 0)
		}
		at += recvCounts[i]
	}
	return nil
}

// layoutBlocks checks the layouts of a buffer, one for each rank. It returns memory for their
// bytes, block after block, and the sizes of the blocks.
func (c *Comm) layoutBlocks(name string, buf []byte, layouts []Layout, receive bool) (packed []byte, counts []int, err error) {
	if c.isClosed() {
		return nil, nil, c.errClosed()
	}
	if len(layouts) != c.size {
		return nil, nil, fmt.Errorf("%w: %d %s, in a communicator of %d", ErrRank, len(layouts), name, c.size)
	}
	total := 0
	for i, l := range layouts {
		if _, err := l.buffer(buf, receive); err != nil {
			return nil, nil, fmt.Errorf("%s[%d]: %w", name, i, err)
		}
		if total > math.MaxInt-l.Size() {
			return nil, nil, fmt.Errorf("%w: the sizes of %s are too large to add up", ErrTruncate, name)
		}
		counts = append(counts, l.Size())
		total += l.Size()
	}
	return make([]byte, total), counts, nil
}
