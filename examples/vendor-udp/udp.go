// Package udp is a third-party transport for ferry, a BTL over UDP for processes of any host. UDP loses,
// duplicates and reorders datagrams, so each path has sequence numbers, acks and congestion control (wire.go,
// send.go, receive.go).
//
// Datagrams are not encrypted, and a greeting proves only that the sender has the receiver's card. Use it on a
// private network.
package udp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// Component returns the component for a registry.
func Component() btl.Component { return component{} }

type component struct{}

// params are the component's parameters; each is btl.udp.NAME.
type params struct {
	Address    string         `param:"address" default:"" level:"user" scope:"process" doc:"Advertised address of this host. Empty: all IPv4 addresses except loopback; loopback if there is no other."`
	Datagram   framework.Size `param:"datagram" default:"1400" min:"292" max:"65507" unit:"bytes" level:"tuner" scope:"process" doc:"Largest datagram, without the headers of IP and UDP. Above the MTU the network fragments it, and one lost fragment loses all; equal in all processes."`
	Window     int            `param:"window" default:"64" min:"1" max:"64" level:"tuner" scope:"process" doc:"Most frames in flight to a peer."`
	AckTimeout time.Duration  `param:"give_up" default:"30s" min:"100ms" max:"1h" level:"user" scope:"process" doc:"Time without an ack after which a peer is unreachable."`
}

func (component) Info() framework.Info {
	return framework.Info{Kind: framework.BTL, Name: "udp", Version: "1.0.0", Summary: "processes of any host, through UDP", Priority: 20}
}

func (component) Params() any { return new(params) }

// Check implements framework.Checker.
func (p *params) Check() (param string, err error) {
	if _, err := netip.ParseAddr(p.Address); err != nil && p.Address != "" {
		return "address", fmt.Errorf("%q is not an IP address", p.Address)
	}
	return "", nil
}

func (component) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

// Open creates the socket.
func (component) Open(_ context.Context, env btl.Env) (btl.Module, error) {
	p := env.Params.(*params)
	addr := netip.IPv4Unspecified()
	if p.Address != "" {
		addr = netip.MustParseAddr(p.Address) // Checked by params.Check.
	}
	family := syscall.AF_INET
	if addr.Is6() {
		family = syscall.AF_INET6
	}
	fd, err := syscall.Socket(family, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("btl udp: %w", err)
	}
	// The kernel clamps the size. Datagrams lost to a full buffer are retransmitted.
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<20)
	m := &module{
		env: env, params: p, fd: fd, openedAt: time.Now(), buf: make([]byte, 1<<16),
		recvPaths: map[uint64]*recvPath{}, sendPaths: map[uint64]*sendPath{},
	}
	m.send = m.sendto
	if err = syscall.Bind(fd, toSockaddr(netip.AddrPortFrom(addr, 0))); err == nil {
		err = enableErrorQueue(fd, family)
	}
	if err == nil {
		m.addrs, err = m.advertisedAddrs(addr)
	}
	if err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("btl udp: %w", err)
	}
	return m, nil
}

func (m *module) advertisedAddrs(bound netip.Addr) ([]netip.AddrPort, error) {
	name, err := syscall.Getsockname(m.fd)
	if err != nil {
		return nil, err
	}
	port := addrPort(name).Port()
	if !bound.IsUnspecified() {
		return []netip.AddrPort{netip.AddrPortFrom(bound, port)}, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	loopback := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
	var addrs []netip.AddrPort
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() && len(addrs) < maxAddresses {
			addrs = append(addrs, netip.AddrPortFrom(p.Addr(), port))
		}
	}
	if len(addrs) == 0 {
		addrs = []netip.AddrPort{loopback}
	}
	return addrs, nil
}

// maxAddresses limits the addresses in a blob.
const maxAddresses = 8

// module owns the socket of this process. The engine's lock guards all fields.
type module struct {
	env    btl.Env
	params *params
	fd     int
	addrs  []netip.AddrPort
	closed bool
	// Replaced in tests.
	send func(b []byte, to syscall.Sockaddr) error

	buf []byte
	// Size of the datagram in buf that awaits Poll, or 0.
	bufferedBytes int
	bufferedFrom  syscall.Sockaddr
	// The error queue may have entries.
	hasHostErrors bool
	// The last Poll returned events.
	hadEvents bool

	sendPaths map[uint64]*sendPath // By path id.
	recvPaths map[uint64]*recvPath
	// With a retransmission timer.
	timedPaths []*sendPath
	// With an ack timer.
	ackPaths []*recvPath

	// Times are relative to openedAt.
	openedAt time.Time
	// Zero without timers.
	nextTimer time.Duration
	// At the last received datagram or timer check.
	lastClock time.Duration
}

// now returns the time since openedAt, at least 1.
func (m *module) now() time.Duration { return time.Since(m.openedAt) + 1 }

// scheduleTimers makes Poll run the timers at that time or earlier.
func (m *module) scheduleTimers(due time.Duration) {
	if m.nextTimer == 0 || due < m.nextTimer {
		m.nextTimer = due
		m.env.Engine.Nudge() // A sleeping wait calls Due again.
	}
}

