// Package progress is the progress engine. Each process has one, which all sessions share. It has one lock, under which protocols and modules run. It
// decides which goroutine polls, which ones park, and when they wake.
//
// A wait takes the poll token and polls all sources until its completion is done. Other waits park on Go channels. While no wait polls, one goroutine,
// the progress goroutine, sleeps on the process's doorbell on behalf of all, and makes progress when the doorbell is rung. An Isend therefore advances
// while the program computes, and 10,000 blocked goroutines need one thread.
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

// A source is awaited through the engine's bell (Bell), which its peers ring, or through one of the optional interfaces below. The source or a value
// that it wraps implements them (framework.As). A source without any of these is polled only by active waits and by Progress. That is sufficient for
// sources that depend on the progress of another one.

// A Descriptor is awaited through a file descriptor.
type Descriptor interface {
	// FD returns the descriptor, which does not change. After a successful Arm it becomes readable when there are events.
	FD() int
	// Arm prepares for sleep. It returns false if there are events, and the source must be polled again. Called with the lock held.
	Arm() bool
}

// A Polled source can only be polled. Interval returns the interval while the progress goroutine sleeps, or 0 if no polls are needed at present. Called
// with the lock held.
type Polled interface {
	Interval() time.Duration
}

// A Timed source has work at a certain time. Due returns the time after which the source is polled while the progress goroutine sleeps, or 0 if no such
// poll is needed. Called with the lock held.
type Timed interface {
	Due() time.Duration
}

// A Lagging source has peers that read the bell's state before their stores are visible, since waiting for that takes as long as a core-to-core transfer.
// Such a peer may miss a bell that is being armed. The source is therefore polled once more when the bell has been armed for the time Lag, which is
// far longer than a store takes. 0 means that no such poll is needed. Called with the lock held.
type Lagging interface {
	Lag() time.Duration
}

// StoreLag is the Lag of a source whose peers use plain stores. It is far longer than a store takes.
const StoreLag = time.Millisecond

// Options are the engine's parameters. Zero values select the defaults.
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
	// Engine of the process, which is the parent of a rank's engine, or the engine itself.
	processEngine *Engine
	// nil except in the engine of a rank.
	rankPart *rank

	// The fields below are guarded by the lock.
	sources  []Source
	bell     Bell
	fdPoller *fdPoller
	// Also read without the lock.
	pollToken flag
	isClosed  bool
	// Number without the waits of ranks.
	parkedWaits int
	// The progress goroutine derives activity from this number.
	pollSessions uint64
	// Of the bell.
	armedAt     time.Time
	freeWaiters []*Waiter
	yieldHistory

	// Options.IsStream; constant.
	isStream bool

	// May be nil; constant.
	profileLabels context.Context

	waitLimits
	progressGoroutine progressGoroutine

	// Of a process's engine, and accessed without the lock.
	nodeLoad

	// Parked waits of the process's ranks; changed without the lock.
	parkedRanks atomic.Int64
	// Of a process's engine.
	dueRanks rings
}

// yieldHistory has the results of the yields of an engine's waits. Guarded by the engine's lock.
type yieldHistory struct {
	// Of yieldProcessor calls.
	yieldCount uint32
	// Each yield calls runtime.Gosched, see sharesP.
	usesGosched bool
	// Consecutive timed yields without a switch to another thread, at most timedIdleYields.
	idleYields   int
	extendedSpin extendedSpin
}

// waitLimits bound the polls of an engine's waits. They follow the number of pollers, except yieldTime. Guarded by the engine's lock.
type waitLimits struct {
	spinTime, yieldTime time.Duration
	// Result of PollBudget while the poll token is free.
	pollBudget int
	// Waits yield from the first polls on.
	isOversubscribed bool
	// The fields above are derived from this number.
	followedPollers int32
}

// New returns an engine with a running progress goroutine. Close ends it.
func New(opt Options) *Engine {
	if opt.Processors == 0 {
		opt.Processors = cpu.ForRanks()
	}
	yieldAbove := math.MaxInt32
	switch {
	case opt.Spin == 0:
		opt.Spin, yieldAbove = DefaultSpin, opt.Processors
	case opt.Spin <= OversubscribedSpin:
		yieldAbove = -1 // Always.
	}
	if opt.Yield == 0 {
		opt.Yield = DefaultYield
	}
	if opt.Slice == 0 {
		opt.Slice = DefaultSlice
	}
	if opt.Slice > 0 {
		_ = cpu.Slice(opt.Slice) // Without permission, waits are slower beside other programs.
	}
	e := &Engine{
		profileLabels: opt.Labels,
		waitLimits:    waitLimits{yieldTime: opt.Yield},
		nodeLoad:      nodeLoad{longSpin: opt.Spin, processorCount: int32(opt.Processors), yieldAbove: int32(yieldAbove)},
	}
	e.processEngine = e
	e.SetNodeProcs(opt.NodeProcs)
	e.followPollers(e.pollerCount.Load())
	e.bell.engine, e.bell.currentBell = e, doorbell.New()
	e.isStream = opt.IsStream
	e.count(1)
	e.usesGosched = sharesP()
	e.progressGoroutine.wakeups, e.progressGoroutine.quit, e.progressGoroutine.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	e.progressGoroutine.wokenCond.L = &e.progressGoroutine.mu
	go e.runProgressGoroutine()
	return e
}

