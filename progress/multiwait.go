package progress

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
)

// MultiWait is a wait for completions of several engines. These are engines of ranks, of a process, or of several processes whose ranks are goroutines. It
// polls all of them and the processes' engines of ranks, and parks in all of them. Use NewMultiWait, Add, either WaitAny or WaitAll, and Remove. It
// holds the lock of one engine at a time.
type MultiWait struct {
	waiter Waiter
	// Completions that are still required, plus unstarted before the wait.
	missingCount atomic.Int64
	entries      []multiEntry
	engines      []multiEngine
	pollPermit   pollPermit

	extension multiExtension
}

// multiExtension is the extended spinning of a wait (extendSpin). The first process's engine has the history.
type multiExtension struct {
	isDecided, hasYielded bool
	// Before the first yield.
	remainingPolls int
}

type multiEntry struct {
	engine     *Engine
	completion *Completion
}

type multiEngine struct {
	*Engine
	// This wait has the engine's poll token.
	hasToken bool
}

// unstarted exceeds the number of completions in a wait, so that completions before the
// wait do not wake it.
const unstarted = 1 << 40

// NewMultiWait returns a wait for no completions.
func NewMultiWait() *MultiWait {
	m := &MultiWait{}
	m.waiter.multiWait, m.waiter.wakeup = m, make(chan struct{}, 1)
	m.missingCount.Store(unstarted)
	return m
}

// Add adds a completion of e, which may be done. e's lock is held, and no other. Errors
// are ErrBusy if another goroutine is parked for the completion, and framework.ErrClosed if
// e is closed and the completion pending. The caller calls Remove also after an error.
func (m *MultiWait) Add(e *Engine, c *Completion) error {
	switch {
	case c.waiter == &m.waiter:
		return nil // It was added before.
	case c.isDone:
		m.countDown()
	case c.waiter != nil:
		return ErrBusy
	case e.isClosed:
		return framework.ErrClosed
	default:
		c.waiter, c.isWaited = &m.waiter, true
	}
	m.entries = append(m.entries, multiEntry{e, c})
	m.addEngine(e)
	m.addEngine(e.processEngine)
	return nil
}

func (m *MultiWait) addEngine(e *Engine) {
	if !slices.ContainsFunc(m.engines, func(x multiEngine) bool { return x.Engine == e }) {
		m.engines = append(m.engines, multiEngine{Engine: e})
	}
}

// countDown counts a completion. It is called under the lock of that completion's engine,
// at the same time from several engines.
func (m *MultiWait) countDown() {
	if m.missingCount.Add(-1) == 0 {
		m.waiter.wakeup <- struct{}{}
	}
}

// WaitAny blocks until one of the completions is done, at once if there are none, or until
// ctx ends; then it returns the cause of ctx. No lock is held.
func (m *MultiWait) WaitAny(ctx context.Context) error { return m.wait(ctx, 1) }

// WaitAll is WaitAny for all completions.
func (m *MultiWait) WaitAll(ctx context.Context) error { return m.wait(ctx, len(m.entries)) }

func (m *MultiWait) wait(ctx context.Context, required int) error {
	if len(m.entries) == 0 || m.missingCount.Add(int64(required)-unstarted) <= 0 {
		return nil
	}
	err := m.active(ctx)
	if err == nil && !m.isDone() {
		err = m.park(ctx)
	}
	if m.isDone() {
		return nil
	}
	return err
}

func (m *MultiWait) isDone() bool { return m.missingCount.Load() <= 0 }

// Remove removes the wait from its completions. No lock is held.
func (m *MultiWait) Remove() {
	for _, x := range m.entries {
		x.engine.Lock()
		if c := x.completion; c.waiter == &m.waiter {
			c.waiter, c.isWaited = nil, false
		}
		x.engine.Unlock()
	}
	m.entries = nil
}

