package ob1

import (
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// earlyArrivals are messages for communicators that do not exist here yet, in their order.
type earlyArrivals map[arrivalKey][]earlyFrame

// arrivalKey is how a frame names a handle: by id and endpoint, or by this process's index.
type arrivalKey struct {
	id    cid.EndpointID
	local cid.Local // NoLocal where id is the name
}

func keyOf(id cid.EndpointID) arrivalKey { return arrivalKey{id, cid.NoLocal} }

type earlyFrame struct {
	from      *proc
	frame     []byte
	withdrawn bool // an RTS that its sender has taken back; it keeps its place in the sequence
}

// keepEarly keeps a frame of process p until its communicator is here.
func (m *Module) keepEarly(key arrivalKey, p *proc, f []byte) {
	if p.IsDropped() {
		return
	}
	m.early[key] = append(m.early[key], earlyFrame{from: p, frame: slices.Clone(f)})
}

// drop drops the frames of a process.
func (k earlyArrivals) drop(p *proc) {
	for key, frames := range k {
		frames = slices.DeleteFunc(frames, func(w earlyFrame) bool { return w.from == p })
		if k[key] = frames; len(frames) == 0 {
			delete(k, key)
		}
	}
}

func (k earlyArrivals) count() (n int) {
	for _, frames := range k {
		n += len(frames)
	}
	return n
}

// deliverEarly hands over what came before the communicator was made.
func (m *Module) deliverEarly(c *comm) {
	// Compact messages follow extended ones of the same sender, never the other way.
	for _, key := range [...]arrivalKey{keyOf(c.ID()), {local: c.Spec.Local}} {
		m.replayEarly(key)
	}
	m.dropEarly()
}

// dropEarly drops what waits for indices that became nothing.
func (m *Module) dropEarly() {
	for key := range m.early {
		if key.local != cid.NoLocal && !m.awaited(key.local) {
			m.replayEarly(key) // which drops it
		}
	}
}

// replayEarly takes the frames with that name in again.
func (m *Module) replayEarly(key arrivalKey) {
	frames := m.early[key]
	delete(m.early, key)
	for _, w := range frames {
		m.replay(w)
	}
}

// awaited reports whether an index of this process may be a communicator's that is about
// to be made.
func (m *Module) awaited(local cid.Local) bool {
	s := m.comms.Table.State(local)
	return s == cid.Withheld || s == cid.Live
}

func (m *Module) replay(w earlyFrame) {
	var err error
	if w.withdrawn {
		var in inMessage
		if in, err = parseMessage(w.frame); err == nil {
			in.withdrawn = true
			err = w.from.message(&in, w.frame)
		}
	} else {
		err = w.from.Frame(w.frame)
	}
	if err != nil {
		w.from.doubt(&framework.TransportError{Component: "pml ob1", Peer: w.from.String(), Op: "receive", Err: err})
	}
}

// withdraw marks an RTS that came early as taken back, and reports whether it was there.
func (k earlyArrivals) withdraw(p *proc, handle uint64) bool {
	for _, frames := range k {
		for i := range frames {
			w := &frames[i]
			if w.from != p || w.withdrawn || w.frame[0] != frameRTS {
				continue
			}
			if in, err := parseMessage(w.frame); err == nil && in.handle == handle {
				w.withdrawn = true
				return true
			}
		}
	}
	return false
}
