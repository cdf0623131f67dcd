package ucx

import (
	"runtime"
	"time"

	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
)

// kind says what a slot is used for.
type kind uint8

const (
	unused kind = iota
	send
	synchronous
	flush     // behind what was sent
	abandoned // what nobody waits for: a send to a peer that was forgotten, a message that is lost
	closing   // of an endpoint
	receive
	claimed // a message that a probe took, and its receive
	listen  // a receive of control messages
)

func (k kind) isSend() bool { return k == send || k == synchronous || k == flush }

// slot is one operation that UCX has.
type slot struct {
	number   uint32
	kind     kind
	posted   bool // UCX has it
	canceled bool // Cancel was called
	op       *mtl.Op
	buf      []byte
	user     []byte              // where what comes into short goes, which is in buf then
	short    *[shortReceive]byte // pinned as long as the module is open
	pins     runtime.Pinner
	pinned   bool
	long     bool         // its buffer is: see module.long
	known    bool         // UCX may have registered the buffer
	to       mtl.Endpoint // or from where; NoEndpoint if from anywhere
	found    mtl.Result   // of a claimed message
	cid      uint32       // likewise
	orphan   bool         // likewise: its sender is no member any more
	since    time.Time    // canceled
}

// shortReceive is the longest receive whose message comes by way of memory that is pinned
// already, and is copied: a pin and its end take 36 ns.
const shortReceive = 64

// next returns the slot that take will return next.
func (m *module) next() (*slot, error) {
	if len(m.free) == 0 {
		if _, err := m.worker.Grow(); err != nil {
			return nil, err
		}
		n := len(m.slots) + ucp.SlotsAtOnce
		more := make([]slot, ucp.SlotsAtOnce)
		short := make([][shortReceive]byte, len(more))
		m.pins.Pin(&short[0])
		for i := range more {
			more[i].short = &short[i]
			m.slots = append(m.slots, &more[i])
			more[i].number = uint32(len(m.slots) - 1)
			m.free = append(m.free, uint32(n-1-i)) // low numbers are given out first
		}
	}
	return m.slots[m.free[len(m.free)-1]], nil
}

// take returns a slot for an operation.
func (m *module) take(k kind, op *mtl.Op) (*slot, error) {
	s, err := m.next()
	if err != nil {
		return nil, err
	}
	m.free = m.free[:len(m.free)-1]
	s.kind, s.op, s.to, s.orphan = k, op, mtl.NoEndpoint, false
	if k.isSend() {
		m.sending++
	}
	if op != nil {
		op.Slot = s.number
	}
	return s, nil
}

// receives has a slot receive into buf.
func (m *module) receives(s *slot, buf []byte) {
	s.posted, s.known = true, m.registers && len(buf) > ucp.Short
	if len(buf) > shortReceive {
		m.pin(s, buf)
		return
	}
	s.user, s.buf = buf, s.short[:len(buf)]
}

// arrived says that the first n bytes of what the slot receives into have been written.
func (s *slot) arrived(n int) {
	ucp.Wrote(s.buf, n)
	copy(s.user, s.buf[:min(n, len(s.buf))])
}

// pin keeps the slot's buffer where it is as long as UCX may use it.
func (m *module) pin(s *slot, buf []byte) {
	s.buf = buf
	if len(buf) > 0 {
		s.pins.Pin(&buf[0])
		s.pinned = true
	}
	if len(buf) > ucp.Short {
		s.long = true
		m.long++
	}
}

// drop gives up a slot's buffer, if it was pinned: short ones are not.
func (m *module) drop(s *slot) {
	if s.pinned {
		m.unpin(s)
	}
}

func (m *module) unpin(s *slot) {
	if s.known {
		m.worker.Changes(s.buf)
		s.known = false
	}
	s.pins.Unpin()
	s.pinned = false
	if s.long {
		s.long = false
		m.long--
	}
	s.buf = nil
}

// giveUp tells an operation's owner that it is over, for want of a network. UCX may still have the buffer, and
// the slot is released when its event comes.
func (m *module) giveUp(s *slot, why error) {
	m.end(s.op, mtl.Result{Err: why})
	if s.kind.isSend() {
		m.sending--
	}
	s.op, s.user, s.kind = nil, nil, abandoned
}

// release gives a slot back.
func (m *module) release(s *slot) {
	m.drop(s)
	if s.kind.isSend() {
		m.sending--
	}
	s.kind, s.op, s.user, s.posted, s.canceled = unused, nil, nil, false, false
	m.free = append(m.free, s.number)
}
