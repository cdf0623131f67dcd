// Package ob1 is the PML that runs over any set of BTLs: it matches messages
// itself (package match) and moves them by two protocols.
//
//   - eager: header and payload in one frame, at once. A receiver that has no
//     receive for it yet copies the payload.
//   - rendezvous: a request to send (RTS) goes first. When a receive matches, the
//     receiver says that the path is clear (CTS), and the sender pushes the payload in frames that both sides copy
//     at the same time. Large messages and synchronous sends use it.
//
// docs/wire.md describes the frames. Per peer, all frames travel on one BTL, in
// order; which one is decided at the first message, among the modules that reach
// the peer, by exclusivity and then latency.
//
// Everything is guarded by the progress engine's lock. Methods whose comment says
// "lock held" are called with it.
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

// WireVersion is the version of ob1's frames. Peers with another one can't talk.
const WireVersion = 5

// tagMax is the largest tag of a user: what MPI programs expect of a 32-bit tag.
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

// params are the component's parameters; each is pml.ob1.NAME.
type params struct {
	FragmentSize    framework.Size `param:"fragment_size" default:"64KiB" min:"1KiB" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Most payload of one frame of a large message: small enough that the receiver copies one while the sender copies the next, both in the cache. A frame has a quarter of the message, but at least 16 KiB. A path that takes the payload from where it lies (TCP) gets frames of its own limit."`
	Way             string         `param:"way" default:"auto" choices:"auto,frames,read,write,both,wide,streamed,random" level:"developer" scope:"process" doc:"How large messages come here where there is a choice: auto learns it; the others force one way where it is possible, for measurements, or draw one for each message, for tests."`
	UnexpectedLimit framework.Size `param:"unexpected_limit" default:"2MiB" min:"16KiB" max:"1GiB" unit:"bytes" level:"tuner" scope:"process" doc:"Memory for messages of each peer that wait here for their receives. What is beyond it stays with its sender."`
}

func (component) Params() any { return new(params) }

// Requires implements framework.Requirer.
func (component) Requires(any) []framework.Requirement {
	return []framework.Requirement{{Kind: framework.BTL, All: true, For: "frames: the one that reaches a peer best"}}
}

// Probe finds nothing that could be missing: which BTLs work shows when they open.
func (component) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

func (component) Open(_ context.Context, env pml.Env) (pml.Module, error) {
	m := &Module{
		env:         env,
		engine:      env.Engine,
		comms:       base.NewComms[comm](cid.NewTable(cid.IndexBits)),
		quarantined: map[cid.EndpointID]*comm{},
		budget:      int64(env.Params.(*params).UnexpectedLimit),
		fragment:    int64(env.Params.(*params).FragmentSize),
		early:       earlyArrivals{},
		opened:      time.Now(),
		way:         env.Params.(*params).Way,
		ways:        waysOf(env.Params.(*params).Way),
		drawn:       env.Self.Nonce,
	}
	m.procs = base.NewProcs(name, &m.env, func(p base.Proc) *proc {
		made := &proc{Proc: p, m: m}
		for depth := range made.parts[btl.Allocated] { // read as a rule
			for class := range made.parts[btl.Allocated][depth] {
				made.parts[btl.Allocated][depth][class].lines = noLines
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
