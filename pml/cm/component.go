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

// WireVersion is the version of cm's control messages and of the layout of its
// ids. Peers with another one can't talk.
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

// Probe finds nothing that could be missing: which MTL works shows when it opens.
func (component) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

func (component) Open(_ context.Context, env pml.Env) (pml.Module, error) {
	m := &Module{env: env, engine: env.Engine, handles: map[cid.Extended]int{}, left: map[framework.ProcID]uint64{}, known: map[*byte]struct{}{}}
	m.procs = base.NewProcs("cm", &m.env, func(p base.Proc) *proc { return &proc{Proc: p, m: m} }, m.learn)
	m.unknownPeers.early, m.earlySenders = map[uint64]*early{}, map[*proc]struct{}{}
	open, err := framework.Open[mtl.Module](env.Modules, framework.MTL, func(string) any { return m })
	if err != nil {
		return nil, fmt.Errorf("pml cm: %w", err)
	}
	m.name, m.mtl, m.caps = open[0].Name, open[0].Module, open[0].Module.Caps()
	m.source = m.mtl
	m.failure = failures(m.mtl.Describe())
	m.looker, _ = framework.As[mtl.Looker](m.mtl)
	if m.caps.ControlLimit < controlSize {
		return nil, fmt.Errorf("%w: pml cm: mtl %s takes control messages of %d bytes, and %d are needed",
			framework.ErrUnsupported, m.name, m.caps.ControlLimit, controlSize)
	}
	if m.cuts = m.caps.MaxMessage < unlimited; m.cuts {
		m.least = headSize
		m.longs = longs{sends: map[uint64]*request{}, tags: map[int32]*request{}, taken: map[origin]struct{}{}}
		if k, ok := framework.As[mtl.Keeper](m.mtl); ok {
			m.keeper = k
			m.engine.Lock()
			k.Keep(headSize)
			m.engine.Unlock()
		}
	}
	if m.caps.MaxMessage < headSize {
		return nil, fmt.Errorf("%w: pml cm: mtl %s takes messages of at most %d bytes, and %d are needed", framework.ErrUnsupported, m.name, m.caps.MaxMessage, headSize)
	}
	if m.ids, err = layIDs(m.caps.CIDBits); err != nil {
		return nil, fmt.Errorf("pml cm: mtl %s: %w", m.name, err)
	}
	m.comms = base.NewComms[comm](cid.NewTable(m.ids.indexBits))
	if m.ids.indexBits < cid.IndexBits {
		d := m.mtl.Describe()
		m.comms.Table.SetLimit(fmt.Sprintf(": mtl %s has %d bits for a communicator (%s), of which %d make the index: close communicators, or have mtl %s use a layout or a provider with more bits (`ferry info` lists them)",
			m.name, m.caps.CIDBits, strings.TrimLeft(d.Provider+", "+d.Mode, ", "), m.ids.indexBits, m.name))
	}
	if err := m.learn(m.env.Self, m.Addresses()); err != nil {
		return nil, err
	}
	m.engine.Add(m)
	return m, nil
}

// ids says how a communicator's local id and a plane become the id that an MTL
// matches: plane, index, and as much of the generation as there is room for.
type ids struct{ indexBits, genBits int }

const planeBits = 2

// Of what a layout has beyond 16 bits of index, the first two bits are the
// generation's, the next four the index's, and all others the generation's.
const (
	firstIndexBits = 16
	firstGenBits   = 2
)

// layIDs divides an MTL's width among index and generation. Without room for 16
// communicators a transport is of no use.
func layIDs(bits int) (ids, error) {
	bits -= planeBits
	if bits < 4 {
		return ids{}, fmt.Errorf("%w: it matches communicator ids of %d bits, and at least %d are needed", framework.ErrUnsupported, bits+planeBits, 4+planeBits)
	}
	gen := max(0, min(bits-firstIndexBits, firstGenBits))
	index := min(bits-gen, cid.IndexBits)
	return ids{index, min(bits-index, cid.GenBits)}, nil
}

// word returns the id of a communicator's PointToPoint plane.
func (l ids) word(local cid.Local) uint32 {
	gen := local.Gen() & (1<<l.genBits - 1)
	return (gen<<l.indexBits | local.Index()) << planeBits
}

// index is the inverse of word, as far as the index goes, for any plane.
func (l ids) index(word uint32) uint32 { return word >> planeBits & (1<<l.indexBits - 1) }

var _ mtl.Receiver = (*Module)(nil)
