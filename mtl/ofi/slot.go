package ofi

import (
	"runtime"
	"time"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
)

// kind says what a slot is used for.
type kind uint8

const (
	unused kind = iota
	send
	synchronous
	control   // a control message that is sent
	answer    // to a synchronous message
	flush     // behind injected messages
	abandoned // a send to a peer that was forgotten, or a message that is lost with its sender
	receive
	probe
	claiming // a probe that takes what it finds
	claimed  // a message that a probe or a look took, and its receive
	looking  // a probe that takes what comes next in a line (overflow.go)
	listen   // a receive of control messages
)

func (k kind) isSend() bool  { return k >= send && k <= flush }
func (k kind) isProbe() bool { return k == probe || k == claiming || k == looking }

// slot is one operation that libfabric has, or will have when there is room.
type slot struct {
	number   uint32
	kind     kind
	posted   bool // libfabric has it
	sent     bool // of a synchronous message: the buffer is free
	matched  bool // likewise: it was answered
	canceled bool // of a receive: Cancel was called
	op       *mtl.Op
	buf      []byte
	user     []byte              // where what comes into short goes, which is in buf then
	short    *[shortReceive]byte // pinned as long as the module is open
	own      []byte              // room for a control message
	pins     runtime.Pinner

	to      mtl.Endpoint // or from where; NoEndpoint if from anywhere
	address uint64
	tag     uint64
	more    uint64 // completion data of a send, bits to ignore of a receive
	flags   libfabric.Kind
	length  int64             // of the claimed message
	asked   uint64            // of a probe that waits in a line: the line's looks when it came
	region  *libfabric.Region // where libfabric takes the buffer to be
	alone   bool              // region is the operation's own
	since   time.Time         // that a flush frame waits
	next    *slot             // in a fifo
	node    match.Entry[slot] // of a receive or a message that waits in a line, or a send that waits for its answer
}

// shortReceive is the longest receive whose message comes by way of memory that is pinned
// already, and is copied: a pin and its end take 500 instructions, 36 ns.
const shortReceive = 64

// isReceiving reports whether libfabric has a receive of a message in s.
func (s *slot) isReceiving() bool {
	return s.posted && (s.kind == receive || s.kind == claimed || s.kind == looking)
}

// into has a message come into buf, which it pins unless it is short.
func (s *slot) into(buf []byte) {
	if len(buf) <= shortReceive {
		s.user, s.buf = buf, s.short[:len(buf)]
		return
	}
	s.buf = buf
	s.pins.Pin(&buf[0])
}

// where returns what into was given.
func (s *slot) where() []byte {
	if len(s.buf) <= shortReceive {
		return s.user
	}
	return s.buf
}

// fifo is a list of slots.
type fifo struct{ head, tail *slot }

func (f *fifo) push(s *slot) {
	s.next = nil
	if f.tail == nil {
		f.head = s
	} else {
		f.tail.next = s
	}
	f.tail = s
}

func (f *fifo) pushFirst(s *slot) {
	if s.next = f.head; f.head == nil {
		f.tail = s
	}
	f.head = s
}

func (f *fifo) pop() {
	if f.head = f.head.next; f.head == nil {
		f.tail = nil
	}
}

// take returns a slot for an operation on buf, which it pins unless it is that of a short
// receive.
func (m *module) take(k kind, op *mtl.Op, buf []byte) (*slot, error) {
	if len(m.free) == 0 {
		n, err := m.ep.Grow()
		if err != nil {
			return nil, err
		}
		more := make([]slot, n-len(m.slots))
		short := make([][shortReceive]byte, len(more))
		m.pins.Pin(&short[0])
		for i := range more {
			s := &more[len(more)-1-i] // low numbers are given out first
			s.number, s.short, s.node.Owner = uint32(n-1-i), &short[i], s
			m.free = append(m.free, s.number)
		}
		for i := range more {
			m.slots = append(m.slots, &more[i])
		}
	}
	s := m.slots[m.free[len(m.free)-1]]
	m.free = m.free[:len(m.free)-1]
	s.kind, s.op, s.buf = k, op, buf
	if k.isSend() {
		m.sending++
	}
	if op != nil {
		op.Slot = s.number
	}
	if k == receive {
		s.into(buf)
	} else if len(buf) > 0 {
		s.pins.Pin(&buf[0])
	}
	return s, nil
}

// start gives an operation to libfabric. What was injected is not posted.
func (m *module) start(s *slot) (code libfabric.Errno) {
	if m.posted >= m.room.all || m.drainsProbes && s.kind.isProbe() || s.kind == receive && (m.receives >= m.room.receives || m.mustHold(s.to, len(s.buf))) {
		return libfabric.Again
	}
	if wait, code := m.mustWait(s); wait {
		return libfabric.Again
	} else if code != 0 {
		return code
	}
	if m.local || len(m.regions) > 0 || s.region != nil {
		if err := m.register(s); err != nil {
			m.env.Logger.Error("mtl ofi: memory for an operation", "provider", m.about.Provider, "err", err)
			return libfabric.NoMemory
		}
	}
	switch s.kind {
	case send, synchronous:
		code = m.ep.TSend(s.number, s.buf, s.address, s.tag, s.more, s.flags)
	case control, answer:
		// The provider may have no room for a send until the peer has received some, and the
		// peer wait for this frame before it does.
		if len(s.buf) <= m.caps.Inject && m.ep.Send(0, s.buf, s.address, libfabric.Inject) == 0 {
			return 0
		}
		fallthrough
	case flush:
		code = m.ep.Send(s.number, s.buf, s.address, 0)
	case receive, claimed:
		code = m.ep.TRecv(s.number, s.buf, s.address, s.tag, s.more, s.flags)
	case probe, claiming:
		code = m.ep.Peek(s.number, s.address, s.tag, s.more, s.flags)
	case listen:
		code = m.ep.Recv(s.number, s.buf)
	}
	if code == 0 {
		s.posted = true
		m.posted++
		if s.kind == receive {
			m.receives++
		} else if s.kind.isProbe() {
			m.probesAtProvider++
		} else if s.kind.isSend() {
			m.sends++
			m.peers[s.to].sends++
		}
	}
	return code
}

// giveUp frees a slot, and has the next Poll tell its operation's owner.
func (m *module) giveUp(s *slot, r mtl.Result) {
	m.end(s.op, r)
	m.release(s)
}

// release gives a slot back.
func (m *module) release(s *slot) {
	if s.user != nil {
		s.user = nil
	} else if len(s.buf) > 0 {
		s.pins.Unpin()
	}
	if s.kind.isSend() {
		m.sending--
	}
	if s.alone {
		m.worn = append(m.worn, s.region)
		s.alone = false
	}
	s.kind, s.op, s.buf, s.flags = unused, nil, nil, 0
	s.posted, s.sent, s.matched, s.canceled = false, false, false, false
	m.free = append(m.free, s.number)
}