// Label sets the profile labels of the calling goroutine of the library to the engine's labels and more.
func (e *Engine) Label(more pprof.LabelSet) {
	ctx := e.profileLabels
	if ctx == nil {
		ctx = context.Background()
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, more))
}

// label sets the profile labels of the calling goroutine of the engine.
func (e *Engine) label() {
	if e.profileLabels != nil {
		pprof.SetGoroutineLabels(e.profileLabels)
	}
}

// Numbers of open engines in this operating-system process, without those of streams, and of streams.
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

// sharesP reports whether the peer of a wait may need the Go processor of the waiting goroutine. This is the case with GOMAXPROCS=1, and if goroutines
// of this process are ranks with separate engines. Streams count only if more of them wait than there are processors.
func sharesP() bool { return share(int32(runtime.GOMAXPROCS(0)), engines.Load(), streamEngines.Load()) }

// share reports whether that many engines and streams share Go processors.
func share(procs, engines, streams int32) bool { return procs == 1 || engines > 1 || streams > procs }

// DefaultSpin is longer than a wake-up by the scheduler (some 5 us), so that a peer that computes briefly costs no sleep. It is short enough to have no
// visible processor usage.
const DefaultSpin = 50 * time.Microsecond

// OversubscribedSpin is the Spin of oversubscribed processes. With values up to this one, a wait yields after every poll.
const OversubscribedSpin = time.Microsecond

// DefaultYield is sufficient for a barrier of some ten ranks per processor, and for a copy of some tens of MiB by a peer. A wake-up costs 100 to 200 us
// if a rank is bound to a single processor. 4 MiB between AllocMem buffers take 106 us, and took 210 with a yield of 50 us.
const DefaultYield = 2 * time.Millisecond

// DefaultSlice is the shortest slice that Linux grants. A wait yields for at most one slice. With the usual slice of 3 ms, an allreduce of 8 B among 8
// ranks on 2 processors took 27 ms beside four processes that compute and 9.5 ms beside one. With this slice it takes 4.4 and 1.2 ms.
const DefaultSlice = 100 * time.Microsecond

// Bell returns the engine's bell. Only RankBell wakes a rank.
func (e *Engine) Bell() *Bell { return &e.bell }

// IsRank reports whether the engine is that of a rank (NewRank).
func (e *Engine) IsRank() bool { return e.rankPart != nil }

// Add makes s a source.
func (e *Engine) Add(s Source) {
	e.Lock()
	defer e.Unlock()
	if _, ok := framework.As[Descriptor](s); ok && e.fdPoller == nil && e.rankPart == nil {
		e.fdPoller = newFDPoller(&e.bell)
	}
	e.sources = append(e.sources, s)
	e.bell.currentBell.Ring() // A progress goroutine that is asleep has not armed s.
	e.progressGoroutine.wake()
}

// Remove removes s. After its return, s is not polled and its descriptor is not used.
func (e *Engine) Remove(s Source) {
	e.Lock()
	defer e.Unlock()
	for i, x := range e.sources {
		if x == s {
			e.sources = slices.Concat(e.sources[:i], e.sources[i+1:]) // Polls may be reading the old list.
			break
		}
	}
	if d, ok := framework.As[Descriptor](s); ok && e.fdPoller != nil {
		e.fdPoller.remove(d)
	}
}

// Nudge is Bell.Ring for a source that has created work for itself. Lock held. It costs one load while the progress goroutine is awake.
func (e *Engine) Nudge() { e.bell.currentBell.Ring() }

// Close ends the progress goroutine. The caller has ended all waits, removed all sources and closed the engines of ranks. Later waits return
// framework.ErrClosed.
func (e *Engine) Close() {
	if e.rankPart != nil {
		e.closeRank()
		return
	}
	e.progressGoroutine.stop(e)
	e.count(-1)
	e.Lock()
	e.isClosed = true
	fds := e.fdPoller
	e.fdPoller = nil
	e.Unlock()
	if fds != nil {
		fds.close() // Without the lock, because its goroutine may be ringing.
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
func (e *Engine) IsClosed() bool { return e.isClosed }

// Progress polls every source once, unless a wait polls already. Lock held. The engine of
// a rank also polls its process's engine if that is free, and releases the lock meanwhile.
func (e *Engine) Progress() int {
	if e.pollToken.isSet() {
		return 0
	}
	if e.rankPart != nil {
		return e.progressRank()
	}
	e.pollSessions++
	return e.poll()
}

// PollBudget returns the number of polls of one source, at one or two loads each, that a caller may make before it releases the lock and waits. These take
// some microseconds, without a poll of other sources, and less while ranks are oversubscribed. It is 0 if a wait polls already. The caller stops early
// if the lock is Wanted. Lock held.
func (e *Engine) PollBudget() int {
	if e.pollToken.isSet() {
		return 0
	}
	e.pollSessions++
	return e.pollBudget
}

// Wanted reports whether a goroutine waits for the lock.
func (l *lock) Wanted() bool { return l.waiterCount.Load() != 0 }

func pollBudgetOf(yieldsAtOnce bool) int {
	if yieldsAtOnce {
		return 1
	}
	return maxPollBudget
}

// maxPollBudget takes some four microseconds, with a Pause of 25 ns after each poll.
const maxPollBudget = 160
