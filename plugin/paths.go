package plugin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/plugin/internal/wire"
)

// outbound is a path from the rank to a peer.
type outbound struct {
	s            *server
	id           uint32
	peer         framework.Incarnation
	endpoint     btl.Endpoint
	isOpen       bool
	isClosed     bool     // The rank has closed the path
	queuedFrames [][]byte // Not yet passed to the transport

	creditOwed   uint32 // Frames passed on without credit returned to the rank
	sentFrames   uint64 // Frames passed to the transport
	reportedIdle uint64 // Frames of those that the rank knows to be done
}

// inbound is a path from a peer to the rank.
type inbound struct {
	s       *server
	id      uint32
	peer    framework.Incarnation
	refusal error // The rank has rejected a frame
}

// messagesPerPoll bounds a Poll, so that the transport is polled too.
const messagesPerPoll = 64

// creditEach is the number of frames after which the rank gets credit again.
const creditEach = wire.Credit / 4

// Poll handles the messages of the rank, and passes its frames on.
func (s *server) Poll() (n int) {
	select {
	case reply := <-s.pingReplies:
		if err := reply(s.publishedCount); err != nil {
			s.fail(err)
		}
		n++
	default:
	}
	for range messagesPerPoll {
		b, err := s.fromRank.Next()
		if err == nil && b == nil {
			break
		}
		n++
		if err == nil {
			err = s.message(b)
		}
		if err != nil {
			s.fail(fmt.Errorf("the rank's ring: %w", err))
			return n
		}
		if s.fromRank.Release() {
			s.wakeRank()
		}
	}
	for _, p := range s.outboundPaths {
		n += p.pass()
	}
	return s.wakeAfter(n + s.flush())
}

// message handles one message of the rank.
func (s *server) message(b []byte) error {
	kind, path, body, err := wire.Take(b)
	if err != nil {
		return err
	}
	p := s.outboundPaths[path]
	switch {
	case kind == wire.Connect && p == nil:
		return s.connect(path, body)
	case kind == wire.Frame && p == nil, kind == wire.Leave && p == nil: // The path has ended, and the rank is not notified yet.
	case kind == wire.Frame && p.isOpen && len(p.queuedFrames) == 0 && p.send(body):
	case kind == wire.Frame && len(p.queuedFrames) < wire.Credit:
		p.queuedFrames = append(p.queuedFrames, slices.Clone(body))
	case kind == wire.Leave:
		p.isClosed = true
	case kind == wire.Refuse:
		if in := s.inboundPaths[path]; in != nil {
			in.refusal = errors.New(string(body))
		}
	default:
		return fmt.Errorf("message %d of path %d", kind, path)
	}
	return nil
}

func (s *server) connect(path uint32, body []byte) error {
	t, err := wire.ParseTarget(body)
	if err != nil {
		return err
	}
	s.env.Worlds.Index(t.Namespace)
	incarnation, err := t.Incarnation(s.env.Worlds)
	if err != nil {
		return err
	}
	p := &outbound{s: s, id: path, peer: incarnation}
	s.outboundPaths[path] = p
	if p.endpoint, err = s.module.Connect(framework.Peer{Incarnation: incarnation, Proc: s.env.Worlds.Proc(incarnation.ID), Blob: t.Blob}); err != nil {
		p.end(fmt.Errorf("%w: %w", btl.ErrNeverOpened, err))
	}
	return nil
}

// pass passes frames to the transport, and reports to the rank.
func (p *outbound) pass() (n int) {
	if !p.isOpen && p.endpoint.Reserve(1, btl.RingStart) != nil {
		p.isOpen = true
		p.s.publish(wire.Opened, p.id, nil)
		n++
	}
	for p.isOpen && len(p.queuedFrames) > 0 && p.s.outboundPaths[p.id] == p {
		if !p.send(p.queuedFrames[0]) {
			break
		}
		p.queuedFrames = p.queuedFrames[1:]
		n++
	}
	if len(p.queuedFrames) == 0 && p.reportedIdle < p.sentFrames && p.endpoint.Idle() {
		p.reportedIdle = p.sentFrames
		p.s.publish(wire.Idle, p.id, binary.LittleEndian.AppendUint64(nil, p.reportedIdle))
		n++
	}
	if p.isClosed && len(p.queuedFrames) == 0 {
		p.endpoint.Close()
		delete(p.s.outboundPaths, p.id)
	}
	return n
}

// send passes a frame to the transport, if it takes one.
func (p *outbound) send(frame []byte) bool {
	b := p.endpoint.Reserve(len(frame), btl.RingStart)
	if b == nil {
		return false
	}
	p.endpoint.Commit(copy(b, frame))
	p.sentFrames++
	if p.creditOwed++; p.creditOwed >= creditEach {
		p.s.publish(wire.Credits, p.id, binary.LittleEndian.AppendUint32(nil, p.creditOwed))
		p.creditOwed = 0
	}
	return true
}

// end reports the end of a path to the rank.
func (p *outbound) end(err error) {
	if p.s.outboundPaths[p.id] == p {
		delete(p.s.outboundPaths, p.id)
		p.s.ended(p.id, err)
	}
}

