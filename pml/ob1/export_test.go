package ob1

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/ob1/choose"
	"github.com/ferrympi/ferry/progress"
)

// Balance returns what credit from has towards to, what to owes it, and what the
// card gave.
func Balance(from, to *Module) (have, owed, all int64) {
	from.engine.Lock()
	p := from.procs.Find(to.env.Self)
	have, all = p.credit, p.granted
	from.engine.Unlock()
	to.engine.Lock()
	owed = to.procs.Find(from.env.Self).owed
	to.engine.Unlock()
	return have, owed, all
}

// TookBoth is what is learnt of a message that has passed another one.
var TookBoth = tookBoth

// Incoming is what is known of messages from one process, and FirstLap its method.
type Incoming = incoming

// FirstLap takes in bytes that came by wide.
func (in *incoming) FirstLap(bytes int64, ring int) bool { return in.firstLap(bytes, ring) }

// StateOf returns whether a module has state for large messages to and from a process.
func StateOf(m *Module, peer framework.Life) (sends, receives bool) {
	m.engine.Lock()
	defer m.engine.Unlock()
	p := m.procs.Find(peer)
	return p.packing != nil, p.incoming.learnt != nil
}

// FirstWay returns the first choice for large messages of a new process.
func FirstWay(engine *progress.Engine) choose.Way {
	p := &proc{m: &Module{engine: engine}}
	way, _ := p.learnKind(kind{depth: alone, class: classes - 1}, true).Next(choose.All)
	return way
}
