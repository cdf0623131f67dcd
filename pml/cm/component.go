package cm

import (
	"context"
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// WireVersion is the version of cm's control messages and of its id layout. Peers
// with different versions cannot communicate.
const WireVersion = 4

// Component returns the component for the registry.
func Component() pml.Component { return component{} }

type component struct{}

func (component) Info() framework.Info {
	return framework.Info{
		Kind:     framework.PML,
		Name:     "cm",
		Version:  "1.0.0",
		Summary:  "messages that the network matches, over any MTL",
		Priority: 10,
	}
}

// params are the component's parameters; each is pml.cm.NAME.
type params struct {
	SharedMemory bool `param:"shared_memory" default:"true" level:"user" scope:"process" doc:"whether messages between processes of a node go through the node's transports (btl.shm) instead of the MTL; equal in all processes of a job"`
}

func (component) Params() any { return new(params) }

// Requires implements framework.Requirer.
func (component) Requires(p any) []framework.Requirement {
	all := []framework.Requirement{{Kind: framework.MTL, For: "messages that the network matches"}}
	if p.(*params).SharedMemory {
		all = append(all, framework.Requirement{Kind: framework.PML, Node: true, For: "messages between processes of a node", By: "pml.cm.shared_memory"})
	}
	return all
}

// Probe always succeeds. Open fails if no MTL is usable.
func (component) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

func (component) Open(_ context.Context, env pml.Env) (pml.Module, error) {
	m := &Module{env: env, engine: env.Engine, handleCounts: map[cid.Extended]int{}, registeredMemory: map[*byte]struct{}{}}
	m.leftNonces = map[framework.ProcID]uint64{}
	m.procs = base.NewProcs("cm", &m.env, func(p base.Proc) *proc { return &proc{Proc: p, m: m} }, m.learn)
	m.unknownPeers.arrivalsByNonce, m.earlySenders = map[uint64]*earlyArrivals{}, map[*proc]struct{}{}
	open, err := framework.Open[mtl.Module](env.Modules, framework.MTL, func(string) any { return m })
	if err != nil {
		return nil, fmt.Errorf("pml cm: %w", err)
	}
	m.mtlName, m.mtl, m.mtlCaps = open[0].Name, open[0].Module, open[0].Module.Caps()
	m.pollSource = m.mtl
	m.openFailure = failedCandidates(m.mtl.Describe())
	m.recvPoller, _ = framework.As[mtl.ImmediateReceiver](m.mtl)
	if m.mtlCaps.ControlLimit < controlSize {
		return nil, fmt.Errorf("%w: pml cm: mtl %s takes control messages of %d bytes, and %d are needed",
			framework.ErrUnsupported, m.mtlName, m.mtlCaps.ControlLimit, controlSize)
	}
	if m.hasMessageLimit = m.mtlCaps.MaxMessage < unlimited; m.hasMessageLimit {
		m.minRecvBytes = rtsSize
		m.fragmentedMessages = fragmentedMessages{sendsByNumber: map[uint64]*request{}, recvsByTag: map[int32]*request{}, recvOrigins: map[origin]struct{}{}}
		if k, ok := framework.As[mtl.MessageSaver](m.mtl); ok {
			m.prefixKeeper = k
			m.engine.Lock()
			k.SaveMessages(rtsSize)
			m.engine.Unlock()
		}
	}
	if m.mtlCaps.MaxMessage < rtsSize {
		return nil, fmt.Errorf("%w: pml cm: mtl %s takes messages of at most %d bytes, and %d are needed", framework.ErrUnsupported, m.mtlName, m.mtlCaps.MaxMessage, rtsSize)
	}
	if m.idLayout, err = newIDLayout(m.mtlCaps.CIDBits); err != nil {
		return nil, fmt.Errorf("pml cm: mtl %s: %w", m.mtlName, err)
	}
	m.comms = base.NewComms[comm](cid.NewTable(m.idLayout.indexBits))
	if m.idLayout.indexBits < cid.IndexBits {
		d := m.mtl.Describe()
		m.comms.Table.SetLimit(fmt.Sprintf(": mtl %s has %d bits for a communicator (%s), of which %d make the index: close communicators, or have mtl %s use a layout or a provider with more bits (`ferry info` lists them)",
			m.mtlName, m.mtlCaps.CIDBits, strings.TrimLeft(d.Provider+", "+d.Mode, ", "), m.idLayout.indexBits, m.mtlName))
	}
	if err := m.learn(m.env.Self, m.Addresses()); err != nil {
		return nil, err
	}
	m.engine.Add(m)
	return m, nil
}

// idLayout maps a communicator's local id and a plane to the id that an MTL matches.
// From the lowest bit, that id holds the plane, the index, and the low bits of the
// generation, as many as fit.
type idLayout struct{ indexBits, genBits int }

const planeBits = 2

// Of the first 18 bits behind the plane, the index has 16 and the generation 2. The
// next 4 extend the index to cid.IndexBits, and all others extend the generation.
const (
	baseIndexBits = 16
	baseGenBits   = 2
)

// newIDLayout divides the MTL's id width between index and generation. It fails if
// there is no room for 16 communicators.
func newIDLayout(bits int) (idLayout, error) {
	bits -= planeBits
	if bits < 4 {
		return idLayout{}, fmt.Errorf("%w: it matches communicator ids of %d bits, and at least %d are needed", framework.ErrUnsupported, bits+planeBits, 4+planeBits)
	}
	gen := max(0, min(bits-baseIndexBits, baseGenBits))
	index := min(bits-gen, cid.IndexBits)
	return idLayout{index, min(bits-index, cid.GenBits)}, nil
}

// commID returns the id of a communicator's PointToPoint plane.
func (l idLayout) commID(local cid.Local) uint32 {
	gen := local.Gen() & (1<<l.genBits - 1)
	return (gen<<l.indexBits | local.Index()) << planeBits
}

// indexOf returns the index in an id of any plane.
func (l idLayout) indexOf(word uint32) uint32 { return word >> planeBits & (1<<l.indexBits - 1) }

var _ mtl.Receiver = (*Module)(nil)