// active polls all engines until the wait is done, until ctx ends (its cause is returned),
// or until it is time to park (nil).
func (m *MultiWait) active(ctx context.Context) (err error) {
	ranked := slices.ContainsFunc(m.engines, func(x multiEngine) bool { return x.rankPart != nil })
	var permit *pollPermit
	if ranked {
		permit = &m.pollPermit
		if !permit.acquire() {
			return nil
		}
		defer permit.release()
	}
	defer m.returnTokens()
	pace := newPace(ctx, m.pacemaker())
	if ranked || !pace.isYielding {
		m.extension = multiExtension{isDecided: true, hasYielded: true}
	}
	for stop := false; !stop; {
		if pace.pollsToClock == pace.perClock {
			m.takeTokens()
		}
		n := m.poll()
		if m.isDone() {
			return nil
		}
		if n == 0 && pace.isYielding && !m.extendSpin() {
			m.yieldProcessor(&pace)
		} else if n == 0 {
			cpu.Pause()
		}
		stop, err = pace.next(n, permit)
	}
	return err
}

// extendSpin reports whether a wait that is about to yield polls once more instead. No lock is held.
func (m *MultiWait) extendSpin() bool {
	x, e := &m.extension, m.engines[0].Engine
	if !x.isDecided {
		x.isDecided = true
		e.Lock()
		x.remainingPolls = e.extendSpin() / len(m.engines)
		e.Unlock()
	}
	if x.remainingPolls == 0 {
		return false
	}
	x.remainingPolls--
	return true
}

// yieldProcessor counts the first yield for the history, and yields. No lock is held.
func (m *MultiWait) yieldProcessor(p *pace) {
	if x, e := &m.extension, m.engines[0].Engine; !x.hasYielded {
		x.hasYielded = true
		e.Lock()
		e.yieldCount++
		e.Unlock()
	}
	p.yieldProcessor()
}

// pacemaker returns the engine that determines the pace, which is a rank's if there is one.
func (m *MultiWait) pacemaker() *Engine {
	for _, x := range m.engines {
		if x.rankPart != nil {
			return x.Engine
		}
	}
	return m.engines[0].Engine
}

// takeTokens takes the poll tokens that are free.
func (m *MultiWait) takeTokens() {
	for i := range m.engines {
		x := &m.engines[i]
		if x.hasToken {
			continue
		}
		x.Lock()
		if !x.pollToken.isSet() {
			x.hasToken = true
			if x.rankPart != nil {
				x.startPollingRank()
			} else {
				x.pollToken.set()
				x.Engine.pollSessions++
			}
		}
		x.Unlock()
	}
}

// poll polls the engines of the poll tokens that the wait has.
func (m *MultiWait) poll() (n int) {
	for i := range m.engines {
		x := &m.engines[i]
		if !x.hasToken {
			continue
		}
		x.Lock()
		n += x.Engine.poll()
		x.release(false, m)
		if m.isDone() {
			break
		}
	}
	return n
}

// returnTokens returns the poll tokens, all of them before a task runs.
func (m *MultiWait) returnTokens() {
	for i := range m.engines {
		x := &m.engines[i]
		if !x.hasToken {
			continue
		}
		x.Lock()
		if x.rankPart != nil {
			x.clearPollingRank()
		} else {
			x.Engine.stopPolling()
		}
		x.Unlock()
	}
	for i := range m.engines {
		x := &m.engines[i]
		if !x.hasToken {
			continue
		}
		x.hasToken = false
		if x.rankPart != nil {
			x.Lock()
			x.Engine.poll() // Work published before the word was cleared.
			x.Release()
		}
	}
}

// park blocks until the wait is done or ctx ends. The processes' engines count it as
// parked.
func (m *MultiWait) park(ctx context.Context) error {
	for _, x := range m.engines {
		if x.rankPart != nil {
			x.Lock()
			x.rankPart.pollWord.addParked(1)
			x.Engine.poll() // Work published before the wait was counted.
			x.Release()
		} else {
			x.Lock()
			x.parkedWaits++
			polled := x.pollToken.isSet()
			x.Unlock()
			if !polled {
				x.progressGoroutine.wake()
			}
		}
	}
	var cancel <-chan struct{}
	if ctx != nil {
		cancel = ctx.Done()
	}
	var err error
	select {
	case <-m.waiter.wakeup:
	case <-cancel:
		err = context.Cause(ctx)
	}
	for _, x := range m.engines {
		if x.rankPart != nil {
			x.rankPart.pollWord.addParked(-1)
		} else {
			x.Lock()
			x.parkedWaits--
			x.Unlock()
		}
	}
	return err
}
