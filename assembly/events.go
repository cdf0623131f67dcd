package assembly

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// event is the client's upcall: it must not block. A PML that is told of a death waits
// for the engine, in which a transport may hang; then a dump says so all the same.
func (a *Assembly) event(ev bootstrap.Event) {
	if to, from, ok := streamDisconnect(&ev); ok {
		a.streamDisconnected(ev, to, from)
		return
	}
	defer a.passToStreams(ev)
	u := &a.upcalls
	u.Lock()
	defer u.Unlock()
	if u.closing {
		return
	}
	switch ev.Kind {
	case bootstrap.ProcDied:
		a.absent(ev)
		a.env.Logger.Info("process died", "proc", ev.Proc.String(), "reason", ev.Reason)
		for _, life := range a.lives(ev) {
			a.died(life, ev.Reason)
		}
		for _, life := range a.streamsOf(ev) { // Later than the process, see catchUp.
			a.died(life, ev.Reason)
		}
	case bootstrap.ProcLeft:
		a.absent(ev)
		a.leave(ev)
	case bootstrap.GivenUp:
		a.env.Logger.Info("a process has given up on this one", "proc", ev.Proc.String(), "reason", ev.Reason)
		a.givenUp(ev, fmt.Errorf("%w: %s", framework.ErrGivenUp, ev.Reason))
	case bootstrap.Broken:
		a.env.Logger.Debug("collectives are broken", "comm", ev.Comm.String(), "proc", ev.Proc.String(), "reason", ev.Reason)
		a.passes(news{broken: &ev})
	case bootstrap.Revoked:
		a.env.Logger.Debug("a communicator is revoked", "comm", ev.Comm.String(), "proc", ev.Proc.String())
		a.passes(news{revoked: &ev})
	case bootstrap.Noted:
		a.passNote(ev)
	case bootstrap.ServerLost:
		a.serverLost(ev.Reason)
	case bootstrap.Dump:
		if a.options.Watcher != nil && !u.dumping {
			u.dumping = true
			u.running.Go(func() {
				a.options.Watcher.Dump(ev.Reason)
				u.Lock()
				u.dumping = false
				u.Unlock()
			})
		}
	}
}

// died passes on the death of an incarnation, once. upcalls is locked.
func (a *Assembly) died(life framework.Life, reason string) {
	a.mu.Lock()
	isNew := a.dead.add(life, reason) // Before any PML or waiter is notified, so that no error names a death that Dead lacks.
	a.mu.Unlock()
	if !isNew {
		return
	}
	a.passes(news{peer: life, died: reason})
	if life == a.env.Self {
		a.reportedDead(reason)
	}
}

// absent counts a process that has ended no longer among those of the node.
func (a *Assembly) absent(ev bootstrap.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.here.end(framework.Life{ID: a.env.Worlds.ID(ev.Proc), Nonce: ev.Nonce})
}

// endExchange passes on the end of all exchange with an incarnation. upcalls is locked.
func (a *Assembly) endExchange(life framework.Life, how error) {
	a.mu.Lock()
	known, ok := a.known.get(life)
	if ok {
		known.hasEnded = true
		a.known.set(life, known)
	}
	a.mu.Unlock()
	a.passes(news{peer: life, gone: how, times: known.times})
}

// news is for PMLs and watcher: that a life is over, because it died or otherwise, or that
// the collectives of a communicator are.
type news struct {
	peer   framework.Life
	died   string
	gone   error
	times  uint32 // of gone: how often the two had begun afresh then
	broken *bootstrap.Event
	// revoked is the event Revoked, or Revoke of this process.
	revoked *bootstrap.Event
	note    *bootstrap.Event // For the watcher alone.
	// mayDrop reports that processes may be due to be dropped. The other fields are zero.
	mayDrop bool
}

// passes has PMLs and watcher told. upcalls is locked.
func (a *Assembly) passes(n news) {
	u := &a.upcalls
	u.news = append(u.news, n)
	if !u.telling {
		u.telling = true
		u.running.Go(a.tell)
	}
}

