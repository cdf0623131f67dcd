// Package pmltest is the kit that every PML passes. A World is a set of
// processes that live inside one: each has its own engine, transports and PML
// module, and a goroutine plays its part. Check runs the cases and returns what
// failed, for `ferry matrix`; Run does the same under testing.T.
package pmltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/compose"
	"github.com/ferrympi/ferry/progress"
)

// Stack is what a World is built from.
type Stack struct {
	PML  pml.Component
	BTLs []btl.Component // opened in every process
	// MTL, when not nil, is opened in every process that the PML asks it for. Then
	// the network matches: what that changes for a program is in the cases.
	MTL mtl.Component
	// Node, when not nil, is the PML for processes of a node, over BTLs.
	Node pml.Component
	// Nodes is the number of nodes that processes believe they are on, in turns; 0: one.
	Nodes int
	// Params, when not nil, may change the parameters of a component before it
	// is opened. They hold their defaults.
	Params func(component framework.Info, params any)
	Hooks  pml.Hooks
}

// Process is one member of a World.
type Process struct {
	Rank   int
	Life   framework.Life
	Engine *progress.Engine
	Module pml.Module

	stack Stack
	env   progress.Env
	btls  []btl.Module
	mtl   mtl.Module
	node  pml.Module
}

// World is a set of processes that have learnt each other's cards.
type World struct {
	Procs []*Process

	stack    Stack
	lives    []framework.Life // by rank, of those too that have been killed
	nextBase atomic.Uint64
}

// NewWorld builds n processes. Close it.
func NewWorld(stack Stack, n int) (*World, error) {
	w := &World{stack: stack}
	job := kittest.NewJob(n, max(stack.Nodes, 1))
	for rank := range n {
		p, err := newProcess(stack, rank, job.Begin(rank, progress.Options{}))
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		w.Procs = append(w.Procs, p)
		w.lives = append(w.lives, p.Life)
	}
	for _, p := range w.Procs {
		for _, q := range w.Procs {
			if err := p.Module.Learn(q.Life, q.Module.Addresses()); err != nil {
				return nil, errors.Join(err, w.Close())
			}
		}
	}
	return w, nil
}

func newProcess(stack Stack, rank int, env progress.Env) (*Process, error) {
	p := &Process{Rank: rank, Life: env.Self, Engine: env.Engine, stack: stack, env: env}
	var err error
	if p.Module, err = p.openPML(stack.PML); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if c := stack.Node; c != nil {
		if p.node, err = p.openPML(c); err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.Module = compose.New(p.pmlEnv(stack.PML), p.Module, p.node, "the stack's Node")
	}
	return p, nil
}

func (p *Process) openPML(c pml.Component) (pml.Module, error) {
	return c.Open(context.Background(), p.pmlEnv(c))
}

func (p *Process) pmlEnv(c pml.Component) pml.Env {
	return pml.Env{Env: p.env, Params: p.fill(c), Hooks: p.stack.Hooks, Modules: p}
}

// PMLs returns the process's modules: Module, and that of the node below it.
func (p *Process) PMLs() []pml.Module {
	if p.node == nil {
		return []pml.Module{p.Module}
	}
	return []pml.Module{p.Module, p.node}
}

// fill returns the parameters of a component.
func (p *Process) fill(c framework.Component) any {
	return kittest.Params(c, func(params any) {
		if p.stack.Params != nil {
			p.stack.Params(c.Info(), params)
		}
	})
}

// Open implements framework.Opener from the stack.
func (p *Process) Open(kind framework.Kind, up func(name string) any) (all []framework.Opened[any], err error) {
	switch kind {
	case framework.BTL:
		for _, c := range p.stack.BTLs {
			m, err := c.Open(context.Background(), btl.Env{Env: p.env, Params: p.fill(c), Upcall: up(c.Info().Name).(btl.Receiver)})
			if err != nil {
				return nil, err
			}
			p.Engine.Add(m)
			p.btls = append(p.btls, m)
			all = append(all, framework.Opened[any]{Name: c.Info().Name, Module: m})
		}
		return all, nil
	case framework.MTL:
		if c := p.stack.MTL; c != nil {
			m, err := c.Open(context.Background(), mtl.Env{Env: p.env, Params: p.fill(c), Upcall: up(c.Info().Name).(mtl.Receiver)})
			if err != nil {
				return nil, err
			}
			p.Engine.Add(m)
			p.mtl = m
			return []framework.Opened[any]{{Name: c.Info().Name, Module: m}}, nil
		}
	}
	return nil, fmt.Errorf("%w: the stack has no %s", framework.ErrUnsupported, kind)
}

