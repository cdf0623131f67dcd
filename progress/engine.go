// Package progress is the engine that moves everything: one per process,
// shared by all sessions. It has one lock, under which protocols and modules
// work; it decides who polls, who sleeps, and who wakes whom.
//
// A goroutine that waits takes the poll token and polls all sources until what
// it waits for has happened. Others that wait meanwhile park on Go channels.
// When nobody polls, a single goroutine, the keeper, sleeps on the process's
// doorbell for all of them, and progresses when it is rung: an Isend advances
// while the program computes, and 10,000 blocked goroutines cost one thread.
//
// The engine knows nothing of messages. It never blocks while it holds the lock.
package progress

import (
	"context"
	"errors"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/doorbell"
)

// A Source is polled for progress. Poll is called with the engine's lock held;
// it never blocks, and returns the number of things that happened.
type Source interface {
	Poll() int
}

// A source is awaited through the engine's bell, which whoever brings it something
// rings (Bell). Other ways are optional abilities of it, or of what it wraps
// (framework.As). A source that nobody rings for and that has none of them is polled
// only while somebody waits actively; that is right for sources that depend on
// another one's progress.

// A Descriptor is awaited through a file descriptor.
type Descriptor interface {
	// FD is the descriptor; it becomes readable when there is something to poll
	// after a successful Arm. It is fixed.
	FD() int
	// Arm prepares for sleep. false: there is something already, poll again.
	// Called with the lock held.
	Arm() bool
}

// A Polled source can't be awaited: while the keeper sleeps it is polled at
// this interval. 0 means not at the moment. Called with the lock held.
type Polled interface {
	Interval() time.Duration
}

// A Timed source has something to do by itself, though nothing comes: while the
// keeper sleeps it is polled after this time. 0 means not at the moment. Called with
// the lock held.
type Timed interface {
	Due() time.Duration
}

// A Lagging source is brought things by peers who look at the bell at once, and not when all
// see what they have stored: waiting for that takes as long as a hop. A peer may so miss a
// bell that was armed just then. So the source is polled once more when the bell has been
// armed for that long, which is far longer than a store takes. 0 means not at the moment.
// Called with the lock held.
type Lagging interface {
	Lag() time.Duration
}

// StoreLag is the Lag of a source whose peers do no more than store: far longer than a store
// takes to become visible to everybody.
const StoreLag = time.Millisecond

// Options are the engine's tuning. The zero value gets the defaults.
type Options struct {
	// Spin is how long a wait polls before it offers the processor to others.
	Spin time.Duration
	// Yield is how long it goes on polling after that, offering the processor
	// between polls, before it sleeps.
	Yield time.Duration
	// Slice is how long a turn the process asks the scheduler for, once for all its
	// threads (cpu.Slice); below 0: it keeps the one that it has.
	Slice time.Duration
	// Labels has the labels of the engine's goroutines, which profiles show (runtime/pprof);
	// nil: they have those of New's caller.
	Labels context.Context
}

// Engine is the progress engine of a process. Use New.
type Engine struct {
	lock

	// All below is guarded by the lock.
	sources []Source
	bell    Bell
	fds     *fdPoller
	polling bool      // somebody has the poll token
	parked  int       // completions with a parked waiter
	polls   uint64    // poll sessions so far; the keeper's clock of activity
	armed   time.Time // when the keeper has armed the bell, which was not armed
	free    []*Waiter
	offers  uint32 // so far
	alone   bool   // goroutines run only when offered: see sharesP

	labels context.Context // or nil; it does not change

	spin, yield time.Duration
	looks       int  // of Looks
	crowded     bool // the processor is offered from the first poll on
	keeper      keeper
}

// New makes an engine and starts its keeper. Close ends it.
func New(opt Options) *Engine {
	if opt.Spin == 0 {
		opt.Spin = DefaultSpin
	}
	if opt.Yield == 0 {
		opt.Yield = DefaultYield
	}
	if opt.Slice == 0 {
		opt.Slice = DefaultSlice
	}
	if opt.Slice > 0 {
		_ = cpu.Slice(opt.Slice) // where that is forbidden, waiting is slower beside other programs
	}
	e := &Engine{spin: opt.Spin, yield: opt.Yield, looks: mostLooks, labels: opt.Labels}
	e.bell.e, e.bell.now = e, doorbell.New()
	engines.Add(1)
	e.alone = sharesP()
	if opt.Spin <= CrowdedSpin {
		e.looks, e.crowded = 1, true
	}
	e.keeper.kicks, e.keeper.quit, e.keeper.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	e.keeper.left.L = &e.keeper.mu
	go e.keep()
	return e
}

