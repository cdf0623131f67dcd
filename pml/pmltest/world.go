// Package pmltest is the conformance kit of PMLs. A World is a set of processes within one process. Each has an
// engine, transports and a PML module, and a goroutine plays its part. Cases returns the cases for `ferry matrix`, and
// Run runs them under testing.T.
package pmltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/threads"
	"github.com/ferrympi/ferry/progress"
)

// Stack is the stack of a World.
type Stack struct {
	PML pml.Component
	// Opened in every process.
	BTLs []btl.Component
	// MTL is opened for PMLs that require one, unless it is nil. The network then matches messages, and the cases
	// allow for the differences.
	MTL mtl.Component
	// Node, when not nil, is the PML for processes of a node, over BTLs.
	Node pml.Component
	// Nodes is the number of nodes that processes are assigned to, round-robin. 0 means 1.
	Nodes int
	// First is the rank of the first process in its job (kittest.Job).
	First int
	// Set has parameters with other values than their defaults, by full name, such as
	// btl.shm.ring_size.
	Set   map[string]string
	Hooks pml.Hooks
	// Threads has the parameters of goroutine ranks, or is nil. A Process is then a goroutine rank. They are ranks of
	// one process without a PML, or of several processes with the rest of the stack.
	Threads *threads.Params
	// Ranks are the largest numbers of goroutine ranks of each process, nil for one each.
	Ranks []int
}

// Process is one member of a World.
type Process struct {
	Rank        int
	Incarnation framework.Incarnation
	Engine      *progress.Engine
	// Assembled from the stack.
	Module pml.Module

	stack *assembly.Stack
	// Process of a goroutine rank, nil in other worlds, see World.team.
	host  *host
	cards *cards
	// worlds are those of the stack.
	worlds *framework.Worlds
}

// Card returns the process's business card.
func (p *Process) Card() framework.Card {
	if p.host != nil {
		return p.host.Card()
	}
	return p.stack.Card()
}

// World is a set of processes with each other's cards.
type World struct {
	Procs []*Process

	stack Stack
	// Includes killed processes.
	incarnationsByRank []framework.Incarnation
	// Team of Stack.Threads.
	team          *threads.Team
	processEngine *progress.Engine
	// Processes with goroutine ranks.
	hosts []*host
	// hostEndpoints are those of hosts' ranks.
	hostEndpoints []uint16
	nextBase      atomic.Uint64
	// Set in worlds without goroutine ranks.
	job *kittest.Job
	// Rank of the next further process.
	nextRank int
}

// NewWorld creates n processes. The caller closes it.
func NewWorld(stack Stack, n int) (*World, error) {
	w := &World{stack: stack}
	switch {
	case stack.Threads != nil && stack.PML != nil:
		if err := w.openHosts(n); err != nil {
			return nil, errors.Join(err, w.Close())
		}
		return w, nil
	case stack.Threads != nil:
		w.openTeam(n)
		return w, nil
	}
	job := kittest.NewJob(n, max(stack.Nodes, 1))
	job.First = stack.First
	w.job, w.nextRank = job, n
	for rank := range n {
		p, err := stack.open(rank, job.Begin(rank, progress.Options{}))
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		w.Procs = append(w.Procs, p)
		w.incarnationsByRank = append(w.incarnationsByRank, p.Incarnation)
	}
	learnAll(w.Procs)
	return w, nil
}

// learnAll makes all cards available to all processes. PMLs take them at their first use.
func learnAll(procs []*Process) {
	for _, p := range procs {
		for _, q := range procs {
			p.cards.add(q.Incarnation, q.Card())
		}
	}
}

// open assembles a process.
func (s Stack) open(rank int, env progress.Env) (*Process, error) {
	p := &Process{Rank: rank, Incarnation: env.Self, Engine: env.Engine, worlds: env.Worlds, cards: &cards{incarnations: map[framework.Incarnation]framework.Card{}}}
	reg := framework.NewRegistry()
	name := s.PML.Info().Name
	reg.Register(s.PML)
	if s.Node != nil {
		reg.Register(s.Node)
		reg.SetNode(framework.PML, name, s.Node.Info().Name)
	}
	for _, c := range s.BTLs {
		reg.Register(c)
	}
	if s.MTL != nil {
		reg.Register(s.MTL)
	}
	values, err := reg.Defaults()
	if err == nil {
		values, err = values.With("the stack", s.Set)
	}
	if err == nil {
		values, err = values.Set(framework.Setting{Name: string(framework.PML), Value: name, Source: "the stack"})
	}
	if err != nil {
		env.Engine.Close()
		return nil, err
	}
	if p.stack, err = assembly.OpenStack(context.Background(), reg, values, env, s.Hooks, p.cards); err != nil {
		return nil, err
	}
	p.Module = p.stack.PMLs()[0].Module
	return p, nil
}

