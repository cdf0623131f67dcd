package mpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// try is a step of an instance that could not complete at once. It belongs to an inline schedule or to an operation.
type try struct {
	progress.Completion
	k        *collective
	instance coll.Instance
	call     *coll.Call
	step     *coll.Step
	err      error
	of       *operation
	i        int // Index of the step in of.
}

// Poll implements progress.Source for the wait for this step.
func (t *try) Poll() int {
	if t.Done() {
		return 0
	}
	t.call.Asleep = t.k.engine().Bell().Armed()
	over, err := t.instance.Try(t.step, t.call)
	if !over && err == nil {
		if err = t.inVain(); err == nil {
			return 0
		}
	}
	t.k.comm().local.tries.over(t, err)
	return 1
}

// inVain returns an error if the step waits for a member that has left or failed. All posts of that member were visible when the step was polled.
func (t *try) inVain() error {
	if len(t.k.gone) == 0 {
		return nil
	}
	a, ok := framework.As[coll.Awaiter](t.instance)
	if !ok {
		return nil
	}
	rank := a.Awaits(t.step)
	why := t.k.gone[rank]
	if why == nil {
		return nil
	}
	var lost *framework.TransportError
	if errors.As(why, &lost) {
		return fmt.Errorf("rank %d: %w", rank, why)
	}
	return &framework.TransportError{Component: "coll", Peer: fmt.Sprintf("rank %d", rank), Op: "receive", Err: why}
}

// memberGone ends the steps that wait for a member that has left or failed, now and later.
func (k *collective) memberGone(rank int, why error) {
	e := k.engine()
	e.Lock()
	defer e.Release()
	if k.gone == nil {
		k.gone = map[int]error{}
	}
	k.gone[rank] = why
	e.Nudge()
}

// pending describes the step for reports. The lock is held.
func (t *try) pending() pml.Pending {
	p := pml.Pending{Peer: AnySource, Tag: int(t.call.Turn % (coll.MaxTag + 1)), Plane: pml.Collective, State: "in shared memory", Wait: pml.AwaitedInCall}
	if a, ok := framework.As[coll.Awaiter](t.instance); ok {
		p.Peer = a.Awaits(t.step)
	}
	if t.of != nil {
		p.Wait = t.of.Awaited()
	}
	return p
}

// tries are the pending steps of one rank. They are a source of its engine.
type tries struct {
	engine  *progress.Engine
	mu      sync.Mutex
	isAdded bool   // Guarded by mu.
	list    []*try // Guarded by the engine's lock.

	isPolling bool // Guarded by the engine's lock.
}

// join adds the steps to the engine as a source.
func (s *tries) join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isAdded {
		s.isAdded = true
		s.engine.Add(s)
	}
}

// leave removes the source. It is called before the engine closes.
func (s *tries) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isAdded {
		s.engine.Remove(s)
	}
}

// Poll implements progress.Source. A completed step may remove others from the list, and steps after them are polled the next time. An engine of a rank
// may not poll again until a bell is rung, so that its steps are polled until none completes.
func (s *tries) Poll() (n int) {
	if s.isPolling { // A caller polls until no step completes.
		return 0
	}
	s.isPolling = true
	n = s.pollOnce()
	if n > 0 && s.engine.IsRank() {
		for more := n; more > 0; n += more {
			more = s.pollOnce()
		}
	}
	s.isPolling = false
	return n
}

func (s *tries) pollOnce() (n int) {
	for i := 0; i < len(s.list); {
		t := s.list[i]
		if n += t.Poll(); i < len(s.list) && s.list[i] == t {
			i++
		}
	}
	return n
}

// Lag implements progress.Lagging.
func (s *tries) Lag() time.Duration {
	if len(s.list) == 0 {
		return 0
	}
	return progress.StoreLag
}

// over ends a step.
func (s *tries) over(t *try, err error) {
	i := slices.Index(s.list, t)
	s.list = slices.Delete(s.list, i, i+1)
	t.err = err
	if o := t.of; o != nil {
		if e := s.engine; e.IsRank() {
			e.AddBackground(-1)
		}
		o.busy--
		o.done(t.i, err)
		o.move()
		return
	}
	s.engine.Complete(&t.Completion)
}

func (s *tries) abort(k *collective, err error) {
	for _, t := range slices.Clone(s.list) {
		if t.k == k && slices.Contains(s.list, t) {
			s.over(t, err)
		}
	}
}

// Own implements coll.Peers. Without a nonblocking operation in progress, this call is the only user of the instance, and takes the engine's lock only to
// wait.
func (p *peers) Own(ctx context.Context, steps []coll.Step) (err error) {
	e := p.c.local.progress
	alone := p.c.collective.started.n.Load() == 0
	if !alone {
		e.Lock()
	}
	for i := range steps {
		p.call.Asleep = false
		over, failed := p.instance.Try(&steps[i], &p.call)
		if err = failed; !over && err == nil {
			if alone {
				e.Lock()
			}
			err = p.tryAgain(ctx, e, &steps[i])
			if alone {
				e.Release()
			}
		}
		if err != nil {
			break
		}
	}
	if !alone {
		p.c.local.pollTries()
		e.Release()
	} else {
		e.Flush()
	}
	return err
}

// Work implements coll.Peers.
func (p *peers) Work(s *coll.Step) {
	work(p.instance, s, &p.call)
	p.c.local.progress.Flush()
}

// work runs a step of kind Work.
func work(x coll.Instance, s *coll.Step, c *coll.Call) {
	w, _ := framework.As[coll.Worker](x)
	w.Work(s, c)
}

// withdrawBuffers blocks until no other member uses the buffers of a call that failed.
func withdrawBuffers(x coll.Instance, c *coll.Call) {
	w, ok := framework.As[coll.Withdrawer](x)
	for i := 0; ok && !w.Withdraw(c); i++ {
		if i < withdrawYields {
			runtime.Gosched()
		} else {
			time.Sleep(withdrawSleep)
		}
	}
}

// Other members use buffers for some microseconds at a time, except with operations of the program.
const (
	withdrawYields = 64
	withdrawSleep  = 20 * time.Microsecond
)

// tryAgain waits until the instance has completed a step. The lock is held.
func (p *peers) tryAgain(ctx context.Context, e *progress.Engine, s *coll.Step) error {
	k := &p.c.collective
	if err := k.aborted; err != nil {
		return err
	}
	for polls := e.PollBudget(); polls > 0 && !e.Wanted(); polls-- {
		cpu.Pause()
		if over, err := p.instance.Try(s, &p.call); over || err != nil {
			return err
		}
	}
	all, t := &p.c.local.tries, &p.try
	t.Reset()
	t.k, t.instance, t.call, t.step, t.err = k, p.instance, &p.call, s, nil
	all.list = append(all.list, t)
	if err := e.Wait(ctx, &t.Completion, t); err != nil {
		if !t.Done() {
			all.over(t, err)
		}
		return err
	}
	return t.err
}

// own starts a step of an instance. Lock held.
func (o *operation) own(i int) {
	s := &o.schedule.Steps[i]
	o.call.Asleep = false
	over, err := o.instance.Try(s, &o.call)
	if !over && err == nil {
		if err = o.k.aborted; err == nil {
			o.busy++
			all := &o.k.comm().local.tries
			t := &try{k: o.k, instance: o.instance, call: &o.call, step: s, of: o, i: i}
			all.list = append(all.list, t)
			if e := all.engine; e.IsRank() {
				e.AddBackground(1)
				t.Poll() // No bell is rung for earlier posts.
			}
			return
		}
	}
	o.done(i, err)
}
