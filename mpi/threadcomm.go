package mpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/pml"
)

// ThreadComm is a thread communicator. Goroutines in the processes of a communicator become ranks of a new communicator (MPIX_Threadcomm of
// "Frustrated with MPI+Threads? Try MPIxThreads!"). The goroutines of a process have consecutive ranks, in the order of the processes in the parent.
//
// The ranks exist while the thread communicator is active, which is during Run, or from the first Start to the last Finish. Each activation has a separate
// context, so that messages of two activations never match. A rank uses a *Comm for all operations of a process, including messages, collectives,
// Dup, Split, Create, CreateGroup and attributes. Any goroutine may act for the rank. CommFromGroup and NewThreadComm are not available.
//
// Methods may be called concurrently.
type ThreadComm struct {
	parentGroup *Group // Of processes.
	session     *Session
	module      assembly.PML
	paramValues *framework.Values
	team        *assembly.Team
	// Names no communicator.
	id cid.Extended
	// Those of an activation's first communicator.
	activationMembers *table
	// By rank in the parent group.
	goroutineCounts []int
	// Rank of this process's first goroutine.
	firstRank  int
	rankStates []rankState // By endpoint.

	mu        sync.Mutex
	idDeriver cid.Deriver
	// nil if none is active.
	currentActivation *activation
	isRunning         bool // Run is active.
	isClosed          bool
}

// MaxGoroutines is the largest number of goroutine ranks of a process in a thread communicator.
const MaxGoroutines = 1<<16 - 1

// NewThreadComm creates a thread communicator with a number of ranks in this process, 1 to MaxGoroutines (MPIX_Threadcomm_init). It is collective over
// c. Processes may have different numbers. The parent can be closed afterwards. The session stays open until Close.
//
// Errors in all members: ErrRank for a number out of range; ErrUnsupported if the PML cannot address that many ranks of a process. c works after both.
// For the communicator of a goroutine rank: ErrUnsupported. Others are those of Dup.
func NewThreadComm(ctx context.Context, c *Comm, goroutines int) (*ThreadComm, error) {
	if c.threadRank != nil {
		return nil, fmt.Errorf("%w: thread communicator of goroutine ranks: make it from a communicator of processes", ErrUnsupported)
	}
	s := c.session
	if err := s.hold(&s.commCount); err != nil {
		return nil, err
	}
	t := &ThreadComm{parentGroup: c.group, session: s, module: c.module, paramValues: c.paramValues}
	var refused error // By all members alike.
	err := c.collective.Do(ctx, "thread communicator", 0, func() (err error) {
		refused, err = t.agree(ctx, c, goroutines)
		return err
	})
	if err = errors.Join(refused, err); err != nil {
		s.drop(&s.commCount)
		return nil, fmt.Errorf("thread communicator: %w", err)
	}
	t.open(c)
	return t, nil
}

// agree exchanges the numbers of goroutines, and derives the thread communicator's id. Called inside State.Do.
func (t *ThreadComm) agree(ctx context.Context, c *Comm, goroutines int) (refused, err error) {
	counts, err := c.gatherNumbers(ctx, int64(goroutines))
	if err != nil {
		return nil, err
	}
	for rank, n := range counts {
		if n < 1 || n > MaxGoroutines {
			return fmt.Errorf("%w: rank %d passes %d goroutines: 1 to %d are possible", ErrRank, rank, n, MaxGoroutines), nil
		}
		if rank < c.rank {
			t.firstRank += int(n)
		}
		t.goroutineCounts = append(t.goroutineCounts, int(n))
	}
	t.listMembers(c)
	if c.size > 1 {
		if refused, err := t.fits(ctx, c); refused != nil || err != nil {
			return refused, err
		}
	}
	ids, err := c.derive(ctx, c.takeLastDup(), 1)
	if err != nil {
		return nil, err
	}
	t.id, t.idDeriver = ids[0], cid.NewDeriver(ids[0])
	ctx, stop := c.collective.ContextUntilBroken(ctx)
	defer stop()
	return nil, t.refill(ctx)
}

// gatherNumbers returns every member's number. Called inside State.Do.
func (c *Comm) gatherNumbers(ctx context.Context, mine int64) ([]int64, error) {
	all := make([]int64, c.size)
	x := run.Call{Op: coll.Allgather, In: mem.Bytes([]int64{mine}), Out: mem.Bytes(all)}
	x.SetBlockSize(len(x.In))
	return all, c.collective.Inline(ctx, &x)
}

