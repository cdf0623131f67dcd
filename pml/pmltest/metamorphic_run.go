package pmltest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

// Variant is a stack for plans.
type Variant struct {
	Name  string
	Stack Stack
	// Used for communicators that are decided together.
	Policy cid.Policy
	// Largest number of ranks, 0 for any.
	Ranks int
	// Limit is the running time after which a plan counts as hung, 60 s by default.
	Limit time.Duration
}

// planLimit is the default of Variant.Limit.
const planLimit = kittest.Limit

// runPlan runs a plan over a variant. The error names the operation with an outcome that MPI forbids, or those
// that hang.
func runPlan(ctx context.Context, p Plan, v Variant, limit time.Duration) error {
	w, err := NewWorld(v.Stack, p.Ranks)
	if err != nil {
		return err
	}
	ctx, cancel := kittest.Within(ctx, limit)
	defer cancel()
	run := &planRun{plan: p, policy: v.Policy, w: w, births: make([]*birth, len(p.Comms))}
	run.ctx, run.cancel = context.WithCancelCause(ctx)
	defer run.cancel(nil)
	for i, c := range p.Comms {
		run.births[i] = &birth{id: w.NextID(), payloadsByRank: make([][]byte, len(c.Members)), decided: make(chan struct{})}
	}
	var inspected []string
	// Matched operations wait for their peer, independent of the context. All peers are ended now, so that a
	// failed run ends.
	broken := make(chan struct{})
	stop := context.AfterFunc(run.ctx, func() {
		defer close(broken)
		for _, q := range w.Procs {
			x, err := q.Module.Inspect(context.Background())
			inspected = append(inspected, fmt.Sprintf("%+v %v", x, err))
		}
		for _, q := range w.Procs {
			for peer := range p.Ranks {
				q.Module.PeerChanged(framework.FailedEvent(w.Group()[peer].Incarnation, "the run has failed"))
			}
		}
	})
	var wg sync.WaitGroup
	for rank := range p.Ranks {
		wg.Go(func() {
			if err := run.rank(rank); err != nil {
				run.cancel(fmt.Errorf("rank %d: %w", rank, err)) // The first error is reported.
			}
		})
	}
	wg.Wait()
	if stop() {
		return w.Close()
	}
	<-broken
	err = context.Cause(run.ctx)
	for rank, x := range inspected {
		err = fmt.Errorf("%w\nrank %d: %s", err, rank, x)
	}
	return errors.Join(err, w.Close())
}

