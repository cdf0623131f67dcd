// Package dgram is a third-party transport for ferry, a BTL between processes of one node over
// Unix datagram sockets. It imports public packages only. docs/writing-a-component.md walks
// through it.
//
// Each process has one socket. The kernel preserves datagram boundaries and order, and returns
// EAGAIN while the receiver's buffer is full. A datagram starts with the greeting of its path.
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

// Open creates a socket with a name assigned by the kernel.
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

// A datagram consists of a kind, a greeting and a body. A data datagram carries a frame, or opens
// the path if its body is empty. An end datagram goes back to the sender of the path with the
// reason, or with an empty body if the process closes.
const kindData, kindEnd = 0, 1

// A socket buffers 208 KiB, which is several frames.
const headerSize, frameLimit = 1 + progress.GreetingSize, 32 << 10

// module owns the socket of this process. The engine's lock guards all fields.
type module struct {
	env     btl.Env
	fd      int
	closed  bool
	paths   map[string]*path // By greeting.
	blocked []*path
	buf     [headerSize + frameLimit + 1]byte
}

// path is one direction between this process and a peer. inbound is set on a path from the
// peer, dest and out on a path to it. The path to a peer is the endpoint.
type path struct {
	m                 *module
	peer              framework.Incarnation
	inbound           btl.Inbound
	dest              unix.Sockaddr
	out               []byte
	isBlocked, closed bool
}

func (m *module) Caps() btl.Caps {
	return btl.Caps{EagerLimit: 8 << 10, FrameLimit: frameLimit, LatencyNS: 5000, Device: "unix datagrams"}
}

func (m *module) Blob() []byte {
	name, _ := unix.Getsockname(m.fd)
	return []byte(name.(*unix.SockaddrUnix).Name)
}

// FD and Arm implement progress.Descriptor. An arriving datagram wakes a sleeping process.
func (m *module) FD() int   { return m.fd }
func (m *module) Arm() bool { return true }

// Due implements progress.Timed. The kernel sends no event when a receiver has room again.
func (m *module) Due() time.Duration { return time.Duration(min(len(m.blocked), 1)) * time.Millisecond }

// Reach sends a datagram of one byte, which receivers drop.
func (m *module) Reach(peer framework.Peer) error {
	err := unix.Sendto(m.fd, []byte{kindData}, 0, &unix.SockaddrUnix{Name: string(peer.Blob)})
	if peer.Proc == m.env.Identity.Proc || err != nil && err != unix.EAGAIN {
		return fmt.Errorf("%v is not another process of this node, at %.40q: %w", peer.Proc, peer.Blob, cmp.Or[error](err, unix.EOPNOTSUPP))
	}
	return nil
}

// Connect sends a data datagram with an empty body, which opens the path.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	if err := m.Reach(peer); err != nil {
		return nil, err
	}
	greeting := m.env.Greet(peer.Incarnation)
	e := &path{m: m, peer: peer.Incarnation, dest: &unix.SockaddrUnix{Name: string(peer.Blob)}, out: make([]byte, headerSize+frameLimit)}
	copy(e.out[1:], greeting)
	m.paths[string(greeting)] = e
	e.Commit(0)
	return e, nil
}

// Reserve returns nil while a datagram is blocked. One datagram at a time preserves order.
func (e *path) Reserve(n int, _ btl.Placement) []byte {
	if e.isBlocked || e.closed {
		return nil
	}
	return e.out[headerSize : headerSize+n]
}

// Commit sends the datagram. After any error, Poll retries and reports.
func (e *path) Commit(n int) {
	e.out = e.out[:headerSize+n]
	if e.isBlocked = unix.Sendto(e.m.fd, e.out, 0, e.dest) != nil; e.isBlocked {
		e.m.blocked = append(e.m.blocked, e)
		e.m.env.Engine.Nudge() // A sleeping wait calls Due again.
	}
}

func (e *path) Idle() bool { return !e.isBlocked }

// Close stops new frames. Poll still sends a blocked datagram.
func (e *path) Close() { e.closed = true }

// fail reports the end of the path once, unless the protocol has closed the path.
func (e *path) fail(op string, err error) {
	if !e.closed && !e.m.closed {
		e.closed = true
		e.m.env.Ended("btl dgram", e.peer, op, err)
	}
}

// Poll retries blocked datagrams and delivers at most 32 received ones.
func (m *module) Poll() (n int) {
	retries := m.blocked
	m.blocked = nil
	for _, e := range retries {
		err := unix.Sendto(m.fd, e.out, 0, e.dest)
		if e.isBlocked = err == unix.EAGAIN; e.isBlocked {
			m.blocked = append(m.blocked, e)
		} else if n++; err != nil {
			e.fail("send", err)
		}
	}
	for range 32 {
		k, from, err := unix.Recvfrom(m.fd, m.buf[:], 0)
		if err != nil {
			break
		}
		if n++; k >= headerSize && k < len(m.buf) && from != nil {
			m.handleDatagram(m.buf[:k], from)
		}
	}
	return n
}

// handleDatagram processes untrusted input. A valid greeting proves that the sender has the card of
// this process.
func (m *module) handleDatagram(b []byte, from unix.Sockaddr) {
	greeting, body := b[1:headerSize], b[headerSize:]
	switch p := m.paths[string(greeting)]; {
	case b[0] == kindData && m.closed:
		m.sendEnd(from, greeting, "")
	case b[0] == kindData && len(body) == 0:
		if peer, err := m.env.Greeted(greeting); err != nil {
			m.sendEnd(from, greeting, err.Error())
		} else {
			m.paths[string(greeting)] = &path{m: m, peer: peer, inbound: m.env.Upcall.Accept(peer)}
		}
	case p == nil || p.closed: // Late or unknown datagrams are dropped.
	case b[0] == kindData && p.inbound != nil:
		if err := p.inbound.Frame(body); err != nil {
			m.sendEnd(from, greeting, "invalid frame")
			p.fail("receive", err)
		}
	case b[0] == kindEnd && len(body) > 0:
		p.fail("send", fmt.Errorf("path refused by the peer: %q", body))
	case b[0] == kindEnd:
		p.fail("send", framework.ErrPeerClosed)
	}
}

// sendEnd sends an end datagram over a temporary path, which may be blocked.
func (m *module) sendEnd(dest unix.Sockaddr, greeting []byte, reason string) {
	e := &path{m: m, dest: dest, out: slices.Concat([]byte{kindEnd}, greeting, []byte(reason)), closed: true}
	e.Commit(len(reason))
}

// Close answers the datagrams in the socket with an end datagram. Later sends of peers fail.
func (m *module) Close() error {
	m.closed, m.blocked = true, nil
	unix.Shutdown(m.fd, unix.SHUT_RD)
	for m.Poll() > 0 {
	}
	return unix.Close(m.fd)
}
