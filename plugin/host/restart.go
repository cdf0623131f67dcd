package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// restarter restarts a plugin. Its goroutine runs from the end of the plugin until the next one runs, or no restart is left.
type restarter struct {
	// Ends when the module closes.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// enableRestarts lets the plugin be restarted at each end until the module closes.
func (m *module) enableRestarts() {
	m.restarter.ctx, m.restarter.cancel = context.WithCancel(context.Background())
}

// scheduleRestart starts the restart of an ended plugin whose rings are not in use any more. It returns the reason of the end and the next step as an error. The
// engine's lock is held.
func (m *module) scheduleRestart(why error) error {
	pause, again := m.restartPolicy.recordEnd(why)
	m.restarter.work.Go(func() { m.restart(pause, again) })
	return m.restartPolicy.downError()
}

// restart frees the resources of the plugin, and starts it again until a start succeeds or no restart is left. It does not hold the engine's lock
// while it waits.
func (m *module) restart(pause time.Duration, again bool) {
	m.process.close()
	e := m.env.Engine
	for again {
		select {
		case <-m.restarter.ctx.Done():
			return
		case <-time.After(pause):
		}
		e.Lock()
		m.restartPolicy.beginStart()
		e.Unlock()
		p, err := m.component.start(m.restarter.ctx, m.env, m.params, m.wakeFD)
		if err == nil {
			err = m.checkSameLimits(p)
		}
		if m.restarter.ctx.Err() != nil {
			if err == nil {
				p.close() // Close has not seen it.
			}
			return
		}
		e.Lock()
		if err == nil {
			m.restartPolicy.recordStart()
			m.attach(p)
			again = false
			m.env.Logger.Info("plugin started again", "component", m.name, "times", m.restartPolicy.usedRestarts)
			e.Nudge()
		} else {
			pause, again = m.restartPolicy.recordEnd(err)
			m.endReason = err
			m.env.Logger.Error("plugin did not start", "component", m.name, "why", m.restartPolicy.downError())
		}
		e.Unlock()
	}
}

// checkSameLimits returns an error, and closes the plugin, if it offers less than the first one. Protocols rely on the first offer.
func (m *module) checkSameLimits(p *process) error {
	if m.restarter.ctx.Err() == nil && limits(p.offer) == limits(m.firstOffer) {
		return nil
	}
	p.close()
	return fmt.Errorf("the restarted plugin offers %v, but the first one offered %v", limits(p.offer), limits(m.firstOffer))
}

// limits returns the values of an offer that protocols rely on.
func limits(o wire.Offer) [3]uint32 { return [3]uint32{o.Reaches, o.Eager, o.Frame} }

// Close ends the plugin, after it has sent the messages in its ring.
func (m *module) Close() error {
	m.restarter.cancel()
	m.restarter.work.Wait()
	if m.endReason == nil {
		m.process.close()
	}
	return unix.Close(m.wakeFD)
}
