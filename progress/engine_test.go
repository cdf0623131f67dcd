package progress

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/doorbell"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a source with work from other goroutines, as through shared memory. post adds work and rings.
type box struct {
	e       *Engine
	bell    RemoteBell
	arrived atomic.Int64
	taken   int64
	waits   []*Completion // the i-th thing completes the i-th
	polls   atomic.Int64
}

func (b *box) Poll() (n int) {
	b.polls.Add(1)
	for b.taken < b.arrived.Load() {
		if int(b.taken) < len(b.waits) {
			b.e.Complete(b.waits[b.taken])
		}
		b.taken++
		n++
	}
	return n
}

func (b *box) post() {
	b.arrived.Add(1)
	b.bell.Ring()
}

func newBox(t *testing.T, opt Options) *box {
	t.Helper()
	e := New(opt)
	mem := make([]byte, BellSize)
	release, err := e.Bell().Share(mem)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{e: e, bell: BellAt(mem)}
	e.Add(b)
	t.Cleanup(func() {
		e.Remove(b)
		release()
		e.Close()
	})
	return b
}

// asleep waits until the progress goroutine sleeps on the bell.
func asleep(e *Engine) {
	for {
		e.progressGoroutine.mu.Lock()
		ok := e.progressGoroutine.sleepBell != doorbell.Bell{}
		e.progressGoroutine.mu.Unlock()
		if ok {
			return
		}
		runtime.Gosched()
	}
}