// Failed implements framework.Opener: what does not open ends the world.
func (p *Process) Failed(framework.Kind) []framework.Rejection { return nil }

func (p *Process) close() error {
	var errs []error
	for _, m := range p.btls {
		p.Engine.Remove(m)
	}
	if p.mtl != nil {
		p.Engine.Remove(p.mtl)
	}
	if p.Module != nil {
		errs = append(errs, p.Module.Close())
	}
	if p.node != nil {
		errs = append(errs, p.node.Close())
	}
	if p.mtl != nil {
		errs = append(errs, p.mtl.Close())
	}
	for _, m := range p.btls {
		errs = append(errs, m.Close())
	}
	p.Engine.Close()
	return errors.Join(errs...)
}

// Kill closes one process without telling anybody, as if it had died. Its
// engine must be at rest.
func (w *World) Kill(rank int) error {
	p := w.Procs[rank]
	w.Procs[rank] = nil
	return p.close()
}

// Close ends all processes.
func (w *World) Close() error {
	var errs []error
	for _, p := range w.Procs {
		if p != nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(errs...)
}

// NextID draws a new extended id, as a group construct would.
func (w *World) NextID() cid.Extended { return cid.Extended{Base: w.nextBase.Add(1)} }

// decide has all processes offer ids for a communicator of all.
func (w *World) decide(policy cid.Policy) (offers []*cid.Offer, d cid.Decision, err error) {
	payloads := make([][]byte, len(w.Procs))
	for i, p := range w.Procs {
		offers = append(offers, p.Module.CIDs().OfferFor(policy, len(w.Procs), 1<<15))
		payloads[i] = offers[i].Bytes()
	}
	d, err = cid.Decide(payloads)
	return offers, d, err
}

// Comm makes a communicator of all processes, by the given policy: every rank's
// handle.
func (w *World) Comm(policy cid.Policy) ([]pml.Comm, error) {
	id := w.NextID()
	offers, decision, err := w.decide(policy)
	if err != nil {
		return nil, err
	}
	comms := make([]pml.Comm, len(w.Procs))
	for i := range w.Procs {
		if comms[i], err = w.join(i, id, offers[i], decision); err != nil {
			return nil, err
		}
	}
	return comms, nil
}

// join makes one rank's end of a communicator of all, once it is decided.
func (w *World) join(rank int, id cid.Extended, offer *cid.Offer, decision cid.Decision) (pml.Comm, error) {
	return w.Procs[rank].join(pml.CommSpec{ID: id, Group: w.Group(), Rank: rank}, offer, decision)
}

// join makes this process's end of a communicator, as its members have decided.
func (p *Process) join(spec pml.CommSpec, offer *cid.Offer, decision cid.Decision) (_ pml.Comm, err error) {
	table := p.Module.CIDs()
	if decision.Policy == cid.PolicyLazy {
		table.Release(offer)
		spec.Local, err = table.Reserve()
	} else {
		spec.Local, spec.Agreed, spec.Indices = decision.Local(spec.Rank), decision.Policy == cid.PolicyAgree, decision.Each
		err = table.Accept(offer, spec.Local)
	}
	if err != nil {
		return nil, err
	}
	return p.Module.AddComm(spec)
}

// Group returns all processes in the order of their ranks.
func (w *World) Group() []pml.Member { return Members(w.lives) }

// Reborn has Group name another life of a process from now on, which it returns.
func (w *World) Reborn(rank int, nonce uint64) framework.Life {
	w.lives[rank].Nonce = nonce
	return w.lives[rank]
}

// Members returns lives as members of a communicator.
func Members(lives []framework.Life) []pml.Member {
	group := make([]pml.Member, len(lives))
	for i, life := range lives {
		group[i].Life = life
	}
	return group
}

// Each runs f for every rank at the same time and joins the errors.
func Each(comms []pml.Comm, f func(rank int, c pml.Comm) error) error {
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for rank, c := range comms {
		wg.Go(func() {
			if err := f(rank, c); err != nil {
				errs[rank] = fmt.Errorf("rank %d: %w", rank, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