func (m *module) Caps() btl.Caps {
	limit := int(m.params.Datagram) - headerSize - ackSize
	return btl.Caps{EagerLimit: limit, FrameLimit: limit, LatencyNS: 20_000, Device: "udp " + m.addrs[0].String()}
}

// Blob returns the addresses as text, separated by commas.
func (m *module) Blob() []byte {
	var names []string
	for _, a := range m.addrs {
		names = append(names, a.String())
	}
	return []byte(strings.Join(names, ","))
}

// FD and Arm implement progress.Descriptor, Due implements progress.Timed.
func (m *module) FD() int   { return m.fd }
func (m *module) Arm() bool { return m.bufferedBytes == 0 }

func (m *module) Due() time.Duration {
	if m.nextTimer == 0 {
		return 0
	}
	return max(m.nextTimer-m.now(), 1)
}

func (m *module) Reach(peer framework.Peer) error {
	_, err := m.peerAddrs(peer)
	return err
}

func (m *module) peerAddrs(peer framework.Peer) (addrs []netip.AddrPort, err error) {
	if peer.Proc == m.env.Identity.Proc {
		return nil, btl.NotMeant("udp is for other processes")
	}
	names := strings.SplitN(string(peer.Blob), ",", maxAddresses+1)
	for _, name := range names {
		a, err := netip.ParseAddrPort(name)
		if err != nil || a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().IsMulticast() || len(names) > maxAddresses {
			return nil, fmt.Errorf("%v has the invalid address list %.40q", peer.Proc, peer.Blob)
		}
		if a.Addr().Is4() == m.addrs[0].Addr().Is4() {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%v has no address of the family of %v: %s", peer.Proc, m.addrs[0], peer.Blob)
	}
	return addrs, nil
}

// pollBatch limits the datagrams of one Poll.
const pollBatch = 64

// Poll implements progress.Source. A Poll after an idle one reads one datagram, because a second read of an
// empty socket would delay its delivery by a system call.
func (m *module) Poll() (n int) {
	limit := 1
	if m.hadEvents {
		limit = pollBatch
	}
	for n < limit {
		if m.bufferedBytes == 0 {
			if m.hasHostErrors {
				if m.hasHostErrors = m.handleHostError(); m.hasHostErrors {
					n++
				}
				continue
			}
			if err := m.readDatagram(); err == syscall.ECONNREFUSED {
				continue
			} else if err != nil {
				break
			}
		}
		n++
		b := m.buf[:m.bufferedBytes]
		m.bufferedBytes = 0
		m.handleDatagram(b, m.bufferedFrom)
	}
	m.hadEvents = n > 0
	if m.nextTimer == 0 {
		return n
	}
	if n != 1 { // A single datagram has just updated the clock.
		m.lastClock = m.now()
	}
	if m.lastClock >= m.nextTimer {
		m.runTimers(m.lastClock)
	}
	return n
}

// readDatagram reads into buf. Recvfrom of golang.org/x/sys queries the socket's protocol on each call, which
// costs 0.7 us.
func (m *module) readDatagram() (err error) {
	if m.bufferedBytes, m.bufferedFrom, err = syscall.Recvfrom(m.fd, m.buf, 0); err != nil {
		m.bufferedBytes = 0
		m.hasHostErrors = m.hasHostErrors || err == syscall.ECONNREFUSED
		return err
	}
	m.lastClock = m.now()
	return nil
}

// runTimers sends due acks and retransmits expired frames.
func (m *module) runTimers(now time.Duration) {
	m.nextTimer = 0
	scheduled := m.ackPaths
	m.ackPaths = m.ackPaths[:0]
	for _, p := range scheduled {
		if p.ackDueAt > now {
			m.ackPaths = append(m.ackPaths, p)
			m.scheduleTimers(p.ackDueAt)
			continue
		}
		p.hasTimer = false
		if p.ackDueAt != 0 {
			p.sendAck()
		}
	}
	timed := m.timedPaths
	m.timedPaths = nil
	for _, e := range timed {
		if at := e.runTimer(now); at != 0 {
			m.timedPaths = append(m.timedPaths, e)
			m.scheduleTimers(at)
		} else {
			e.hasTimer = false
		}
	}
}

// Forget implements btl.Forgetter.
func (m *module) Forget(peer framework.Incarnation) {
	for _, e := range m.sendPaths {
		if e.peer == peer {
			e.remove()
		}
	}
	for id, p := range m.recvPaths {
		if p.peer == peer {
			delete(m.recvPaths, id)
		}
	}
}

// Reconnect implements btl.Reconnector. Path ids are random, so late datagrams never match a new path.
func (m *module) Reconnect(peer framework.Incarnation) { m.Forget(peer) }

// Close refuses the paths of all known peers and those with datagrams in the socket.
func (m *module) Close() error {
	m.closed = true
	for m.Poll() > 0 {
	}
	for _, p := range m.recvPaths {
		m.sendControl(kindRefused, p.id, 0, nil, p.dest)
	}
	for _, e := range m.sendPaths {
		e.sendLeave()
	}
	return syscall.Close(m.fd)
}
