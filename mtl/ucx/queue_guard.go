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
	"github.com/ferrympi/ferry/mtl/base"
)

// In shared memory, all senders write into one queue of the receiver. A process that fails between reserving and filling an
// entry blocks the queue for ever, and UCX does not report it. After each failure in such a class the queue guard sends this
// process a ping through the queue, from a worker of its own. If the ping does not arrive, the module fails, and all
// operations end with an error.

// The queue is blocked if no operation has completed for blockedAfter and blockedPolls. The number of polls covers a
// process that was stopped.
const (
	blockedAfter = 2 * time.Second
	blockedPolls = 1000
)

// queueGuard detects a blocked queue. It is kept for later failures.
type queueGuard struct {
	worker *ucp.Worker
	// selfEndpoint is the endpoint of the module's own worker.
	selfEndpoint ucp.Endpoint
	// isWaiting is set while a ping is in flight.
	isWaiting bool
	// mustRepeat is set if another process has failed since the ping was sent.
	mustRepeat        bool
	pingNonce         [16]byte
	lastEventAt       time.Time
	pollsWithoutEvent int
	eventBuf          [1]ucp.Event
}

// usesSharedQueue reports whether messages within the node use such a queue.
func (c *candidate) usesSharedQueue() bool {
	shm, _ := classOf("shm")
	return len(shm.ownResources(c.resources)) > 0
}

// guardSettings returns the settings of a worker that reaches this process as other processes of the node do, or nil if
// there is no shared queue.
func (c *candidate) guardSettings() []ucp.Setting {
	if !c.usesSharedQueue() {
		return nil
	}
	var tls []string
	for _, r := range c.resources {
		if r.Transport != "self" && !slices.Contains(tls, r.Transport) {
			tls = append(tls, r.Transport)
		}
	}
	own := slices.DeleteFunc(slices.Clone(c.ucxSettings), func(s ucp.Setting) bool { return s.Name == "TLS" })
	return append(own, ucp.Setting{Name: "TLS", Value: strings.Join(tls, ",")})
}

// newGuard opens the worker of a guard.
func (m *module) newGuard() (*queueGuard, error) {
	address, err := m.worker.Address()
	if err != nil {
		return nil, err
	}
	w, err := m.lib.Open(m.transportTraits.guardSettings, false)
	if err != nil {
		return nil, err
	}
	g := &queueGuard{worker: w}
	if err = w.Start(); err == nil {
		if _, err = w.AddSlots(); err == nil {
			g.selfEndpoint, err = w.Connect(address, 0, m.transportTraits.isPeerMode)
		}
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	return g, nil
}

// checkQueue starts to check the queue after the failure of a process.
func (m *module) checkQueue() {
	if m.transportTraits.guardSettings == nil || m.Err != nil {
		return
	}
	if m.queueGuard == nil {
		g, err := m.newGuard()
		if err != nil {
			m.Env.Logger.Warn("mtl ucx: cannot check the shared-memory queue after the failure of a process", "component", component, "err", err)
			return
		}
		m.queueGuard = g
	}
	m.queueGuard.sendPing()
}

// sendPing sends a ping, unless one is in flight.
func (g *queueGuard) sendPing() {
	if g.mustRepeat = g.isWaiting; g.isWaiting {
		return
	}
	_, _ = rand.Read(g.pingNonce[:]) // It never fails.
	g.isWaiting, g.lastEventAt, g.pollsWithoutEvent = true, time.Now(), 0
	g.worker.Send(0, g.selfEndpoint, g.pingNonce[:], controlTag, false) // After an error the ping does not arrive.
}

// receivePing reports whether a control message is the ping.
func (g *queueGuard) receivePing(data []byte) bool {
	if g == nil || !g.isWaiting || !bytes.Equal(data, g.pingNonce[:]) {
		return false
	}
	if g.isWaiting = false; g.mustRepeat {
		g.sendPing()
	}
	return true
}

// pollGuard polls the guard's worker, and fails the module if the queue is blocked. moves is set if an operation has just
// completed.
func (m *module) pollGuard(moves bool) {
	g := m.queueGuard
	g.worker.Poll(g.eventBuf[:], true)
	if moves {
		g.lastEventAt, g.pollsWithoutEvent = time.Now(), 0
		return
	}
	if g.pollsWithoutEvent++; g.pollsWithoutEvent < blockedPolls || time.Since(g.lastEventAt) < blockedAfter {
		return
	}
	g.isWaiting = false
	m.failModule(m.transportError("poll", mtl.NoEndpoint, fmt.Errorf("a failed process blocks the message queue of this one in shared memory: "+
		"pml.cm.shared_memory=on avoids that queue within a node: %w", framework.ErrTransport)))
}

// failModule ends all operations. Messages that have arrived were delivered before.
func (m *module) failModule(why error) {
	m.Err = why
	for _, s := range m.slotsByNumber {
		if s.Op == nil {
			continue
		}
		if s.IsPosted && s.Kind == base.SlotReceive {
			m.worker.Cancel(s.Number)
		}
		m.Abandon(&s.Slot, why)
	}
}
