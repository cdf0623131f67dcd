package ob1

import (
	"math"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// The costs of rendezvous protocols that one pair of processes has measured serve all pairs of the
// node. A process publishes them in the node table of the transport when the warm-up of a selection
// ends, and when its best protocol changes. A new selection starts with published costs. docs/wire.md
// has the layout.

const (
	// costsVersion is the version of the contents. It changes with the order of protocols, patterns
	// or classes.
	costsVersion = 1
	// costWords is the number of words of one kind of message, each with the costs of two protocols.
	costWords = int(selector.Protocols+1) / 2
	costKinds = int(btl.Memories) * int(patterns) * classes
)

// Costs outside of these limits are damaged or meaningless, in ns per byte.
const (
	minCost = 1. / 1024
	maxCost = 1 << 20
)

const (
	// hopeless is the ratio to the lowest cost above which selectors skip a protocol at the start.
	hopeless = 2.1
	// firstLapCost is the cost of the first pass through a ring, in relation to that of later ones.
	firstLapCost = 2
)

// nodeTable returns the node table of a transport, or nil.
func (t *transport) nodeTable() btl.NodeTable {
	if t == nil || t.copier == nil {
		return nil
	}
	return t.copier.NodeTable(costsVersion, costKinds*costWords)
}

// firstWord returns the index of the kind's first word in the node table.
func (k messageKind) firstWord() int {
	return ((int(k.memory)*int(patterns)+int(k.pattern))*classes + int(k.class)) * costWords
}

// publishedCosts returns the costs of a kind of message that a process of the node has published.
func publishedCosts(table btl.NodeTable, k messageKind) (c selector.Costs) {
	for i := range costWords {
		word := table.Load(k.firstWord() + i)
		for half := range 2 {
			p := 2*i + half
			x := math.Float32frombits(uint32(word >> (32 * half)))
			if p < len(c) && x >= minCost && x <= maxCost {
				c[p] = x
			}
		}
	}
	return c
}

// publishCosts publishes costs. An unknown one does not replace a published one. It may be that of
// another state of the machine, so it counts as hopeless beside the best one.
func publishCosts(table btl.NodeTable, k messageKind, c selector.Costs) {
	best := bestOf(c)
	if best == selector.Protocols {
		return
	}
	published := publishedCosts(table, k)
	var halves [2 * costWords]uint32
	for p, x := range c {
		if x == 0 && published[p] > 0 {
			x = max(published[p], hopeless*c[best])
		}
		halves[p] = math.Float32bits(x)
	}
	for i := range costWords {
		table.Store(k.firstWord()+i, uint64(halves[2*i])|uint64(halves[2*i+1])<<32)
	}
}

// bestOf returns the protocol of the lowest known cost, or Protocols.
func bestOf(c selector.Costs) selector.Protocol {
	best := selector.Protocols
	for p := range selector.Protocols {
		if c[p] > 0 && (best == selector.Protocols || c[p] < c[best]) {
			best = p
		}
	}
	return best
}

// record passes the measured time of a message to the selector, and publishes the costs if the best
// protocol is not the published one.
func (s *selection) record(p selector.Protocol, bytes, ns int64, isClean bool) {
	s.Record(p, bytes, ns, isClean)
	if s.publishedBest == s.Best() {
		return
	}
	if c, isWarm := s.Costs(); isWarm {
		s.publishedBest = s.Best()
		if table := s.transport.nodeTable(); table != nil {
			publishCosts(table, s.kind, c)
		}
	}
}

// startFromNode starts a selection with the published costs of its kind, and reports whether there
// are any. hasLapped is set if messages have passed through the whole ring.
func (s *selection) startFromNode(hasLapped bool) bool {
	table := s.transport.nodeTable()
	if table == nil {
		return false
	}
	c := publishedCosts(table, s.kind)
	if !hasLapped {
		// Otherwise the warm-up would last until the first lap is over.
		c[selector.PipelineFull] *= firstLapCost
	}
	best := bestOf(c)
	if best == selector.Protocols {
		return false
	}
	s.Start(c)
	s.publishedBest = best
	return true
}
