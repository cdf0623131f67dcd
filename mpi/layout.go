package mpi

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/ferrympi/ferry/pml"
)

// Layout describes the bytes of a buffer that form a message (a derived datatype of MPI-4.1 section 5.1). It is an immutable value. The zero Layout is
// the empty message. An invalid layout, for example with negative sizes, is an error of the operation that uses it.
type Layout struct {
	shape shape // nil if empty.
	// The layout for a PML.
	form *pml.Form
	// A byte is in two blocks.
	hasOverlap bool
	err        error
}

// shape is a pml.Layout that may be contiguous.
type shape interface {
	pml.Layout
	// contiguous returns the bytes [from, to), if the message is just these.
	contiguous() (from, to int64, ok bool)
}

// Block is a part of a buffer with Bytes bytes from Offset on.
type Block struct{ Offset, Bytes int }

// Vector returns a layout of count blocks of blockBytes bytes, with strideBytes bytes from the beginning of each to the next (MPI_Type_create_hvector).
// Examples are a column of a matrix and a face of a cube.
func Vector(count, blockBytes, strideBytes int) Layout {
	if count < 0 || blockBytes < 0 || strideBytes < 0 {
		return Layout{err: fmt.Errorf("%w: a layout of %d blocks of %d bytes, %d apart", ErrUnsupported, count, blockBytes, strideBytes)}
	}
	if count == 0 || blockBytes == 0 {
		return Layout{}
	}
	v := &vector{blockCount: int64(count), blockBytes: int64(blockBytes), strideBytes: int64(strideBytes)}
	high, apart := bits.Mul64(uint64(count-1), uint64(strideBytes))
	wide, total := bits.Mul64(uint64(count), uint64(blockBytes))
	if high != 0 || apart > math.MaxInt64-uint64(blockBytes) || wide != 0 || total > math.MaxInt64 {
		return Layout{err: fmt.Errorf("%w: a layout of %d blocks of %d bytes, %d apart, is longer than any memory", ErrUnsupported, count, blockBytes, strideBytes)}
	}
	return newLayout(v, count > 1 && strideBytes < blockBytes)
}

// Indexed returns a layout of blocks in the given order (MPI_Type_create_hindexed), which may differ from their order in the buffer.
func Indexed(blocks ...Block) Layout {
	x := &indexed{}
	for _, b := range blocks {
		if b.Offset < 0 || b.Bytes < 0 || b.Offset > math.MaxInt64-b.Bytes || x.size > math.MaxInt64-int64(b.Bytes) {
			return Layout{err: fmt.Errorf("%w: a layout with a block of %d bytes at %d", ErrUnsupported, b.Bytes, b.Offset)}
		}
		if b.Bytes == 0 {
			continue
		}
		x.blocks = append(x.blocks, b)
		x.messageOffsets = append(x.messageOffsets, x.size)
		x.size += int64(b.Bytes)
		x.extent = max(x.extent, int64(b.Offset+b.Bytes))
	}
	if len(x.blocks) == 0 {
		return Layout{}
	}
	sorted := slices.SortedFunc(slices.Values(x.blocks), func(a, b Block) int { return cmp.Compare(a.Offset, b.Offset) })
	overlaps := false
	for i := 1; i < len(sorted); i++ {
		overlaps = overlaps || sorted[i-1].Offset+sorted[i-1].Bytes > sorted[i].Offset
	}
	return newLayout(x, overlaps)
}

func newLayout(s shape, overlaps bool) Layout {
	return Layout{shape: s, form: &pml.Form{Layout: s}, hasOverlap: overlaps}
}

// Size returns the number of bytes of the message.
func (l Layout) Size() int {
	if l.shape == nil {
		return 0
	}
	return int(l.shape.Size())
}

// Extent returns the number of bytes that a buffer must have.
func (l Layout) Extent() int {
	if l.shape == nil {
		return 0
	}
	return int(l.shape.Extent())
}

// At returns the layout moved by offset bytes. A negative offset is an error of the operation that
// uses the layout.
func (l Layout) At(offset int) Layout {
	switch {
	case l.err != nil || l.shape == nil || offset == 0:
		return l
	case offset < 0 || l.shape.Extent() > int64(math.MaxInt-offset):
		return Layout{err: fmt.Errorf("%w: a layout of %d bytes moved by %d", ErrUnsupported, l.shape.Extent(), offset)}
	}
	return newLayout(moved{l.shape, int64(offset)}, l.hasOverlap)
}

// moved is a shape at an offset of by bytes.
type moved struct {
	shape
	byteOffset int64
}

func (m moved) Extent() int64 { return m.byteOffset + m.shape.Extent() }

func (m moved) Pack(dst, buf []byte, offset int64) { m.shape.Pack(dst, buf[m.byteOffset:], offset) }

func (m moved) Unpack(buf, src []byte, offset int64) { m.shape.Unpack(buf[m.byteOffset:], src, offset) }

func (m moved) contiguous() (from, to int64, ok bool) {
	from, to, ok = m.shape.contiguous()
	return m.byteOffset + from, m.byteOffset + to, ok
}

