package assembly

import (
	"maps"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// event is the client's upcall: it must not block.
func (a *Assembly) event(ev bootstrap.Event) {
	a.upcall.Lock()
	defer a.upcall.Unlock()
	if a.closing {
		return
	}
	switch ev.Kind {
	case bootstrap.ProcDied:
		a.env.Logger.Warn("process died", "proc", ev.Proc.String(), "reason", ev.Reason)
		for _, life := range a.lives(framework.Life{ID: a.env.Worlds.ID(ev.Proc), Nonce: ev.Nonce}) {
			a.died(life, ev.Reason)
		}
	case bootstrap.ServerLost:
		// Constructs fail by themselves; messages need no server.
		a.env.Logger.Warn("the launcher is gone", "reason", ev.Reason)
	case bootstrap.Dump:
		if a.options.Watcher != nil {
			a.options.Watcher.Dump()
		}
	}
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

func (a *Assembly) died(peer framework.Life, reason string) {
	a.mu.Lock()
	a.dead[peer] = reason // first: a communicator that is made from now on knows
	a.mu.Unlock()
	for _, m := range a.pmls {
		m.PeerFailed(peer, reason)
	}
	if a.options.Watcher != nil {
		a.options.Watcher.Died(peer, reason)
	}
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