// fits returns ErrUnsupported in all members if the PML of one cannot address its ranks. Called inside State.Do.
func (t *ThreadComm) fits(ctx context.Context, c *Comm) (refused, err error) {
	if l, ok := framework.As[pml.RankLimiter](c.module.Module); ok {
		if err := l.FitsRanks(t.activationMembers); err != nil {
			return err, nil
		}
	}
	room, err := c.gatherNumbers(ctx, int64(c.module.CIDs().Free()))
	if err != nil {
		return nil, err
	}
	for rank, n := range t.goroutineCounts {
		if room[rank] < int64(n) {
			return fmt.Errorf("%w: rank %d passes %d goroutines: its pml %s has ids for %d: close communicators or use fewer goroutines",
				ErrUnsupported, rank, n, c.module.Name, room[rank]), nil
		}
	}
	return nil, nil
}

// listMembers fills in the members of the activations.
func (t *ThreadComm) listMembers(c *Comm) {
	var members []pml.Member
	for rank, n := range t.goroutineCounts {
		for endpoint := range n {
			members = append(members, pml.Member{Incarnation: c.spec.Members.Member(rank).Incarnation, Endpoint: uint16(endpoint)})
		}
	}
	t.activationMembers = &table{Members: pml.NewMembersFrom(c.spec.Members, members)}
}

// refill ensures that there are ids for an activation. Once in 32,767 activations all processes synchronize
// for it, and if the parent's id leaves no level for children.
func (t *ThreadComm) refill(ctx context.Context) error {
	if t.idDeriver.Remaining() >= idsPerActivation {
		return nil
	}
	made, err := t.session.process.Construct(ctx, t.parentGroup.processes(), "\x00activations of "+t.id.String(), nil)
	if err != nil {
		return err
	}
	t.idDeriver.Rebase(made.ContextID)
	return nil
}

// open creates the ranks of this process.
func (t *ThreadComm) open(c *Comm) {
	e := t.session.process
	n := t.goroutineCounts[c.rank]
	t.team = e.NewTeam(t.module, n)
	t.rankStates = make([]rankState, n)
	for endpoint := range t.rankStates {
		t.rankStates[endpoint].init(t.team.Engine(endpoint), &t.session.process.pieces)
	}
	e.mu.Lock()
	e.endpointLimit = max(e.endpointLimit, n)
	e.openThreadComms[t] = struct{}{}
	e.hadThreadComms = true
	e.mu.Unlock()
	if processors := runtime.GOMAXPROCS(0); n > processors {
		e.Env().Logger.Info("a thread communicator has more goroutine ranks than the process has processors", "ranks", n, "processors", processors)
	}
}

// Run activates the thread communicator. It calls f in a new goroutine for each rank of this process, and returns when all calls have returned. The
// context of f is derived from ctx.
//
// An f that returns an error, panics or calls runtime.Goexit ends the activation in all processes. The contexts of all ranks end, and pending operations
// on the activation's communicators fail with ErrBroken, with the rank and the cause. Run returns the first error of an f in this process. It
// panics with the value of the first f that has panicked. It closes communicators that f has left open, and returns ErrPending for them.
//
// Other errors are ErrPending while the thread communicator is active, and ErrClosed after Close.
func (t *ThreadComm) Run(ctx context.Context, f func(ctx context.Context, c *Comm) error) error {
	ctx, cancel := context.WithCancelCause(background(ctx))
	defer cancel(nil)
	a, err := t.startRun(ctx)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	a.setCancel(cancel)
	var ranks sync.WaitGroup
	for i := range a.threadRanks {
		ranks.Go(func() { a.run(ctx, &a.threadRanks[i], f) })
	}
	ranks.Wait()
	t.mu.Lock()
	t.isRunning = false
	a.end()
	t.mu.Unlock()
	return a.outcome()
}

// startRun begins the activation of a Run.
func (t *ThreadComm) startRun(ctx context.Context) (*activation, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, err
	}
	if t.currentActivation != nil {
		return nil, fmt.Errorf("%w: the thread communicator is active: %d of its ranks here have started and %d have finished", ErrPending, t.currentActivation.startedCount, t.currentActivation.finishedCount)
	}
	a, err := t.activate(ctx)
	if err != nil {
		return nil, err
	}
	t.isRunning, a.isRun, a.startedCount = true, true, len(a.threadRanks)
	return a, nil
}

