package mpi

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/coll"
)

// packing packs the bytes of layouts before a collective, and unpacks those of its result. The collective works on
// contiguous memory, which follows its working memory.
type packing struct {
	send, recv packedSide
}

// packedSide is a buffer with layouts, one for each block. Its packed blocks lie one behind the other.
type packedSide struct {
	buf     []byte
	layouts []Layout
	// Size of each block in bytes.
	counts []int
	size   int // Sum of counts.
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
	return aligned(p.send.size) + p.recv.size
}

func aligned(n int) int { return (n + packAlign - 1) &^ (packAlign - 1) }

// Pack implements run.Packing.
func (p *packing) Pack(b *coll.Buffers, room []byte) {
	if p.send.layouts != nil {
		b.In = room[:p.send.size:p.send.size]
		p.send.pack(b.In)
	}
	if p.recv.layouts != nil { // Otherwise the call has its memory already.
		at := aligned(p.send.size)
		b.Out = room[at : at+p.recv.size]
		p.recv.pack(b.Out)
	}
}

func (s *packedSide) pack(packed []byte) {
	for i, l := range s.layouts {
		if l.shape != nil && s.isPacked {
			l.shape.Pack(packed[:s.counts[i]], s.buf, 0)
		}
		packed = packed[s.counts[i]:]
	}
}

// ResultSize implements run.Packing.
func (p *packing) ResultSize() int {
	if !p.recv.isResult {
		return 0
	}
	return p.recv.size
}

// Unpack implements run.Packing.
func (p *packing) Unpack(b *coll.Buffers) {
	packed := b.Out
	for i, l := range p.recv.layouts {
		if l.shape != nil {
			l.shape.Unpack(p.recv.buf, packed[:p.recv.counts[i]], 0)
		}
		packed = packed[p.recv.counts[i]:]
	}
}

// keep copies the layouts, which are the caller's again when a nonblocking call returns.
func (p *packing) keep() {
	p.send.layouts, p.recv.layouts = slices.Clone(p.send.layouts), slices.Clone(p.recv.layouts)
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
	*s = packedSide{buf: buf, layouts: layouts, counts: counts, size: total, isPacked: !isResult, isResult: isResult}
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
	s.size -= s.counts[i]
	s.layouts[i], s.counts[i] = Layout{}, 0
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
