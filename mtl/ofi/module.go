package ofi

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// module is an open endpoint: an mtl.Module. The engine's lock guards it.
type module struct {
	env    mtl.Env
	lib    *libfabric.Library
	ep     *libfabric.Endpoint
	layout layout
	caps   mtl.Caps
	about  mtl.Description
	offer  string
	blob   []byte
	format uint32         // of addresses
	own    []byte         // this process's address
	spill  libfabric.Kind // Spill, where the provider does not truncate well
	node   string         // Proof of a provider without a network; otherwise empty.
	medium trial.Medium

	peers   []peer // by mtl.Endpoint
	known   map[framework.Life]mtl.Endpoint
	nonces  map[uint64]mtl.Endpoint // who sent an answer
	dirty   []mtl.Endpoint          // peers with injected messages that may still be here
	blocked []mtl.Endpoint          // peers with sends that found no room, each once
	latest  int                     // the one of them that was tried last

	slots   []*slot // by slot number
	free    []uint32
	lines   map[uint32]*line // of receives that found no room, by id
	turns   []*line          // those in which receives wait
	turn    int              // the one that had its turn last
	spare   *line            // for the next id that needs one; or nil
	urgent  fifo             // receives of control and of claimed messages that found none
	held    fifo             // receives of claimed messages that are not safe to ask for now
	holds   bool             // there are such (known.go, Hold)
	over    []ended          // what the next Poll tells of first
	telling []ended          // room for over, used only by Poll
	away    *errand          // that is under way: the endpoint is its own
	calls   sync.WaitGroup   // of errands
	errands []func()         // that begin the next ones
	// Probes and looks that libfabric has. None of them is left when an errand begins.
	probesAtProvider int
	drainsProbes     bool                // An errand waits until there are none.
	shuts            bool                // the endpoint has failed, and is closed
	regions          []*region           // registered memory
	worn             []*libfabric.Region // registrations for one operation, which is over
	local            bool                // the provider takes registered buffers only
	software         bool                // it has no hardware: see pausesBetweenLooks
	greeting         []byte              // what is sent to them first
	cancels          []uint32            // slots that are to be canceled when the endpoint is back
	posted           int                 // operations that libfabric has
	receives         int                 // receives among them
	sends            int                 // sends among them
	deaf             int                 // peers that are deaf
	room             room                // for how many
	txSize           int                 // sends that the provider says it has room for
	connect          time.Duration       // mtl.ofi.connect_timeout
	sending          int                 // slots of sends that are not over, of any kind
	listening        []byte              // the buffers of control messages, pinned
	pins             runtime.Pinner
	scratch          []byte // for control messages that are sent at once
	faults           int    // control receives that failed one after the other
	strays           int    // errors one after the other that belong to no operation
	broken           error
	finished         bool // see Finish
	half             bool // a message is half here, for good
	closed           bool

	events [pollMost]libfabric.Event
}

// pollMost is how many completions one Poll takes.
const pollMost = 64

// peer is a connected process.
type peer struct {
	framework.Life
	address     uint64 // the number that libfabric gave it
	name        []byte // the network's address
	stage       stage  // how far libfabric knows it
	wanted      stage  // and is to know it
	unreachable bool   // it never will
	gone        error  // why it was forgotten
	dirty       bool   // it is in module.dirty
	isQueued    bool   // it is in module.blocked
	queue       fifo   // sends that found no room
	sends       int    // those that libfabric has
	deaf        bool   // they wait though libfabric has room: see mustHold
	refusals    int    // looks in a row at which the first of them found none
	wait        *trial.Patience
	matching    *unanswered
}

// errNobody is what is answered to operations with an endpoint of nobody.
var errNobody = fmt.Errorf("%s: %w: the endpoint was never connected", component, framework.ErrUnsupported)

type ended struct {
	op     *mtl.Op
	result mtl.Result
}

func (m *module) Caps() mtl.Caps            { return m.caps }
func (m *module) Describe() mtl.Description { return m.about }
func (m *module) Offer() string             { return m.offer }
func (m *module) Blob() []byte              { return m.blob }