// buffer puts a layout and its memory together.
func (l Layout) buffer(buf []byte, receive bool) (pml.Buffer, error) {
	switch {
	case l.err != nil:
		return pml.Buffer{}, l.err
	case l.shape == nil:
		return pml.Buffer{}, nil
	case l.shape.Extent() > int64(len(buf)):
		return pml.Buffer{}, fmt.Errorf("%w: the layout ends at byte %d, and the buffer at %d", ErrTruncate, l.shape.Extent(), len(buf))
	case receive && l.hasOverlap:
		return pml.Buffer{}, fmt.Errorf("%w: blocks of a layout overlap, so that it cannot receive", ErrUnsupported)
	}
	if from, to, ok := l.shape.contiguous(); ok {
		return pml.Buffer{Bytes: buf[from:to]}, nil
	}
	return pml.Buffer{Bytes: buf, Form: l.form}, nil
}

// SendLayout is Send of the bytes that l picks out of buf, which is at least
// l.Extent() long, else ErrTruncate. The receiver may use any layout of the same
// size, or none.
func (c *Comm) SendLayout(ctx context.Context, buf []byte, l Layout, dst, tag int) error {
	b, err := l.buffer(buf, false)
	if err != nil {
		return err
	}
	return c.send(ctx, "send", b, dst, tag, pml.Standard)
}

// RecvLayout is Recv into the places in buf that l names; the bytes between them
// stay as they are. ErrUnsupported if blocks of l overlap.
func (c *Comm) RecvLayout(ctx context.Context, buf []byte, l Layout, src, tag int) (Status, error) {
	b, err := l.buffer(buf, true)
	if err != nil {
		return noMessage(), err
	}
	if null, err := c.recvArgs(ctx, src, tag); err != nil {
		return noMessage(), ended(ctx, "receive", err)
	} else if null {
		return nullStatus(), nil
	}
	st, err := c.pml.Recv(ctx, b, src, tag, pml.PointToPoint)
	return Status(st), ended(ctx, "receive", err)
}

// IsendLayout starts a SendLayout. buf is the library's until the request is
// complete.
func (c *Comm) IsendLayout(buf []byte, l Layout, dst, tag int) (Request, error) {
	b, err := l.buffer(buf, false)
	if err != nil {
		return Request{}, err
	}
	return c.isend(b, dst, tag, pml.Standard)
}

// IrecvLayout starts a RecvLayout. buf is the library's until the request is
// complete.
func (c *Comm) IrecvLayout(buf []byte, l Layout, src, tag int) (Request, error) {
	b, err := l.buffer(buf, true)
	if err != nil {
		return Request{}, err
	}
	return c.irecv(b, src, tag)
}

// vector implements pml.Layout for Vector. It has at least one block.
type vector struct{ blockCount, blockBytes, strideBytes int64 }

func (v *vector) Size() int64   { return v.blockCount * v.blockBytes }
func (v *vector) Extent() int64 { return (v.blockCount-1)*v.strideBytes + v.blockBytes }

func (v *vector) contiguous() (from, to int64, ok bool) {
	return 0, v.Extent(), v.blockCount == 1 || v.strideBytes == v.blockBytes
}

func (v *vector) Pack(dst, buf []byte, offset int64) {
	i, in := offset/v.blockBytes, offset%v.blockBytes
	for len(dst) > 0 {
		at := i * v.strideBytes
		dst = dst[copy(dst, buf[at+in:at+v.blockBytes]):]
		i, in = i+1, 0
	}
}

func (v *vector) Unpack(buf, src []byte, offset int64) {
	i, in := offset/v.blockBytes, offset%v.blockBytes
	for len(src) > 0 {
		at := i * v.strideBytes
		src = src[copy(buf[at+in:at+v.blockBytes], src):]
		i, in = i+1, 0
	}
}

// indexed implements pml.Layout for Indexed. It has at least one block, and none
// that is empty.
type indexed struct {
	blocks []Block
	// Offset of each block in the message.
	messageOffsets []int64
	size, extent   int64
}

func (x *indexed) Size() int64   { return x.size }
func (x *indexed) Extent() int64 { return x.extent }

func (x *indexed) contiguous() (from, to int64, ok bool) {
	return int64(x.blocks[0].Offset), x.extent, len(x.blocks) == 1
}

// at finds the block that holds the message's byte at offset.
func (x *indexed) at(offset int64) (i int, in int) {
	i, found := slices.BinarySearch(x.messageOffsets, offset)
	if !found {
		i--
	}
	return i, int(offset - x.messageOffsets[i])
}

func (x *indexed) Pack(dst, buf []byte, offset int64) {
	for i, in := x.at(offset); len(dst) > 0; i, in = i+1, 0 {
		b := x.blocks[i]
		dst = dst[copy(dst, buf[b.Offset+in:b.Offset+b.Bytes]):]
	}
}

func (x *indexed) Unpack(buf, src []byte, offset int64) {
	for i, in := x.at(offset); len(src) > 0; i, in = i+1, 0 {
		b := x.blocks[i]
		src = src[copy(buf[b.Offset+in:b.Offset+b.Bytes], src):]
	}
}
