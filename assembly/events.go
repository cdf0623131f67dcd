package assembly

import (
	"fmt"
	"sync"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// upcalls are the notifications of the PMLs and the Watcher.
type upcalls struct {
	sync.Mutex
	isClosing bool
	// isIsolated reports that the isolation of this process is pending, or was delivered.
	isIsolated bool
	// Closed when isClosing is set.
	closeSignal chan struct{}
	// No notes are sent after the loss of the launcher.
	launcherLossErr error
	// In order.
	pendingUpcalls []upcall
	// Number of notes in pendingUpcalls.
	queuedNotes       int
	isDelivering      bool
	dumpingKinds      map[string]bool
	runningGoroutines sync.WaitGroup
}

// event receives the events of the bootstrap client. It does not block. PMLs are notified by another goroutine, because they wait for the
// engine, and a transport may hang there. A dump does not wait for them.
func (a *Assembly) event(ev bootstrap.Event) {
	if to, from, ok := streamDisconnect(&ev); ok {
		a.streamDisconnected(ev, to, from)
		return
	}
	defer a.passToStreams(ev)
	u := &a.upcalls
	u.Lock()
	defer u.Unlock()
	if u.isClosing {
		return
	}
	switch ev.Kind {
	case bootstrap.PeerFailed:
		a.removeNodeProc(ev)
		a.env.Logger.Info("process failed", "proc", ev.Proc.String(), "reason", ev.Reason)
		for _, incarnation := range a.incarnationsOf(ev) {
			a.peerFailed(incarnation, ev.Reason)
		}
		for _, incarnation := range a.streamsOf(ev) { // After the process, see catchUp.
			a.peerFailed(incarnation, ev.Reason)
		}
	case bootstrap.PeerLeft:
		a.removeNodeProc(ev)
		a.leave(ev)
	case bootstrap.PeerUnreachable:
		a.env.Logger.Info("a process has disconnected this one", "proc", ev.Proc.String(), "reason", ev.Reason)
		a.disconnectedBy(ev)
	case bootstrap.CommBroken:
		a.env.Logger.Debug("collectives are broken", "comm", ev.Comm.String(), "proc", ev.Proc.String(), "reason", ev.Reason)
		a.enqueue(upcall{brokenComm: &ev})
	case bootstrap.CommRevoked:
		a.env.Logger.Debug("a communicator is revoked", "comm", ev.Comm.String(), "proc", ev.Proc.String())
		a.enqueue(upcall{revokedComm: &ev})
	case bootstrap.NoteReceived:
		a.passNote(ev)
	case bootstrap.ServerLost:
		a.launcherLost(ev.Reason)
	case bootstrap.Dump:
		a.dump(ev.Reason)
	}
}

// mostDumps limits the dumps in progress, because the launcher chooses their kinds.
const mostDumps = 4

// dump starts a dump, unless one of its kind is in progress. Dumps of different kinds do not delay each other. upcalls is locked.
func (a *Assembly) dump(kind string) {
	u := &a.upcalls
	if a.options.Watcher == nil || u.dumpingKinds[kind] || len(u.dumpingKinds) == mostDumps {
		return
	}
	if u.dumpingKinds == nil {
		u.dumpingKinds = map[string]bool{}
	}
	u.dumpingKinds[kind] = true
	u.runningGoroutines.Go(func() {
		a.options.Watcher.Dump(kind)
		u.Lock()
		defer u.Unlock()
		delete(u.dumpingKinds, kind)
	})
}

// peerFailed enqueues the failure of an incarnation unless it was reported before. upcalls is locked.
func (a *Assembly) peerFailed(incarnation framework.Incarnation, reason string) {
	a.mu.Lock()
	isNew := a.failedIncarnations.add(incarnation, reason) // Before any notification, so that every failure in an error is in the list.
	a.mu.Unlock()
	if !isNew {
		return
	}
	a.enqueue(upcall{peerEvent: framework.FailedEvent(incarnation, reason)})
	if incarnation == a.env.Self {
		a.reportedDead(reason)
	}
}

// removeNodeProc removes an ended process from those of the node.
func (a *Assembly) removeNodeProc(ev bootstrap.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nodeProcs.end(framework.Incarnation{ID: a.env.Worlds.ID(ev.Proc), Nonce: ev.Nonce})
}

// peerEnded enqueues the event of a peer that has left or is unreachable, and records it. upcalls is locked.
func (a *Assembly) peerEnded(ev framework.PeerEvent) {
	a.mu.Lock()
	known, ok := a.peers.get(ev.Peer)
	if ok {
		known.hasEnded = true
		a.peers.set(ev.Peer, known)
	}
	a.mu.Unlock()
	a.enqueue(upcall{peerEvent: ev, connEpoch: known.epoch})
}

// upcall is a notification of the PMLs and the Watcher. Exactly one of peerEvent, brokenComm, revokedComm, receivedNote and hasDrops is set.
type upcall struct {
	// The zero value, with the state Alive, if it is not set.
	peerEvent framework.PeerEvent
	// Of the connection with the peer of peerEvent, if the peer has not failed.
	connEpoch  uint32
	brokenComm *bootstrap.Event
	// By another process, or by this one.
	revokedComm *bootstrap.Event
	// For the Watcher alone.
	receivedNote *bootstrap.Event
	// Processes may be due to be dropped.
	hasDrops bool
}

// enqueue enqueues a notification, and starts the goroutine that delivers the queue. upcalls is locked.
func (a *Assembly) enqueue(n upcall) {
	u := &a.upcalls
	u.pendingUpcalls = append(u.pendingUpcalls, n)
	if !u.isDelivering {
		u.isDelivering = true
		u.runningGoroutines.Go(a.deliverEvents)
	}
}

// deliverEvents delivers the queue in order. A closing process delivers it only if the process is isolated, because PMLs send nothing to peers then.
func (a *Assembly) deliverEvents() {
	u := &a.upcalls
	u.Lock()
	defer u.Unlock()
	for len(u.pendingUpcalls) > 0 && (!u.isClosing || u.isIsolated) {
		n := u.pendingUpcalls[0]
		u.pendingUpcalls = u.pendingUpcalls[1:]
		if n.receivedNote != nil {
			u.queuedNotes--
		}
		u.Unlock()
		if n.hasDrops {
			a.dropCandidates()
		} else {
			a.deliver(n)
		}
		u.Lock()
		if a.noteEndOfPeer(n) {
			a.enqueueDrops()
		}
	}
	u.isDelivering = false
}

func (a *Assembly) deliver(n upcall) {
	if n.receivedNote != nil {
		a.options.Watcher.NoteReceived(framework.Incarnation{ID: a.env.Worlds.ID(n.receivedNote.Proc), Nonce: n.receivedNote.Nonce}, n.receivedNote.Body)
		return
	}
	for _, m := range a.pmls {
		switch {
		case n.brokenComm != nil: // Members refuse communicators that others have created.
			a.inquire(m, n.brokenComm.Proc)
		case n.revokedComm != nil:
			a.inquire(m, n.revokedComm.Proc)
		case n.peerEvent.State != framework.Failed:
			a.deliverEnd(m, n)
		case n.peerEvent.Peer != a.env.Self: // The Watcher ends the operations of this process.
			m.PeerChanged(n.peerEvent)
		}
	}
	switch w := a.options.Watcher; {
	case w == nil:
	case a.ownerProcess != nil && (n.brokenComm != nil || n.revokedComm != nil): // The process's Watcher is notified.
	case n.brokenComm != nil:
		w.CollectivesBroken(n.brokenComm.Comm, n.brokenComm.Proc, n.brokenComm.Reason)
	case n.revokedComm != nil:
		if n.revokedComm.Proc != a.env.Identity.Proc {
			w.CommRevoked(n.revokedComm.Comm, n.revokedComm.Proc)
		}
	default:
		w.PeerChanged(n.peerEvent)
	}
}

// ReportBroken reports to the other members of a communicator that this process takes part in no further collective of it. It returns at once.
func (a *Assembly) ReportBroken(comm cid.Extended, members []framework.Proc, why error) {
	if events, ok := framework.As[bootstrap.EventSource](a.client); ok && len(members) > 1 {
		events.ReportBroken(comm, members, why.Error())
	}
}

// Revoke reports to the other members of a communicator that this process has revoked it. It returns ErrUnsupported if the bootstrap has no
// such report.
func (a *Assembly) Revoke(comm cid.Extended, members []framework.Proc) error {
	a.upcalls.Lock()
	if !a.upcalls.isClosing {
		a.enqueue(upcall{revokedComm: &bootstrap.Event{Comm: comm, Proc: a.env.Identity.Proc}})
	}
	a.upcalls.Unlock()
	if len(members) < 2 {
		return nil
	}
	r, ok := framework.As[bootstrap.Revoker](a.client)
	if !ok {
		return fmt.Errorf("%w: this bootstrap does not report revocations to other processes; start the program by ferry run or mpiexec", framework.ErrUnsupported)
	}
	return r.Revoke(comm, members)
}

// disconnectPeer implements pml.Env.Disconnect.
func (a *Assembly) disconnectPeer(peer framework.Incarnation, why error) {
	if a.disconnectStream(peer, why) {
		return
	}
	if events, ok := framework.As[bootstrap.EventSource](a.client); ok {
		a.countDisconnect(peer)
		events.Disconnect(a.env.Worlds.Proc(peer.ID), peer.Nonce, why.Error())
	}
}

// incarnationsOf returns the incarnations that an event is about. An event without a nonce is about the present incarnation of the process.
func (a *Assembly) incarnationsOf(ev bootstrap.Event) []framework.Incarnation {
	ended := framework.Incarnation{ID: a.env.Worlds.ID(ev.Proc), Nonce: ev.Nonce}
	if ended.Nonce != 0 {
		return []framework.Incarnation{ended}
	}
	if ended.ID == a.env.Self.ID { // Tables have it, too.
		return []framework.Incarnation{a.env.Self}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if incarnation, ok := a.peers.currentIncarnation(ended.ID); ok {
		return []framework.Incarnation{incarnation}
	}
	return nil
}
