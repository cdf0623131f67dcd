package colltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/heap"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/progress"
)

// Team is a communicator of goroutines that are the ranks of one process, each with an engine of
// its own. Waits poll, park and are woken by bells, as in package mpi. A Team has no messages.
type Team struct {
	processEngine *progress.Engine
	ranks         []*Rank
	offer         coll.ComponentOffer
}

// NewTeam returns a communicator of n ranks that uses the offer of a component. Call Close after
// use.
func NewTeam(c coll.Component, params any, n int, opt progress.Options) (*Team, error) {
	shape := coll.Shape{Size: n, Procs: coll.OnOneNode(n)}
	t := &Team{processEngine: progress.New(opt), offer: coll.ComponentOffer{Component: c.Info().Name, Offer: c.Query(params, shape)}}
	if t.offer.Offer == nil || t.offer.Open == nil {
		t.processEngine.Close()
		return nil, fmt.Errorf("the component offers no instances for %v ranks of a process", n)
	}
	for rank := range n {
		r := &Rank{Member: coll.Member{Rank: rank, Size: n}}
		r.engine = t.processEngine.NewRank(r, &r.pollWord)
		t.ranks = append(t.ranks, r)
	}
	node := heap.New(integersBelow(n), func(rank int) progress.RemoteBell { return t.ranks[rank].engine.RankBell() })
	if err := t.open(node); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Team) open(node *heap.Node) error {
	cards := make([][]byte, len(t.ranks))
	for i, r := range t.ranks {
		x, err := t.offer.OpenInstance(coll.Env{Member: r.Member, Node: node.NodeOf(i)})
		if err != nil {
			return err
		}
		r.instance, cards[i] = x, x.Card()
	}
	for _, r := range t.ranks {
		if err := r.instance.Join(cards); err != nil {
			return err
		}
	}
	for _, r := range t.ranks {
		r.instance.Activate()
	}
	if n := node.Len(); n != 0 {
		return fmt.Errorf("%d segments or values are still registered after Activate", n)
	}
	return nil
}

// Close closes instances and engines.
func (t *Team) Close() {
	for _, r := range t.ranks {
		if r.instance != nil {
			r.instance.Close()
		}
		r.engine.Close()
	}
	t.processEngine.Close()
}

// Rank returns a rank.
func (t *Team) Rank(rank int) *Rank { return t.ranks[rank] }

// Run calls f for each rank in a goroutine of its own, and returns the joined errors.
func (t *Team) Run(f func(r *Rank) error) error {
	errs := make([]error, len(t.ranks))
	var wg sync.WaitGroup
	for i, r := range t.ranks {
		wg.Go(func() { errs[i] = f(r) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Plan returns the schedule of an operation. It prefers the algorithm for that size and falls back
// to the first one.
func (t *Team) Plan(r *Rank, op coll.Operation, args coll.Args) (*coll.Schedule, error) {
	var chosen *coll.Algorithm
	for i := range t.offer.Algorithms {
		a := &t.offer.Algorithms[i]
		isMeant := a.From <= args.Size && (a.Below == 0 || args.Size < a.Below)
		if a.Op == op && (chosen == nil || isMeant) {
			chosen = a
		}
	}
	if chosen == nil {
		return nil, fmt.Errorf("no algorithm for %v", op)
	}
	s := new(coll.Schedule)
	chosen.Plan(s, r.Member, &args)
	return s, nil
}

// Rank is a member of a Team. It implements coll.Peers and progress.Source.
type Rank struct {
	coll.Member
	engine   *progress.Engine
	pollWord progress.PollWord
	instance coll.Instance
	call     coll.Call
	sequence uint32
	// Guarded by the engine's lock.
	pendingWaits []*wait
	// Number of polls of pending steps. Guarded by the engine's lock.
	stepPolls int
}

// wait is a pending step.
type wait struct {
	progress.Completion
	step *coll.Step
	call *coll.Call
	err  error
}

// Execute executes a schedule with the memory and the reduction of a call.
func (r *Rank) Execute(ctx context.Context, s *coll.Schedule, b coll.Buffers, reducer coll.Reducer) error {
	r.sequence++
	if len(r.call.Temp) < s.Temp {
		r.call.Temp = make([]byte, s.Temp)
	}
	b.Temp, b.Shared = r.call.Temp, r.instance.Memory()
	r.call.Sequence, r.call.Buffers, r.call.Reducer = r.sequence, b, reducer
	return s.Inline(ctx, r, &r.call.Buffers, &r.call.Reducer)
}

// IsParked reports whether a wait of the rank is parked.
func (r *Rank) IsParked() bool { return r.pollWord.HasParked() && !r.pollWord.Polled() }

// PollCount returns the number of polls of pending steps.
func (r *Rank) PollCount() int {
	r.engine.Lock()
	defer r.engine.Unlock()
	return r.stepPolls
}

// Poll implements progress.Source.
func (r *Rank) Poll() (n int) {
	for i := 0; i < len(r.pendingWaits); {
		w := r.pendingWaits[i]
		w.call.IsWaiterAsleep = r.engine.Bell().Armed()
		r.stepPolls++
		done, err := r.instance.PollStep(w.step, w.call)
		if !done && err == nil {
			i++
			continue
		}
		n++
		r.pendingWaits = slices.Delete(r.pendingWaits, i, i+1)
		w.err = err
		r.engine.Complete(&w.Completion)
	}
	return n
}

// Own implements coll.Peers.
func (r *Rank) Own(ctx context.Context, steps []coll.Step) error {
	defer r.engine.Flush()
	for i := range steps {
		r.call.IsWaiterAsleep = false
		done, err := r.instance.PollStep(&steps[i], &r.call)
		if !done && err == nil {
			err = r.wait(ctx, &steps[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Rank) wait(ctx context.Context, s *coll.Step) error {
	r.engine.Lock()
	defer r.engine.Release()
	for polls := r.engine.PollBudget(); polls > 0; polls-- {
		cpu.Pause()
		if done, err := r.instance.PollStep(s, &r.call); done || err != nil {
			return err
		}
	}
	w := &wait{step: s, call: &r.call}
	r.pendingWaits = append(r.pendingWaits, w)
	err := r.engine.Wait(ctx, &w.Completion, nil)
	if w.Done() {
		return w.err
	}
	r.pendingWaits = slices.DeleteFunc(r.pendingWaits, func(x *wait) bool { return x == w })
	return err
}

// Work implements coll.Peers.
func (r *Rank) Work(s *coll.Step) {
	r.instance.(coll.Worker).Work(s, &r.call)
	r.engine.Flush()
}

// Drop implements coll.Peers.
func (r *Rank) Drop() { withdraw(r.instance, &r.call) }

var errNoMessages = errors.New("colltest: a Team has no messages")

// Send implements coll.Peers.
func (r *Rank) Send([]byte, int) (bool, error) { return false, errNoMessages }

// StartRecv implements coll.Peers.
func (r *Rank) StartRecv([]byte, int) error { return errNoMessages }

// Recv implements coll.Peers.
func (r *Rank) Recv(context.Context, []byte, int) (int, error) { return 0, errNoMessages }

// Finish implements coll.Peers.
func (r *Rank) Finish(context.Context) (int, error) { return 0, errNoMessages }
