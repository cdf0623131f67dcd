// Package udp is a transport for ferry by somebody else: a BTL over UDP, for processes of
// any host. UDP loses datagrams, doubles them and changes their order, so that paths have
// numbers, confirmations and a pace of their own (wire.go, send.go, receive.go).
//
// Whoever can listen on the network can take part: nothing is encrypted, and a greeting
// proves only that the sender knows the receiver's card. Use it on a network of the job's own.
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
	Address  string         `param:"address" default:"" level:"user" scope:"process" doc:"Address of this host that peers are told. Empty: all IPv4 addresses but loopback; loopback, if there is no other."`
	Datagram framework.Size `param:"datagram" default:"1400" min:"292" max:"65507" unit:"bytes" level:"tuner" scope:"process" doc:"Largest datagram that is sent, without the headers of IP and UDP. What is larger than the network takes goes in pieces, and one that is lost loses all; alike in all processes."`
	Window   int            `param:"window" default:"64" min:"1" max:"64" level:"tuner" scope:"process" doc:"Most frames that are on their way to a peer."`
	GiveUp   time.Duration  `param:"give_up" default:"30s" min:"100ms" max:"1h" level:"user" scope:"process" doc:"How long a peer may confirm nothing before it counts as lost."`
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

// Open makes the socket.
func (component) Open(_ context.Context, env btl.Env) (btl.Module, error) {
	p := env.Params.(*params)
	at := netip.IPv4Unspecified()
	if p.Address != "" {
		at = netip.MustParseAddr(p.Address) // Check has
	}
	family := syscall.AF_INET
	if at.Is6() {
		family = syscall.AF_INET6
	}
	fd, err := syscall.Socket(family, syscall.SOCK_DGRAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("btl udp: %w", err)
	}
	// As much as the system allows: what finds no room is sent again.
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<20)
	m := &module{
		env: env, p: p, fd: fd, begin: time.Now(), buf: make([]byte, 1<<16),
		in: map[uint64]*inbound{}, out: map[uint64]*outbound{},
	}
	m.send = m.sendto
	if err = syscall.Bind(fd, sockaddr(netip.AddrPortFrom(at, 0))); err == nil {
		err = hear(fd, family)
	}
	if err == nil {
		m.addrs, err = m.addresses(at)
	}
	if err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("btl udp: %w", err)
	}
	return m, nil
}

