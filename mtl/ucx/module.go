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

// module is an open worker: an mtl.Module. The engine's lock guards it.
type module struct {
	env        mtl.Env
	worker     *ucp.Worker
	caps       mtl.Caps
	about      mtl.Description
	offer      string
	blob       []byte
	version    string // of the library
	transports string // this process's, for errors
	node       string // Proof of a class without a network; otherwise empty.
	medium     trial.Medium
	peerMode   bool // error_mode=peer
	tcp        bool // tcp is among its transports
	registers  bool // one of them registers memory with a device
	lib        *ucp.Library
	guarded    []ucp.Setting // of the guard's worker; nil: there is no queue to look after

	peers []peer // by mtl.Endpoint
	known map[framework.Life]mtl.Endpoint
	dirty []mtl.Endpoint // peers with messages that UCX may still have, each once

	slots     []*slot // by slot number
	free      []uint32
	ready     *slot   // taken for the next short receive that looks (lookShort); or nil
	sending   int     // slots of sends that are not over
	long      int     // slots of messages that UCX may take its time to copy
	kept      int     // length of the messages whose contents are kept; 0: none
	vain      []vain  // receives that were canceled and have not ended, or not long ago
	unseen    int     // polls since they were gone through,
	seen      int     // and forgotten then
	forgotten int     // peers that are dead for certain
	over      []ended // what the next Poll tells of
	telling   []ended // room for over, used only by Poll
	guard     *guard  // nil before the first death
	broken    error
	closed    bool

	failedListens int // Receives of control messages that failed since the last arrival.

	events [pollMost]ucp.Event
	pins   runtime.Pinner // of what stays until the end
}

// longest is the longest message, in bytes. UCX takes longer ones, but a receive for which a message
// may be too long costs more (internal/ucp, Recv), and one of so many bytes is none of these.
const longest = 1 << 20

// peer is a process that was made known. UCX learns of it with the first message.
type peer struct {
	framework.Life
	address    []byte // the worker's
	transports string // for errors
	ep         ucp.Endpoint
	gone       error // why nothing goes there any more
	forgotten  bool
	dirty      bool // it is in module.dirty
}

// errNobody is what is answered to operations with an endpoint of nobody.
var errNobody = fmt.Errorf("%s: %w: the endpoint was never connected", component, framework.ErrUnsupported)

func (m *module) Caps() mtl.Caps            { return m.caps }
func (m *module) Describe() mtl.Description { return m.about }
func (m *module) Offer() string             { return m.offer }
func (m *module) Blob() []byte              { return m.blob }

func (m *module) mode() string {
	if m.peerMode {
		return "peer"
	}
	return "none"
}

// newModule makes a module of a started worker, and owns the worker.
func newModule(env mtl.Env, lib *ucp.Library, w *ucp.Worker, c *candidate, p *params) *module {
	v := lib.Version()
	mode, note := c.errorMode(p, v)
	m := &module{
		env: env, lib: lib, guarded: c.alone(), worker: w, version: v.String(), transports: listedWithAddresses(c.resources, c.interfaces), peerMode: mode == "peer", tcp: c.usesTCP(), registers: c.registers(),
		peers: []peer{{gone: errNobody, forgotten: true}}, // mtl.NoEndpoint
		known: map[framework.Life]mtl.Endpoint{},
		caps: mtl.Caps{
			CIDBits: cidBits, SourceBits: sourceBits, TagBits: tagBits, MatchesRank: true,
			MaxMessage: longest, Inject: ucp.Short, ControlLimit: controlLimit, Eager: int64(c.packet),
		},
	}
	m.offer = fmt.Sprintf("%s, %s, error mode %s", c.name, layoutName, m.mode())
	m.about = mtl.Description{Provider: c.name, Device: c.devices(), Mode: layoutName, Library: library(v)}
	if note != "" {
		m.about.Notes = []string{note}
	}
	m.about.Notes = append(m.about.Notes, c.hazards(v)...)
	return m
}

// begin asks the worker for its address and posts the receives of control messages.
func (m *module) begin(c *candidate) error {
	address, err := m.worker.Address()
	if err != nil {
		return err
	}
	if c.local {
		m.medium = c.medium()
		if m.node, err = m.medium.Proof(); err != nil {
			return err
		}
	}
	m.blob = blob{m.env.Self, m.offer, m.node, m.transports, m.version, address}.encode()
	if n := len(m.blob); n > most {
		return fmt.Errorf("its entry in the business card has %d bytes, %d more than fit there: mtl.ucx.device_include with fewer devices makes it shorter", n, n-most)
	}
	return m.listen()
}

// Close implements mtl.Module. In peer mode all endpoints are closed at once; otherwise UCX
// would wait for peers, and it is the worker's end that closes them. Receives are withdrawn.
// Either way UCX touches no buffer any more when the worker is gone.
func (m *module) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	for _, s := range m.slots {
		s.op = nil
		if s.posted && (s.kind == receive || s.kind == listen) {
			m.worker.Cancel(s.number)
		}
	}
	if m.peerMode {
		for i := range m.peers {
			if p := &m.peers[i]; p.ep.Made() {
				m.disconnect(p)
			}
		}
	}
	m.settle()
	if m.guard != nil {
		m.guard.worker.Close()
	}
	m.worker.Close()
	for _, s := range m.slots {
		s.pins.Unpin()
	}
	m.pins.Unpin()
	if m.broken == nil {
		m.broken = fmt.Errorf("%s: %w", component, framework.ErrClosed)
	}
	m.slots, m.free, m.over = nil, nil, nil
	return nil
}

// quietAfter is how long nothing has to come before a worker is closed, and settleMost how long
// Close waits for that. UCX 1.13 ends the process, if it was built with assertions, when a
// worker is destroyed that still has to answer who has just connected: the answer leaves within less.
const (
	quietAfter = 20 * time.Millisecond
	settleMost = time.Second
)

// settle polls until nothing comes any more.
func (m *module) settle() {
	start := time.Now()
	for last := start; time.Since(last) < quietAfter && time.Since(start) < settleMost; {
		if m.worker.Poll(m.events[:], true) > 0 {
			last = time.Now()
		} else {
			time.Sleep(pollInterval / 10)
		}
	}
}

// awaited is a module whose worker has a descriptor.
type awaited struct{ *module }

func (a awaited) FD() int { return a.worker.FD() }

func (a awaited) Arm() bool { return len(a.over) == 0 && a.worker.Arm() }

// polled is a module that nothing announces.
type polled struct{ *module }

func (polled) Interval() time.Duration { return pollInterval }

// pollInterval is how often a module that can't be awaited is polled while all sleep.
const pollInterval = time.Millisecond
