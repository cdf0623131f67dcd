package meet

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/events"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// place is what a process has from its first client to its end: where it listens, which
// others are told once and for all, and what has to outlast a client.
type endpoint struct {
	id           bootstrap.Identity
	ownEntry     entry
	unixListener *net.UnixListener // nil: none
	nodeListener *net.UnixListener // Listens at nodeEntry; nil if there is none.
	tcpListener  *net.TCPListener  // nil: none

	mu          sync.Mutex // of the place and of its open client
	client      *client    // nil: nobody answers now
	isPublished bool

	values        join.Board[request]
	valueVersions map[string]uint64   // of what has been put, by name
	lastVersion   uint64              // of the last that has been put
	replicas      map[uint32]*replica // of what others have put

	entries        map[uint32]entry            // found so far
	connectedRanks map[uint32]struct{}         // with whom there was a connection
	failures       map[uint32]wire.EventBody   // who failed
	seenEvents     map[wire.EventBody]struct{} // what has been passed on already
	// and what was before it
	olderSeenEvents map[wire.EventBody]struct{}
	revoked         events.Revocations
	nextContextLow  uint64       // the lower bits of the next context id
	memberships     []membership // that the process was in
	barrierStreams  map[string]*barrierStream
}

// places are those of this program, which is one process as a rule, and in tests several.
// A place must be found again when a session is opened again, maybe with another Launcher.
var endpoints struct {
	sync.Mutex
	of map[framework.Proc]*endpoint
}

// endpointOf returns the place of the process with that identity, and makes it if there is
// none.
func endpointOf(id bootstrap.Identity, initEntry func(*entry) error) (*endpoint, error) {
	endpoints.Lock()
	defer endpoints.Unlock()
	if p, ok := endpoints.of[id.Proc]; ok {
		return p, nil
	}
	p := &endpoint{
		id: id, valueVersions: map[string]uint64{}, replicas: map[uint32]*replica{}, entries: map[uint32]entry{}, connectedRanks: map[uint32]struct{}{},
		failures: map[uint32]wire.EventBody{}, seenEvents: map[wire.EventBody]struct{}{}, olderSeenEvents: map[wire.EventBody]struct{}{},
	}
	if err := p.listen(); err != nil {
		return nil, err
	}
	if err := initEntry(&p.ownEntry); err != nil {
		p.closeListeners()
		return nil, err
	}
	p.listenOnNode()
	if endpoints.of == nil {
		endpoints.of = map[framework.Proc]*endpoint{}
	}
	endpoints.of[id.Proc] = p
	return p, nil
}

// leave ends the place, as the end of the process would.
func (p *endpoint) remove() {
	endpoints.Lock()
	defer endpoints.Unlock()
	if endpoints.of[p.id.Proc] == p {
		delete(endpoints.of, p.id.Proc)
	}
	p.closeListeners()
}

func (p *endpoint) closeListeners() {
	if p.unixListener != nil {
		p.unixListener.Close()
	}
	if p.nodeListener != nil {
		p.nodeListener.Close()
	}
	if p.tcpListener != nil {
		p.tcpListener.Close()
	}
}

// listen opens the sockets and draws what the entry says. One of the two suffices.
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
		if p.unixListener, unixErr = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: p.ownEntry.socketName()}); unixErr != nil {
			p.ownEntry.hostID = 0
		}
	}
	if p.tcpListener, tcpErr = net.ListenTCP("tcp", nil); tcpErr == nil {
		ifs, err := netaddr.Host()
		if p.ownEntry.addrs = netaddr.Publish(ifs); len(p.ownEntry.addrs) > 0 {
			p.ownEntry.port = uint16(p.tcpListener.Addr().(*net.TCPAddr).Port)
		} else {
			p.tcpListener.Close()
			p.tcpListener, tcpErr = nil, errors.Join(errors.New("this host has no address"), err)
		}
	}
	if p.unixListener == nil && p.tcpListener == nil {
		return &framework.TransportError{Component: component, Op: "listen", Err: errors.Join(unixErr, tcpErr)}
	}
	return nil
}

// nextContext draws the id of a construct that this process leads. Above is the rank,
// counted from a place that depends on the namespace: members of one namespace never draw
// the same, up to 2^20 of them with 2^44 constructs each. Below is a count that begins
// anywhere: of two namespaces, or of two processes under one rank, that make a million
// constructs each, some id is the same with a probability below 2^-22. The caller holds
// p.mu.
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

// accepting lets the sockets be accepted on, or ends that. Between two clients whoever
// connects waits in the kernel.
func (p *endpoint) setAccepting(on bool) {
	until := time.Time{}
	if !on {
		until = time.Unix(1, 0)
	}
	if p.unixListener != nil {
		p.unixListener.SetDeadline(until)
	}
	if p.nodeListener != nil {
		p.nodeListener.SetDeadline(until)
	}
	if p.tcpListener != nil {
		p.tcpListener.SetDeadline(until)
	}
}

const component = "bootstrap meet"

// procName is a process of this job, for errors and logs.
func (p *endpoint) procName(rank uint32) string {
	return "rank " + strconv.FormatUint(uint64(rank), 10)
}

// peerError is the error of what can't be done with a process.
func (p *endpoint) peerError(rank uint32, op string, err error) error {
	return &framework.TransportError{Component: component, Peer: p.procName(rank), Op: op, Err: err}
}

func closedError(what string) error {
	return fmt.Errorf("%s: %s: %w", component, what, framework.ErrClosed)
}
