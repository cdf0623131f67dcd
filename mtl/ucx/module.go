package ucx

import (
	"fmt"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/trial"
)

// module is an open worker. It implements mtl.Module. The engine's lock guards it.
type module struct {
	env         mtl.Env
	worker      *ucp.Worker
	caps        mtl.Caps
	description mtl.Description
	offer       string
	blob        []byte
	// version is that of the library.
	version string
	// transports lists the transports of this process, for errors.
	transports string
	// nodeProof identifies the node if the class reaches no other node; otherwise it is empty.
	nodeProof string
	medium    trial.Medium
	// peerMode is set for error_mode=peer.
	peerMode bool
	usesTCP  bool
	// registersMemory is set if a transport registers memory with a device.
	registersMemory bool
	lib             *ucp.Library
	// guardSettings are the settings of the queue guard's worker; nil if messages use no shared queue.
	guardSettings []ucp.Setting

	peers    peerTable
	slots    slotTable
	canceled canceledReceives
	results  resultQueue
	// keptBytes is the length of the messages whose contents are kept, or 0.
	keptBytes int
	// guard is nil before the first failure of a peer.
	guard    *queueGuard
	err      error
	isClosed bool
	// consecutiveFaults counts control receives that failed since the last arrival.
	consecutiveFaults int

	events [eventsPerPoll]ucp.Event
	// pins hold memory that stays pinned until Close.
	pins runtime.Pinner
}

// maxMessage is the length of the longest message, in bytes. UCX accepts longer ones, but a receive whose message may
// be too long costs more (internal/ucp, Recv), and a receive of maxMessage bytes need not expect that.
const maxMessage = 1 << 20

// peer is a connected process.
type peer struct {
	framework.Incarnation
	// address is the worker address from the business card.
	address []byte
	// transports lists the transports of the peer, for errors.
	transports string
	// ep is made for the first message.
	ep ucp.Endpoint
	// sendErr is the error of all further sends; nil while the peer is connected.
	sendErr     error
	isForgotten bool
	// isUnflushed is set while the peer is in peerTable.unflushed.
	isUnflushed bool
}

// peerTable holds the connected processes.
type peerTable struct {
	// all is indexed by mtl.Endpoint. Peers are never removed.
	all           []peer
	byIncarnation map[framework.Incarnation]mtl.Endpoint
	// unflushed lists the peers for which UCX may still hold messages, each once.
	unflushed []mtl.Endpoint
	// forgotten counts the peers with isForgotten.
	forgotten int
}

func newPeerTable() peerTable {
	return peerTable{
		all:           []peer{{sendErr: errUnknownEndpoint, isForgotten: true}}, // mtl.NoEndpoint
		byIncarnation: map[framework.Incarnation]mtl.Endpoint{},
	}
}

// errUnknownEndpoint is the error of operations with an endpoint that Connect did not return.
var errUnknownEndpoint = fmt.Errorf("%s: %w: the endpoint was never connected", component, framework.ErrUnsupported)

func (m *module) Caps() mtl.Caps            { return m.caps }
func (m *module) Describe() mtl.Description { return m.description }
func (m *module) Offer() string             { return m.offer }
func (m *module) Blob() []byte              { return m.blob }

func (m *module) errorMode() string {
	if m.peerMode {
		return "peer"
	}
	return "none"
}

// newModule returns a module for a started worker. The module owns the worker.
func newModule(env mtl.Env, lib *ucp.Library, w *ucp.Worker, c *candidate, p *params) *module {
	v := lib.Version()
	mode, note := c.errorMode(p, v)
	m := &module{
		env: env, lib: lib, guardSettings: c.guardSettings(), worker: w, version: v.String(), transports: resourceNamesWithAddresses(c.resources, c.interfaces), peerMode: mode == "peer", usesTCP: c.usesTCP(), registersMemory: c.registersMemory(),
		peers: newPeerTable(),
		caps: mtl.Caps{
			CIDBits: cidBits, SourceBits: sourceBits, TagBits: tagBits, MatchesRank: true,
			MaxMessage: maxMessage, Inject: ucp.MaxCopied, ControlLimit: controlLimit, Eager: int64(c.packet),
		},
	}
	m.offer = fmt.Sprintf("%s, %s, error mode %s", c.name, layoutName, m.errorMode())
	m.description = mtl.Description{Provider: c.name, Device: c.devices(), Mode: layoutName, Library: libraryName(v)}
	if note != "" {
		m.description.Notes = []string{note}
	}
	m.description.Notes = append(m.description.Notes, c.hazards(v)...)
	return m
}

// start reads the address of the worker and posts the receives of control messages.
func (m *module) start(c *candidate) error {
	address, err := m.worker.Address()
	if err != nil {
		return err
	}
	if c.isNodeLocal {
		m.medium = c.medium()
		if m.nodeProof, err = m.medium.Proof(); err != nil {
			return err
		}
	}
	m.blob = cardEntry{m.env.Self, m.offer, m.nodeProof, m.transports, m.version, address}.encode()
	if n := len(m.blob); n > maxCardEntry {
		return fmt.Errorf("its entry in the business card has %d bytes, %d more than fit there: mtl.ucx.device_include with fewer devices makes it shorter", n, n-maxCardEntry)
	}
	return m.postControlReceives()
}

// Close implements mtl.Module. In peer mode it closes all endpoints at once. Otherwise UCX would wait for peers, and the
// worker closes them. Receives are canceled. UCX accesses no buffer after the worker is closed.
func (m *module) Close() error {
	if m.isClosed {
		return nil
	}
	m.isClosed = true
	for _, s := range m.slots.all {
		s.op = nil
		if s.isPosted && (s.kind == slotReceive || s.kind == slotControlReceive) {
			m.worker.Cancel(s.number)
		}
	}
	if m.peerMode {
		for i := range m.peers.all {
			if p := &m.peers.all[i]; p.ep.IsValid() {
				m.closeEndpoint(p)
			}
		}
	}
	m.drain()
	if m.guard != nil {
		m.guard.worker.Close()
	}
	m.worker.Close()
	for _, s := range m.slots.all {
		s.pins.Unpin()
	}
	m.pins.Unpin()
	if m.err == nil {
		m.err = fmt.Errorf("%s: %w", component, framework.ErrClosed)
	}
	m.slots, m.results = slotTable{}, resultQueue{}
	return nil
}

// quietPeriod is the time without events that Close waits for, and maxDrain its limit. UCX 1.13 with assertions aborts
// when a worker is closed that owes a reply to a process that has just connected. The reply leaves within quietPeriod.
const (
	quietPeriod = 20 * time.Millisecond
	maxDrain    = time.Second
)

// drain polls until no event has come for quietPeriod.
func (m *module) drain() {
	start := time.Now()
	for last := start; time.Since(last) < quietPeriod && time.Since(start) < maxDrain; {
		if m.worker.Poll(m.events[:], true) > 0 {
			last = time.Now()
		} else {
			time.Sleep(pollInterval / 10)
		}
	}
}

// descriptorModule is a module whose worker has a descriptor.
type descriptorModule struct{ *module }

func (a descriptorModule) FD() int { return a.worker.FD() }

func (a descriptorModule) Arm() bool { return len(a.results.pending) == 0 && a.worker.Arm() }

// polledModule is a module without a descriptor.
type polledModule struct{ *module }

func (polledModule) Interval() time.Duration { return pollInterval }

// pollInterval is the time between polls of a sleeping process without a descriptor.
const pollInterval = time.Millisecond