// planRun is one run of a plan.
type planRun struct {
	plan   Plan
	policy cid.Policy
	w      *World
	births []*birth
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// birth is the state of the members' common decision on a communicator.
type birth struct {
	id             cid.Extended
	mu             sync.Mutex
	payloadsByRank [][]byte
	arrivedMembers int
	decided        chan struct{}
	decision       cid.Decision
	err            error
}

// player is one rank of a run.
type player struct {
	*planRun
	worldRank  int
	comms      []pml.Comm
	startedOps []*operation
	straySends []*operation
}

// operation is a started operation.
type operation struct {
	pending
	// Position among the waits.
	waitIndex int
	finishOp  func(pml.Status, error) error
}

// step is one operation of a rank, with its position.
type step struct {
	orderKey int
	do       func() error
	name     func() string
}

func (run *planRun) rank(me int) error {
	r := &player{planRun: run, worldRank: me, comms: make([]pml.Comm, len(run.plan.Comms))}
	for at, ph := range run.plan.Phases {
		if err := r.phase(at, ph); err != nil {
			return fmt.Errorf("phase %d: %w", at, err)
		}
	}
	for _, op := range r.straySends {
		if err := op.finishOp(op.pending.wait(run.ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (r *player) phase(at int, ph PlanPhase) error {
	if ph.Barrier {
		if err := r.barrier(barrierTag + at); err != nil {
			return fmt.Errorf("barrier: %w", err)
		}
	}
	for i, c := range r.plan.Comms {
		if c.Born == at && slices.Contains(c.Members, r.worldRank) {
			if err := r.make(i); err != nil {
				return fmt.Errorf("communicator %d: %w", i, err)
			}
		}
	}
	var first, blocking []step
	for i := range ph.Classes {
		f, b := r.class(&ph.Classes[i])
		first, blocking = append(first, f...), append(blocking, b...)
	}
	for i := range ph.Events {
		if e := &ph.Events[i]; r.plan.Comms[e.Comm].Members[e.Rank] == r.worldRank {
			first = append(first, step{e.Key, func() error { return r.event(e) }, func() string { return eventNames[e.Kind] }})
		}
	}
	for _, steps := range [][]step{first, blocking} {
		slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.orderKey, b.orderKey) })
		for _, s := range steps {
			if err := s.do(); err != nil {
				return fmt.Errorf("%s: %w", s.name(), err)
			}
		}
	}
	slices.SortStableFunc(r.startedOps, func(a, b *operation) int { return cmp.Compare(a.waitIndex, b.waitIndex) })
	for _, op := range r.startedOps {
		if err := op.finishOp(op.pending.wait(r.ctx)); err != nil {
			return err
		}
	}
	r.startedOps = r.startedOps[:0]
	for i, c := range r.plan.Comms {
		if c.Dies == at && r.comms[i] != nil {
			r.comms[i].Close()
		}
	}
	return nil
}

// barrier is a dissemination barrier on the first communicator.
func (r *player) barrier(tag int) error {
	n, c := r.plan.Ranks, r.comms[0]
	for d := 1; d < n; d *= 2 {
		got, err := started(c.Irecv(pml.Buffer{}, (r.worldRank-d+n)%n, tag, pml.Control))
		if err != nil {
			return err
		}
		if err := c.Send(r.ctx, pml.Buffer{}, (r.worldRank+d)%n, tag, pml.Control, pml.Standard); err != nil {
			return err
		}
		if _, err := got.wait(r.ctx); err != nil {
			return err
		}
	}
	return nil
}

// make creates this rank's handle of a communicator.
func (r *player) make(i int) (err error) {
	c, b := r.plan.Comms[i], r.births[i]
	p := r.w.Procs[r.worldRank]
	var group []pml.Member
	for _, m := range c.Members {
		group = append(group, r.w.Group()[m])
	}
	spec := pml.CommSpec{ID: b.id, Members: pml.NewMembers(group), Rank: slices.Index(c.Members, r.worldRank)}
	if c.IsDup {
		if spec.Local, err = p.Module.CIDs().Reserve(); err == nil {
			r.comms[i], err = p.Module.AddComm(spec)
		}
		return err
	}
	candidates := p.Module.CIDs().WithholdCandidates(r.policy, len(c.Members), 1<<15)
	b.mu.Lock()
	b.payloadsByRank[spec.Rank] = candidates.Bytes()
	if b.arrivedMembers++; b.arrivedMembers == len(c.Members) {
		b.decision, b.err = cid.Decide(b.payloadsByRank)
		close(b.decided)
	}
	b.mu.Unlock()
	select {
	case <-b.decided:
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	if b.err != nil {
		return b.err
	}
	r.comms[i], err = p.join(spec, candidates, b.decision)
	return err
}

// event performs an event.
func (r *player) event(e *PlanEvent) error {
	c := r.comms[e.Comm]
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	switch e.Kind {
	case Pause:
		for range e.Size % 50 {
			runtime.Gosched()
		}
	case CancelRecv:
		src := e.To
		if e.Key%2 == 0 {
			src = pml.AnySource
		}
		op, err := irecv(c, src, strayTag, make([]byte, 8))
		if err != nil {
			return err
		}
		return r.cancelNow(op)
	case ExpireRecv:
		if st, err := c.Recv(ended, pml.Buffer{}, pml.AnySource, strayTag+1, p2p); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%+v, %v", st, err)
		}
	case CancelSend, ExpireSend:
		return r.withdraw(ended, c, e)
	case Stray:
		mode := pml.Mode(e.Key % 2)
		op, err := isend(c, e.To, strayTag+4, data(e.Key, e.Size), mode)
		if err != nil {
			return err
		}
		end := unreceived
		if mode == pml.Standard {
			end = func(st pml.Status, err error) error { return sent(-1, st, err) }
		}
		r.straySends = append(r.straySends, &operation{pending: op, finishOp: end})
	}
	return nil
}

// withdraw withdraws a send without a match. If a network matches, a message that has left remains like a stray
// send, and like that it is sent to a higher rank only.
func (r *player) withdraw(ended context.Context, c pml.Comm, e *PlanEvent) (err error) {
	certain := r.w.caps().Withdraw
	if !certain && e.Rank >= e.To {
		return nil
	}
	var op pending
	b := data(e.Key, e.Size)
	if e.Kind == CancelSend {
		if op, err = isend(c, e.To, strayTag+2, b, pml.Synchronous); err != nil {
			return err
		}
		if certain {
			return r.cancelNow(op)
		}
		if err = op.r.Cancel(op.gen); err != nil {
			return err
		}
	} else {
		err = c.Send(ended, buffer(b), e.To, strayTag+3, p2p, pml.Synchronous)
		var left *pml.PendingError
		switch {
		case !errors.Is(err, context.Canceled):
			return fmt.Errorf("ended with %w", err)
		case !errors.As(err, &left):
			return nil
		}
		op = pending{left.Request, left.Request.Generation()}
	}
	r.straySends = append(r.straySends, &operation{pending: op, finishOp: func(st pml.Status, err error) error {
		if st.Canceled { // It had not left.
			return err
		}
		return unreceived(st, err)
	}})
	return nil
}

// unreceived checks the outcome of a synchronous send to a receiver that closes the communicator.
func unreceived(st pml.Status, err error) error {
	if !errors.Is(err, framework.ErrCommClosed) {
		return fmt.Errorf("synchronous send of an unreceived message: %+v, %w", st, err)
	}
	return nil
}

func (r *player) cancelNow(op pending) error {
	if err := op.r.Cancel(op.gen); err != nil {
		return err
	}
	if st, err := op.wait(r.ctx); err != nil || !st.Canceled {
		return fmt.Errorf("canceled: %+v, %v", st, err)
	}
	return nil
}

// sent checks the outcome of a send.
func sent(id int, st pml.Status, err error) error {
	if err != nil || st.Canceled {
		return fmt.Errorf("send of message %d: %+v, %v", id, st, err)
	}
	return nil
}

// got checks the outcome of a receive.
func (k *PlanClass) got(want *PlanMessage, mem []byte, room int, st pml.Status, err error) error {
	if short := room < want.Size; short != errors.Is(err, framework.ErrTruncate) || !short && err != nil {
		return fmt.Errorf("receive of message %d into %d bytes: %+v, %v", want.ID, room, st, err)
	}
	if st.Source != k.From || st.Tag != want.Tag || st.Bytes != want.Size || st.Canceled {
		return fmt.Errorf("receive of message %d (from %d, tag %d, %d bytes): %+v", want.ID, k.From, want.Tag, want.Size, st)
	}
	n := min(room, want.Size)
	if !bytes.Equal(mem[:n], data(want.ID, want.Size)[:n]) {
		return fmt.Errorf("receive of message %d: other contents", want.ID)
	}
	if i := slices.IndexFunc(mem[n:], func(x byte) bool { return x != 0xee }); i >= 0 {
		return fmt.Errorf("receive of message %d of %d bytes: byte %d after it was written", want.ID, want.Size, i)
	}
	return nil
}
