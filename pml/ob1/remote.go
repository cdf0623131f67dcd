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
//
// With a btl.Copier the sender may write, too: the receiver answers by the description of
// a share of its buffer, and both copy pieces until nothing is left.

// describe describes the message of a send for the RTS, if it lies in one piece, and reports
// whether a part of the message had better come at once. Where peers can't read it the
// description is empty.
func (r *request) describe() (remote btl.Remote, part bool) {
	r.described, r.writer = false, false
	proc := r.p.proc
	if r.buf.Layout() != nil || len(r.buf.Bytes) == 0 || proc.out.reader == nil {
		return remote, true
	}
	remote, readable := proc.out.reader.Expose(r.buf.Bytes, r.buf.Kind() == pml.Registered)
	c := proc.out.copier
	if c == nil {
		r.described = readable
		return remote, !readable
	}
	r.described = true // if it can't be read there is a choice among frames
	r.offeredAs = c.KindOf(remote)
	r.writer = readable && c.CanWrite(proc.Life) == nil
	r.lines = proc.partOf(r).lines
	return remote, r.lines != noLines
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
		if r.copies() {
			n += r.copyStep()
		}
		if !r.copies() || r.turn != turn {
			m.reading = slices.Delete(m.reading, i, i+1)
			i--
		}
	}
	m.inReads = false
	return n
}

// copies reports whether a request has steps to take.
func (r *request) copies() bool { return r.state == reading || r.state == sharing || r.state == ending }

// copyStep takes a step of a request, and returns 0 if there is none to take now.
func (r *request) copyStep() int {
	switch {
	case r.state == sharing:
		return r.writeStep()
	case r.state == ending:
		return r.endStep()
	case r.share != nil:
		return r.shareStep()
	}
	return r.readStep()
}

func (r *request) readStep() int {
	k, err := r.reader.Read(r.p.proc.Life, r.remote, r.moved, r.buf.Bytes[r.moved:r.limit])
	if err != nil {
		r.fallsBack()
		return 1
	}
	r.moved += int64(k)
	if r.moved == r.limit {
		r.allCopied()
	}
	return 1
}

// fallsBack has a message come as frames from its beginning.
func (r *request) fallsBack() {
	if r.counted {
		r.spoilt = true
	} else {
		r.base = 0
	}
	r.moved = r.base
	r.accepts()
}

// allCopied completes a receive whose message is in its place.
func (r *request) allCopied() {
	turn := r.turn
	cts := ctsFrame(r.far, 0, 0)
	r.advise(&cts)
	r.p.proc.control(cts)
	if r.turn == turn && r.state == reading { // or the answer found no way, and the process has failed
		r.received()
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
	if m.Uses(memory) {
		return fmt.Errorf("%w: an operation uses the memory", framework.ErrPending)
	}
	for _, t := range m.transports {
		if t.reader != nil {
			return t.reader.Free(memory)
		}
	}
	return framework.ErrUnsupported
}

// Uses implements pml.MemoryUser.
func (m *Module) Uses(memory []byte) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	return slices.ContainsFunc(m.requests, func(r *request) bool {
		return r.state != idle && r.state != complete && mem.Overlap(r.buf.Bytes, memory)
	})
}
