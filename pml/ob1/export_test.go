package ob1

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/ob1/selector"
	"github.com/ferrympi/ferry/progress"
)

// Balance returns the credit of from towards to, the credit that to owes, and the credit in
// the card.
func Balance(from, to *Module) (have, owed, all int64) {
	from.engine.Lock()
	p := from.procs.Find(to.env.Self)
	have, all = p.credit, p.creditGranted
	from.engine.Unlock()
	to.engine.Lock()
	owed = to.procs.Find(from.env.Self).creditOwed
	to.engine.Unlock()
	return have, owed, all
}

var CrossingTime = crossingTime

type LargeReceives = largeReceives

func (in *largeReceives) FirstLap(bytes int64, ring int) bool { return in.isFirstLap(bytes, ring) }

// HasSelections reports whether a module has selections for large messages from a process.
func HasSelections(m *Module, peer framework.Incarnation) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.procs.Find(peer).incoming.selections != nil
}

// FirstProtocol returns the first selection for large messages of a new process.
func FirstProtocol(engine *progress.Engine) selector.Protocol {
	p := &proc{m: &Module{engine: engine}}
	protocol, _ := p.newSelection(messageKind{pattern: single, class: classes - 1}, true).Select(selector.All)
	return protocol
}

// CopiesInProgress returns the number of copies between processes that m steps, and reports
// whether each request is listed once. Lock held.
func CopiesInProgress(m *Module) (n int, isUnique bool) {
	listed := map[*request]bool{}
	for _, r := range m.copies.requests {
		if r != nil {
			n++
			listed[r] = true
		}
	}
	return n, n == len(listed)
}

// HasAdoptedCosts reports whether messages from peer started with costs of other processes.
func HasAdoptedCosts(m *Module, peer framework.Incarnation) (adopted bool) {
	m.engine.Lock()
	defer m.engine.Unlock()
	for _, patterns := range m.procs.Find(peer).incoming.allSelections() {
		for _, sizes := range patterns {
			for _, s := range sizes {
				adopted = adopted || s != nil && s.source == costsAdopted
			}
		}
	}
	return adopted
}
