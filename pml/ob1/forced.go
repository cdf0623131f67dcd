package ob1

import "github.com/ferrympi/ferry/pml/ob1/choose"

// The ways that pml.ob1.way allows, beside auto.
const randomWay = "random"

// waysOf returns the ways that a value of pml.ob1.way allows.
func waysOf(value string) choose.Set {
	for w := range choose.Ways {
		if value == w.String() {
			return choose.Of(w)
		}
	}
	return choose.All
}

// randomWay draws one, for tests.
func (m *Module) randomWay(possible choose.Set) choose.Way {
	for {
		m.drawn = m.drawn*6364136223846793005 + 1442695040888963407
		if w := choose.Way(m.drawn >> 33 % uint64(choose.Ways)); possible.Has(w) {
			return w
		}
	}
}
