package progress

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type taskFunc func(*Tasks)

func (f taskFunc) Run(t *Tasks) { f(t) }

func TestTasks_DeferredUnderTheLock_RunAfterReleaseInOrder(t *testing.T) {
	m := newMailbox(t, newEngine(t, Options{}))
	var order []int
	m.e.Lock()
	for i := range 3 {
		m.e.Defer(taskFunc(func(*Tasks) {
			m.e.Lock() // it is free
			order = append(order, i)
			if i == 0 {
				m.e.Defer(taskFunc(func(*Tasks) { order = append(order, 3) }))
			}
			m.e.Release() // another task runs: this one's run continues with what is deferred
		}))
	}
	if len(order) > 0 {
		t.Error("a task ran under the lock")
	}
	m.e.Release()
	if want := []int{0, 1, 2, 3}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

// Whatever polls a rank also runs its tasks.
func TestTasks_DeferredByAPoll_RunInEachCall(t *testing.T) {
	process := newEngine(t, impatient)
	m := newMailbox(t, process)
	var runs atomic.Int64
	m.onPoll = func() { m.e.Defer(taskFunc(func(*Tasks) { runs.Add(1) })) }
	m.send()
	m.e.Lock()
	m.published.Add(1)
	m.e.Progress()
	m.e.Unlock()
	m.published.Add(1)
	process.Lock()
	m.e.DeliverUnder()
	process.Unlock()
	if runs.Load() != 3 {
		t.Errorf("Deliver, Progress and DeliverUnder have run %d tasks", runs.Load())
	}
	m.available = 0
	done := make(chan error)
	go func() { done <- m.receive(t.Context()) }()
	untilParked(process, 1)
	m.send()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if runs.Load() != 4 {
		t.Errorf("after a wait: %d tasks", runs.Load())
	}
}

// A send that was started under the lock is not
// forgotten by a wait that may not poll.
func TestTasks_DeferredBeforeAWaitParks_Run(t *testing.T) {
	for _, polled := range []bool{false, true} { // whether another wait polls for the rank
		m := newMailbox(t, newEngine(t, Options{}))
		permits.Add(1000)
		openRanks.Add(1000) // no further permits
		m.e.Lock()
		if polled {
			m.e.startPollingRank()
		}
		var c Completion
		m.start(&c)
		m.e.Defer(taskFunc(func(*Tasks) {
			m.published.Add(1)
			m.e.Lock()
			m.e.poll()
			m.e.Release()
		}))
		if err := m.e.Wait(t.Context(), &c, nil); err != nil {
			t.Error(err)
		}
		if polled {
			m.e.stopPollingRank()
		}
		m.e.Unlock()
		permits.Add(-1000)
		openRanks.Add(-1000)
	}
}

// Each rank's task delivers to the next rank.
func TestTasks_ChainOfRanks_NeedsNoStackPerRank(t *testing.T) {
	process := newEngine(t, Options{})
	const n = 1000
	ms := make([]*mailbox, n)
	depth := make([]int, n)
	for i := range ms {
		ms[i] = newMailbox(t, process)
		if i == 0 {
			continue
		}
		ms[i-1].onPoll = func() {
			ms[i-1].e.Defer(taskFunc(func(ts *Tasks) {
				depth[i] = runtime.Callers(0, make([]uintptr, 10*n))
				ms[i].published.Add(1)
				ts.Deliver(ms[i].e)
			}))
		}
	}
	ms[0].send()
	if ms[n-1].available != 1 {
		t.Fatal("the last rank has not been reached")
	}
	if depth[n-1] != depth[1] {
		t.Errorf("%d frames at the first rank, %d at the last", depth[1], depth[n-1])
	}
}

func TestTasks_UnderTheProcessesLock_DoNotAcquireItAgain(t *testing.T) {
	process := newEngine(t, Options{})
	m := newMailbox(t, process)
	ran := 0
	task := taskFunc(func(ts *Tasks) {
		ts.LockProcess(process)
		ran++
		if process.TryLock() {
			t.Error("the process's lock is free in a task that has acquired it")
		}
		ts.UnlockProcess(process)
	})
	m.e.Lock()
	m.e.Defer(task)
	m.e.Release()
	process.Lock()
	m.e.Lock()
	m.e.Defer(task)
	m.e.ReleaseUnder()
	if process.TryLock() {
		t.Error("the process's lock was released")
	}
	process.Unlock()
	if ran != 2 {
		t.Errorf("%d tasks ran, want 2", ran)
	}
}

// Several goroutines release a rank at the
// same time; its tasks run one at a time.
func TestTasks_ManyGoroutines_RunEachOnceAndInOrder(t *testing.T) {
	process := newEngine(t, Options{})
	ms := []*mailbox{newMailbox(t, process), newMailbox(t, process)}
	const each, goroutines = 2000, 4
	deferred, ran := make([]int, 2), make([]int, 2)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				k := (g + i) % 2
				m, other := ms[k], ms[1-k]
				m.e.Lock()
				n := deferred[k]
				deferred[k]++
				m.e.Defer(taskFunc(func(ts *Tasks) {
					if ran[k] != n { // no lock: one task of a rank runs at a time
						t.Errorf("task %d ran in place %d", n, ran[k])
					}
					ran[k]++
					other.published.Add(1)
					ts.Deliver(other.e)
				}))
				m.e.Release()
			}
		})
	}
	wg.Wait()
	for k, m := range ms {
		m.e.Lock()
		if ran[k] != deferred[k] || m.available != int64(ran[1-k]) || m.e.rankPart.taskQueue.isRunning {
			t.Errorf("rank %d: %d of %d tasks ran, %d tokens of %d", k, ran[k], deferred[k], m.available, ran[1-k])
		}
		m.e.Unlock()
	}
}

func TestDefer_SteadyState_DoesNotAllocate(t *testing.T) {
	m := newMailbox(t, newEngine(t, Options{Spin: time.Hour}))
	task := Task(taskFunc(func(*Tasks) {}))
	m.onPoll = func() { m.e.Defer(task) }
	var c Completion
	if n := testing.AllocsPerRun(100, func() {
		m.send()
		m.published.Add(1) // the wait obtains it
		for range 2 {
			m.e.Lock()
			m.start(&c)
			if err := m.e.Wait(nil, &c, nil); err != nil {
				t.Error(err)
			}
			m.available--
			m.e.Release()
		}
	}); n > 0 {
		t.Errorf("%v allocations per delivery", n)
	}
}
