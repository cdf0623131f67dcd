// Package ob1 is the PML that works over any set of BTLs. It matches messages itself
// (package match), and sends them by two protocols.
//
//   - The eager protocol sends one frame with the header and the payload. A receiver without
//     a posted receive copies the payload to the unexpected queue.
//   - The rendezvous protocol announces the message by a request to send (RTS). When a
//     receive matches, the receiver selects how the payload is transferred (package selector)
//     and answers, in general by a clear to send (CTS). Large messages and synchronous sends
//     use it.
//
// docs/wire.md specifies the frames. All frames to a peer use one BTL, in order. The first
// message selects it among the modules that reach the peer, by exclusivity and then latency.
//
// The lock of the progress engine guards all state. A comment "Lock held." marks functions
// that require it.
package ob1

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

const name = "ob1"

// WireVersion is the version of ob1's frames. Peers of different versions have no PML in common.
const WireVersion = 5

// tagMax is the largest tag, the one that MPI programs expect of a 32-bit tag.
const tagMax = 1<<31 - 1

// Component returns the component for the registry.
func Component() pml.Component { return component{} }

type component struct{}

func (component) Info() framework.Info {
	return framework.Info{
		Kind:     framework.PML,
		Name:     name,
		Version:  "1.0.0",
		Summary:  "matching and protocols of its own, over any BTL",
		Priority: 20,
	}
}

// params are the parameters pml.ob1.*.
type params struct {
	FragmentSize    framework.Size `param:"fragment_size" default:"64KiB" min:"1KiB" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Largest payload of a pipeline fragment. The receiver copies one fragment while the sender copies the next, so two of them should fit into the cache. A fragment is a quarter of the message, but at least 16 KiB. A transport that sends directly from the user's buffer (TCP) has a limit of its own."`
	Protocol        string         `param:"protocol" former:"way" default:"auto" choices:"auto,pipeline,get,put,split,pipeline-full,pipeline-nt,random" level:"developer" scope:"process" doc:"Rendezvous protocol of large messages to this process where several are possible. auto selects by measured times. A name forces that protocol wherever it is possible, for measurements. random selects one for each message, for tests."`
	UnexpectedLimit framework.Size `param:"unexpected_limit" default:"2MiB" min:"16KiB" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Memory for unexpected messages of each peer. Further messages stay with their sender until receives are posted."`
}

func (component) Params() any { return new(params) }

// Requires implements framework.Requirer.
func (component) Requires(any) []framework.Requirement {
	return []framework.Requirement{{Kind: framework.BTL, All: true, For: "frames: the one that reaches a peer best"}}
}

// Probe is always positive. Whether BTLs work shows when they open.
func (component) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

func (component) Open(_ context.Context, env pml.Env) (pml.Module, error) {
	set := env.Params.(*params)
	m := &Module{
		env:         env,
		engine:      env.Engine,
		comms:       base.NewComms[comm](cid.NewTable(cid.IndexBits)),
		quarantined: map[cid.EndpointID]*comm{},
		early:       earlyArrivals{},
		openedAt:    time.Now(),
		randomState: env.Self.Nonce,
		settings: settings{
			unexpectedLimit:  int64(set.UnexpectedLimit),
			fragmentSize:     int64(set.FragmentSize),
			protocolParam:    set.Protocol,
			allowedProtocols: parseProtocols(set.Protocol),
		},
	}
	m.procs = base.NewProcs(name, &m.env, func(p base.Proc) *proc {
		made := &proc{Proc: p, m: m}
		// Peers read such buffers in most cases, so the first message carries no fragment.
		for pattern := range made.outgoing.packAdvice[btl.Allocated] {
			for class := range made.outgoing.packAdvice[btl.Allocated][pattern] {
				made.outgoing.packAdvice[btl.Allocated][pattern][class].mode = packNone
			}
		}
		return made
	}, m.learn)
	if err := m.openTransports(); err != nil {
		return nil, err
	}
	if err := m.learn(m.env.Self, m.Addresses()); err != nil {
		return nil, err
	}
	m.engine.Add(m)
	return m, nil
}
