package run

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

// pendingStep is a step of an instance that could not complete at once. It belongs to an inline
// schedule or to an operation.
type pendingStep struct {
	progress.Completion
	collState *State
	instance  coll.Instance
	call      *coll.Call
	step      *coll.Step
	err       error
	operation *Operation
	// Index of the step in operation.
	stepIndex int
}

// Poll implements progress.Source for the wait for this step.
func (t *pendingStep) Poll() int {
	if t.Done() {
		return 0
	}
	t.call.IsWaiterAsleep = t.collState.engine().Bell().Armed()
	isDone, err := t.instance.PollStep(t.step, t.call)
	if !isDone && err == nil {
		if err = t.lostRankError(); err == nil {
			return 0
		}
	}
	t.collState.env.RankResources.pendingSteps.complete(t, err)
	return 1
}

// lostRankError returns an error if the step waits for a rank that has left or failed. All
// posts of that rank were visible when the step was polled.
func (t *pendingStep) lostRankError() error {
	if len(t.collState.lostRanks) == 0 {
		return nil
	}
	a, ok := framework.As[coll.BlockReporter](t.instance)
	if !ok {
		return nil
	}
	rank := a.AwaitedRank(t.step)
	why := t.collState.lostRanks[rank]
	if why == nil {
		return nil
	}
	var lost *framework.TransportError
	if errors.As(why, &lost) {
		return fmt.Errorf("rank %d: %w", rank, why)
	}
	return &framework.TransportError{Component: "coll", Peer: fmt.Sprintf("rank %d", rank), Op: "receive", Err: why}
}

// LoseRank ends the steps that wait for a rank that has left or failed, now and later.
func (k *State) LoseRank(rank int, why error) {
	e := k.engine()
	e.Lock()
	defer e.Release()
	if k.lostRanks == nil {
		k.lostRanks = map[int]error{}
	}
	k.lostRanks[rank] = why
	e.Nudge()
}

// pending describes the step for reports. The lock is held.
func (t *pendingStep) pending() pml.Pending {
	p := pml.Pending{Peer: pml.AnySource, Tag: int(t.call.Sequence % (coll.MaxTag + 1)), Plane: pml.Collective, State: "in shared memory", Wait: pml.AwaitedInCall}
	if a, ok := framework.As[coll.BlockReporter](t.instance); ok {
		p.Peer = a.AwaitedRank(t.step)
	}
	if t.operation != nil {
		p.Wait = t.operation.Awaited()
	}
	return p
}

// pendingSteps are the pending steps of one rank. They are a source of its engine.
type pendingSteps struct {
	engine  *progress.Engine
	mu      sync.Mutex
	isAdded bool // Guarded by mu.
	// Guarded by the engine's lock.
	list []*pendingStep

	// Guarded by the engine's lock.
	isPolling bool
}

// addToEngine adds the steps to the engine as a source.
func (s *pendingSteps) addToEngine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isAdded {
		s.isAdded = true
		s.engine.Add(s)
	}
}

// removeFromEngine removes the source. It is called before the engine closes.
func (s *pendingSteps) removeFromEngine() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isAdded {
		s.engine.Remove(s)
	}
}

