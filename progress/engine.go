// Package progress is the progress engine: one per process, shared by all sessions. It
// has one lock, under which protocols and modules work. It decides which goroutine polls,
// which ones park, and when they wake up.
//
// A wait takes the poll token and polls all sources until its completion is done. Other
// waits park on Go channels meanwhile. While no wait polls, a single goroutine, the
// progress goroutine, sleeps on the process's doorbell for all of them, and progresses
// when it is rung: an Isend advances while the program computes, and 10,000 blocked
// goroutines need one thread.
//
// The engine does not interpret messages. It never blocks while it holds the lock.
package progress

import (
	"context"
	"math"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/doorbell"
)

// A Source is polled for progress. Poll is called with the engine's lock held;
// it never blocks, and returns the number of events.
type Source interface {
	Poll() int
}

// A source is awaited through the engine's bell (Bell), which its peers ring, or through
// one of the optional abilities below, its own or those of the source that it wraps
// (framework.As). A source without any of these is polled only during active waits and by
// Progress. That suffices for sources that depend on another one's progress.

// A Descriptor is awaited through a file descriptor.
type Descriptor interface {
	// FD is the descriptor, which is fixed. After a successful Arm it becomes readable
	// when there are events to poll.
	FD() int
	// Arm prepares for sleep. false: there are events already, poll again.
	// Called with the lock held.
	Arm() bool
}

// A Polled source can only be polled: at this interval while the progress goroutine
// sleeps. 0 means not at the moment. Called with the lock held.
type Polled interface {
	Interval() time.Duration
}

// A Timed source has work at a certain time: while the progress goroutine sleeps it is
// polled after this time. 0 means not at the moment. Called with the lock held.
type Timed interface {
	Due() time.Duration
}

// A Lagging source has peers that read the bell's state without waiting until their
// stores are visible, since that takes as long as a core-to-core transfer. Such a peer may
// miss a bell that is being armed. Therefore the source is polled once more when the bell
// has been armed for that long, far longer than a store takes. 0 means not at the moment.
// Called with the lock held.
type Lagging interface {
	Lag() time.Duration
}

// StoreLag is the Lag of a source whose peers use plain stores: far longer than a store
// takes to become visible.
const StoreLag = time.Millisecond

// Options are the engine's tuning. The zero value gets the defaults.
type Options struct {
	// Spin is the time for which a wait polls before it yields the processor. 0 selects
	// DefaultSpin, or OversubscribedSpin while the node is oversubscribed (SetNodeProcs).
	Spin time.Duration
	// Yield is the time for which it then polls and yields alternately, before it parks.
	Yield time.Duration
	// Slice is the scheduler's time slice that the process requests, once for all its
	// threads (cpu.Slice); below 0 it keeps its slice.
	Slice time.Duration
	// NodeProcs is the initial number of processes that share the node (SetNodeProcs).
	NodeProcs int
	// Processors is the number of processors that these processes share; 0 selects
	// cpu.ForRanks.
	Processors int
	// IsStream is set for the engine of a stream, a further engine of a process. Its progress goroutine sleeps in a thread of
	// its own. Waits yield no Go processor because of it, since no other goroutine of the process is their peer.
	IsStream bool
	// Labels contains the labels of the engine's goroutines in profiles (runtime/pprof);
	// nil selects the labels of New's caller.
	Labels context.Context
}

