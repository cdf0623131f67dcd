package mpi

import (
	"fmt"
	"math"
	"slices"
)

// Dims returns the dimensions of a grid of procs processes (MPI_Dims_create, MPI-4.1 section 8.5.2). Positive
// values of dims stay as they are. Those that are 0 are chosen as close to each other as possible, in descending
// order. The largest of them is as small as it can be, then the second largest, and so on. The product of
// the result is procs. ErrTopology if no such dimensions exist. It is local.
//
//	dims, err := mpi.Dims(12, 0, 0)    // 4, 3
//	dims, err := mpi.Dims(12, 0, 2, 0) // 3, 2, 2
func Dims(procs int, dims ...int) ([]int, error) {
	rest, free := procs, 0
	for _, d := range dims {
		switch {
		case d == 0:
			free++
		case d < 0 || rest%d != 0:
			return nil, fmt.Errorf("%w: %d processes in dimensions %v; fixed dimensions must divide the number of processes", ErrTopology, procs, dims)
		default:
			rest /= d
		}
	}
	if procs < 1 || procs > math.MaxInt32 || free == 0 && rest != 1 {
		return nil, fmt.Errorf("%w: %d processes in dimensions %v; pass a positive number of processes, and 0 for a dimension to choose", ErrTopology, procs, dims)
	}
	chosen := balance(rest, free)
	dims = slices.Clone(dims)
	for i, d := range dims {
		if d == 0 {
			dims[i], chosen = chosen[0], chosen[1:]
		}
	}
	return dims, nil
}

// balance returns n as the lexicographically least product of k factors in descending order.
func balance(n, k int) []int {
	factors := make([]int, k)
	if k > 0 {
		factorize(n, factors, n, divisors(n), map[[3]int]bool{})
	}
	return factors
}

// factorize writes n as a product of factors that are at most limit, each at most as large as the one before. It
// returns false if there is none. failed has the arguments for which none was found.
func factorize(n int, factors []int, limit int, divisors []int, failed map[[3]int]bool) bool {
	k := len(factors)
	if k == 1 {
		factors[0] = n
		return n <= limit
	}
	key := [3]int{n, k, limit}
	if failed[key] {
		return false
	}
	for _, d := range divisors {
		if d > limit {
			break
		}
		if n%d != 0 || !isPowerAtLeast(d, k, n) {
			continue
		}
		if factors[0] = d; factorize(n/d, factors[1:], d, divisors, failed) {
			return true
		}
	}
	failed[key] = true
	return false
}

// isPowerAtLeast reports whether base to the power of k is at least n.
func isPowerAtLeast(base, k, n int) bool {
	power := 1
	for range k {
		if power *= base; power >= n {
			return true
		}
		if base == 1 {
			break
		}
	}
	return power >= n
}

// divisors returns the divisors of n in ascending order.
func divisors(n int) (all []int) {
	for d := 1; d <= n/d; d++ {
		if n%d == 0 {
			all = append(all, d)
			if d != n/d {
				all = append(all, n/d)
			}
		}
	}
	slices.Sort(all)
	return all
}
