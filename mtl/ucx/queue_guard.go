package ucx

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
)

// What others send through shared memory, UCX has them write into one queue of the receiver's. A process
// that dies after it took a place there, and before it filled it, blocks that queue: UCX waits at
// the place for ever, and tells nobody. So after a death in such a class this process sends itself a message as
// others would, from a worker of the guard's. If it does not come, the module is broken: all that waits ends
// with an error, and nothing more is taken.

// A message of the guard's never comes if nothing has ended for blockedAfter, in so many polls at least: what
// was before it in the queue had come by then, though this process may have been stopped.
const (
	blockedAfter = 2 * time.Second
	blockedPolls = 1000
)

// guard sends this process messages through its queue. One that it makes is there for later deaths, too.
type guard struct {
	worker *ucp.Worker
	to     ucp.Endpoint // the module's own worker
	asked  bool         // its message has not come back
	more   bool         // another process has died meanwhile
	word   [16]byte     // that message
	since  time.Time    // something has ended
	polls  int          // since then
	events [1]ucp.Event
}

// queued reports whether messages within the node go through such a queue.
func (c *candidate) queued() bool {
	shm, _ := classOf("shm")
	return len(shm.of(c.resources)) > 0
}

// alone returns the settings of a worker that reaches this process as another one on the node does; nil
// if that is not by such a queue.
func (c *candidate) alone() []ucp.Setting {
	if !c.queued() {
		return nil
	}
	var tls []string
	for _, r := range c.resources {
		if r.Transport != "self" && !slices.Contains(tls, r.Transport) {
			tls = append(tls, r.Transport)
		}
	}
	own := slices.DeleteFunc(slices.Clone(c.settings), func(s ucp.Setting) bool { return s.Name == "TLS" })
	return append(own, ucp.Setting{Name: "TLS", Value: strings.Join(tls, ",")})
}

// newGuard opens a worker beside the module's.
func (m *module) newGuard() (*guard, error) {
	address, err := m.worker.Address()
	if err != nil {
		return nil, err
	}
	w, err := m.lib.Open(m.guarded, false)
	if err != nil {
		return nil, err
	}
	g := &guard{worker: w}
	if err = w.Start(); err == nil {
		if _, err = w.Grow(); err == nil {
			g.to, err = w.Connect(address, 0, m.peerMode)
		}
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return g, nil
}

// check finds out whether the queue still moves, now that a process has died.
func (m *module) check() {
	if m.guarded == nil || m.broken != nil {
		return
	}
	if m.guard == nil {
		g, err := m.newGuard()
		if err != nil {
			m.env.Logger.Warn("a process has died, and whether it has blocked this one's queue in shared memory can't be found out", "component", component, "err", err)
			return
		}
		m.guard = g
	}
	m.guard.ask()
}

// ask sends a message, unless one is under way.
func (g *guard) ask() {
	if g.more = g.asked; g.asked {
		return
	}
	_, _ = rand.Read(g.word[:]) // never fails
	g.asked, g.since, g.polls = true, time.Now(), 0
	g.worker.Send(0, g.to, g.word[:], control, false) // if it fails it does not come, either
}

// heard reports whether a control message was the guard's.
func (g *guard) heard(data []byte) bool {
	if g == nil || !g.asked || !bytes.Equal(data, g.word[:]) {
		return false
	}
	if g.asked = false; g.more {
		g.ask()
	}
	return true
}

// watch has the guard's message go, and breaks the module down when it does not come. moves: something has
// just ended.
func (m *module) watch(moves bool) {
	g := m.guard
	g.worker.Poll(g.events[:], true)
	if moves {
		g.since, g.polls = time.Now(), 0
		return
	}
	if g.polls++; g.polls < blockedPolls || time.Since(g.since) < blockedAfter {
		return
	}
	g.asked = false
	m.breakDown(m.transportError("poll", mtl.NoEndpoint, fmt.Errorf("a process that died has blocked this one's queue of messages in shared memory, "+
		"and UCX can't go on: pml.cm.shared_memory=on keeps messages within a node out of it: %w", framework.ErrTransport)))
}

// breakDown ends all that waits. Nothing is lost by that: whatever has come was told before.
func (m *module) breakDown(why error) {
	m.broken = why
	for _, s := range m.slots {
		if s.op == nil {
			continue
		}
		if s.posted && s.kind == receive {
			m.worker.Cancel(s.number)
		}
		m.giveUp(s, why)
	}
}