// Engine is the progress engine of a process, or of one rank of it if goroutines are
// ranks. Use New and NewRank.
type Engine struct {
	lock
	process *Engine // The process's engine: the parent of a rank's, otherwise the engine itself.
	rank    *rank   // nil except in the engine of a rank.

	// The fields below are guarded by the lock.
	sources []Source
	bell    Bell
	fds     *fdPoller
	polling flag // The poll token; also read without the lock.
	closed  bool
	parked  int       // Parked waits, without those of ranks.
	polls   uint64    // Number of poll sessions, from which the progress goroutine infers activity.
	armed   time.Time // Time at which the bell was armed.
	free    []*Waiter
	yields  uint32 // Number of yieldProcessor calls.
	gosched bool   // Whether each yield calls runtime.Gosched: see sharesP.

	idleYields int // Consecutive timed yields without a switch to another thread, at most timedIdleYields.
	extended   extendedSpin

	isStream bool // Options.IsStream; constant.

	labels context.Context // May be nil; constant.

	spin, yield    time.Duration
	pollBudget     int   // Result of PollBudget while the poll token is free.
	oversubscribed bool  // Whether waits yield from the first polls on.
	followed       int32 // Number of pollers that determines the fields above.
	background     progressGoroutine

	// Of a process's engine, and accessed without the lock; see SetNodeProcs and SetStreams.
	nodeProcs  atomic.Int32
	streams    atomic.Int32
	pollers    atomic.Int32
	longSpin   time.Duration // Value of spin while waits don't yield at once; constant.
	processors int32         // Processors that the processes of the node share; constant.
	yieldAbove int32         // Waits yield at once while pollers is larger; constant.

	parkedRanks atomic.Int64 // Parked waits of the process's ranks; changed without the lock.
	rings       rings        // Of a process's engine.
}

// New makes an engine and starts its progress goroutine. Close ends it.
func New(opt Options) *Engine {
	if opt.Processors == 0 {
		opt.Processors = cpu.ForRanks()
	}
	yieldAbove := math.MaxInt32
	switch {
	case opt.Spin == 0:
		opt.Spin, yieldAbove = DefaultSpin, opt.Processors
	case opt.Spin <= OversubscribedSpin:
		yieldAbove = -1 // always
	}
	if opt.Yield == 0 {
		opt.Yield = DefaultYield
	}
	if opt.Slice == 0 {
		opt.Slice = DefaultSlice
	}
	if opt.Slice > 0 {
		_ = cpu.Slice(opt.Slice) // without permission, waits are slower beside other programs
	}
	e := &Engine{longSpin: opt.Spin, yield: opt.Yield, labels: opt.Labels, processors: int32(opt.Processors), yieldAbove: int32(yieldAbove)}
	e.process = e
	e.SetNodeProcs(opt.NodeProcs)
	e.followPollers(e.pollers.Load())
	e.bell.e, e.bell.now = e, doorbell.New()
	e.isStream = opt.IsStream
	e.count(1)
	e.gosched = sharesP()
	e.background.wakeups, e.background.quit, e.background.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	e.background.woken.L = &e.background.mu
	go e.runProgressGoroutine()
	return e
}

// Label gives the calling goroutine, one of the library, the engine's labels and more.
func (e *Engine) Label(more pprof.LabelSet) {
	ctx := e.labels
	if ctx == nil {
		ctx = context.Background()
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, more))
}

// label gives the calling goroutine, one of the engine, its labels.
func (e *Engine) label() {
	if e.labels != nil {
		pprof.SetGoroutineLabels(e.labels)
	}
}

// The numbers of open engines in this operating-system process, without those of streams, and of streams.
var engines, streamEngines atomic.Int32

// count adds n to the number of open engines.
func (e *Engine) count(n int32) {
	if e.isStream {
		streamEngines.Add(n)
	} else {
		engines.Add(n)
	}
}

// SeveralEngines reports whether several engines are open in this operating-system process.
func SeveralEngines() bool { return engines.Load()+openRanks.Load()+streamEngines.Load() > 1 }

// sharesP reports whether the peer of a wait may need the processor of the waiting
// goroutine: with GOMAXPROCS=1, or if goroutines of this process are ranks with engines of
// their own. A stream does not count, unless more streams wait than there are processors.
func sharesP() bool { return share(int32(runtime.GOMAXPROCS(0)), engines.Load(), streamEngines.Load()) }

// share reports whether that many engines and streams share Go processors.
func share(procs, engines, streams int32) bool { return procs == 1 || engines > 1 || streams > procs }

// DefaultSpin exceeds a scheduler's wake-up (some 5 us), so that a peer that computes
// briefly costs no sleep, and is short enough to go unnoticed.
const DefaultSpin = 50 * time.Microsecond

