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
	s      *server
	id     uint32
	peer   framework.Life
	ep     btl.Endpoint
	opened bool
	left   bool     // the rank has given it up
	frames [][]byte // that the transport has not taken
	took   uint32   // frames for which the rank has no credit yet
	sent   uint64   // frames that the transport has
	said   uint64   // of those, how many the rank knows to need nobody
}

// inbound is a path from a peer to the rank.
type inbound struct {
	s       *server
	id      uint32
	peer    framework.Life
	refused error // the rank makes no sense of it
}

// messagesPerPoll bounds a Poll: the transport has its turn meanwhile.
const messagesPerPoll = 64

// creditEach is after how many frames the rank gets credit again.
const creditEach = wire.Credit / 4

// Poll takes what the rank says, and passes on what it has sent.
func (s *server) Poll() (n int) {
	select {
	case reply := <-s.pings:
		if err := reply(s.published); err != nil {
			s.fail(err)
		}
		n++
	default:
	}
	for range messagesPerPoll {
		b, err := s.in.Next()
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
		if s.in.Release() {
			s.ring()
		}
	}
	for _, p := range s.paths {
		n += p.pass()
	}
	return s.happened(n + s.flush())
}

// message takes one of the rank's.
func (s *server) message(b []byte) error {
	kind, path, body, err := wire.Take(b)
	if err != nil {
		return err
	}
	p := s.paths[path]
	switch {
	case kind == wire.Connect && p == nil:
		return s.connect(path, body)
	case kind == wire.Frame && p == nil, kind == wire.Leave && p == nil: // it has ended, and the rank will hear
	case kind == wire.Frame && p.opened && len(p.frames) == 0 && p.send(body):
	case kind == wire.Frame && len(p.frames) < wire.Credit:
		p.frames = append(p.frames, slices.Clone(body))
	case kind == wire.Leave:
		p.left = true
	case kind == wire.Refuse:
		if in := s.accepted[path]; in != nil {
			in.refused = errors.New(string(body))
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
	life, err := t.Life(s.env.Worlds)
	if err != nil {
		return err
	}
	p := &outbound{s: s, id: path, peer: life}
	s.paths[path] = p
	if p.ep, err = s.module.Connect(framework.Peer{Life: life, Proc: s.env.Worlds.Proc(life.ID), Blob: t.Blob}); err != nil {
		p.end(fmt.Errorf("%w: %w", btl.ErrNeverOpened, err))
	}
	return nil
}

// pass gives the transport what it takes, and tells the rank.
func (p *outbound) pass() (n int) {
	if !p.opened && p.ep.Reserve(1) != nil {
		p.opened = true
		p.s.tell(wire.Opened, p.id, nil)
		n++
	}
	for p.opened && len(p.frames) > 0 && p.s.paths[p.id] == p {
		if !p.send(p.frames[0]) {
			break
		}
		p.frames = p.frames[1:]
		n++
	}
	if len(p.frames) == 0 && p.said < p.sent && p.ep.Idle() {
		p.said = p.sent
		p.s.tell(wire.Idle, p.id, binary.LittleEndian.AppendUint64(nil, p.said))
		n++
	}
	if p.left && len(p.frames) == 0 {
		p.ep.Close()
		delete(p.s.paths, p.id)
	}
	return n
}

// send gives the transport a frame, if that takes it.
func (p *outbound) send(frame []byte) bool {
	b := p.ep.Reserve(len(frame))
	if b == nil {
		return false
	}
	p.ep.Commit(copy(b, frame))
	p.sent++
	if p.took++; p.took >= creditEach {
		p.s.tell(wire.Credits, p.id, binary.LittleEndian.AppendUint32(nil, p.took))
		p.took = 0
	}
	return true
}

// end tells the rank that a path to a peer is over.
func (p *outbound) end(err error) {
	if p.s.paths[p.id] == p {
		delete(p.s.paths, p.id)
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
	s.tell(wire.Ended, path, append(binary.LittleEndian.AppendUint32(nil, how), why[:min(len(why), 1000)]...))
}

// transport is the module as the engine polls it: not while the ring to the rank is full. What
// the module hands up then would be kept in a queue, and a peer can send without end to a rank
// that reads nothing. Nor is it awaited meanwhile: it may well have something.
type transport struct{ s *server }

func (t transport) held() bool { return len(t.s.queue) > 0 && !t.s.over }

// Poll implements progress.Source.
func (t transport) Poll() int {
	if t.held() {
		return 0
	}
	return t.s.happened(t.s.module.Poll())
}

// Unwrap has the engine find the module's abilities.
func (t transport) Unwrap() any {
	if t.held() {
		return nil
	}
	return t.s.module
}

// tell sends a message, in the order of the calls; room is looked for by Poll. A rank that has
// ended the plugin hears nothing more.
func (s *server) tell(kind, path uint32, body []byte) {
	if s.over {
		return
	}
	if len(s.queue) == 0 {
		if b := wire.Reserve(s.out, wire.Prefix+len(body)); b != nil {
			wire.Put(b, kind, path)
			cpu.CopyShared(b[wire.Prefix:], body)
			s.out.Commit(len(b))
			s.published++
			s.ring()
			return
		}
	}
	b := make([]byte, wire.Prefix, wire.Prefix+len(body))
	wire.Put(b, kind, path)
	s.queue = append(s.queue, append(b, body...))
	s.out.Wait(len(s.queue[0]))
}

// ring wakes the rank if it sleeps.
func (s *server) ring() {
	if s.rank.Armed() {
		s.rank.Disarm()
		_, _ = unix.Write(s.wake, binary.NativeEndian.AppendUint64(nil, 1)) // it fails if the rank is gone
	}
}

// flush sends what had no room. The rank rings when there is some.
func (s *server) flush() (n int) {
	for len(s.queue) > 0 {
		b := wire.Reserve(s.out, len(s.queue[0]))
		if b == nil {
			if !s.out.Wait(len(s.queue[0])) {
				continue
			}
			break
		}
		s.out.Commit(copy(b, s.queue[0]))
		s.published++
		s.queue = s.queue[1:]
		s.ring()
		n++
	}
	return n
}

// Accept implements btl.Receiver.
func (s *server) Accept(peer framework.Life) btl.Inbound {
	s.next += 2
	in := &inbound{s: s, id: s.next - 1, peer: peer}
	s.accepted[in.id] = in
	s.tell(wire.Accept, in.id, wire.CallerOf(peer, s.env.Worlds).Bytes())
	return in
}

// Frame implements btl.Inbound.
func (in *inbound) Frame(frame []byte) error {
	if in.refused != nil {
		delete(in.s.accepted, in.id)
		return in.refused
	}
	in.s.tell(wire.Frame, in.id, frame)
	return nil
}

// Limits implements btl.Receiver: the rank has been told the smaller of both already.
func (s *server) Limits(framework.Life, int, int) {}

// PathDown implements btl.Receiver.
func (s *server) PathDown(peer framework.Life, err error) { s.lost(peer, err) }

// PeerGone implements btl.Receiver.
func (s *server) PeerGone(peer framework.Life, err error) { s.lost(peer, err) }

// lost ends the paths with a peer, of which the transport does not say which.
func (s *server) lost(peer framework.Life, err error) {
	for _, p := range s.paths {
		if p.peer == peer {
			p.end(err)
		}
	}
	for id, in := range s.accepted {
		if in.peer == peer && !errors.Is(err, btl.ErrNeverOpened) {
			delete(s.accepted, id)
			s.ended(id, err)
		}
	}
}