// addresses are those that peers are told.
func (m *module) addresses(at netip.Addr) ([]netip.AddrPort, error) {
	name, err := syscall.Getsockname(m.fd)
	if err != nil {
		return nil, err
	}
	port := addrPort(name).Port()
	if !at.IsUnspecified() {
		return []netip.AddrPort{netip.AddrPortFrom(at, port)}, nil
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

// maxAddresses is how many a blob has at most.
const maxAddresses = 8

// module is this process's socket. All is guarded by the engine's lock.
type module struct {
	env    btl.Env
	p      *params
	fd     int
	addrs  []netip.AddrPort
	closed bool
	begin  time.Time
	buf    []byte
	kept   int              // bytes of the datagram in buf that nobody has taken
	from   syscall.Sockaddr // who has sent it

	answers bool                                      // hosts have answered to datagrams that they can\'t deliver
	send    func(b []byte, to syscall.Sockaddr) error // a test loses some here

	out     map[uint64]*outbound // by the path's number
	in      map[uint64]*inbound
	waiting []*outbound   // those with a timer
	owed    []*inbound    // those that owe a confirmation
	next    time.Duration // when the first of these is due; 0: none is
	at      time.Duration // when a datagram was last read, or Poll looked at the clock
	streak  bool          // the last Poll found something: more may be there
}

// now is the time since the module was opened, and never 0.
func (m *module) now() time.Duration { return time.Since(m.begin) + 1 }

// wake has Poll look at the timers at that time.
func (m *module) wake(at time.Duration) {
	if m.next == 0 || at < m.next {
		m.next = at
		m.env.Engine.Nudge() // who sleeps already asks for Due again
	}
}

func (m *module) Caps() btl.Caps {
	limit := int(m.p.Datagram) - headerSize - confirmSize
	return btl.Caps{EagerLimit: limit, FrameLimit: limit, LatencyNS: 20_000, Device: "udp " + m.addrs[0].String()}
}

// Blob is the addresses, as text.
func (m *module) Blob() []byte {
	var names []string
	for _, a := range m.addrs {
		names = append(names, a.String())
	}
	return []byte(strings.Join(names, ","))
}

// FD, Arm and Due say how the module is awaited.
func (m *module) FD() int   { return m.fd }
func (m *module) Arm() bool { return m.kept == 0 }

func (m *module) Due() time.Duration {
	if m.next == 0 {
		return 0
	}
	return max(m.next-m.now(), 1)
}

// Reach parses the addresses.
func (m *module) Reach(peer framework.Peer) error {
	_, err := m.reach(peer)
	return err
}

func (m *module) reach(peer framework.Peer) (addrs []netip.AddrPort, err error) {
	if peer.Proc == m.env.Identity.Proc {
		return nil, btl.NotMeant("udp is for other processes")
	}
	names := strings.SplitN(string(peer.Blob), ",", maxAddresses+1)
	for _, name := range names {
		a, err := netip.ParseAddrPort(name)
		if err != nil || a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().IsMulticast() || len(names) > maxAddresses {
			return nil, fmt.Errorf("%v tells no addresses but %.40q", peer.Proc, peer.Blob)
		}
		if a.Addr().Is4() == m.addrs[0].Addr().Is4() {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%v has no address of the kind of %v: %s", peer.Proc, m.addrs[0], peer.Blob)
	}
	return addrs, nil
}

// pollsAtOnce bounds what one Poll takes from the socket: others wait meanwhile.
const pollsAtOnce = 64

// Poll implements progress.Source. To find that there is no second datagram costs a system
// call: who waits for the first one has it before.
func (m *module) Poll() (n int) {
	most := 1
	if m.streak {
		most = pollsAtOnce
	}
	for n < most {
		if m.kept == 0 {
			if m.answers {
				if m.answers = m.undelivered(); m.answers {
					n++
				}
				continue
			}
			if err := m.read(); err == syscall.ECONNREFUSED {
				continue
			} else if err != nil {
				break
			}
		}
		n++
		b := m.buf[:m.kept]
		m.kept = 0
		m.datagram(b, m.from)
	}
	m.streak = n > 0
	if m.next == 0 {
		return n
	}
	if n != 1 { // else it was read just now
		m.at = m.now()
	}
	if m.at >= m.next {
		m.timers(m.at)
	}
	return n
}

// read reads a datagram, and keeps it in buf. Recvfrom of golang.org/x/sys asks for the socket's protocol
// with each one, and is 0.7 us slower for that.
func (m *module) read() (err error) {
	if m.kept, m.from, err = syscall.Recvfrom(m.fd, m.buf, 0); err != nil {
		m.kept = 0
		m.answers = m.answers || err == syscall.ECONNREFUSED
		return err
	}
	m.at = m.now()
	return nil
}

// timers sends what is due: confirmations, and again what nobody has confirmed.
func (m *module) timers(now time.Duration) {
	m.next = 0
	owed := m.owed
	m.owed = m.owed[:0]
	for _, p := range owed {
		if p.owes > now {
			m.owed = append(m.owed, p)
			m.wake(p.owes)
			continue
		}
		p.listed = false
		if p.owes != 0 {
			p.confirm()
		}
	}
	waiting := m.waiting
	m.waiting = nil
	for _, e := range waiting {
		if at := e.timer(now); at != 0 {
			m.waiting = append(m.waiting, e)
			m.wake(at)
		} else {
			e.timed = false
		}
	}
}

// Forget implements btl.Forgetter.
func (m *module) Forget(peer framework.Life) {
	for _, e := range m.out {
		if e.peer == peer {
			e.drop()
		}
	}
	for id, p := range m.in {
		if p.peer == peer {
			delete(m.in, id)
		}
	}
}

// Renew implements btl.Renewer: a path has a number of its own, so that nothing of before is
// taken for something new.
func (m *module) Renew(peer framework.Life) { m.Forget(peer) }

// Close tells all who have a path to this process, and those whose datagrams it finds.
func (m *module) Close() error {
	m.closed = true
	for m.Poll() > 0 {
	}
	for _, p := range m.in {
		m.tell(refused, p.id, 0, nil, p.from)
	}
	for _, e := range m.out {
		e.leave()
	}
	return syscall.Close(m.fd)
}
