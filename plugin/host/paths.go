package host

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/plugin/internal/wire"
	"github.com/ferrympi/ferry/progress"
)

// outbound is an endpoint, which is a path to a peer.
type outbound struct {
	m    *module
	id   uint32
	peer framework.Incarnation
	// Reserved and not committed.
	reservedFrame []byte
	isOpened      bool
	isClosed      bool
	credit        int
	sentFrames    uint64
	// Leading frames that are completed.
	completedFrames uint64
	// Deadline for opening.
	openDeadline time.Time
}

// Reserve returns memory of the path. It is not in the ring, which has room for one reservation only, while several paths may have one.
func (e *outbound) Reserve(n int, _ btl.Placement) []byte {
	if e.isBlocked() {
		return nil
	}
	if cap(e.reservedFrame) < n {
		e.reservedFrame = make([]byte, n)
	}
	return e.reservedFrame[:n]
}

// Commit copies the frame into the ring. Large frames use Gather instead.
func (e *outbound) Commit(n int) {
	e.send(e.reservedFrame[:n], nil)
}

// send sends a frame in two parts.
func (e *outbound) send(head, tail []byte) {
	e.credit--
	e.sentFrames++
	e.m.sendFrame(e.id, head, tail)
}

func (e *outbound) isBlocked() bool {
	return e.credit == 0 || e.isClosed || len(e.m.sendQueue.waitingMessages) > 0
}

// SendShort implements btl.ShortSender. A short frame is copied once, into the ring.
func (e *outbound) SendShort(h btl.ShortHeader, payload []byte) bool {
	if e.isBlocked() {
		return false
	}
	var head [btl.ShortHeaderSize]byte
	h.Put(head[:])
	e.send(head[:], payload)
	return true
}

// Gather implements btl.Gatherer. It copies the payload from the sender's buffer into the ring.
func (e *outbound) Gather(header, payload []byte, c btl.LocalCompletion) bool {
	if e.isBlocked() {
		return false
	}
	e.send(header, payload)
	c.LocallyComplete()
	return true
}

func (e *outbound) Idle() bool { return e.isClosed || e.completedFrames == e.sentFrames }

// Close closes the path. The plugin still sends committed frames.
func (e *outbound) Close() {
	if e.isClosed {
		return
	}
	e.isClosed = true
	delete(e.m.pathTable.outbounds, e.id)
	e.m.sendMessage(wire.Leave, e.id, nil)
}

// inbound is a path from a peer.
type inbound struct {
	m      *module
	id     uint32
	peer   framework.Incarnation
	upcall btl.Inbound
}

// fromPeer is the source of messages from one peer. It polls one message of the plugin at a time, of any peer.
type fromPeer struct {
	m    *module
	peer framework.Incarnation
}

// PeerSource implements btl.PeerPoller.
func (m *module) PeerSource(peer framework.Incarnation) progress.Source {
	for _, p := range m.pathTable.inbounds {
		if p.peer == peer {
			return &fromPeer{m, peer}
		}
	}
	return nil
}

// Poll implements progress.Source.
func (s *fromPeer) Poll() int {
	if s.m.endReason != nil {
		return 0
	}
	return s.m.receive(1)
}

// Peek implements btl.Peeker. It handles messages without a peer, which are mostly credit. Other and invalid messages are left for Poll.
func (s *fromPeer) Peek(polls int) []byte {
	m := s.m
	for m.endReason == nil {
		b := m.consumer.Peek(polls)
		if len(b) <= wire.Prefix {
			return nil
		}
		kind, path, body, _ := wire.Take(b)
		switch kind {
		case wire.Frame:
			if p := m.pathTable.inbounds[path]; p == nil || p.peer != s.peer || len(body) > int(m.firstOffer.Frame) {
				return nil
			}
			return body
		case wire.Credits, wire.Idle:
			if m.handleMessage(b) != nil {
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
	s.m.receivedCount++
	s.m.release()
}

// frame delivers a frame. An error means that the plugin is faulty, not the peer.
func (p *inbound) frame(body []byte) error {
	if len(body) == 0 || len(body) > int(p.m.firstOffer.Frame) {
		return fmt.Errorf("a frame of %d bytes", len(body))
	}
	if err := p.upcall.Frame(body); err != nil {
		p.m.sendMessage(wire.Refuse, p.id, []byte("invalid frame: "+err.Error()[:min(200, len(err.Error()))]))
		p.m.endPathsTo(p.peer, "receive", err)
	}
	return nil
}
