package ob1

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// One copy for large messages. Where the path's module can read the memory of
// the peer (btl.RemoteReader), an RTS says where the message lies, and the
// receiver copies it from there. It answers the RTS when it has all: an accept
// of 0 bytes, as for a message of which it wants nothing. If reading fails, it
// accepts as if nothing had been said, and the message comes as frames.

// expose describes the message of a send for the RTS. ok is false where peers
// can't read it.
func (r *request) expose() (remote btl.Remote, ok bool) {
	if r.buf.Layout() != nil || len(r.buf.Bytes) == 0 {
		return remote, false
	}
	reader := r.p.proc.out.reader
	if reader == nil {
		return remote, false
	}
	return reader.Expose(r.buf.Bytes, r.buf.Kind() == pml.Registered)
}

// readRemote begins to read a matched message out of the sender's memory, and
// reports whether that is the way. Lock held.
func (r *request) readRemote(remote *btl.Remote, handle uint64) bool {
	if *remote == (btl.Remote{}) || r.buf.Layout() != nil || r.limit == 0 {
		return false
	}
	// The module by which the RTS came knows what it describes.
	proc := r.p.proc
	if proc.inBy == nil || proc.inBy.reader == nil || proc.connect() != nil {
		return false
	}
	if proc.inBy.reader.CanRead(proc.Life, *remote, r.limit) != nil {
		return false
	}
	r.state, r.remote, r.reader, r.far = reading, *remote, proc.inBy.reader, handle
	r.m.reading = append(r.m.reading, r)
	r.m.readSome()
	return true
}

// readSome takes a step of every message that is being read. The time of a step
// is bounded by the module. Who hears that one is complete may start the next: that
// comes to the end of the list, and gets its step here. Lock held.
func (m *Module) readSome() (n int) {
	if m.inReads {
		return 0
	}
	m.inReads = true
	for i := 0; i < len(m.reading); i++ {
		r := m.reading[i]
		turn := r.turn
		if r.state == reading {
			n++
			r.readStep()
		}
		if r.state != reading || r.turn != turn {
			m.reading = slices.Delete(m.reading, i, i+1)
			i--
		}
	}
	m.inReads = false
	return n
}

func (r *request) readStep() {
	proc := r.p.proc
	k, err := r.reader.Read(proc.Life, r.remote, r.moved, r.buf.Bytes[r.moved:r.limit])
	if err != nil {
		r.moved = 0
		r.state = copying
		proc.control(ctsFrame(r.far, r.handle(), r.limit))
		return
	}
	r.moved += int64(k)
	if r.moved == r.limit {
		turn := r.turn
		proc.control(ctsFrame(r.far, 0, 0))
		if r.turn == turn && r.state == reading { // or the answer found no way, and the process has failed
			r.finish()
		}
	}
}

// Allocate implements pml.Allocator: with the first module that has memory for
// its peers.
func (m *Module) Allocate(bytes int) ([]byte, error) {
	for _, t := range m.transports {
		if t.reader != nil {
			return t.reader.Allocate(bytes)
		}
	}
	return nil, fmt.Errorf("%w: no open transport has memory that peers read directly", framework.ErrUnsupported)
}

// Free implements pml.Allocator.
func (m *Module) Free(memory []byte) error {
	m.engine.Lock()
	for _, r := range m.requests {
		if r.state != idle && r.state != complete && mem.Overlap(r.buf.Bytes, memory) {
			m.engine.Unlock()
			return fmt.Errorf("%w: an operation uses the memory", framework.ErrPending)
		}
	}
	m.engine.Unlock()
	for _, t := range m.transports {
		if t.reader != nil {
			return t.reader.Free(memory)
		}
	}
	return framework.ErrUnsupported
}
