package run

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// Blocks are blocks of different sizes, in elements. With nil displs they are contiguous.
type Blocks struct{ Counts, Displs []int }

// Clone returns a copy of the blocks.
func (b Blocks) Clone() Blocks { return Blocks{slices.Clone(b.Counts), slices.Clone(b.Displs)} }

// Check checks the blocks of a buffer of room elements. It returns framework.ErrRank for invalid
// numbers, and framework.ErrTruncate for blocks outside of the buffer. apart forbids overlaps.
// Check returns the sum of the counts.
func (b Blocks) Check(what string, room int, apart bool) (sum int, err error) {
	if b.Displs != nil && len(b.Displs) != len(b.Counts) {
		return 0, fmt.Errorf("%w: %d displacements of %s for %d counts", framework.ErrRank, len(b.Displs), what, len(b.Counts))
	}
	end, mixed := 0, false // Of the blocks so far. mixed is set if they are not in order.
	for i, n := range b.Counts {
		at := end
		if b.Displs != nil {
			at = b.Displs[i]
		}
		if n < 0 || at < 0 {
			return 0, fmt.Errorf("%w: block %d of %s has %d elements at %d", framework.ErrRank, i, what, n, at)
		}
		if n > room || at > room-n {
			return 0, fmt.Errorf("%w: block %d of %s has %d elements at %d, and the slice %d", framework.ErrTruncate, i, what, n, at, room)
		}
		if sum > math.MaxInt-n {
			return 0, fmt.Errorf("%w: the counts of %s are too large to add up", framework.ErrTruncate, what)
		}
		if sum += n; n > 0 {
			mixed = mixed || at < end
			end = at + n
		}
	}
	if apart && mixed {
		err = b.apart(what)
	}
	return sum, err
}

// apart finds blocks that overlap.
func (b Blocks) apart(what string) error {
	order := make([]int, 0, len(b.Counts))
	for i, n := range b.Counts {
		if n > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(b.Displs[i], b.Displs[j]) })
	for k := 1; k < len(order); k++ {
		if i, j := order[k-1], order[k]; b.Displs[i]+b.Counts[i] > b.Displs[j] {
			return fmt.Errorf("%w: blocks %d and %d of %s overlap", framework.ErrTruncate, i, j, what)
		}
	}
	return nil
}

// bytes returns the sizes and offsets of the blocks in bytes, in memory that is reused, and nil
// without blocks.
func (b Blocks) bytes(sizes, offsets *[]int, elem int) (counts, at []int) {
	if b.Counts == nil {
		return nil, nil
	}
	counts, at = (*sizes)[:0], (*offsets)[:0]
	end := 0
	for i, n := range b.Counts {
		if b.Displs != nil {
			end = b.Displs[i] * elem
		}
		counts, at = append(counts, n*elem), append(at, end)
		end += n * elem
	}
	*sizes, *offsets = counts, at
	return counts, at
}
