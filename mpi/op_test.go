package mpi

import (
	"fmt"
	"math"
	"testing"

	"github.com/ferrympi/ferry/internal/mem"
)

// combine returns low op high for one pair of elements each.
func combine[T any](op Op[T], low, high []T) []T {
	inout := append([]T(nil), high...)
	op.apply(mem.Bytes(inout), mem.Bytes(low))
	return inout
}

func equal[T comparable](t *testing.T, name string, got []T, want ...T) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: %v, want %v", name, got, want)
			return
		}
	}
}

func TestOp_Kernels_MatchReference(t *testing.T) {
	a, b := []int32{6, 0, -3}, []int32{5, 4, 0}
	equal(t, "sum", combine(Sum[int32](), a, b), 11, 4, -3)
	equal(t, "prod", combine(Prod[int32](), a, b), 30, 0, 0)
	equal(t, "max", combine(Max[int32](), a, b), 6, 4, 0)
	equal(t, "min", combine(Min[int32](), a, b), 5, 0, -3)
	equal(t, "land", combine(LogicalAnd[int32](), a, b), 1, 0, 0)
	equal(t, "lor", combine(LogicalOr[int32](), a, b), 1, 1, 1)
	equal(t, "lxor", combine(LogicalXor[int32](), a, b), 0, 1, 1)
	equal(t, "band", combine(BitAnd[int32](), a, b), 4, 0, 0)
	equal(t, "bor", combine(BitOr[int32](), a, b), 7, 4, -3)
	equal(t, "bxor", combine(BitXor[int32](), a, b), 3, 4, -3)
	equal(t, "sum of complex", combine(Sum[complex128](), []complex128{1i}, []complex128{2}), 2+1i)
	if x := combine(Max[float64](), []float64{math.NaN()}, []float64{1}); !math.IsNaN(x[0]) {
		t.Errorf("max of NaN: %v", x)
	}
	type L = Located[float64]
	low, high := []L{{1, 7}, {2, 9}, {5, 1}}, []L{{2, 3}, {2, 4}, {4, 0}}
	equal(t, "maxloc", combine(MaxLoc[float64](), low, high), L{2, 3}, L{2, 4}, L{5, 1})
	equal(t, "minloc", combine(MinLoc[float64](), low, high), L{1, 7}, L{2, 4}, L{4, 0})
}

func TestOp_NotCommutative_LowerRanksAreLeft(t *testing.T) {
	minus := NewOp(func(inout, in []int) {
		for i := range in {
			inout[i] = in[i] - inout[i]
		}
	}, false)
	equal(t, "minus", combine(minus, []int{10}, []int{3}), 7)
}

// A kernel processes most elements, and Go code the last ones.
func TestOp_Builtins_AnyLength(t *testing.T) {
	for n := range 101 {
		for skip := range 3 { // slices begin in the middle of a vector
			low, high := make([]float64, n+skip)[skip:], make([]float64, n+skip)[skip:]
			least, plus, both := make([]float64, n), make([]float64, n), make([]float64, n)
			for i := range n {
				low[i], high[i] = float64(i%7)-3, float64(i%5)-2
				least[i], plus[i], both[i] = min(low[i], high[i]), low[i]+high[i], low[i]*high[i]
			}
			equal(t, "min", combine(Min[float64](), low, high), least...)
			equal(t, "sum", combine(Sum[float64](), low, high), plus...)
			equal(t, "prod", combine(Prod[float64](), low, high), both...)
		}
	}
}

// BenchmarkBuiltin measures the computation of a member in one step of an Allreduce of 8 bytes and of 64 KiB.
func BenchmarkBuiltin(b *testing.B) {
	for _, n := range []int{1, 8 << 10} {
		in, inout := make([]float64, n), make([]float64, n)
		for _, op := range []Op[float64]{Sum[float64](), Max[float64]()} {
			b.Run(fmt.Sprintf("%s/%d", op.name, 8*n), func(b *testing.B) {
				b.SetBytes(int64(8 * n))
				for b.Loop() {
					op.apply(mem.Bytes(inout), mem.Bytes(in))
				}
			})
		}
	}
}
