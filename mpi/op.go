package mpi

import (
	"bytes"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/internal/simd"
)

// Op is a reduction operation on elements of type T, which holds no pointers
// (MPI-4.1 section 6.9). The zero Op is none.
type Op[T any] struct {
	apply         func(inout, in []byte)
	isCommutative bool
	// Of a built-in operation, else empty.
	name string
}

// NewOp returns an operation for reductions (MPI_Op_create). f computes inout[i] = in[i] op inout[i] for all i. in has the operand of the lower ranks.
// The slices have equal lengths. The operation must be associative. commutative allows reordering of operands. f must not call this package. It runs in
// the caller's goroutine, and for a nonblocking reduction in a goroutine of the communicator. If f panics, a blocking reduction panics, a nonblocking
// one fails, and the communicator's collectives are broken. A reduction with a nil f returns ErrUnsupported.
func NewOp[T any](f func(inout, in []T), commutative bool) Op[T] {
	if f == nil {
		return Op[T]{}
	}
	return Op[T]{
		apply:         func(inout, in []byte) { f(mem.Of[T](inout), mem.Of[T](in)) },
		isCommutative: commutative,
	}
}

func (op Op[T]) reducer() coll.Reducer {
	return coll.Reducer{Apply: op.apply, Name: op.name, IsQuick: op.name != ""}
}

// Integer is the types that have bits.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Real is the types that have an order.
type Real interface {
	Integer | ~float32 | ~float64
}

// Number is the types that can be added and multiplied.
type Number interface {
	Real | ~complex64 | ~complex128
}

// builtin is NewOp for operations of this package, which all commute. Where k has a
// kernel for T, f does the last few elements only. It makes one function, since programs
// write Sum and the like into their calls.
func builtin[T any](name string, k simd.Op, f func(inout, in []T)) Op[T] {
	kernel := simd.Of[T](k)
	return Op[T]{name: name, isCommutative: true, apply: func(inout, in []byte) {
		if kernel != nil {
			n := kernel.Run(inout, in)
			inout, in = inout[n:], in[n:]
		}
		f(mem.Of[T](inout), mem.Of[T](in))
	}}
}

// Sum adds (MPI_SUM). Integers wrap.
func Sum[T Number]() Op[T] {
	return builtin("sum", simd.Sum, func(inout, in []T) {
		inout = inout[:len(in)]
		for i, x := range in {
			inout[i] = x + inout[i]
		}
	})
}

// Prod multiplies (MPI_PROD). Integers wrap.
func Prod[T Number]() Op[T] {
	return builtin("prod", simd.Prod, func(inout, in []T) {
		inout = inout[:len(in)]
		for i, x := range in {
			inout[i] = x * inout[i]
		}
	})
}

// Max takes the larger (MPI_MAX). NaN wins, as with Go's max.
func Max[T Real]() Op[T] {
	return builtin("max", simd.Max, func(inout, in []T) {
		inout = inout[:len(in)]
		for i, x := range in {
			inout[i] = max(x, inout[i])
		}
	})
}

// Min takes the smaller (MPI_MIN). NaN wins, as with Go's min.
func Min[T Real]() Op[T] {
	return builtin("min", simd.Min, func(inout, in []T) {
		inout = inout[:len(in)]
		for i, x := range in {
			inout[i] = min(x, inout[i])
		}
	})
}

// LogicalAnd gives 1 where both are not 0, else 0 (MPI_LAND).
func LogicalAnd[T Integer]() Op[T] {
	return logical[T]("land", func(a, b bool) bool { return a && b })
}

// LogicalOr gives 1 where at least one is not 0, else 0 (MPI_LOR).
func LogicalOr[T Integer]() Op[T] {
	return logical[T]("lor", func(a, b bool) bool { return a || b })
}

// LogicalXor gives 1 where exactly one is not 0, else 0 (MPI_LXOR).
func LogicalXor[T Integer]() Op[T] {
	return logical[T]("lxor", func(a, b bool) bool { return a != b })
}

func logical[T Integer](name string, f func(a, b bool) bool) Op[T] {
	return builtin(name, simd.None, func(inout, in []T) {
		inout = inout[:len(in)]
		for i, x := range in {
			if f(x != 0, inout[i] != 0) {
				inout[i] = 1
			} else {
				inout[i] = 0
			}
		}
	})
}

// BitAnd is the bitwise and (MPI_BAND).
func BitAnd[T Integer]() Op[T] {
	return builtin("band", simd.And, func(inout, in []T) {
		inout = inout[:len(in)]
		for i, x := range in {
			inout[i] &= x
		}
	})
}

// BitOr is the bitwise or (MPI_BOR).
func BitOr[T Integer]() Op[T] {
	return builtin("bor", simd.Or, func(inout, in []T) {
		inout = inout[:len(in)]
		for i, x := range in {
			inout[i] |= x
		}
	})
}

// BitXor is the bitwise exclusive or (MPI_BXOR).
func BitXor[T Integer]() Op[T] {
	return builtin("bxor", simd.Xor, func(inout, in []T) {
		inout = inout[:len(in)]
		for i, x := range in {
			inout[i] ^= x
		}
	})
}

// Located is a value and where it is, for MaxLoc and MinLoc.
type Located[T Real] struct {
	Value T
	Index int64
}

// MaxLoc takes the larger value with its index; of equal values the lower index
// (MPI_MAXLOC). NaN wins, as in Max; of several the one with the lowest index.
func MaxLoc[T Real]() Op[Located[T]] {
	return located("maxloc", func(a, b T) bool { return a > b })
}

// MinLoc takes the smaller value with its index; of equal values the lower index
// (MPI_MINLOC). NaN wins, as in Min; of several the one with the lowest index.
func MinLoc[T Real]() Op[Located[T]] {
	return located("minloc", func(a, b T) bool { return a < b })
}

// located returns an operation that selects the first of two values by a total order, so that the result is independent of the order of ranks and of
// the algorithm. The order is NaN, then the better value, then the lower index, and then the bits, which distinguish signed zeros and NaNs.
func located[T Real](name string, better func(a, b T) bool) Op[Located[T]] {
	return builtin(name, simd.None, func(inout, in []Located[T]) {
		inout = inout[:len(in)]
		for i := range in {
			x, y := &in[i], &inout[i]
			xNaN, yNaN := x.Value != x.Value, y.Value != y.Value
			var wins bool
			switch {
			case xNaN != yNaN:
				wins = xNaN
			case better(x.Value, y.Value):
				wins = true
			case better(y.Value, x.Value):
			case x.Index != y.Index:
				wins = x.Index < y.Index
			default:
				wins = bytes.Compare(valueBits(in[i:]), valueBits(inout[i:])) < 0
			}
			if wins {
				*y = *x
			}
		}
	})
}

// valueBits returns the memory of the first value.
func valueBits[T Real](s []Located[T]) []byte { return mem.Bytes(s[:1])[:mem.Size[T]()] }
