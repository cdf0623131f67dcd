package mpi

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/coll"
)

// packing packs the bytes of layouts before a collective, and unpacks those of its result. The collective works on
// contiguous memory, which follows its working memory.
type packing struct {
	sendSide, recvSide packedSide
}

// packedSide is a buffer with layouts, one for each block. Its packed blocks lie one behind the other.
type packedSide struct {
	buf     []byte
	layouts []Layout
	// In bytes.
	blockSizes []int
	packedSize int // Sum of blockSizes.
	// The collective reads the blocks.
	isPacked bool
	// The collective writes the blocks.
	isResult bool
}

const (
	packAlign  = 64      // Alignment of packed sides in bytes.
	mostPacked = 1 << 46 // Size of a packed side in bytes, which overlapping blocks of a send may exceed.
)

// Room implements run.Packing.
func (p *packing) Room() int {
	return aligned(p.sendSide.packedSize) + p.recvSide.packedSize
}

func aligned(n int) int { return (n + packAlign - 1) &^ (packAlign - 1) }

// Pack implements run.Packing.
func (p *packing) Pack(b *coll.Buffers, room []byte) {
	if p.sendSide.layouts != nil {
		b.In = room[:p.sendSide.packedSize:p.sendSide.packedSize]
		p.sendSide.pack(b.In)
	}
	if p.recvSide.layouts != nil { // Otherwise the call has its memory already.
		at := aligned(p.sendSide.packedSize)
		b.Out = room[at : at+p.recvSide.packedSize]
		p.recvSide.pack(b.Out)
	}
}

func (s *packedSide) pack(packed []byte) {
	for i, l := range s.layouts {
		if l.shape != nil && s.isPacked {
			l.shape.Pack(packed[:s.blockSizes[i]], s.buf, 0)
		}
		packed = packed[s.blockSizes[i]:]
	}
}

// ResultSize implements run.Packing.
func (p *packing) ResultSize() int {
	if !p.recvSide.isResult {
		return 0
	}
	return p.recvSide.packedSize
}

// Unpack implements run.Packing.
func (p *packing) Unpack(b *coll.Buffers) {
	packed := b.Out
	for i, l := range p.recvSide.layouts {
		if l.shape != nil {
			l.shape.Unpack(p.recvSide.buf, packed[:p.recvSide.blockSizes[i]], 0)
		}
		packed = packed[p.recvSide.blockSizes[i]:]
	}
}

// keep copies the layouts, which are the caller's again when a nonblocking call returns.
func (p *packing) keep() {
	p.sendSide.layouts, p.recvSide.layouts = slices.Clone(p.sendSide.layouts), slices.Clone(p.recvSide.layouts)
}

// set fills in the side of a buffer with n layouts. name is the name of the layouts in errors.
func (s *packedSide) set(name string, n int, buf []byte, layouts []Layout, isResult bool) error {
	if len(layouts) != n {
		return fmt.Errorf("%w: %d %s, and %d blocks", ErrRank, len(layouts), name, n)
	}
	counts := make([]int, n)
	total := 0
	for i, l := range layouts {
		if _, err := l.buffer(buf, isResult); err != nil {
			return fmt.Errorf("%s[%d]: %w", name, i, err)
		}
		if counts[i] = l.Size(); counts[i] > mostPacked || total > mostPacked-counts[i] {
			return fmt.Errorf("%w: the sizes of %s are too large to pack", ErrTruncate, name)
		}
		total += counts[i]
	}
	*s = packedSide{buf: buf, layouts: layouts, blockSizes: counts, packedSize: total, isPacked: !isResult, isResult: isResult}
	return nil
}

// setOne is set of a single layout. A contiguous one is not packed. Its bytes are returned.
func (s *packedSide) setOne(name string, buf []byte, l Layout, isResult bool) (direct []byte, err error) {
	if b, err := l.buffer(buf, isResult); err == nil && b.Form == nil {
		return b.Bytes, nil
	}
	return nil, s.set(name, 1, buf, []Layout{l}, isResult)
}

// drop empties a block.
func (s *packedSide) drop(i int) {
	s.layouts = slices.Clone(s.layouts)
	s.packedSize -= s.blockSizes[i]
	s.layouts[i], s.blockSizes[i] = Layout{}, 0
}

// Pack copies the bytes that l names in buf to the beginning of dst, and returns their number, l.Size() (MPI_Pack). ErrTruncate
// if buf or dst is too short. Pack, a collective and Unpack are a collective with a layout, also of elements that are reduced.
func (l Layout) Pack(dst, buf []byte) (int, error) {
	if err := l.fits(dst, buf, false); err != nil {
		return 0, err
	}
	if l.shape != nil {
		l.shape.Pack(dst[:l.Size()], buf, 0)
	}
	return l.Size(), nil
}

// Unpack copies the first l.Size() bytes of src to the places that l names in buf, and returns their number (MPI_Unpack). The other
// bytes of buf stay. ErrTruncate if buf or src is too short, ErrUnsupported if blocks of l overlap.
func (l Layout) Unpack(buf, src []byte) (int, error) {
	if err := l.fits(src, buf, true); err != nil {
		return 0, err
	}
	if l.shape != nil {
		l.shape.Unpack(buf, src[:l.Size()], 0)
	}
	return l.Size(), nil
}

// fits checks a layout with its packed bytes and its buffer.
func (l Layout) fits(packed, buf []byte, receive bool) error {
	if _, err := l.buffer(buf, receive); err != nil {
		return err
	}
	if len(packed) < l.Size() {
		return fmt.Errorf("%w: the layout has %d bytes, and the packed slice %d", ErrTruncate, l.Size(), len(packed))
	}
	return nil
}