// Kill closes one process, with all of its ranks, like a failure without a report. Its engine must be
// idle.
func (w *World) Kill(rank int) error {
	p := w.Procs[rank]
	w.Procs[rank] = nil
	if p.host != nil {
		for _, rank := range p.host.ranks {
			w.Procs[rank] = nil
		}
		w.hosts = slices.DeleteFunc(w.hosts, func(h *host) bool { return h == p.host })
		return p.host.close()
	}
	return p.stack.Close()
}

// Close closes all processes.
func (w *World) Close() error {
	if w.team != nil {
		w.team.Close()
		w.processEngine.Close()
		return nil
	}
	var errs []error
	for _, h := range w.hosts {
		errs = append(errs, h.close())
	}
	for _, p := range w.Procs {
		if p != nil && p.host == nil {
			errs = append(errs, p.stack.Close())
		}
	}
	return errors.Join(errs...)
}

// NextID returns a new extended id, as from a group construct.
func (w *World) NextID() cid.Extended { return cid.Extended{Base: w.nextBase.Add(1)} }

// decide decides on the ids of a communicator of all processes.
func (w *World) decide(policy cid.Policy) (candidates []*cid.Candidates, d cid.Decision, err error) {
	payloads := make([][]byte, len(w.Procs))
	for i, p := range w.Procs {
		candidates = append(candidates, p.Module.CIDs().WithholdCandidates(policy, len(w.Procs), 1<<15))
		payloads[i] = candidates[i].Bytes()
	}
	d, err = cid.Decide(payloads)
	return candidates, d, err
}

// OpenWorld is NewWorld for a test. An error fails the test, and the world is closed at the end of the
// test.
func OpenWorld(t testing.TB, stack Stack, n int) *World {
	t.Helper()
	w, err := NewWorld(stack, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// Comms is Comm for a test, which fails on an error.
func (w *World) Comms(t testing.TB, policy cid.Policy) []pml.Comm {
	t.Helper()
	cs, err := w.Comm(policy)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// Comm creates a communicator of all processes under a policy, and returns every rank's
// handle.
func (w *World) Comm(policy cid.Policy) ([]pml.Comm, error) {
	id := w.NextID()
	candidates, decision, err := w.decide(policy)
	if err != nil {
		return nil, err
	}
	comms := make([]pml.Comm, len(w.Procs))
	for i := range w.Procs {
		if comms[i], err = w.join(i, id, candidates[i], decision); err != nil {
			return nil, err
		}
	}
	return comms, nil
}

// join creates one rank's handle of a communicator of all after the decision.
func (w *World) join(rank int, id cid.Extended, candidates *cid.Candidates, decision cid.Decision) (pml.Comm, error) {
	return w.Procs[rank].join(pml.CommSpec{ID: id, Members: pml.NewMembers(w.Group()), Rank: rank}, candidates, decision)
}

// join creates this process's handle of a communicator after the decision.
func (p *Process) join(spec pml.CommSpec, candidates *cid.Candidates, decision cid.Decision) (_ pml.Comm, err error) {
	table := p.Module.CIDs()
	if decision.Policy == cid.PolicyLazy {
		table.Release(candidates)
		spec.Local, err = table.Reserve()
	} else {
		spec.Local, spec.Agreed, spec.Indices = decision.Local(spec.Rank), decision.Policy == cid.PolicyAgree, decision.MemberIDs
		err = table.Accept(candidates, spec.Local)
	}
	if err != nil {
		return nil, err
	}
	return p.Module.AddComm(spec)
}

// Group returns all processes in the order of their ranks.
func (w *World) Group() []pml.Member {
	group := whole(w.incarnationsByRank)
	if w.team != nil {
		for rank := range group {
			group[rank].Endpoint = uint16(rank)
		}
	}
	for rank, endpoint := range w.hostEndpoints {
		group[rank].Endpoint = endpoint
	}
	return group
}

// Reborn makes Group name a new incarnation of a process, and returns it.
func (w *World) Reborn(rank int, nonce uint64) framework.Incarnation {
	w.incarnationsByRank[rank].Nonce = nonce
	return w.incarnationsByRank[rank]
}

// Members returns the members of a communicator of whole processes.
func Members(incarnations ...framework.Incarnation) pml.Members {
	return pml.NewMembers(whole(incarnations))
}

func whole(incarnations []framework.Incarnation) []pml.Member {
	group := make([]pml.Member, len(incarnations))
	for i, incarnation := range incarnations {
		group[i].Incarnation = incarnation
	}
	return group
}

// Each runs f concurrently for every rank and joins the errors.
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
