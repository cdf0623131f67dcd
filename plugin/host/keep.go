package host

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// keeper starts a plugin again. Its goroutine runs from the plugin's end until another one
// runs, or none will.
type keeper struct {
	ctx    context.Context // ends when the module closes
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// keep has the plugin started again when it ends, until the module closes.
func (m *module) keep() { m.keeper.ctx, m.keeper.cancel = context.WithCancel(context.Background()) }

// ends says that the plugin is over: nothing looks at its rings any more. It returns how that
// came, and what becomes of it. Called with the engine's lock held.
func (m *module) ends(why error) error {
	pause, again := m.life.ended(why)
	m.keeper.work.Go(func() { m.restart(pause, again) })
	return m.life.down()
}

// restart frees what the plugin had, and starts it until it runs or has been started as often
// as it may be. The engine's lock is not held while anything is waited for.
func (m *module) restart(pause time.Duration, again bool) {
	m.process.close()
	e := m.env.Engine
	for again {
		select {
		case <-m.keeper.ctx.Done():
			return
		case <-time.After(pause):
		}
		e.Lock()
		m.life.begins()
		e.Unlock()
		p, err := m.component.start(m.keeper.ctx, m.env, m.params, m.wake)
		if err == nil {
			err = m.fits(p)
		}
		if m.keeper.ctx.Err() != nil {
			if err == nil {
				p.close() // Close did not know of it
			}
			return
		}
		e.Lock()
		if err == nil {
			m.life.started()
			m.attach(p)
			again = false
			m.env.Logger.Info("plugin started again", "component", m.name, "times", m.life.used)
			e.Nudge()
		} else {
			pause, again = m.life.ended(err)
			m.dead = err
			m.env.Logger.Error("plugin did not start", "component", m.name, "why", m.life.down())
		}
		e.Unlock()
	}
}

// fits closes a plugin that can do less than the first one, on which protocols rely.
func (m *module) fits(p *process) error {
	if m.keeper.ctx.Err() == nil && limits(p.offer) == limits(m.caps) {
		return nil
	}
	p.close()
	return fmt.Errorf("the plugin that was started again offers %v, and the first one offered %v", limits(p.offer), limits(m.caps))
}

// limits are what protocols rely on of an offer.
func limits(o wire.Offer) [3]uint32 { return [3]uint32{o.Reaches, o.Eager, o.Frame} }

// Close ends the plugin, which delivers what it has.
func (m *module) Close() error {
	m.keeper.cancel()
	m.keeper.work.Wait()
	if m.dead == nil {
		m.process.close()
	}
	return unix.Close(m.wake)
}
