package assembly

import (
	"slices"
	"sync"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// An ended process is dropped after its last communicator, because the ranks of a changing job only rise. A
// wire-up in progress at the end of the process may still bring its card. The process stays until the wire-up
// ends.

// maxDroppedRoutes is the number of dropped processes with a route for Explain.
const maxDroppedRoutes = 1000

// routeHistory has the routes to the last dropped processes.
type routeHistory struct {
	pairByPeer map[framework.Incarnation]Pair
	// The oldest one first.
	dropOrder []framework.Incarnation
}

func (p *routeHistory) add(incarnation framework.Incarnation, pair Pair) {
	if _, known := p.pairByPeer[incarnation]; known {
		return
	}
	if p.pairByPeer == nil {
		p.pairByPeer = map[framework.Incarnation]Pair{}
	}
	if len(p.dropOrder) == maxDroppedRoutes {
		delete(p.pairByPeer, p.dropOrder[0])
		p.dropOrder = slices.Delete(p.dropOrder, 0, 1)
	}
	p.pairByPeer[incarnation] = pair
	p.dropOrder = append(p.dropOrder, incarnation)
}

// wireUps are the wire-ups in progress, and the ended processes to drop after them.
type wireUps struct {
	sync.Mutex
	lastNumber     uint64
	runningNumbers map[uint64]struct{}
	pendingDrops   map[framework.Incarnation]pendingDrop
}

// pendingDrop is a process to drop.
type pendingDrop struct {
	// Number of the last wire-up at the end of the process.
	lastWireUp uint64
	// An attempt is due. False between a refusal and Droppable.
	isDue bool
}

// HoldPeers keeps ended processes until release is called. The caller of WireUp calls it before, and release when it has
// made the communicator. release is called once. A stream keeps those of its process, too (catchUp).
func (a *Assembly) HoldPeers() (release func()) {
	if a.ownerProcess == nil {
		return a.holdPeers()
	}
	ofProcess, own := a.ownerProcess.holdPeers(), a.holdPeers()
	return func() {
		own()
		ofProcess()
	}
}

func (a *Assembly) holdPeers() (release func()) {
	w := &a.wireUps
	w.Lock()
	defer w.Unlock()
	w.lastNumber++
	number := w.lastNumber
	if w.runningNumbers == nil {
		w.runningNumbers = map[uint64]struct{}{}
	}
	w.runningNumbers[number] = struct{}{}
	return func() {
		w.Lock()
		delete(w.runningNumbers, number)
		mayDrop := len(w.pendingDrops) > 0
		w.Unlock()
		if mayDrop {
			a.scheduleDrops()
		}
	}
}

// addEnded adds a process to those to drop. The PMLs have processed its end.
func (w *wireUps) addEnded(incarnation framework.Incarnation) {
	w.Lock()
	defer w.Unlock()
	if w.pendingDrops == nil {
		w.pendingDrops = map[framework.Incarnation]pendingDrop{}
	}
	w.pendingDrops[incarnation] = pendingDrop{w.lastNumber, true}
}

// noteEndOfPeer reports whether n is the end of another process, and adds it to those to drop.
func (a *Assembly) noteEndOfPeer(n upcall) bool {
	state := n.peerEvent.State
	if state != framework.Left && state != framework.Failed || n.peerEvent.Peer == a.env.Self {
		return false
	}
	a.wireUps.addEnded(n.peerEvent.Peer)
	return true
}

// candidates returns the processes with an attempt due, except those of wire-ups in progress.
func (w *wireUps) candidates() (incarnations []framework.Incarnation) {
	w.Lock()
	defer w.Unlock()
	first := w.lastNumber + 1
	for number := range w.runningNumbers {
		first = min(first, number)
	}
	for incarnation, e := range w.pendingDrops {
		if e.isDue && e.lastWireUp < first {
			incarnations = append(incarnations, incarnation)
			w.pendingDrops[incarnation] = pendingDrop{lastWireUp: e.lastWireUp}
		}
	}
	return incarnations
}

// droppable is pml.Env's Droppable.
func (a *Assembly) droppable(peer framework.Incarnation) {
	w := &a.wireUps
	w.Lock()
	e, ended := w.pendingDrops[peer]
	if !ended && a.isStream(peer) { // The bootstrap reports no end of a stream.
		e.lastWireUp, ended = w.lastNumber, true
	}
	if ended {
		if w.pendingDrops == nil {
			w.pendingDrops = map[framework.Incarnation]pendingDrop{}
		}
		w.pendingDrops[peer] = pendingDrop{e.lastWireUp, true}
	}
	w.Unlock()
	if ended {
		a.scheduleDrops()
	}
}

// scheduleDrops starts drop, and returns at once.
func (a *Assembly) scheduleDrops() {
	a.upcalls.Lock()
	defer a.upcalls.Unlock()
	a.enqueueDrops()
}

// enqueueDrops is scheduleDrops with upcalls locked.
func (a *Assembly) enqueueDrops() {
	if !a.upcalls.isClosing && !slices.ContainsFunc(a.upcalls.pendingUpcalls, func(n upcall) bool { return n.hasDrops }) {
		a.enqueue(upcall{hasDrops: true})
	}
}

// dropAfterLateCard adds a process to those to drop if its card came after it was dropped.
func (a *Assembly) dropAfterLateCard(incarnation framework.Incarnation) {
	a.mu.Lock()
	_, dropped := a.droppedRoutes.pairByPeer[incarnation]
	a.mu.Unlock()
	if dropped {
		a.wireUps.addEnded(incarnation)
	}
}

// dropCandidates drops the candidates, except those with a communicator.
func (a *Assembly) dropCandidates() {
	a.learnMu.Lock()
	defer a.learnMu.Unlock()
	for _, incarnation := range a.wireUps.candidates() {
		a.mu.Lock()
		_, known := a.peers.get(incarnation)
		a.mu.Unlock()
		var route Pair
		if known {
			route = a.pair(incarnation)
		}
		if !a.dropPeer(incarnation) {
			continue
		}
		a.mu.Lock()
		if known {
			a.droppedRoutes.add(incarnation, route)
		}
		a.peers.remove(incarnation)
		a.streams.forget(incarnation)
		a.failedIncarnations.remove(incarnation)
		delete(a.leftIncarnations, incarnation)
		delete(a.savedRoutes, incarnation)
		a.mu.Unlock()
		a.wireUps.Lock()
		delete(a.wireUps.pendingDrops, incarnation)
		a.wireUps.Unlock()
	}
}

// dropPeer reports whether all PMLs have dropped a process.
func (a *Assembly) dropPeer(incarnation framework.Incarnation) bool {
	dropped := true
	for _, m := range a.pmls {
		d, ok := framework.As[pml.PeerDropper](m.Module)
		dropped = ok && d.DropPeer(incarnation) && dropped
	}
	return dropped
}
