package host

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/plugin/internal/wire"
	"github.com/ferrympi/ferry/progress"
)

// outbound is an endpoint: a path to a peer.
type outbound struct {
	m      *module
	id     uint32
	peer   framework.Life
	frame  []byte // that is built
	opened bool
	closed bool
	credit int
	sent   uint64
	gone   uint64    // of those, how many need nobody any more
	late   time.Time // when it has to be open
}

// Reserve returns memory of the path's own: several may be built at the same time, but a ring
// has room for one.
func (e *outbound) Reserve(n int) []byte {
	if e.blocks() {
		return nil
	}
	if cap(e.frame) < n {
		e.frame = make([]byte, n)
	}
	return e.frame[:n]
}

// Commit copies the frame into the ring. Large ones come by Gather.
func (e *outbound) Commit(n int) {
	e.send(e.frame[:n], nil)
}

// send has the plugin send a frame in two parts.
func (e *outbound) send(head, tail []byte) {
	e.credit--
	e.sent++
	e.m.send(e.id, head, tail)
}

func (e *outbound) blocks() bool { return e.credit == 0 || e.closed || len(e.m.queue) > 0 }

// SendShort implements btl.ShortSender: a frame that is whole needs no memory in between.
func (e *outbound) SendShort(h btl.ShortHeader, payload []byte) bool {
	if e.blocks() {
		return false
	}
	var head [btl.ShortHeaderSize]byte
	h.Put(head[:])
	e.send(head[:], payload)
	return true
}

// Gather implements btl.Gatherer: the payload goes from the sender's buffer into the ring.
func (e *outbound) Gather(header, payload []byte, c btl.LocalCompletion) bool {
	if e.blocks() {
		return false
	}
	e.send(header, payload)
	c.LocallyComplete()
	return true
}

func (e *outbound) Idle() bool { return e.closed || e.gone == e.sent }

// Close leaves what was committed to the plugin.
func (e *outbound) Close() {
	if e.closed {
		return
	}
	e.closed = true
	delete(e.m.out, e.id)
	e.m.tell(wire.Leave, e.id, nil)
}

// inbound is a path from a peer.
type inbound struct {
	m    *module
	id   uint32
	peer framework.Life
	up   btl.Inbound
}

// fromPeer is what a receive from one peer polls: one message of the plugin at a time, whoever has
// sent it.
type fromPeer struct {
	m    *module
	peer framework.Life
}

// PeerSource implements btl.PeerPoller.
func (m *module) PeerSource(peer framework.Life) progress.Source {
	for _, p := range m.in {
		if p.peer == peer {
			return &fromPeer{m, peer}
		}
	}
	return nil
}

// Poll implements progress.Source.
func (s *fromPeer) Poll() int {
	if s.m.dead != nil {
		return 0
	}
	return s.m.take(1)
}

// Peek implements btl.Peeker. It takes what concerns no peer, credit as a rule; other messages, and
// those that make no sense, are left to Poll.
func (s *fromPeer) Peek(looks int) []byte {
	m := s.m
	for m.dead == nil {
		b := m.consumer.Peek(looks)
		if len(b) <= wire.Prefix {
			return nil
		}
		kind, path, body, _ := wire.Take(b)
		switch kind {
		case wire.Frame:
			if p := m.in[path]; p == nil || p.peer != s.peer || len(body) > int(m.caps.Frame) {
				return nil
			}
			return body
		case wire.Credits, wire.Idle:
			if m.message(b) != nil {
				return nil
			}
			s.Drop()
		default:
			return nil
		}
	}
	return nil
}

// Drop implements btl.Peeker.
func (s *fromPeer) Drop() {
	s.m.took++
	s.m.release()
}

// frame hands one up. An error is the plugin's, not the peer's.
func (p *inbound) frame(body []byte) error {
	if len(body) == 0 || len(body) > int(p.m.caps.Frame) {
		return fmt.Errorf("a frame of %d bytes", len(body))
	}
	if err := p.up.Frame(body); err != nil {
		p.m.tell(wire.Refuse, p.id, []byte("this makes no sense: "+err.Error()[:min(200, len(err.Error()))]))
		p.m.lose(p.peer, "receive", err)
	}
	return nil
}
