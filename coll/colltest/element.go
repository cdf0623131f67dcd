package colltest

import (
	"encoding/binary"
	"slices"

	"github.com/ferrympi/ferry/coll"
)

// fill returns n bytes that depend on the rank and the position.
func fill(n, rank int) []byte {
	b := make([]byte, n, (n+7)&^7)
	for i := range b {
		b[i] = byte(i*31 + rank*101 + i>>8 + 7)
	}
	return b
}

// largeElement is the size of one for which there may be no room where a small one goes.
const largeElement = 300

// element is a kind of element and an operation on it. All are associative.
type element struct {
	name        string
	size        int
	commutative bool
	combine     func(low, high []byte) []byte // a new element: low op high
}

var elements = []element{
	{"sum of uint64", 8, true, func(low, high []byte) []byte {
		return binary.LittleEndian.AppendUint64(nil, word(low, 0)+word(high, 0))
	}},
	{"exclusive or of 3 bytes", 3, true, func(low, high []byte) []byte {
		return []byte{low[0] ^ high[0], low[1] ^ high[1], low[2] ^ high[2]}
	}},
	{"exclusive or of 300 bytes", largeElement, true, func(low, high []byte) []byte {
		sum := slices.Clone(low)
		for i, b := range high {
			sum[i] ^= b
		}
		return sum
	}},
	matrices,
}

var matrices = element{"product of 2x2 matrices", 32, false, func(low, high []byte) []byte {
	var out []byte
	for row := range 2 {
		for col := range 2 {
			out = binary.LittleEndian.AppendUint64(out,
				word(low, row*2)*word(high, col)+word(low, row*2+1)*word(high, 2+col))
		}
	}
	return out
}}

func word(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i*8:]) }

func (e element) fill(count, rank int) []byte { return fill(count*e.size, rank) }

func (e element) reducer() coll.Reducer {
	return coll.Reducer{Apply: e.apply, Quick: e.size == 8}
}

func (e element) apply(inout, in []byte) {
	if len(inout) != len(in) || len(in)%e.size != 0 {
		panic("colltest: Apply of lengths that differ, or of a part of an element")
	}
	for i := 0; i < len(in); i += e.size {
		copy(inout[i:], e.combine(in[i:i+e.size], inout[i:i+e.size]))
	}
}

// expect is what a reduction over n members must come to: rank after rank.
func (e element) expect(n int, of func(rank int) []byte) []byte {
	acc := of(0)
	for r := 1; r < n; r++ {
		next := of(r)
		e.apply(next, acc)
		acc = next
	}
	return acc
}
