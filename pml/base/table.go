package base

import "iter"

// Table has a value for some of the ranks of a communicator. The zero V stands for none. With few
// members, Get costs one load. Otherwise the values are in pages, so that a handle takes memory for
// the members that exchange messages.
type Table[V comparable] struct {
	flatValues []V
	// Nil until a rank of the page has a value.
	valuePages []*[pageSize]V
}

const (
	// maxFlat is the largest number of members with all values in one slice (32 KiB of pointers).
	maxFlat = 4096
	// maxFlatHandles is maxFlat for communicators in which processes have several ranks. Such a process has as many
	// handles as ranks, and slices would take memory quadratic in their number.
	maxFlatHandles = 256
	// pageSize keeps the pages of few partners and the list of all pages small.
	pageSize = 64
)

// NewTable returns the empty table of a communicator with n members. isWhole is set if each
// process has one rank.
func NewTable[V comparable](n int, isWhole bool) Table[V] {
	if n <= maxFlatHandles || isWhole && n <= maxFlat {
		return Table[V]{flatValues: make([]V, n)}
	}
	return Table[V]{valuePages: make([]*[pageSize]V, (n-1)/pageSize+1)}
}

// Get returns the value of a rank, or the zero V.
func (t *Table[V]) Get(rank int) V {
	if all := t.flatValues; uint(rank) < uint(len(all)) { // The copy saves a second comparison.
		return all[rank]
	}
	return t.paged(rank)
}

func (t *Table[V]) paged(rank int) (none V) {
	page := uint(rank) / pageSize
	if page >= uint(len(t.valuePages)) || t.valuePages[page] == nil {
		return none
	}
	return t.valuePages[page][rank%pageSize]
}

// Set stores the value of a rank, which is in range.
func (t *Table[V]) Set(rank int, value V) {
	if t.flatValues != nil {
		t.flatValues[rank] = value
		return
	}
	page := &t.valuePages[rank/pageSize]
	if *page == nil {
		*page = new([pageSize]V)
	}
	(*page)[rank%pageSize] = value
}

// All returns ranks with their values, ascending.
func (t *Table[V]) All() iter.Seq2[int, V] {
	return func(yield func(int, V) bool) {
		if !eachOf(t.flatValues, 0, yield) {
			return
		}
		for i, page := range t.valuePages {
			if page != nil && !eachOf(page[:], i*pageSize, yield) {
				return
			}
		}
	}
}

// eachOf yields the values of a slice that begins with rank first, and reports whether to continue.
func eachOf[V comparable](values []V, first int, yield func(int, V) bool) bool {
	var none V
	for i, value := range values {
		if value != none && !yield(first+i, value) {
			return false
		}
	}
	return true
}