// Rings race with falling asleep. Each ring must end a wait.
func TestBell_RingsRaceWithSleep_AllWake(t *testing.T) {
	b := newBox(t, Options{Spin: time.Nanosecond, Yield: time.Nanosecond})
	const rounds = 3000
	next := make(chan struct{})
	go func() {
		for range rounds {
			<-next
			b.post()
		}
	}()
	for i := range rounds {
		var c Completion
		b.e.Lock()
		b.waits = append(b.waits, &c)
		b.e.Unlock()
		next <- struct{}{}
		if i%3 == 0 {
			runtime.Gosched() // another interleaving
		}
		b.e.Lock()
		err := b.e.Wait(context.Background(), &c, nil)
		b.e.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Work arrives while the program computes, and no goroutine is in a call.
func TestProgressGoroutine_NoWait_MakesProgress(t *testing.T) {
	b := newBox(t, Options{})
	for range 20 {
		asleep(b.e)
		b.e.Lock()
		want := b.taken + 1
		b.e.Unlock()
		b.post()
		for {
			b.e.Lock()
			taken := b.taken
			b.e.Unlock()
			if taken == want {
				break
			}
			runtime.Gosched()
		}
	}
}

// 10,000 goroutines wait, and none holds a thread.
func TestWait_ManyBlocked_ShareOneThread(t *testing.T) {
	before := threads(t) // of other tests; the runtime keeps them
	b := newBox(t, Options{})
	const n = 10000
	cs := make([]Completion, n)
	b.e.Lock()
	for i := range cs {
		b.waits = append(b.waits, &cs[i])
	}
	b.e.Unlock()
	var wg sync.WaitGroup
	for i := range cs {
		wg.Go(func() {
			b.e.Lock()
			defer b.e.Unlock()
			if err := b.e.Wait(context.Background(), &cs[i], nil); err != nil {
				t.Error(err)
			}
		})
	}
	for {
		b.e.Lock()
		parked := b.e.parkedWaits
		b.e.Unlock()
		if parked == n {
			break
		}
		runtime.Gosched()
	}
	if got := threads(t); got > before+20 {
		t.Errorf("%d threads for %d waiting goroutines, %d before", got, n, before)
	}
	for range n {
		b.post()
	}
	wg.Wait()
}

func threads(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	for line := range strings.Lines(string(status)) {
		if s, ok := strings.CutPrefix(line, "Threads:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(s))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no line Threads in /proc/self/status")
	return 0
}

// No goroutine polls while a wait is parked and no work arrives.
func TestWait_Idle_DoesNotPoll(t *testing.T) {
	b := newBox(t, Options{})
	var c Completion
	b.e.Lock()
	b.waits = append(b.waits, &c)
	b.e.Unlock()
	done := make(chan error)
	go func() {
		b.e.Lock()
		err := b.e.Wait(context.Background(), &c, nil)
		b.e.Unlock()
		done <- err
	}()
	for {
		b.e.Lock()
		parked := b.e.parkedWaits
		b.e.Unlock()
		if parked == 1 {
			break
		}
		runtime.Gosched()
	}
	asleep(b.e)
	before := b.polls.Load()
	time.Sleep(50 * time.Millisecond) // Polls would be counted during this time.
	if polls := b.polls.Load() - before; polls > 2 {
		t.Errorf("%d polls while everybody sleeps", polls)
	}
	b.post()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestWait_ContextEnds_CompletionStaysPending(t *testing.T) {
	b := newBox(t, Options{})
	cause := errors.New("enough")
	for _, spin := range []time.Duration{time.Nanosecond, time.Hour} { // parked, and active
		b.e.spinTime = spin
		ctx, cancel := context.WithCancelCause(context.Background())
		var c Completion
		go func() {
			for b.polls.Load() < 1000 && spin == time.Hour {
				runtime.Gosched()
			}
			cancel(cause)
		}()
		b.e.Lock()
		err := b.e.Wait(ctx, &c, nil)
		if !errors.Is(err, cause) {
			t.Errorf("got %v, want the context's cause", err)
		}
		if c.Done() {
			t.Error("the completion is done")
		}
		// It can be waited for again, and completes.
		b.waits = []*Completion{&c}
		b.taken = 0
		b.arrived.Store(0)
		b.e.Unlock()
		b.post()
		b.e.Lock()
		if err := b.e.Wait(context.Background(), &c, nil); err != nil {
			t.Error(err)
		}
		b.e.Unlock()
	}
}

// A goroutine that polls for a long time must not keep others from the lock.
func TestWait_LongPolling_AdmitsLockWaiters(t *testing.T) {
	b := newBox(t, Options{Spin: time.Hour})
	var c Completion
	b.waits = []*Completion{&c}
	done := make(chan error)
	go func() {
		b.e.Lock()
		err := b.e.Wait(context.Background(), &c, nil)
		b.e.Unlock()
		done <- err
	}()
	for b.polls.Load() < 1000 {
		runtime.Gosched()
	}
	for range 1000 {
		b.e.Lock()
		if !b.e.pollToken.isSet() {
			t.Error("the poll token was lost")
		}
		b.e.Unlock()
	}
	b.post()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestWait_SecondWaiter_ReturnsErrBusy(t *testing.T) {
	b := newBox(t, Options{Spin: time.Nanosecond, Yield: time.Nanosecond})
	var c Completion
	b.waits = []*Completion{&c}
	done := make(chan error)
	go func() {
		b.e.Lock()
		err := b.e.Wait(context.Background(), &c, nil)
		b.e.Unlock()
		done <- err
	}()
	for {
		b.e.Lock()
		if c.waiter != nil {
			break
		}
		b.e.Unlock()
		runtime.Gosched()
	}
	if err := b.e.Wait(context.Background(), &c, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("Wait: %v", err)
	}
	if err := b.e.WaitAny(context.Background(), []*Completion{nil, &c}); !errors.Is(err, ErrBusy) {
		t.Errorf("WaitAny: %v", err)
	}
	b.e.Unlock()
	b.post()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestWaitAny_EachCompletion_EndsWait(t *testing.T) {
	for _, spin := range []time.Duration{time.Nanosecond, time.Hour} {
		b := newBox(t, Options{Spin: spin, Yield: time.Nanosecond})
		for i := range 3 {
			cs := make([]*Completion, 3)
			for j := range cs {
				cs[j] = new(Completion)
			}
			b.e.Lock()
			b.waits, b.taken = []*Completion{cs[i]}, 0
			b.arrived.Store(0)
			b.e.Unlock()
			go b.post()
			b.e.Lock()
			if err := b.e.WaitAny(context.Background(), cs); err != nil {
				t.Fatal(err)
			}
			for j, c := range cs {
				if c.Done() != (j == i) || c.waiter != nil {
					t.Fatalf("completion %d: done %v, waiter left: %v", j, c.Done(), c.waiter != nil)
				}
			}
			b.e.Unlock()
		}
	}
}

// The progress goroutine has decided to sleep and has not armed the bell when the engine is closed and the bell is rung.
func TestClose_BeforeBellIsArmed_EndsProgressGoroutine(t *testing.T) {
	e := New(Options{})
	e.Lock()
	e.progressGoroutine.wake()
	for e.waiterCount.Load() == 0 { // until the progress goroutine waits for the lock
		runtime.Gosched()
	}
	// What stop does, at the worst moment.
	close(e.progressGoroutine.quit)
	e.Nudge()
	e.Unlock()
	select {
	case <-e.progressGoroutine.done:
	case <-time.After(10 * time.Second):
		t.Error("the progress goroutine sleeps, and no ring will wake it")
		e.bell.Ring()
	}
}

// pipe is a source that is awaited through a descriptor.
type pipe struct {
	e     *Engine
	r, w  int
	c     *Completion
	armed int
}

func (p *pipe) FD() int { return p.r }

func (p *pipe) Arm() bool { p.armed++; return true }

func (p *pipe) Poll() int {
	var b [16]byte
	n, _ := unix.Read(p.r, b[:])
	if n <= 0 {
		return 0
	}
	if p.c != nil {
		p.e.Complete(p.c)
	}
	return n
}

func newPipe(t *testing.T, e *Engine) *pipe {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return &pipe{e: e, r: fds[0], w: fds[1]}
}

// wrapper is a source in front of another one, as fault injection is.
type wrapper struct{ Source }

func (w wrapper) Unwrap() any { return w.Source }

func TestDescriptor_Readable_EndsSleep(t *testing.T) {
	t.Run("of a source", func(t *testing.T) { readable(t, func(p *pipe) Source { return p }) })
	t.Run("of a wrapped source", func(t *testing.T) { readable(t, func(p *pipe) Source { return wrapper{p} }) })
}

// wakes lets e sleep, and writes into a pipe of its sources, which ends a wait.
func wakes(t *testing.T, e *Engine, p *pipe) {
	t.Helper()
	var c Completion
	e.Lock()
	p.c = &c
	e.Unlock()
	asleep(e)
	go unix.Write(p.w, []byte{1})
	e.Lock()
	defer e.Unlock()
	if err := e.Wait(t.Context(), &c, nil); err != nil {
		t.Fatal(err)
	}
}

func readable(t *testing.T, source func(*pipe) Source) {
	e := New(Options{Spin: time.Nanosecond, Yield: time.Nanosecond})
	defer e.Close()
	p := newPipe(t, e)
	s := source(p)
	e.Add(s)
	defer e.Remove(s)
	for range 10 {
		wakes(t, e, p)
	}
	e.Lock()
	defer e.Unlock()
	if p.armed == 0 {
		t.Error("the source was never asked to arm")
	}
}

// clock is a source that can only be polled.
type clock struct {
	e *Engine
	n int
	c *Completion
}

func (c *clock) Interval() time.Duration { return 100 * time.Microsecond }

func (c *clock) Poll() int {
	if c.n++; c.n == 50 {
		c.e.Complete(c.c)
		return 1
	}
	return 0
}

func TestPolledSource_AllSleep_IsPolled(t *testing.T) {
	e := New(Options{Spin: time.Nanosecond, Yield: time.Nanosecond})
	defer e.Close()
	var done Completion
	c := &clock{e: e, c: &done}
	e.Add(c)
	defer e.Remove(c)
	e.Lock()
	defer e.Unlock()
	if err := e.Wait(context.Background(), &done, nil); err != nil {
		t.Fatal(err)
	}
}

// The memory is unmapped after the release.
func TestBellShare_ReleasedDuringSleep_MemoryIsUnused(t *testing.T) {
	e := New(Options{})
	defer e.Close()
	for range 20 {
		mem := make([]byte, BellSize)
		release, err := e.Bell().Share(mem)
		if err != nil {
			t.Fatal(err)
		}
		asleep(e)
		release()
		e.progressGoroutine.mu.Lock()
		if e.progressGoroutine.sleepBell == BellAt(mem).bell {
			t.Error("the progress goroutine still sleeps in memory that was taken back")
		}
		e.progressGoroutine.mu.Unlock()
		release() // No effect.
	}
}

// The second module that shares the bell gets an error. Peers of the first one can still ring.
func TestBellShare_SecondModule_ReturnsError(t *testing.T) {
	b := newBox(t, Options{Spin: time.Nanosecond, Yield: time.Nanosecond})
	if _, err := b.e.Bell().Share(make([]byte, BellSize)); err == nil {
		t.Fatal("the bell was given away twice")
	}
	var c Completion
	b.e.Lock()
	defer b.e.Unlock()
	b.waits = []*Completion{&c}
	go b.post()
	if err := b.e.Wait(t.Context(), &c, nil); err != nil {
		t.Error(err)
	}
}

// Otherwise two engines of one process whose sources publish work for each other would deadlock.
func TestBellRing_UnderAnotherEnginesLock_DoesNotBlock(t *testing.T) {
	engines := [2]*Engine{New(Options{}), New(Options{})}
	var wg sync.WaitGroup
	for i, e := range engines {
		wg.Go(func() {
			for range 2000 {
				e.Lock()
				runtime.Gosched()
				engines[1-i].Bell().Ring()
				e.Unlock()
			}
		})
	}
	wg.Wait()
	for _, e := range engines {
		e.Close()
	}
}

func BenchmarkLock(b *testing.B) {
	e := New(Options{})
	defer e.Close()
	for b.Loop() {
		e.Lock()
		e.Unlock() //lint:ignore SA2001 taking and leaving it is what is measured
	}
}

// counted is a source without any way to be awaited but being polled.
type counted struct{ polls atomic.Int64 }

func (c *counted) Poll() int               { c.polls.Add(1); return 0 }
func (c *counted) Interval() time.Duration { return time.Millisecond }

// The progress goroutine may sleep for up to a second, and has not armed the new source.
func TestAdd_ProgressGoroutineSleeps_SourceIsPolled(t *testing.T) {
	e := New(Options{Spin: time.Nanosecond, Yield: time.Nanosecond})
	defer e.Close()
	asleep(e)
	before := time.Now()
	late := &counted{}
	e.Add(late)
	defer e.Remove(late)
	for late.polls.Load() < 5 {
		if time.Since(before) > longestSleep {
			t.Fatalf("%d polls before the progress goroutine woke by itself", late.polls.Load())
		}
		time.Sleep(time.Millisecond)
	}
}