// newModule makes a module of a candidate's open endpoint, which is the module's now.
func newModule(env mtl.Env, lib *libfabric.Library, ep *libfabric.Endpoint, c *candidate, l layout, p *params) *module {
	info := c.info
	m := &module{
		env: env, lib: lib, ep: ep, layout: l,
		peers:  []peer{{gone: errNobody}}, // mtl.NoEndpoint
		known:  map[framework.Life]mtl.Endpoint{},
		nonces: map[uint64]mtl.Endpoint{},
		caps: mtl.Caps{
			CIDBits: l.cid, SourceBits: l.source, TagBits: l.tag,
			MatchesRank: !l.data, EndpointBits: l.endpoint, RankSetting: l.rankSetting(usable(info.TagFormat)),
			MaxMessage: int64(min(info.MaxMessage, math.MaxInt64)), Inject: info.Inject, ControlLimit: controlLimit,
			Eager: int64(info.Inject), // what is injected has no buffer that it could be fetched from
		},
		about:    mtl.Description{Library: library(lib), Provider: info.Provider, Device: info.Domain, Mode: l.String()},
		format:   info.AddressFormat,
		offer:    offer(info, l),
		room:     roomOf(info, p.Buffers, lib.Version()),
		txSize:   info.TxSize,
		connect:  p.Connect,
		scratch:  make([]byte, 0, controlFrame),
		greeting: []byte{frameFlush},
		local:    info.Registers,
		software: !c.device,
	}
	if _, ok := needs(info.Provider, Spill, lib.Version()); ok && info.RxParts >= 2 {
		m.spill = libfabric.Spill
	}
	if f, ok := fact(info.Provider, Keep, lib.Version()); ok {
		m.caps.Eager = min(f.Eager, m.caps.MaxMessage)
	}
	_, m.holds = needs(info.Provider, Hold, lib.Version())
	return m
}

// offer is what both ends need the same of.
func offer(info *libfabric.Info, l layout) string {
	o := fmt.Sprintf("%s, %s, %v", info.Provider, formatName(info.AddressFormat), l)
	if about(info.Provider).Apart {
		o += ", network " + info.Fabric
	}
	return o
}

// begin learns the module's address and listens.
func (m *module) begin(c *candidate, buffers int) (err error) {
	if m.own, err = m.ep.Name(); err != nil {
		return err
	}
	if c.local {
		m.medium = trial.Memory
		if _, isIP := ipOf(c.info.AddressFormat, c.info.Address); isIP {
			m.medium = trial.Loopback
		}
		if m.node, err = m.medium.Proof(); err != nil {
			return err
		}
	}
	m.blob = blob{offer: m.offer, node: m.node, address: m.own}.encode()
	return m.listen(buffers)
}

func (m *module) Reach(peer framework.Peer) error {
	_, err := m.look(peer)
	return err
}

// look returns the network's address of a peer that this module reaches.
func (m *module) look(peer framework.Peer) ([]byte, error) {
	if m.broken != nil {
		return nil, m.broken
	}
	b, err := parseBlob(peer.Blob)
	switch {
	case err != nil:
		return nil, fmt.Errorf("mtl ofi: %v: %w", peer.Proc, err)
	case b.offer != m.offer:
		return nil, fmt.Errorf("mtl ofi: %v has %q, and this process %q: mtl.ofi.provider_include and mtl.ofi.layout choose", peer.Proc, b.offer, m.offer)
	case m.node != "" && b.node != m.node:
		return nil, fmt.Errorf("mtl ofi: %v %s, and %s connects only processes of one node here", peer.Proc, m.medium.Difference(m.node, b.node), m.about.Provider)
	case !m.whole(b.address):
		return nil, fmt.Errorf("mtl ofi: %v: %w", peer.Proc, errBlob)
	}
	return b.address, nil
}

// whole reports whether libfabric, which takes no length, reads no more of a peer's
// address than there is: it goes by the format, by the family that a socket address
// begins with, and by the zero at the end of a text.
func (m *module) whole(address []byte) bool {
	if m.format == libfabric.TextAddress {
		return bytes.IndexByte(address, 0) >= 0
	}
	socket := libfabric.SocketAddress <= m.format && m.format <= libfabric.IBAddress
	return len(address) == len(m.own) && (!socket || bytes.HasPrefix(address, m.own[:min(2, len(m.own))]))
}

func (m *module) Connect(p framework.Peer) (mtl.Endpoint, error) {
	if to, ok := m.known[p.Life]; ok {
		return to, nil
	}
	name, err := m.look(p)
	if err != nil {
		return 0, err
	}
	to := mtl.Endpoint(len(m.peers))
	m.peers = append(m.peers, peer{Life: p.Life, name: bytes.Clone(name)})
	m.want(to, inserted)
	m.known[p.Life], m.nonces[p.Nonce] = to, to
	return to, nil
}