// Poll implements progress.Source. A completed step may remove others from the list, and steps
// after them are polled the next time. An engine of a rank may not poll again until a bell is rung,
// so that its steps are polled until none completes.
func (s *pendingSteps) Poll() (n int) {
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

func (s *pendingSteps) pollOnce() (n int) {
	for i := 0; i < len(s.list); {
		t := s.list[i]
		if n += t.Poll(); i < len(s.list) && s.list[i] == t {
			i++
		}
	}
	return n
}

// Lag implements progress.Lagging.
func (s *pendingSteps) Lag() time.Duration {
	if len(s.list) == 0 {
		return 0
	}
	return progress.StoreLag
}

// complete ends a step.
func (s *pendingSteps) complete(t *pendingStep, err error) {
	i := slices.Index(s.list, t)
	s.list = slices.Delete(s.list, i, i+1)
	t.err = err
	if o := t.operation; o != nil {
		if e := s.engine; e.IsRank() {
			e.AddBackground(-1)
		}
		o.pendingStepCount--
		o.stepDone(t.stepIndex, err)
		o.advance()
		return
	}
	s.engine.Complete(&t.Completion)
}

func (s *pendingSteps) abort(k *State, err error) {
	for _, t := range slices.Clone(s.list) {
		if t.collState == k && slices.Contains(s.list, t) {
			s.complete(t, err)
		}
	}
}

// Own implements coll.Peers. Without a nonblocking operation in progress, this call is the only
// user of the instance, and takes the engine's lock only to wait.
func (p *peers) Own(ctx context.Context, steps []coll.Step) (err error) {
	e := p.collState.env.RankResources.engine
	alone := p.collState.nonblocking.unfinishedCount.Load() == 0
	if !alone {
		e.Lock()
	}
	for i := range steps {
		p.call.IsWaiterAsleep = false
		isDone, failed := p.instance.PollStep(&steps[i], &p.call)
		if err = failed; !isDone && err == nil {
			if alone {
				e.Lock()
			}
			err = p.waitForStep(ctx, e, &steps[i])
			if alone {
				e.Release()
			}
		}
		if err != nil {
			break
		}
	}
	if !alone {
		p.collState.env.RankResources.PollSteps()
		e.Release()
	} else {
		e.Flush()
	}
	return err
}

// Work implements coll.Peers.
func (p *peers) Work(s *coll.Step) {
	runWork(p.instance, s, &p.call)
	p.collState.env.RankResources.engine.Flush()
}

// runWork runs a step of kind Work.
func runWork(x coll.Instance, s *coll.Step, c *coll.Call) {
	w, _ := framework.As[coll.Worker](x)
	w.Work(s, c)
}

// withdrawBuffers blocks until no other rank uses the buffers of a call that failed. After
// withdrawTimeout it returns ErrPending, and the buffers remain in use.
func withdrawBuffers(x coll.Instance, c *coll.Call) error {
	w, ok := framework.As[coll.Withdrawer](x)
	if !ok {
		return nil
	}
	deadline := time.Now().Add(withdrawTimeout)
	for i := 0; !w.Withdraw(c); i++ {
		switch {
		case i < withdrawYields:
			runtime.Gosched()
		case time.Now().Before(deadline):
			time.Sleep(withdrawSleep)
		default:
			return fmt.Errorf("%w: a combination still uses the buffers of the failed call after %v; do not use them again", framework.ErrPending, withdrawTimeout)
		}
	}
	return nil
}

// Other ranks use buffers for some microseconds at a time, except with operations of the program.
const (
	withdrawYields  = 64
	withdrawSleep   = 20 * time.Microsecond
	withdrawTimeout = time.Minute
)

// waitForStep waits until the instance has completed a step. The lock is held.
func (p *peers) waitForStep(ctx context.Context, e *progress.Engine, s *coll.Step) error {
	k := p.collState
	if err := k.abortErr; err != nil {
		return err
	}
	for polls := e.PollBudget(); polls > 0 && !e.Wanted(); polls-- {
		cpu.Pause()
		if isDone, err := p.instance.PollStep(s, &p.call); isDone || err != nil {
			return err
		}
	}
	all, t := &p.collState.env.RankResources.pendingSteps, &p.pendingStep
	t.Reset()
	t.collState, t.instance, t.call, t.step, t.err = k, p.instance, &p.call, s, nil
	all.list = append(all.list, t)
	if err := e.Wait(ctx, &t.Completion, t); err != nil {
		if !t.Done() {
			all.complete(t, err)
		}
		return err
	}
	return t.err
}

// startOwnStep starts a step of an instance. Lock held.
func (o *Operation) startOwnStep(i int) {
	s := &o.schedule.Steps[i]
	o.call.IsWaiterAsleep = false
	isDone, err := o.instance.PollStep(s, &o.call)
	if !isDone && err == nil {
		if err = o.collState.abortErr; err == nil {
			o.pendingStepCount++
			all := &o.collState.env.RankResources.pendingSteps
			t := &pendingStep{collState: o.collState, instance: o.instance, call: &o.call, step: s, operation: o, stepIndex: i}
			all.list = append(all.list, t)
			if e := all.engine; e.IsRank() {
				e.AddBackground(1)
				t.Poll() // No bell is rung for earlier posts.
			}
			return
		}
	}
	o.stepDone(i, err)
}
