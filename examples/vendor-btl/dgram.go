// Package dgram is a transport for ferry by somebody else: a BTL between processes of
// one node, over Unix datagram sockets. It is complete, it stands on ferry's public
// packages only, and docs/writing-a-component.md walks through it.
//
// Each process has one socket. The system keeps datagrams whole and in order, and says
// when the receiver has no room. A path is known by the greeting with which each of its
// datagrams begins.
package dgram

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// Component returns the component for a registry.
func Component() btl.Component {
	return component{framework.Basic{Kind: framework.BTL, Name: "dgram", Version: "1.0.0", Summary: "processes of one node, through Unix datagram sockets"}}
}

type component struct{ framework.Basic }

// Open makes the socket, under a name of the system's choice that goes with it.
func (component) Open(_ context.Context, env btl.Env) (btl.Module, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("btl dgram: %w", err)
	}
	return &module{env: env, fd: fd, paths: map[string]*path{}}, nil
}

// A datagram is its kind, a greeting, and a body: a frame to the receiver, and without
// one the path is to be opened; or, back to the sender, why the path is not read any
// more, and without a reason the process closes.
const data, ended = 0, 1

// A socket buffers 208 KiB, so that some frames can be on their way.
const prefix, frameLimit = 1 + progress.GreetingSize, 32 << 10

// module is this process's socket. All is guarded by the engine's lock.
type module struct {
	env     btl.Env
	fd      int
	closed  bool
	paths   map[string]*path // to and from peers, by greeting
	waiting []*path          // for room at the receiver
	buf     [prefix + frameLimit + 1]byte
}

// path is one from a peer, or the endpoint of one to a peer.
type path struct {
	m             *module
	peer          framework.Life
	up            btl.Inbound   // from a peer
	to            unix.Sockaddr // to a peer
	out           []byte        // the datagram that is built, or waits
	waits, closed bool
}

func (m *module) Caps() btl.Caps {
	return btl.Caps{EagerLimit: 8 << 10, FrameLimit: frameLimit, LatencyNS: 5000, Device: "unix datagrams"}
}

func (m *module) Blob() []byte {
	name, _ := unix.Getsockname(m.fd)
	return []byte(name.(*unix.SockaddrUnix).Name)
}

// FD and Arm implement progress.Descriptor: what comes wakes a process that sleeps.
func (m *module) FD() int   { return m.fd }
func (m *module) Arm() bool { return true }

// Due implements progress.Timed: nobody says when a receiver has room again.
func (m *module) Due() time.Duration { return time.Duration(min(len(m.waiting), 1)) * time.Millisecond }

// Reach sends what is too short to be anything.
func (m *module) Reach(peer framework.Peer) error {
	err := unix.Sendto(m.fd, []byte{data}, 0, &unix.SockaddrUnix{Name: string(peer.Blob)})
	if peer.Proc == m.env.Identity.Proc || err != nil && err != unix.EAGAIN {
		return fmt.Errorf("%v is not another process of this node, at %.40q: %w", peer.Proc, peer.Blob, cmp.Or[error](err, unix.EOPNOTSUPP))
	}
	return nil
}

// Connect opens the path by a datagram without a frame.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	if err := m.Reach(peer); err != nil {
		return nil, err
	}
	greeting := m.env.Greet(peer.Life)
	e := &path{m: m, peer: peer.Life, to: &unix.SockaddrUnix{Name: string(peer.Blob)}, out: make([]byte, prefix+frameLimit)}
	copy(e.out[1:], greeting)
	m.paths[string(greeting)] = e
	e.Commit(0)
	return e, nil
}

// Reserve is nil while a datagram waits: one at a time keeps the order.
func (e *path) Reserve(n int) []byte {
	if e.waits || e.closed {
		return nil
	}
	return e.out[prefix : prefix+n]
}

// Commit leaves what finds no room, and any error, to Poll.
func (e *path) Commit(n int) {
	e.out = e.out[:prefix+n]
	if e.waits = unix.Sendto(e.m.fd, e.out, 0, e.to) != nil; e.waits {
		e.m.waiting = append(e.m.waiting, e)
		e.m.env.Engine.Nudge() // who sleeps already asks for Due again
	}
}

func (e *path) Idle() bool { return !e.waits }

// Close leaves a datagram that waits to Poll.
func (e *path) Close() { e.closed = true }

// end tells the protocol, once, and not if it has closed the path itself.
func (e *path) end(op string, err error) {
	if !e.closed && !e.m.closed {
		e.closed = true
		e.m.env.Ended("btl dgram", e.peer, op, err)
	}
}

// Poll sends what waits and hands up what has come, at most so much that others wait
// not too long.
func (m *module) Poll() (n int) {
	waiting := m.waiting
	m.waiting = nil
	for _, e := range waiting {
		err := unix.Sendto(m.fd, e.out, 0, e.to)
		if e.waits = err == unix.EAGAIN; e.waits {
			m.waiting = append(m.waiting, e)
		} else if n++; err != nil {
			e.end("send", err)
		}
	}
	for range 32 {
		k, from, err := unix.Recvfrom(m.fd, m.buf[:], 0)
		if err != nil {
			break
		}
		if n++; k >= prefix && k < len(m.buf) && from != nil {
			m.datagram(m.buf[:k], from)
		}
	}
	return n
}

// datagram takes what a stranger may have sent. Whoever knows a greeting has the card
// of this process.
func (m *module) datagram(b []byte, from unix.Sockaddr) {
	greeting, body := b[1:prefix], b[prefix:]
	switch p := m.paths[string(greeting)]; {
	case b[0] == data && m.closed:
		m.tell(from, greeting, "")
	case b[0] == data && len(body) == 0:
		if peer, err := m.env.Greeted(greeting); err != nil {
			m.tell(from, greeting, err.Error())
		} else {
			m.paths[string(greeting)] = &path{m: m, peer: peer, up: m.env.Upcall.Accept(peer)}
		}
	case p == nil || p.closed: // it has ended, or is nobody's
	case b[0] == data && p.up != nil:
		if err := p.up.Frame(body); err != nil {
			m.tell(from, greeting, "this makes no sense")
			p.end("receive", err)
		}
	case b[0] == ended && len(body) > 0:
		p.end("send", fmt.Errorf("the peer says: %q", body))
	case b[0] == ended:
		p.end("send", framework.ErrPeerClosed)
	}
}

// tell says that a path is not read any more, as a path of its own does: it may wait.
func (m *module) tell(to unix.Sockaddr, greeting []byte, why string) {
	e := &path{m: m, to: to, out: slices.Concat([]byte{ended}, greeting, []byte(why)), closed: true}
	e.Commit(len(why))
}

// Close tells those whose datagrams it finds; who sends later gets an error.
func (m *module) Close() error {
	m.closed, m.waiting = true, nil
	unix.Shutdown(m.fd, unix.SHUT_RD)
	for m.Poll() > 0 {
	}
	return unix.Close(m.fd)
}