// Label gives the calling goroutine, which is the library's own, the engine's labels and
// more.
func (e *Engine) Label(more pprof.LabelSet) {
	ctx := e.labels
	if ctx == nil {
		ctx = context.Background()
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, more))
}

// label gives the calling goroutine, which is the engine's, its labels.
func (e *Engine) label() {
	if e.labels != nil {
		pprof.SetGoroutineLabels(e.labels)
	}
}

// engines counts those of this operating-system process.
var engines atomic.Int32

// sharesP reports whether whom an engine waits for may need its P: there is a single
// one, or another engine's ranks are goroutines of this process.
func sharesP() bool { return runtime.GOMAXPROCS(0) == 1 || engines.Load() > 1 }

// DefaultSpin is above a scheduler's wake-up (some 5 us), so that a peer which
// computes briefly costs no sleep, and short enough to cost nothing noticeable.
const DefaultSpin = 50 * time.Microsecond

// CrowdedSpin is the Spin of processes that are more than the processors: with so
// much or less the others get their turn after every poll.
const CrowdedSpin = time.Microsecond

// DefaultYield is how long others get turns before it is worth to sleep: a barrier
// of some ten ranks per processor is over by then, and so is a copy of some tens of
// MiB by a peer. Being woken costs 100 to 200 us where a rank is bound to a single
// processor: 4 MiB between AllocMem buffers took 210 us with a yield of 50 us, and
// take 106 now.
const DefaultYield = 2 * time.Millisecond

// DefaultSlice is the shortest that Linux gives. Who waits offers its processor, for a slice
// at most. With the usual one of 3 ms, 8 ranks on 2 processors took 27 ms for an allreduce of 8 B beside
// four processes that compute, and 9.5 ms beside one; they take 4.4 and 1.2.
const DefaultSlice = 100 * time.Microsecond

// Bell returns the engine's bell.
func (e *Engine) Bell() *Bell { return &e.bell }

// Add makes s a source.
func (e *Engine) Add(s Source) {
	e.Lock()
	defer e.Unlock()
	if _, ok := framework.As[Descriptor](s); ok && e.fds == nil {
		e.fds = newFDPoller(&e.bell)
	}
	e.sources = append(e.sources, s)
	e.bell.now.Ring() // a keeper that sleeps already has not armed s
	e.keeper.kick()
}

// Remove takes s out. When it returns s is not polled any more, and its descriptor
// is not used.
func (e *Engine) Remove(s Source) {
	e.Lock()
	defer e.Unlock()
	for i, x := range e.sources {
		if x == s {
			e.sources = append(e.sources[:i:i], e.sources[i+1:]...)
			break
		}
	}
	if d, ok := framework.As[Descriptor](s); ok && e.fds != nil {
		e.fds.remove(d)
	}
}

// Nudge is Bell.Ring for a source that has just made work for itself. Lock held.
// Cost while nobody sleeps: one load.
func (e *Engine) Nudge() { e.bell.now.Ring() }

// Close ends the keeper. Nobody waits any more, and all sources have been removed.
func (e *Engine) Close() {
	e.keeper.stop(e)
	engines.Add(-1)
	e.Lock()
	fds := e.fds
	e.fds = nil
	e.Unlock()
	if fds != nil {
		fds.close() // without the lock: its goroutine may be ringing
	}
}

// poll polls every source once. Lock held.
func (e *Engine) poll() int {
	n := 0
	for _, s := range e.sources {
		n += s.Poll()
	}
	return n
}

// Progress polls every source once, unless somebody does so already. Lock held.
func (e *Engine) Progress() int {
	if e.polling {
		return 0
	}
	e.polls++
	return e.poll()
}

// A Completion is something that one goroutine at a time can wait for. It is
// embedded in a request. Guarded by the engine's lock.
type Completion struct {
	done   bool
	waited bool // somebody waits, and polls himself or has a waiter; nobody if it is done
	waiter *Waiter
}

// Done reports whether the completion was completed. Lock held.
func (c *Completion) Done() bool { return c.done }

