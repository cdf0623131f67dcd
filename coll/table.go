package coll

import (
	"cmp"
	"slices"
)

// Table has the choices for communicators of one shape, for each operation in descending order of
// From. It is immutable.
type Table [Operations][]Choice

// Choice is the algorithm for sizes of at least From.
type Choice struct {
	// Args.Size in bytes.
	From      int
	Component string
	Algorithm *Algorithm
}

// ComponentOffer is the offer of one component.
type ComponentOffer struct {
	Component string
	*Offer
}

// NewTable selects among offers, which come in the order of selection. At each size the highest
// priority wins, then the first offer and its first algorithm. A forced algorithm that is offered
// here wins at all sizes.
func NewTable(offers []ComponentOffer, force *Force) *Table {
	t := new(Table)
	for op := range t {
		op := Operation(op)
		if force != nil {
			t[op] = forcedChoices(offers, op, force[op])
		}
		if len(t[op]) == 0 {
			t[op] = bestChoices(offers, op, bestAlgorithm)
		}
	}
	return t
}

// bestChoices calls best for each size at which the result may change.
func bestChoices(offers []ComponentOffer, op Operation, best func([]ComponentOffer, Operation, int) Choice) (list []Choice) {
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
	slices.SortFunc(list, func(a, b Choice) int { return cmp.Compare(b.From, a.From) }) // The order of For.
	return list
}

func bestAlgorithm(offers []ComponentOffer, op Operation, size int) Choice {
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

// For returns the choice for a size, with a nil Algorithm if there is none.
func (t *Table) For(op Operation, size int) *Choice {
	for i := range t[op] {
		if c := &t[op][i]; c.From <= size {
			return c
		}
	}
	return &Choice{}
}
