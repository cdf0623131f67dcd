package ucx

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// module is an open worker. It implements mtl.Module. The engine's lock guards it.
type module struct {
	base.Module
	lib             *ucp.Library
	worker          *ucp.Worker
	transportTraits transportTraits

	peersByEndpoint []peer
	slotsByNumber   []*slot
	// spareReceive is a slot for the next recvShortAndPoll, or nil.
	spareReceive *slot
	// longOperations counts the slots with isLong.
	longOperations   int
	canceledReceives canceledReceives
	// unknownSenders are slots of claimed messages. The next Poll looks up their senders.
	unknownSenders []*slot
	// savedBytes is the length of the messages that SaveMessages saves, or 0.
	savedBytes int
	// queueGuard is nil before the first failure of a peer.
	queueGuard *queueGuard
	isClosed   bool
	// consecutiveFaults counts control receives that failed since the last arrival.
	consecutiveFaults int

	eventBuf [eventsPerPoll]ucp.Event
}

// transportTraits are the properties of the module's transports.
type transportTraits struct {
	// transportNames is for errors.
	transportNames string
	libraryVersion string
	// isPeerMode is set for error_mode=peer.
	isPeerMode bool
	usesTCP    bool
	// registersMemory is set if a transport registers memory with a device.
	registersMemory bool
	// guardSettings are the settings of the queue guard's worker; nil if messages use no shared queue.
	guardSettings []ucp.Setting
}

// maxMessage is the length of the longest message, in bytes. UCX accepts longer ones, but a receive whose message may
// be too long costs more (internal/ucp, Recv), and a receive of maxMessage bytes need not expect that.
const maxMessage = 1 << 20

// peer is a connected process.
type peer struct {
	base.Peer
	// workerAddress is from the business card.
	workerAddress []byte
	// transportNames is for errors.
	transportNames string
	// ep is made for the first message.
	ep ucp.Endpoint
}

func (m *module) errorMode() string {
	if m.transportTraits.isPeerMode {
		return "peer"
	}
	return "none"
}

// newModule returns a module for a started worker. The module owns the worker.
func newModule(env mtl.Env, lib *ucp.Library, w *ucp.Worker, c *candidate, p *params) *module {
	v := lib.Version()
	mode, note := c.errorMode(p, v)
	m := &module{
		Module: base.NewModule(component, env), lib: lib, worker: w,
		transportTraits: transportTraits{
			transportNames: resourceNames(c.resources, c.interfaces), libraryVersion: v.String(), isPeerMode: mode == "peer",
			usesTCP: c.usesTCP(), registersMemory: c.registersMemory(), guardSettings: c.guardSettings(),
		},
	}
	m.peersByEndpoint = []peer{{Peer: m.NoPeer()}}
	m.Capabilities = mtl.Caps{
		CIDBits: cidBits, SourceBits: sourceBits, TagBits: tagBits, MatchesRank: true,
		MaxMessage: maxMessage, Inject: ucp.MaxCopied, ControlLimit: controlLimit, Eager: int64(c.packetBytes),
	}
	m.Card.Offer = fmt.Sprintf("%s, %s, error mode %s", c.name, layoutName, m.errorMode())
	m.Description = mtl.Description{Provider: c.name, Device: c.devices(), Mode: layoutName, Library: libraryName(v)}
	if note != "" {
		m.Description.Notes = []string{note}
	}
	m.Description.Notes = append(m.Description.Notes, c.hazards(v)...)
	return m
}

// start reads the address of the worker and posts the receives of control messages.
func (m *module) start(c *candidate) error {
	address, err := m.worker.Address()
	if err != nil {
		return err
	}
	if c.isNodeLocal {
		m.Card.Medium = c.medium()
		if m.Card.NodeProof, err = m.Card.Medium.Proof(); err != nil {
			return err
		}
	}
	m.Card.Blob = cardEntry{m.Env.Self, m.Card.Offer, m.Card.NodeProof, m.transportTraits.transportNames, m.transportTraits.libraryVersion, address}.encode()
	if n := len(m.Card.Blob); n > maxCardEntry {
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
	for _, s := range m.slotsByNumber {
		s.Op = nil
		if s.IsPosted && (s.Kind == base.SlotReceive || s.Kind == base.SlotControlReceive) {
			m.worker.Cancel(s.Number)
		}
	}
	if m.transportTraits.isPeerMode {
		for i := range m.peersByEndpoint {
			if p := &m.peersByEndpoint[i]; p.ep.IsValid() {
				m.closeEndpoint(p)
			}
		}
	}
	m.drain()
	if m.queueGuard != nil {
		m.queueGuard.worker.Close()
	}
	m.worker.Close()
	for _, s := range m.slotsByNumber {
		s.Unpin()
	}
	m.EndClose()
	m.slotsByNumber, m.spareReceive, m.unknownSenders = nil, nil, nil
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
		if m.worker.Poll(m.eventBuf[:], true) > 0 {
			last = time.Now()
		} else {
			time.Sleep(base.PollInterval / 10)
		}
	}
}

// descriptorModule is a module whose worker has a descriptor.
type descriptorModule struct{ *module }

func (a descriptorModule) FD() int { return a.worker.FD() }

func (a descriptorModule) Arm() bool { return a.Results.IsEmpty() && a.worker.Arm() }

// polledModule is a module without a descriptor.
type polledModule struct{ *module }

func (polledModule) Interval() time.Duration { return base.PollInterval }
