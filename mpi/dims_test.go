package mpi_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/mpi"
)

// leastFactors returns n as the lexicographically least product of k factors in descending order, none above limit, or nil if there
// is none.
func leastFactors(n, k, limit int) []int {
	if k == 0 {
		if n == 1 {
			return []int{}
		}
		return nil
	}
	for d := 1; d <= min(n, limit); d++ {
		if n%d == 0 {
			if rest := leastFactors(n/d, k-1, d); rest != nil {
				return append([]int{d}, rest...)
			}
		}
	}
	return nil
}

// TestDims_AnyNumber_IsLeastFactorization compares with all factorizations.
func TestDims_AnyNumber_IsLeastFactorization(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, k := rapid.IntRange(1, 3000).Draw(t, "processes"), rapid.IntRange(1, 6).Draw(t, "dimensions")
		got, err := mpi.Dims(n, make([]int, k)...)
		if want := leastFactors(n, k, n); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v, %v, want %v", got, err, want)
		}
	})
}

func TestDims_SomeFixed_FillsTheOthers(t *testing.T) {
	fixed := []int{0, 2, 0}
	for _, c := range []struct {
		procs      int
		dims, want []int
	}{
		{6, []int{0, 0}, []int{3, 2}}, {7, []int{0, 0}, []int{7, 1}}, {6, []int{0, 3, 0}, []int{2, 3, 1}}, // Examples of the standard.
		{12, fixed, []int{3, 2, 2}}, {6, []int{2, 3}, []int{2, 3}}, {1, nil, []int{}}, {1 << 30, make([]int, 31), append(slices.Repeat([]int{2}, 30), 1)},
	} {
		got, err := mpi.Dims(c.procs, c.dims...)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d processes in %v: %v, %v, want %v", c.procs, c.dims, got, err, c.want)
		}
	}
	if !slices.Equal(fixed, []int{0, 2, 0}) {
		t.Errorf("the caller's dimensions are %v afterwards", fixed)
	}
}

func TestDims_NoSolution_ReturnsErrTopology(t *testing.T) {
	for _, c := range []struct {
		procs int
		dims  []int
	}{{7, []int{0, 3, 0}}, {6, []int{2, 2}}, {0, []int{0}}, {-4, []int{0, 2}}, {4, []int{-2, -2}}, {2, nil}, {1 << 40, []int{0}}} {
		if got, err := mpi.Dims(c.procs, c.dims...); !errors.Is(err, mpi.ErrTopology) {
			t.Errorf("%d processes in %v: %v, %v", c.procs, c.dims, got, err)
		}
	}
}