// OversubscribedSpin is the Spin of oversubscribed processes: up to this value, a wait
// yields after every poll.
const OversubscribedSpin = time.Microsecond

// DefaultYield suffices for a barrier of some ten ranks per processor, and for a copy of
// some tens of MiB by a peer. Being woken costs 100 to 200 us where a rank is bound to a single
// processor: 4 MiB between AllocMem buffers took 210 us with a yield of 50 us, and
// take 106 now.
const DefaultYield = 2 * time.Millisecond

// DefaultSlice is the shortest slice that Linux grants. A wait yields for at most one
// slice. With the usual slice of 3 ms, 8 ranks on 2 processors took 27 ms for an allreduce of 8 B beside
// four processes that compute, and 9.5 ms beside one; they take 4.4 and 1.2.
const DefaultSlice = 100 * time.Microsecond

// Bell returns the engine's bell. A rank is woken by its RankBell only.
func (e *Engine) Bell() *Bell { return &e.bell }

// IsRank reports whether the engine is that of a rank (NewRank).
func (e *Engine) IsRank() bool { return e.rank != nil }

// Add makes s a source.
func (e *Engine) Add(s Source) {
	e.Lock()
	defer e.Unlock()
	if _, ok := framework.As[Descriptor](s); ok && e.fds == nil && e.rank == nil {
		e.fds = newFDPoller(&e.bell)
	}
	e.sources = append(e.sources, s)
	e.bell.now.Ring() // a progress goroutine that is asleep has not armed s
	e.background.wake()
}

// Remove removes s. When it returns, s is no longer polled, and its descriptor is no
// longer used.
func (e *Engine) Remove(s Source) {
	e.Lock()
	defer e.Unlock()
	for i, x := range e.sources {
		if x == s {
			e.sources = slices.Concat(e.sources[:i], e.sources[i+1:]) // Polls may be reading the old list.
			break
		}
	}
	if d, ok := framework.As[Descriptor](s); ok && e.fds != nil {
		e.fds.remove(d)
	}
}

// Nudge is Bell.Ring for a source that has created work for itself. Lock held.
// Cost while the progress goroutine is awake: one load.
func (e *Engine) Nudge() { e.bell.now.Ring() }

// Close ends the progress goroutine. No waits are left, and all sources have been removed.
// The engines of ranks have been closed. Later waits return framework.ErrClosed.
func (e *Engine) Close() {
	if e.rank != nil {
		e.closeRank()
		return
	}
	e.background.stop(e)
	e.count(-1)
	e.Lock()
	e.closed = true
	fds := e.fds
	e.fds = nil
	e.Unlock()
	if fds != nil {
		fds.close() // without the lock, since its goroutine may be ringing
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

// IsClosed reports whether Close has been called. Lock held.
func (e *Engine) IsClosed() bool { return e.closed }

// Progress polls every source once, unless a wait polls already. Lock held. The engine of
// a rank also polls its process's engine if that is free, and releases the lock meanwhile.
func (e *Engine) Progress() int {
	if e.polling.isSet() {
		return 0
	}
	if e.rank != nil {
		return e.progressRank()
	}
	e.polls++
	return e.poll()
}

// PollBudget returns how often a caller may poll one source, at one load or two per poll,
// before it releases the lock and waits. That takes some microseconds, in which no other
// source is polled; less where ranks are oversubscribed. 0 if a wait polls already. The
// caller stops early if the lock is Wanted. Lock held.
func (e *Engine) PollBudget() int {
	if e.polling.isSet() {
		return 0
	}
	e.polls++
	return e.pollBudget
}

// Wanted reports whether a goroutine waits for the lock.
func (l *lock) Wanted() bool { return l.waiters.Load() != 0 }

func pollBudgetOf(yieldsAtOnce bool) int {
	if yieldsAtOnce {
		return 1
	}
	return maxPollBudget
}

// maxPollBudget takes some four microseconds, with a Pause of 25 ns after each poll.
const maxPollBudget = 160
