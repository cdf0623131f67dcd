package ob1

import "github.com/ferrympi/ferry/pml/ob1/selector"

// randomProtocols is the value of the parameter protocol that selects protocols at random.
const randomProtocols = "random"

// parseProtocols returns the protocols that a value of the parameter protocol allows.
func parseProtocols(value string) selector.Set {
	for p := range selector.Protocols {
		if value == p.String() {
			return selector.Of(p)
		}
	}
	return selector.All
}

// randomProtocol returns one of the possible protocols at random, for tests.
func (m *Module) randomProtocol(possible selector.Set) selector.Protocol {
	for {
		m.randomState = m.randomState*6364136223846793005 + 1442695040888963407
		if p := selector.Protocol(m.randomState >> 33 % uint64(selector.Protocols)); possible.Has(p) {
			return p
		}
	}
}
