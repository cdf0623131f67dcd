package progress

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// mailbox is the source of a rank: a counter of tokens that other goroutines publish, as a
// ring counts cells.
type mailbox struct {
	e         *Engine
	word      PollWord
	published atomic.Int64
	polls     atomic.Int64

	// Guarded by e's lock.
	taken     int64 // of published
	available int64 // taken, and not received
	waiting   *Completion
	onPoll    func() // called for each token; may be nil
}

func newMailbox(t testing.TB, process *Engine) *mailbox {
	m := &mailbox{}
	m.e = process.NewRank(m, &m.word)
	t.Cleanup(m.e.Close)
	return m
}

func (m *mailbox) Poll() (n int) {
	m.polls.Add(1)
	for m.taken < m.published.Load() {
		m.taken++
		m.available++
		n++
		if m.onPoll != nil {
			m.onPoll()
		}
		if c := m.waiting; c != nil {
			m.waiting = nil
			m.e.Complete(c)
		}
	}
	return n
}

// send publishes a token.
func (m *mailbox) send() {
	m.published.Add(1)
	m.e.Deliver()
}

// start makes c complete when a token is available. Lock held.
func (m *mailbox) start(c *Completion) {
	c.Reset()
	if m.available > 0 {
		c.Set()
		return
	}
	m.waiting = c
}

// receive waits for a token and takes it.
func (m *mailbox) receive(ctx context.Context) error {
	m.e.Lock()
	defer m.e.Release()
	var c Completion
	m.start(&c)
	if err := m.e.Wait(ctx, &c, nil); err != nil {
		m.waiting = nil
		return err
	}
	m.available--
	return nil
}

// withProcessors runs f with GOMAXPROCS=n.
func withProcessors(t *testing.T, n int, f func(t *testing.T)) {
	t.Run(fmt.Sprintf("GOMAXPROCS=%d", n), func(t *testing.T) {
		before := runtime.GOMAXPROCS(n)
		defer func() {
			runtime.GOMAXPROCS(before)
			updateProcessors()
		}()
		f(t)
	})
}

// untilParked waits until n waits are parked with e.
func untilParked(e *Engine, n int64) {
	for parkedWaits(e) != n {
		runtime.Gosched()
	}
}

func parkedWaits(e *Engine) int64 {
	e.Lock()
	defer e.Unlock()
	return int64(e.parkedWaits) + e.parkedRanks.Load()
}

var impatient = Options{Spin: time.Nanosecond, Yield: time.Nanosecond}

func newEngine(t testing.TB, opt Options) *Engine {
	e := New(opt)
	t.Cleanup(e.Close)
	return e
}

func TestDeliver_NoWaitPolls_PollsForTheRank(t *testing.T) {
	m := newMailbox(t, newEngine(t, Options{}))
	m.send()
	if m.available != 1 {
		t.Errorf("%d tokens obtained, want 1", m.available)
	}
}

func TestDeliver_WaitPolls_IsLeftToItsLastPoll(t *testing.T) {
	m := newMailbox(t, newEngine(t, Options{}))
	m.e.Lock()
	m.e.startPollingRank()
	m.e.Unlock()
	m.send()
	if m.available != 0 || m.polls.Load() != 0 {
		t.Errorf("%d tokens obtained in %d polls while a wait polls, want none", m.available, m.polls.Load())
	}
	m.e.Lock()
	m.e.stopPollingRank()
	m.e.Unlock()
	if m.available != 1 || m.word.Polled() {
		t.Errorf("after the last poll: %d tokens, word set: %v", m.available, m.word.Polled())
	}
}

// lateSender publishes after each poll while a wait polls, and leaves the delivery to that wait.
type lateSender struct{ m *mailbox }

func (s lateSender) Poll() int {
	if s.m.word.Polled() {
		s.m.send()
	}
	return 0
}