// Forget leaves the peer in the address vector: providers keep connections by
// what stands there.
func (m *module) Forget(to mtl.Endpoint, why error) {
	p := &m.peers[to]
	if p.gone != nil {
		return
	}
	p.gone = m.transportError("send", to, why)
	delete(m.known, p.Life)
	delete(m.nonces, p.Nonce)
	p.queue, p.matching = fifo{}, nil
	for _, s := range m.slots {
		if s.to != to || !s.kind.isSend() {
			continue
		}
		if !s.posted || s.sent {
			m.giveUp(s, mtl.Result{Err: p.gone})
			continue
		}
		m.end(s.op, mtl.Result{Err: p.gone})
		s.op, s.kind = nil, abandoned // until libfabric lets go of the buffer
		m.sending--
	}
}

// end has the next Poll tell op's owner.
func (m *module) end(op *mtl.Op, r mtl.Result) {
	if op != nil {
		m.over = append(m.over, ended{op, r})
	}
}

func (m *module) text(code libfabric.Errno) string {
	return fmt.Sprintf("%s (%d)", m.lib.Text(code), code)
}

func (m *module) transportError(op string, to mtl.Endpoint, err error) error {
	e := &framework.TransportError{Component: component, Op: op, Err: err}
	if to != mtl.NoEndpoint {
		e.Peer = m.env.Worlds.Proc(m.peers[to].ID).String()
	}
	return e
}

// fail ends everything: the completion queue has failed, and nothing that is in
// progress will be heard of again.
func (m *module) fail(err error) {
	if m.broken != nil {
		return
	}
	m.broken = &framework.TransportError{Component: component, Op: "poll", Err: fmt.Errorf("%s: %w", m.about.Provider, err)}
	m.env.Logger.Error("mtl ofi: the module has failed", "provider", m.about.Provider, "err", err)
	if m.away == nil {
		m.shut()
	}
}

// giveUpAll ends every operation with what the module has failed of.
func (m *module) giveUpAll() {
	m.blocked, m.dirty, m.lines, m.turns, m.urgent, m.held = nil, nil, nil, nil, fifo{}, fifo{}
	for i := range m.peers {
		m.peers[i].queue, m.peers[i].matching = fifo{}, nil
	}
	for _, s := range m.slots {
		if s.kind != unused {
			m.giveUp(s, mtl.Result{Err: m.broken})
		}
	}
	for _, x := range m.regions {
		m.concluded(x, mtl.Result{Err: m.broken})
	}
}

// awaited is a module whose completion queue has a descriptor. The engine does not
// watch that one, which is libfabric's, and closed when the module fails: its number
// is soon somebody else's. It watches an epoll of the module's own around it.
type awaited struct {
	*module
	fd int
}

// await returns m as what announces itself by its completion queue's descriptor.
func await(m *module) (mtl.Module, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, m.ep.FD(), &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return awaited{m, fd}, nil
}

func (a awaited) FD() int { return a.fd }

func (a awaited) Close() error {
	if !a.closed {
		unix.Close(a.fd)
	}
	return a.module.Close()
}

func (a awaited) Arm() bool {
	return a.broken != nil || len(a.over)+len(a.errands) == 0 && (a.away != nil || a.ep.TryWait())
}

// Interval implements progress.Polled: no descriptor tells when there is room
// for what waits, nor, with most providers, that somebody wants to connect.
func (a awaited) Interval() time.Duration {
	switch {
	case a.broken != nil && !a.isBusy():
		return 0
	case a.away != nil || len(a.blocked) > 0 || len(a.turns) > 0 || a.urgent.head != nil || a.held.head != nil:
		return pollInterval
	}
	return connectInterval
}

// polled is a module that nothing announces.
type polled struct{ *module }

func (p polled) Interval() time.Duration {
	if p.broken != nil && !p.isBusy() {
		return 0
	}
	return pollInterval
}

// pollInterval is how often a module that can't be awaited is polled while all
// sleep. At 0.1 ms it takes 15 % of a processor, as measured with tcp;ofi_rxm.
const pollInterval = time.Millisecond

// connectInterval is how long a peer may wait for a process that sleeps to take
// each step of its connection. At 10 ms it takes 1 % of a processor.
const connectInterval = 10 * time.Millisecond