// Set makes c done from the start. Lock held; nobody waits for it.
func (c *Completion) Set() { c.done = true }

// Reset makes c pending. Lock held; nobody waits for it.
func (c *Completion) Reset() { c.done, c.waited = false, false }

// Waited reports whether somebody waits for c, which is pending. Lock held.
func (c *Completion) Waited() bool { return c.waited }

// Complete marks c done and wakes who waits for it. Lock held.
func (e *Engine) Complete(c *Completion) {
	c.done = true
	if c.waiter != nil {
		c.wake(e)
	}
}

func (c *Completion) wake(e *Engine) {
	w := c.waiter
	// Before w runs, c may be in use again, and have another waiter.
	c.waiter = nil
	w.fire(e)
}

// A Waiter is one goroutine's wait, possibly for several completions.
type Waiter struct {
	fired  bool
	parked bool
	wake   chan struct{} // capacity 1
}

func (w *Waiter) fire(e *Engine) {
	w.fired = true
	if w.parked {
		w.parked = false
		e.parked--
		w.wake <- struct{}{}
	}
}

// ErrBusy is returned to the second of two goroutines that wait for the same
// completion at the same time.
var ErrBusy = errors.New("somebody else waits for this request already")

// Wait waits until c is done, or ctx ends; then it returns ctx's cause and c
// stays pending. The lock is held at the call and at the return, and released
// in between. first, when not nil, is polled more often than the other sources.
func (e *Engine) Wait(ctx context.Context, c *Completion, first Source) error {
	if c.done {
		return nil
	}
	c.waited = true
	if !e.polling {
		if err := e.active(ctx, &c.done, first); err != nil || c.done {
			c.waited = false
			return err
		}
	}
	if c.waiter != nil {
		return ErrBusy
	}
	w := e.newWaiter()
	c.waiter = w
	err := e.park(ctx, w)
	if c.waiter == w {
		c.waiter, c.waited = nil, false
	}
	e.free = append(e.free, w)
	return err
}

// Looks returns how often a caller may look for one thing, each look a load or
// two, before it lets go of the lock and waits: some microseconds, in which nothing
// else is looked at; fewer where ranks outnumber processors. 0 if somebody polls
// already. The caller stops when somebody is Wanted. Lock held.
func (e *Engine) Looks() int {
	if e.polling {
		return 0
	}
	e.polls++
	return e.looks
}

// Wanted reports whether somebody waits for the lock.
func (l *lock) Wanted() bool { return l.waiters.Load() != 0 }

// mostLooks take some four microseconds, with a Pause of 25 ns after each.
const mostLooks = 160

// WaitAny is Wait for the first of several completions; nil ones are left out.
func (e *Engine) WaitAny(ctx context.Context, cs []*Completion) error {
	for _, c := range cs {
		if c != nil && c.waiter != nil {
			return ErrBusy
		}
	}
	w := e.newWaiter()
	for _, c := range cs {
		if c == nil {
			continue
		}
		c.waiter, c.waited = w, true
		w.fired = w.fired || c.done
	}
	var err error
	if !w.fired && !e.polling {
		err = e.active(ctx, &w.fired, nil)
	}
	if !w.fired && err == nil {
		err = e.park(ctx, w)
	}
	for _, c := range cs {
		if c != nil && c.waiter == w {
			c.waiter, c.waited = nil, false
		}
	}
	e.free = append(e.free, w)
	return err
}

func (e *Engine) newWaiter() *Waiter {
	if n := len(e.free); n > 0 {
		w := e.free[n-1]
		e.free = e.free[:n-1]
		w.fired = false
		return w
	}
	return &Waiter{wake: make(chan struct{}, 1)}
}

// park sleeps until w fires or ctx ends. Lock held; released meanwhile.
func (e *Engine) park(ctx context.Context, w *Waiter) error {
	if w.fired {
		return nil
	}
	w.parked = true
	e.parked++
	if !e.polling {
		e.keeper.kick()
	}
	e.Unlock()
	var cancel <-chan struct{}
	if ctx != nil {
		cancel = ctx.Done()
	}
	var err error
	select {
	case <-w.wake:
		e.Lock()
		return nil
	case <-cancel:
		err = context.Cause(ctx)
	}
	e.Lock()
	if !w.parked { // it fired before we had the lock
		<-w.wake
		return nil
	}
	w.parked = false
	e.parked--
	return err
}
