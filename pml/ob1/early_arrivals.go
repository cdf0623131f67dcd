package ob1

import (
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// earlyArrivals are frames in order for communicators that do not exist here yet.
type earlyArrivals map[arrivalKey][]earlyFrame

// arrivalKey identifies a handle as a frame does, by id and endpoint, or by the local index.
type arrivalKey struct {
	id cid.EndpointID
	// local is NoLocal if id is set.
	local cid.Local
}

func keyOf(id cid.EndpointID) arrivalKey { return arrivalKey{id, cid.NoLocal} }

type earlyFrame struct {
	from  *proc
	frame []byte
	// isWithdrawn is set for a withdrawn RTS, which stays for its sequence number.
	isWithdrawn bool
}

// keepEarly queues a copy of a frame until its communicator is created.
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

// deliverEarly handles the early arrivals of a new communicator.
func (m *Module) deliverEarly(c *comm) {
	// A sender changes from extended to compact headers, never back.
	for _, key := range [...]arrivalKey{keyOf(c.ID()), {local: c.Spec.Local}} {
		m.replayEarly(key)
	}
	m.dropEarly()
}

// dropEarly drops frames for indices that did not become communicators.
func (m *Module) dropEarly() {
	for key := range m.early {
		if key.local != cid.NoLocal && !m.expectsComm(key.local) {
			m.replayEarly(key)
		}
	}
}

// replayEarly handles the frames of a key again.
func (m *Module) replayEarly(key arrivalKey) {
	frames := m.early[key]
	delete(m.early, key)
	for _, w := range frames {
		m.replayFrame(w)
	}
}

// expectsComm reports whether an index belongs to a communicator or to one about to be created.
func (m *Module) expectsComm(local cid.Local) bool {
	s := m.comms.Table.State(local)
	return s == cid.Withheld || s == cid.Live
}

func (m *Module) replayFrame(w earlyFrame) {
	var err error
	if w.isWithdrawn {
		var in parsedMessage
		if in, err = parseMessage(w.frame); err == nil {
			in.isWithdrawn = true
			err = w.from.handleMessage(&in, w.frame)
		}
	} else {
		err = w.from.Frame(w.frame)
	}
	if err != nil {
		w.from.suspect(&framework.TransportError{Component: "pml ob1", Peer: w.from.String(), Op: "receive", Err: err})
	}
}

// withdraw marks an early RTS as withdrawn, and reports whether it was found.
func (k earlyArrivals) withdraw(p *proc, handle uint64) bool {
	for _, frames := range k {
		for i := range frames {
			w := &frames[i]
			if w.from != p || w.isWithdrawn || w.frame[0] != frameRTS {
				continue
			}
			if in, err := parseMessage(w.frame); err == nil && in.handle == handle {
				w.isWithdrawn = true
				return true
			}
		}
	}
	return false
}