func TestRankWait_PublishedAfterEachPoll_IsObtainedByTheLastPoll(t *testing.T) {
	for _, spin := range []time.Duration{time.Nanosecond, time.Hour} {
		m := newMailbox(t, newEngine(t, Options{Spin: spin, Yield: time.Nanosecond}))
		m.e.Add(lateSender{m})
		ctx, cancel := context.WithCancel(t.Context())
		var never Completion
		done := make(chan error)
		go func() {
			m.e.Lock()
			defer m.e.Release()
			done <- m.e.Wait(ctx, &never, nil)
		}()
		for m.published.Load() == 0 {
			runtime.Gosched()
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if m.available != m.published.Load() {
			t.Errorf("spin %v: %d tokens obtained of %d", spin, m.available, m.published.Load())
		}
	}
}

func TestDeliver_RankParked_WakesIt(t *testing.T) {
	m := newMailbox(t, newEngine(t, impatient))
	done := make(chan error)
	go func() { done <- m.receive(t.Context()) }()
	untilParked(m.e.processEngine, 1)
	m.send()
	if err := <-done; err != nil {
		t.Error(err)
	}
	untilParked(m.e.processEngine, 0)
}

// One wait of a rank polls. It completes another
// goroutine's request, which is parked.
func TestRankWait_OneOfTwoPolls_WakesTheOther(t *testing.T) {
	m := newMailbox(t, newEngine(t, Options{Spin: time.Hour}))
	ctx, cancel := context.WithCancel(t.Context())
	polling := make(chan error)
	go func() {
		var never Completion
		m.e.Lock()
		defer m.e.Release()
		polling <- m.e.Wait(ctx, &never, nil)
	}()
	for !m.word.Polled() {
		runtime.Gosched()
	}
	parked := make(chan error)
	go func() { parked <- m.receive(t.Context()) }()
	untilParked(m.e.processEngine, 1)
	m.send()
	if err := <-parked; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-polling; !errors.Is(err, context.Canceled) {
		t.Errorf("polling wait: %v", err)
	}
}

func TestRankWait_ContextEnds_ReturnsItsCause(t *testing.T) {
	for _, spin := range []time.Duration{time.Nanosecond, time.Hour} { // parked, and polling
		m := newMailbox(t, newEngine(t, Options{Spin: spin, Yield: time.Nanosecond}))
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		go func() { done <- m.receive(ctx) }()
		if spin == time.Hour {
			for !m.word.Polled() {
				runtime.Gosched()
			}
		} else {
			untilParked(m.e.processEngine, 1)
		}
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) {
			t.Errorf("spin %v: %v, want the cause", spin, err)
		}
		if m.word.Polled() || parkedWaits(m.e.processEngine) != 0 {
			t.Errorf("spin %v: the wait is still registered", spin)
		}
		m.send() // the rank is usable
		if err := m.receive(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestRankWait_CompletionHasAWaiter_ReturnsErrBusy(t *testing.T) {
	m := newMailbox(t, newEngine(t, impatient))
	var c Completion
	done := make(chan error)
	go func() {
		m.e.Lock()
		defer m.e.Release()
		m.start(&c)
		done <- m.e.Wait(t.Context(), &c, nil)
	}()
	untilParked(m.e.processEngine, 1)
	m.e.Lock()
	if err := m.e.Wait(t.Context(), &c, nil); !errors.Is(err, ErrBusy) {
		t.Errorf("second Wait: %v", err)
	}
	m.e.Unlock()
	m.send()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRankWait_EngineClosed_ReturnsErrClosed(t *testing.T) {
	process := newEngine(t, impatient)
	m := &mailbox{}
	m.e = process.NewRank(m, &m.word)
	m.e.Close()
	if err := m.receive(t.Context()); err == nil {
		t.Error("wait in a closed engine: no error")
	}
}

// TestRankWait_MoreRanksThanProcessors_AtMostGOMAXPROCSPoll counts the words that are set
// while 100 ranks wait and none may give up polling.
func TestRankWait_MoreRanksThanProcessors_AtMostGOMAXPROCSPoll(t *testing.T) {
	for _, procs := range []int{1, 2} {
		withProcessors(t, procs, func(t *testing.T) {
			const n = 100
			process := newEngine(t, Options{Spin: time.Hour})
			ms := make([]*mailbox, n)
			for i := range ms {
				ms[i] = newMailbox(t, process)
			}
			var wg sync.WaitGroup
			for _, m := range ms {
				wg.Go(func() {
					if err := m.receive(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			untilParked(process, int64(n-procs))
			for range 1000 {
				polling := 0
				for _, m := range ms {
					if m.word.Polled() {
						polling++
					}
				}
				if polling > procs {
					t.Fatalf("%d waits poll", polling)
				}
				runtime.Gosched()
			}
			for _, m := range ms {
				m.send()
			}
			wg.Wait()
			if permits.Load() != 0 {
				t.Errorf("%d permits are left", permits.Load())
			}
		})
	}
}

// TestRankWait_PublishedWhileItParks_IsNotLost races deliveries with waits that stop
// polling and park.
func TestRankWait_PublishedWhileItParks_IsNotLost(t *testing.T) {
	for _, procs := range []int{1, 2, 4} {
		withProcessors(t, procs, func(t *testing.T) {
			m := newMailbox(t, newEngine(t, impatient))
			const rounds = 5000
			next := make(chan struct{})
			go func() {
				for i := range rounds {
					<-next
					for range i % 7 {
						runtime.Gosched()
					}
					m.send()
				}
			}()
			for i := range rounds {
				next <- struct{}{}
				for range i % 5 {
					runtime.Gosched()
				}
				if err := m.receive(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// They need no processor either, since no
// source is polled.
func TestRanks_TenThousandBlocked_NeedFewThreads(t *testing.T) {
	before := threads(t)
	const n = 10000
	process := newEngine(t, Options{})
	ms := make([]*mailbox, n)
	var wg sync.WaitGroup
	for i := range ms {
		ms[i] = newMailbox(t, process)
		wg.Go(func() {
			if err := ms[i].receive(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	untilParked(process, n)
	asleep(process)
	if got := threads(t); got > before+20 {
		t.Errorf("%d threads for %d blocked ranks, %d before", got, n, before)
	}
	polls := func() (sum int64) {
		for _, m := range ms {
			sum += m.polls.Load()
		}
		return sum
	}
	p := polls()
	time.Sleep(50 * time.Millisecond) // the time in which polls would be counted
	if more := polls() - p; more != 0 {
		t.Errorf("%d polls while all ranks are blocked", more)
	}
	for _, m := range ms {
		m.send()
	}
	wg.Wait()
}

// network is a source of the process's engine that delivers tokens to ranks, like a PML below that delivers messages of other processes.
type network struct {
	box
	to []*mailbox
}

func (s *network) Poll() (n int) {
	for s.taken < s.arrived.Load() {
		m := s.to[s.taken%int64(len(s.to))]
		s.taken++
		n++
		m.published.Add(1)
		m.e.DeliverUnder()
	}
	return n
}

// The process's engine is
// polled by one of the ranks' waits, or by the progress goroutine.
func TestRanks_MessagesOfOtherProcesses_ReachParkedAndPollingRanks(t *testing.T) {
	for _, opt := range []Options{impatient, {}, {Spin: time.Hour}} {
		for _, procs := range []int{1, 2} {
			withProcessors(t, procs, func(t *testing.T) {
				process := newEngine(t, opt)
				mem := make([]byte, BellSize)
				release, err := process.Bell().Share(mem)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(release)
				s := &network{box: box{e: process, bell: BellAt(mem)}}
				const ranks, rounds = 8, 300
				for range ranks {
					s.to = append(s.to, newMailbox(t, process))
				}
				process.Add(s)
				defer process.Remove(s)
				var wg sync.WaitGroup
				for _, m := range s.to {
					wg.Go(func() {
						for range rounds {
							if err := m.receive(t.Context()); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				for i := range ranks * rounds {
					if i%17 == 0 {
						runtime.Gosched()
					}
					s.post()
				}
				wg.Wait()
			})
		}
	}
}

// TestRanks_EachWaitsForOthers_AllFinish passes tokens around a ring of many ranks, whose
// waits all depend on each other.
func TestRanks_EachWaitsForOthers_AllFinish(t *testing.T) {
	for _, procs := range []int{1, 2} {
		withProcessors(t, procs, func(t *testing.T) {
			for _, n := range []int{2, 100} {
				process := newEngine(t, Options{})
				ms := make([]*mailbox, n)
				for i := range ms {
					ms[i] = newMailbox(t, process)
				}
				var wg sync.WaitGroup
				for i, m := range ms {
					wg.Go(func() {
						for round := range 100 {
							ms[(i+1)%n].send()
							if round%3 == 0 {
								ms[(i+n-1)%n].send()
							}
							if err := m.receive(t.Context()); err != nil {
								t.Error(err)
								return
							}
							if round%3 == 0 {
								if err := m.receive(t.Context()); err != nil {
									t.Error(err)
									return
								}
							}
						}
					})
				}
				wg.Wait()
			}
		})
	}
}

// BenchmarkRanks_Ring passes one token around a ring of ranks. The result is the time per rank.
func BenchmarkRanks_Ring(b *testing.B) {
	for _, n := range []int{2, 100, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			process := newEngine(b, Options{})
			ms := make([]*mailbox, n)
			for i := range ms {
				ms[i] = newMailbox(b, process)
			}
			hops := b.N
			var wg sync.WaitGroup
			b.ResetTimer()
			for i, m := range ms {
				wg.Go(func() {
					for hop := i; hop < hops; hop += n {
						if err := m.receive(nil); err != nil {
							b.Error(err)
						}
						ms[(i+1)%n].send()
					}
				})
			}
			ms[0].send()
			wg.Wait()
		})
	}
}

// This is the contract of PollWord.HasParked. A goroutine that publishes after the count delivers, and work published before is found.
func TestPark_WaitOfRank_IsCountedAndPollsOnceMore(t *testing.T) {
	process := newEngine(t, impatient)
	m := newMailbox(t, process)
	m.published.Add(1) // without Deliver: no wait is parked
	if err := m.receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if err := m.receive(t.Context()); err != nil {
				t.Error(err)
			}
		})
		for !m.word.HasParked() {
			runtime.Gosched()
		}
		m.send()
		wg.Wait()
		if m.word.HasParked() {
			t.Fatal("a wait that has returned is counted")
		}
	}
}
