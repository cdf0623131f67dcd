package coll

import (
	"cmp"
	"slices"
)

// Table is what is done on communicators of one shape: for each operation the
// algorithms, and from which size on each is chosen. It is immutable once it is made.
type Table [Operations][]Choice

// Choice is what is chosen from a size on.
type Choice struct {
	From      int // Args.Size, in bytes
	Component string
	Algorithm *Algorithm
}

// Offered is the offer of one component.
type Offered struct {
	Component string
	*Offer
}

// NewTable chooses among offers, which come in the order of selection: at each size
// the highest priority, and the first among equals; of one component's the first
// algorithm. What is forced goes before, at all sizes, if somebody offers it here.
func NewTable(offers []Offered, force *Force) *Table {
	t := new(Table)
	for op := range t {
		op := Operation(op)
		if force != nil {
			t[op] = forced(offers, op, force[op])
		}
		if len(t[op]) == 0 {
			t[op] = choices(offers, op, bestAt)
		}
	}
	return t
}

// choices asks for the best at each size where it may change.
func choices(offers []Offered, op Operation, best func([]Offered, Operation, int) Choice) (list []Choice) {
	froms := []int{0}
	for _, o := range offers {
		for _, a := range o.Algorithms {
			if a.Op == op && a.From != Never {
				froms = append(froms, a.From, a.Below)
			}
		}
	}
	slices.Sort(froms)
	for _, from := range slices.Compact(froms) {
		best := best(offers, op, from)
		if n := len(list); n == 0 && best.Algorithm != nil || n > 0 && list[n-1].Algorithm != best.Algorithm {
			list = append(list, best)
		}
	}
	slices.SortFunc(list, func(a, b Choice) int { return cmp.Compare(b.From, a.From) }) // as For looks
	return list
}

func bestAt(offers []Offered, op Operation, size int) Choice {
	best, priority := Choice{From: size}, 0
	for _, o := range offers {
		if best.Algorithm != nil && o.Priority <= priority {
			continue
		}
		for i := range o.Algorithms {
			if a := &o.Algorithms[i]; a.Op == op && a.From <= size && (a.Below == 0 || size < a.Below) {
				best.Component, best.Algorithm, priority = o.Component, a, o.Priority
				break
			}
		}
	}
	return best
}

// For returns what is chosen for a size; without an Algorithm if nobody offers any.
func (t *Table) For(op Operation, size int) *Choice {
	for i := range t[op] {
		if c := &t[op][i]; c.From <= size {
			return c
		}
	}
	return &Choice{}
}
