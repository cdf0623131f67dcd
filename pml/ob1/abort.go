package ob1

import (
	"github.com/ferrympi/ferry/pml"
)

// Abort implements pml.Comm.
func (c *comm) Abort(plane pml.Plane, err error) {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if c.Aborted[plane] != nil {
		return
	}
	c.Aborted[plane] = err
	m.failures++ // receives look for a reason why nothing can come
	for _, r := range m.requests {
		if r.c == c && r.plane == plane {
			r.Cancel() // fails it with err, now or when the peer has answered
		}
	}
	c.changed()
}

// abandon ends what is pending when the module closes: receives that nobody
// matched, sends that did not leave in time. Whoever waits for one later hears
// it. Lock held.
func (m *Module) abandon(err error) {
	for _, r := range m.requests {
		if r.state != idle && r.state != complete {
			r.fail(err)
		}
	}
}
