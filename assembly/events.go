package assembly

import (
	"maps"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// event is the client's upcall: it must not block. A PML that is told of a death waits
// for the engine, in which a transport may hang; then a dump says so all the same.
func (a *Assembly) event(ev bootstrap.Event) {
	u := &a.upcalls
	u.Lock()
	defer u.Unlock()
	if u.closing {
		return
	}
	switch ev.Kind {
	case bootstrap.ProcDied:
		a.env.Logger.Warn("process died", "proc", ev.Proc.String(), "reason", ev.Reason)
		for _, life := range a.lives(framework.Life{ID: a.env.Worlds.ID(ev.Proc), Nonce: ev.Nonce}) {
			a.mu.Lock()
			a.dead[life] = ev.Reason // first: a communicator that is made from now on knows
			a.mu.Unlock()
			u.deaths = append(u.deaths, death{life, ev.Reason})
		}
		if !u.telling {
			u.telling = true
			u.running.Go(a.tell)
		}
	case bootstrap.ServerLost:
		// Constructs fail by themselves; messages need no server.
		a.env.Logger.Warn("the launcher is gone", "reason", ev.Reason)
	case bootstrap.Dump:
		if a.options.Watcher != nil && !u.dumping {
			u.dumping = true
			u.running.Go(func() {
				a.options.Watcher.Dump()
				u.Lock()
				u.dumping = false
				u.Unlock()
			})
		}
	}
}

// death is that of one life.
type death struct {
	peer   framework.Life
	reason string
}

// tell tells of deaths, in order.
func (a *Assembly) tell() {
	u := &a.upcalls
	u.Lock()
	defer u.Unlock()
	for len(u.deaths) > 0 && !u.closing {
		d := u.deaths[0]
		u.deaths = u.deaths[1:]
		u.Unlock()
		for _, m := range a.pmls {
			m.PeerFailed(d.peer, d.reason)
		}
		if a.options.Watcher != nil {
			a.options.Watcher.Died(d.peer, d.reason)
		}
		u.Lock()
	}
	u.telling = false
}

// lives returns which lives have ended with a process: the one that was named, or
// all that are known if the bootstrap can't name it.
func (a *Assembly) lives(ended framework.Life) []framework.Life {
	if ended.Nonce != 0 {
		return []framework.Life{ended}
	}
	var all []framework.Life
	for _, life := range a.knownLives() {
		if life.ID == ended.ID {
			all = append(all, life)
		}
	}
	return all
}

// Dead returns the lives that have failed, and how. A watcher hears of every life
// that is not among them now.
func (a *Assembly) Dead() map[framework.Life]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.dead) // nil, or small
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