// usable returns why no activation may begin. t.mu held.
func (t *ThreadComm) usable() error {
	switch {
	case t.isClosed:
		return fmt.Errorf("%w: the thread communicator is closed", ErrClosed)
	case t.isRunning:
		return fmt.Errorf("%w: Run is active in the thread communicator", ErrPending)
	}
	return nil
}

// Start makes the calling goroutine the next rank of this process (MPIX_Threadcomm_start), together with all goroutines that it passes the communicator
// to. It is local. Finish ends the rank. The activation lasts until all ranks of this process have started and finished.
//
// Errors: ErrRank if all ranks have started and none has finished. If one has finished, Start waits for the end of the activation and starts a rank of
// the next one. ErrPending during Run, ErrClosed after Close.
func (t *ThreadComm) Start(ctx context.Context) (*Comm, error) {
	if hasEnded(ctx) {
		return nil, ended(ctx, "start", context.Cause(ctx))
	}
	for {
		s, ended, err := t.takeRank(background(ctx))
		if err != nil {
			return nil, fmt.Errorf("start: %w", err)
		}
		if s != nil {
			c, err := s.activation.open(s)
			if err != nil {
				s.activation.failed(s.rank, err)
				t.finished(s)
				return nil, fmt.Errorf("start: rank %d: %w", s.rank, err)
			}
			return c, nil
		}
		select {
		case <-ended:
		case <-background(ctx).Done():
			return nil, framework.Ended(ctx, "start", context.Cause(ctx))
		}
	}
}

// takeRank returns the next rank of the activation. It returns nil if the activation has to end first.
func (t *ThreadComm) takeRank(ctx context.Context) (*threadRank, <-chan struct{}, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, nil, err
	}
	a := t.currentActivation
	if a == nil {
		var err error
		if a, err = t.activate(ctx); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case a.startedCount < len(a.threadRanks):
		a.startedCount++
		return &a.threadRanks[a.startedCount-1], nil, nil
	case a.finishedCount == 0:
		return nil, nil, fmt.Errorf("%w: all %d ranks of this process have started", ErrRank, len(a.threadRanks))
	}
	return nil, a.ended, nil
}

// Finish ends a rank of Start, and closes its communicator (MPIX_Threadcomm_finish). It is local. Pending operations still complete.
//
// Errors: ErrPending, without effect, if the rank has other open communicators or collectives in progress; ErrClosed if the rank has finished; ErrGroup
// if c is not the result of a Start of t.
func (t *ThreadComm) Finish(ctx context.Context, c *Comm) error {
	if c == nil || c.threadRank == nil || c.threadRank.activation.threadComm != t || c.threadRank.activation.isRun || c.threadRank.firstComm != c {
		return fmt.Errorf("finish: %w: the communicator is not one that Start of this thread communicator has returned", ErrGroup)
	}
	if hasEnded(ctx) {
		return ended(ctx, "finish", context.Cause(ctx))
	}
	if err := c.threadRank.endIdle(); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	if err := t.beginFinish(c.threadRank); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	defer t.finished(c.threadRank) // Also if a hook of an attribute panics.
	_ = c.Close()                  // Unless the program has closed it.
	return nil
}

// beginFinish claims the end of a rank for the caller.
func (t *ThreadComm) beginFinish(s *threadRank) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.isFinishing {
		return fmt.Errorf("%w: rank %d has finished", ErrClosed, s.rank)
	}
	s.isFinishing = true
	return nil
}

// finished counts a rank that has ended, and ends the activation after the last.
func (t *ThreadComm) finished(s *threadRank) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := s.activation
	s.isFinished = true
	if a.finishedCount++; a.finishedCount == len(a.threadRanks) {
		a.end()
	}
}

// Close ends the thread communicator (MPIX_Threadcomm_free). Each process calls it, in its own time.
// ErrPending, without any effect, while Run is active or a rank has started and not finished. A second
// Close is ErrClosed.
func (t *ThreadComm) Close() error {
	if err := t.session.process.engine.Check(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return err
	}
	if a := t.currentActivation; a != nil {
		if a.startedCount > a.finishedCount {
			return fmt.Errorf("%w: first finish %s of the thread communicator", ErrPending, a.startedRanks())
		}
		a.end()
	}
	t.isClosed = true
	e := t.session.process
	counts := t.stats()
	e.mu.Lock()
	delete(e.openThreadComms, t)
	e.closedRankStats.add(counts)
	e.mu.Unlock()
	for i := range t.rankStates {
		t.rankStates[i].RemoveFromEngine()
	}
	t.team.Close()
	t.session.drop(&t.session.commCount)
	return nil
}
