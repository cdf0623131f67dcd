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
type place struct {
	id   bootstrap.Identity
	self entry
	unix *net.UnixListener // nil: none
	node *net.UnixListener // Listens at nodeEntry; nil if there is none.
	tcp  *net.TCPListener  // nil: none

	mu        sync.Mutex // of the place and of its open client
	open      *client    // nil: nobody answers now
	published bool

	put      join.Board[request]
	versions map[string]uint64 // of what has been put, by name
	version  uint64            // of the last that has been put
	copies   map[uint32]*kept  // of what others have put

	entries map[uint32]entry            // found so far
	reached map[uint32]struct{}         // with whom there was a connection
	dead    map[uint32]wire.EventBody   // who failed
	told    map[wire.EventBody]struct{} // what has been passed on already
	// and what was before it
	toldBefore map[wire.EventBody]struct{}
	revoked    events.Revocations
	next       uint64       // the lower bits of the next context id
	groups     []membership // that the process was in
	streams    map[string]*stream
}

// places are those of this program, which is one process as a rule, and in tests several.
// A place must be found again when a session is opened again, maybe with another Launcher.
var places struct {
	sync.Mutex
	of map[framework.Proc]*place
}

// placeOf returns the place of the process with that identity, and makes it if there is
// none.
func placeOf(id bootstrap.Identity, fresh func(*entry) error) (*place, error) {
	places.Lock()
	defer places.Unlock()
	if p, ok := places.of[id.Proc]; ok {
		return p, nil
	}
	p := &place{
		id: id, versions: map[string]uint64{}, copies: map[uint32]*kept{}, entries: map[uint32]entry{}, reached: map[uint32]struct{}{},
		dead: map[uint32]wire.EventBody{}, told: map[wire.EventBody]struct{}{}, toldBefore: map[wire.EventBody]struct{}{},
	}
	if err := p.listen(); err != nil {
		return nil, err
	}
	if err := fresh(&p.self); err != nil {
		p.shut()
		return nil, err
	}
	p.listenOnNode()
	if places.of == nil {
		places.of = map[framework.Proc]*place{}
	}
	places.of[id.Proc] = p
	return p, nil
}

// leave ends the place, as the end of the process would.
func (p *place) leave() {
	places.Lock()
	defer places.Unlock()
	if places.of[p.id.Proc] == p {
		delete(places.of, p.id.Proc)
	}
	p.shut()
}

func (p *place) shut() {
	if p.unix != nil {
		p.unix.Close()
	}
	if p.node != nil {
		p.node.Close()
	}
	if p.tcp != nil {
		p.tcp.Close()
	}
}

// listen opens the sockets and draws what the entry says. One of the two suffices.
func (p *place) listen() error {
	var seed [8 + 8 + keySize]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return err
	}
	p.self.nonce = max(binary.BigEndian.Uint64(seed[:]), 1)
	p.next = binary.BigEndian.Uint64(seed[8:])
	copy(p.self.key[:], seed[16:])
	var unixErr, tcpErr error
	if p.self.host = sameHost(); p.self.host != 0 {
		if p.unix, unixErr = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: p.self.socket()}); unixErr != nil {
			p.self.host = 0
		}
	}
	if p.tcp, tcpErr = net.ListenTCP("tcp", nil); tcpErr == nil {
		ifs, err := netaddr.Host()
		if p.self.addrs = netaddr.Publish(ifs); len(p.self.addrs) > 0 {
			p.self.port = uint16(p.tcp.Addr().(*net.TCPAddr).Port)
		} else {
			p.tcp.Close()
			p.tcp, tcpErr = nil, errors.Join(errors.New("this host has no address"), err)
		}
	}
	if p.unix == nil && p.tcp == nil {
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
func (p *place) nextContext() uint64 {
	const low = 44
	above := (framework.NamespaceHash(p.id.Proc.Namespace) + uint64(p.id.Proc.Rank)) << low
	for {
		p.next++
		if id := above | p.next&(1<<low-1); id != 0 {
			return id
		}
	}
}

// accepting lets the sockets be accepted on, or ends that. Between two clients whoever
// connects waits in the kernel.
func (p *place) accepting(on bool) {
	until := time.Time{}
	if !on {
		until = time.Unix(1, 0)
	}
	if p.unix != nil {
		p.unix.SetDeadline(until)
	}
	if p.node != nil {
		p.node.SetDeadline(until)
	}
	if p.tcp != nil {
		p.tcp.SetDeadline(until)
	}
}

const component = "bootstrap meet"

// procName is a process of this job, for errors and logs.
func (p *place) procName(rank uint32) string {
	return "rank " + strconv.FormatUint(uint64(rank), 10)
}

// peerError is the error of what can't be done with a process.
func (p *place) peerError(rank uint32, op string, err error) error {
	return &framework.TransportError{Component: component, Peer: p.procName(rank), Op: op, Err: err}
}

func closedError(what string) error {
	return fmt.Errorf("%s: %s: %w", component, what, framework.ErrClosed)
}