func (s *server) ended(path uint32, err error) {
	how := uint32(wire.Down)
	switch {
	case errors.Is(err, btl.ErrNeverOpened):
		how = wire.NeverOpened
	case errors.Is(err, framework.ErrPeerClosed):
		how = wire.PeerClosed
	}
	why := err.Error()
	s.publish(wire.Ended, path, append(binary.LittleEndian.AppendUint32(nil, how), why[:min(len(why), 1000)]...))
}

// transport is the module for the engine's polls. It is not polled or awaited while the ring to the rank is full, because the queue of frames for a
// rank that does not read would grow without limit.
type transport struct{ s *server }

func (t transport) isHeld() bool { return len(t.s.waitingMessages) > 0 && !t.s.isOver }

// Poll implements progress.Source.
func (t transport) Poll() int {
	if t.isHeld() {
		return 0
	}
	return t.s.wakeAfter(t.s.module.Poll())
}

// Unwrap returns the module with its optional interfaces.
func (t transport) Unwrap() any {
	if t.isHeld() {
		return nil
	}
	return t.s.module
}

// publish sends a message, in the order of the calls. Poll retries those without room in the ring. After
// the end it does not send.
func (s *server) publish(kind, path uint32, body []byte) {
	if s.isOver {
		return
	}
	if len(s.waitingMessages) == 0 {
		if b := wire.Reserve(s.toRank, wire.Prefix+len(body)); b != nil {
			wire.Put(b, kind, path)
			cpu.CopyShared(b[wire.Prefix:], body)
			s.toRank.Commit(len(b))
			s.publishedCount++
			s.wakeRank()
			return
		}
	}
	b := make([]byte, wire.Prefix, wire.Prefix+len(body))
	wire.Put(b, kind, path)
	s.waitingMessages = append(s.waitingMessages, append(b, body...))
	s.toRank.Wait(len(s.waitingMessages[0]))
}

// wakeRank wakes the rank if it sleeps.
func (s *server) wakeRank() {
	if s.rankBell.Armed() {
		s.rankBell.Disarm()
		_, _ = unix.Write(s.wakeFD, binary.NativeEndian.AppendUint64(nil, 1)) // Fails after the end of the rank.
	}
}

// flush sends the queue. The rank rings when there is room.
func (s *server) flush() (n int) {
	for len(s.waitingMessages) > 0 {
		b := wire.Reserve(s.toRank, len(s.waitingMessages[0]))
		if b == nil {
			if !s.toRank.Wait(len(s.waitingMessages[0])) {
				continue
			}
			break
		}
		s.toRank.Commit(copy(b, s.waitingMessages[0]))
		s.publishedCount++
		s.waitingMessages = s.waitingMessages[1:]
		s.wakeRank()
		n++
	}
	return n
}

// Accept implements btl.Receiver.
func (s *server) Accept(peer framework.Incarnation) btl.Inbound {
	s.latestInbound += 2
	in := &inbound{s: s, id: s.latestInbound - 1, peer: peer}
	s.inboundPaths[in.id] = in
	s.publish(wire.Accept, in.id, wire.CallerOf(peer, s.env.Worlds).Bytes())
	return in
}

// Frame implements btl.Inbound.
func (in *inbound) Frame(frame []byte) error {
	if in.refusal != nil {
		delete(in.s.inboundPaths, in.id)
		return in.refusal
	}
	in.s.publish(wire.Frame, in.id, frame)
	return nil
}

// Place implements btl.Inbound. Payloads go to the rank in frames.
func (in *inbound) Place([]byte, int) []byte { return nil }

// Placed implements btl.Inbound. No payload is placed.
func (in *inbound) Placed([]byte, int) error { return nil }

// LinkChanged implements btl.Receiver. The protocol of plugins has no such message.
func (s *server) LinkChanged(framework.Incarnation, string) {}

// Card implements btl.Receiver. The plugin has the cards of its own paths only.
func (s *server) Card(framework.Incarnation) (framework.Peer, bool) { return framework.Peer{}, false }

// Limits implements btl.Receiver. The rank already applies the smaller of both limits.
func (s *server) Limits(framework.Incarnation, int, int) {}

// PathDown implements btl.Receiver.
func (s *server) PathDown(peer framework.Incarnation, err error) { s.endPathsTo(peer, err) }

// PeerChanged implements btl.Receiver.
func (s *server) PeerChanged(ev framework.PeerEvent) { s.endPathsTo(ev.Peer, ev.Err) }

// endPathsTo ends all paths with a peer, because the transport does not identify one.
func (s *server) endPathsTo(peer framework.Incarnation, err error) {
	for _, p := range s.outboundPaths {
		if p.peer == peer {
			p.end(err)
		}
	}
	for id, in := range s.inboundPaths {
		if in.peer == peer && !errors.Is(err, btl.ErrNeverOpened) {
			delete(s.inboundPaths, id)
			s.ended(id, err)
		}
	}
}
