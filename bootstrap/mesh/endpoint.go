package mesh

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/events"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// endpoint is the state of a process that outlasts its clients. It has the sockets, the known
// failures, and the values of this process.
type endpoint struct {
	id       bootstrap.Identity
	ownEntry entry
	// Lowest rank that other processes may not name; see growth.go.
	rankLimit atomic.Int64
	listeners listeners

	// Guards the endpoint and its client.
	mu sync.Mutex
	// nil while no client is open.
	client      *client
	isPublished bool

	ownValues ownValues
	// Values of other processes.
	replicas map[uint32]*replica

	// Entries that were found, by rank.
	entries map[uint32]entry
	// Processes with which there was a connection.
	connectedRanks map[uint32]struct{}
	failures       map[uint32]wire.EventBody
	seenEvents     seenEvents
	revoked        events.Revocations
	// Lower bits of the next context id.
	nextContextLow uint64
	memberships    []membership
	barrierStreams map[string]*barrierStream

	// In rank 0, the process sets and changes of the job. nil before the first request.
	sets *setTable
	// The table has all sets of the launcher that this process can read.
	hasLauncherSets bool
}

// listeners are the sockets of a process.
type listeners struct {
	// nil if the host has no Unix sockets.
	unix *net.UnixListener
	// Listens at nodeEntry. nil if there is none.
	node *net.UnixListener
	// nil if there is no TCP address.
	tcp *net.TCPListener
}

// all returns the open sockets.
func (s *listeners) all() (open []listener) {
	if s.unix != nil {
		open = append(open, s.unix)
	}
	if s.node != nil {
		open = append(open, s.node)
	}
	if s.tcp != nil {
		open = append(open, s.tcp)
	}
	return open
}

func (s *listeners) close() {
	for _, l := range s.all() {
		l.Close()
	}
}

// endpoints are those of this program, which is one process except in tests. A session that opens
// again finds its endpoint here, possibly with another Launcher.
var endpoints struct {
	sync.Mutex
	of map[framework.Proc]*endpoint
}

// endpointOf returns the endpoint of a process, and creates it if there is none.
func endpointOf(id bootstrap.Identity, g growth, initEntry func(*entry) error) (*endpoint, error) {
	endpoints.Lock()
	defer endpoints.Unlock()
	if p, ok := endpoints.of[id.Proc]; ok {
		return p, nil
	}
	p := &endpoint{
		id: id, ownValues: ownValues{versions: map[string]uint64{}}, replicas: map[uint32]*replica{}, entries: map[uint32]entry{}, connectedRanks: map[uint32]struct{}{},
		failures: map[uint32]wire.EventBody{}, seenEvents: seenEvents{recent: map[wire.EventBody]struct{}{}, older: map[wire.EventBody]struct{}{}},
	}
	if err := p.listen(); err != nil {
		return nil, err
	}
	if err := initEntry(&p.ownEntry); err != nil {
		p.listeners.close()
		return nil, err
	}
	p.listenOnNode()
	p.initGrowth(g)
	if endpoints.of == nil {
		endpoints.of = map[framework.Proc]*endpoint{}
	}
	endpoints.of[id.Proc] = p
	return p, nil
}

// remove closes the endpoint and unregisters it.
func (p *endpoint) remove() {
	endpoints.Lock()
	defer endpoints.Unlock()
	if endpoints.of[p.id.Proc] == p {
		delete(endpoints.of, p.id.Proc)
	}
	p.listeners.close()
}

// listen opens the sockets, one of which is enough, and draws the random numbers of the entry.
func (p *endpoint) listen() error {
	var seed [8 + 8 + keySize]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return err
	}
	p.ownEntry.nonce = max(binary.BigEndian.Uint64(seed[:]), 1)
	p.nextContextLow = binary.BigEndian.Uint64(seed[8:])
	copy(p.ownEntry.key[:], seed[16:])
	var unixErr, tcpErr error
	if p.ownEntry.hostID = localHostID(); p.ownEntry.hostID != 0 {
		if p.listeners.unix, unixErr = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: p.ownEntry.socketName()}); unixErr != nil {
			p.ownEntry.hostID = 0
		}
	}
	if p.listeners.tcp, tcpErr = net.ListenTCP("tcp", nil); tcpErr == nil {
		ifs, err := netaddr.Host()
		if p.ownEntry.addrs = netaddr.Publish(ifs); len(p.ownEntry.addrs) > 0 {
			p.ownEntry.port = uint16(p.listeners.tcp.Addr().(*net.TCPAddr).Port)
		} else {
			p.listeners.tcp.Close()
			p.listeners.tcp, tcpErr = nil, errors.Join(errors.New("this host has no address"), err)
		}
	}
	if p.listeners.unix == nil && p.listeners.tcp == nil {
		return &framework.TransportError{Component: component, Op: "listen", Err: errors.Join(unixErr, tcpErr)}
	}
	return nil
}

// nextContext draws the id of a construct that this process coordinates. The upper bits are the
// rank plus a hash of the namespace, so up to 2^20 members of one namespace draw distinct ids for
// 2^44 constructs each. The lower bits count from a random number. With a million constructs in
// each of two namespaces, or of two processes under one rank, the probability of an equal id is
// below 2^-22. The caller holds p.mu.
func (p *endpoint) nextContext() uint64 {
	const low = 44
	above := (framework.NamespaceHash(p.id.Proc.Namespace) + uint64(p.id.Proc.Rank)) << low
	for {
		p.nextContextLow++
		if id := above | p.nextContextLow&(1<<low-1); id != 0 {
			return id
		}
	}
}

// setAccepting starts or stops accepting on the sockets. Between two clients, connections wait in
// the kernel.
func (p *endpoint) setAccepting(on bool) {
	until := time.Time{}
	if !on {
		until = time.Unix(1, 0)
	}
	for _, l := range p.listeners.all() {
		l.SetDeadline(until)
	}
}

const component = "bootstrap mesh"

// procName names a process of this job in errors and logs.
func (p *endpoint) procName(rank uint32) string {
	return "rank " + strconv.FormatUint(uint64(rank), 10)
}

// peerError wraps an error of an operation with a process.
func (p *endpoint) peerError(rank uint32, op string, err error) error {
	return &framework.TransportError{Component: component, Peer: p.procName(rank), Op: op, Err: err}
}

func closedError(what string) error {
	return fmt.Errorf("%s: %s: %w", component, what, framework.ErrClosed)
}
