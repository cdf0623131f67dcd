package colltest

import (
	"encoding/binary"
	"sync"

	"github.com/ferrympi/ferry/coll"
)

// fillCache caches the longest results of fill. Writing them byte by byte took most of a case's time
// under the race detector.
var fillCache struct {
	sync.Mutex
	by [256][]byte
}

// fill returns n bytes that depend on the rank and the position.
func fill(n, rank int) []byte {
	first := byte(rank * 101)
	fillCache.Lock()
	defer fillCache.Unlock()
	long := fillCache.by[first]
	for i := len(long); i < n; i++ {
		long = append(long, first+byte(i*31+i>>8+7))
	}
	fillCache.by[first] = long
	b := make([]byte, n, (n+7)&^7)
	copy(b, long)
	return b
}

// largeElement is the size of an element that may not fit where small ones do.
const largeElement = 300

// element is a kind of element with an associative operation.
type element struct {
	name          string
	size          int
	isCommutative bool
	// Computes inout = low op inout without an allocation.
	combine func(inout, low []byte)
}

var elements = []element{
	{"sum of uint64", 8, true, func(inout, low []byte) {
		binary.LittleEndian.PutUint64(inout, word(low, 0)+word(inout, 0))
	}},
	{"exclusive or of 3 bytes", 3, true, exclusiveOr},
	{"exclusive or of 300 bytes", largeElement, true, exclusiveOr},
	matrices,
	{"elements without bytes", 0, true, func(_, _ []byte) {}},
}

func exclusiveOr(inout, low []byte) {
	for i, b := range low {
		inout[i] ^= b
	}
}

var matrices = element{"product of 2x2 matrices", 32, false, func(inout, low []byte) {
	h := [4]uint64{word(inout, 0), word(inout, 1), word(inout, 2), word(inout, 3)}
	for i := range h {
		row, col := i/2, i%2
		binary.LittleEndian.PutUint64(inout[i*8:], word(low, row*2)*h[col]+word(low, row*2+1)*h[2+col])
	}
}}

func word(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i*8:]) }

func (e element) fill(count, rank int) []byte { return fill(count*e.size, rank) }

func (e element) reducer() coll.Reducer {
	return coll.Reducer{Apply: e.apply, IsQuick: e.size == 8}
}

func (e element) apply(inout, in []byte) {
	if len(inout) != len(in) || len(in) > 0 && (e.size == 0 || len(in)%e.size != 0) {
		panic("colltest: Apply of different lengths or of a partial element")
	}
	for i := 0; i < len(in); i += e.size {
		e.combine(inout[i:i+e.size], in[i:i+e.size])
	}
}

// reduceAll returns the result of a reduction over n members in the order of ranks.
func (e element) reduceAll(n int, of func(rank int) []byte) []byte {
	acc := of(0)
	for r := 1; r < n; r++ {
		next := of(r)
		e.apply(next, acc)
		acc = next
	}
	return acc
}