// tell delivers the queue in order. A closing process delivers it only if the process is isolated, so that no
// PML sends anything to its peers.
func (a *Assembly) tell() {
	u := &a.upcalls
	u.Lock()
	defer u.Unlock()
	for len(u.news) > 0 && (!u.closing || u.isIsolated) {
		n := u.news[0]
		u.news = u.news[1:]
		if n.note != nil {
			u.notes--
		}
		u.Unlock()
		if n.mayDrop {
			a.drop()
		} else {
			a.pass(n)
		}
		u.Lock()
		if a.ends(n) {
			a.passDrops()
		}
	}
	u.telling = false
}

func (a *Assembly) pass(n news) {
	if n.note != nil {
		a.options.Watcher.Noted(n.peer, n.note.Body)
		return
	}
	for _, m := range a.pmls {
		switch {
		case n.broken != nil: // Members refuse communicators that others have created.
			a.inquire(m, n.broken.Proc)
		case n.revoked != nil:
			a.inquire(m, n.revoked.Proc)
		case n.gone != nil:
			a.tellGone(m, n)
		case n.peer != a.env.Self: // The Watcher ends the operations of this process.
			m.PeerFailed(n.peer, n.died)
		}
	}
	switch w := a.options.Watcher; {
	case w == nil:
	case n.gone != nil:
		w.Gone(n.peer, n.gone)
	case a.process != nil && (n.broken != nil || n.revoked != nil): // The process's Watcher is notified.
	case n.broken != nil:
		w.Broken(n.broken.Comm, n.broken.Proc, n.broken.Reason)
	case n.revoked != nil:
		if n.revoked.Proc != a.env.Identity.Proc {
			w.Revoked(n.revoked.Comm, n.revoked.Proc)
		}
	default:
		w.Died(n.peer, n.died)
	}
}

// Broke tells the other members of a communicator that this one has stopped taking part in
// its collectives, and why. It returns at once.
func (a *Assembly) Broke(comm cid.Extended, members []framework.Proc, why error) {
	if events, ok := framework.As[bootstrap.EventSource](a.client); ok && len(members) > 1 {
		events.Broke(comm, members, why.Error())
	}
}

// Revoke reports to the other members of a communicator that this process has revoked it, as
// bootstrap.Revoker does. ErrUnsupported if the bootstrap cannot do that.
func (a *Assembly) Revoke(comm cid.Extended, members []framework.Proc) error {
	a.upcalls.Lock()
	if !a.upcalls.closing {
		a.passes(news{revoked: &bootstrap.Event{Comm: comm, Proc: a.env.Identity.Proc}})
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

// tellGivenUp is pml.Env's GiveUp.
func (a *Assembly) tellGivenUp(peer framework.Life, why error) {
	if a.disconnectStream(peer, why) {
		return
	}
	if events, ok := framework.As[bootstrap.EventSource](a.client); ok {
		a.gaveUp(peer)
		events.GiveUp(a.env.Worlds.Proc(peer.ID), peer.Nonce, why.Error())
	}
}

// lives returns which lives of a process an event is about: the one that it names, or
// all that are known if the bootstrap can't name it.
func (a *Assembly) lives(ev bootstrap.Event) []framework.Life {
	ended := framework.Life{ID: a.env.Worlds.ID(ev.Proc), Nonce: ev.Nonce}
	if ended.Nonce != 0 {
		return []framework.Life{ended}
	}
	if ended.ID == a.env.Self.ID { // Tables have it, too.
		return []framework.Life{a.env.Self}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if life, ok := a.known.present(ended.ID); ok {
		return []framework.Life{life}
	}
	return nil
}

// Constructs describes the group constructs that wait for others.
func (a *Assembly) Constructs() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, turn := range slices.Sorted(maps.Keys(a.constructs.waiting)) {
		all = append(all, a.constructs.waiting[turn])
	}
	return all
}
