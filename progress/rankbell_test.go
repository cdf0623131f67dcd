package progress

import (
	"testing"
)

// post publishes a token and rings, as a collective does in shared memory.
func (m *mailbox) post() {
	m.published.Add(1)
	m.e.RankBell().Ring()
}

// parkReceiver starts a goroutine that waits for a token, and returns when it is parked.
func (m *mailbox) parkReceiver(t *testing.T) (received chan error) {
	received = make(chan error, 1)
	go func() { received <- m.receive(t.Context()) }()
	untilParked(m.e.processEngine, 1)
	return received
}

func TestRankBell_RungUnderAnotherRanksLock_WakesAfterItsRelease(t *testing.T) {
	p := newEngine(t, impatient)
	ringer, sleeper := newMailbox(t, p), newMailbox(t, p)
	received := sleeper.parkReceiver(t)
	polls := sleeper.polls.Load()
	ringer.e.Lock()
	sleeper.post()
	if sleeper.polls.Load() != polls {
		t.Error("the rank was polled under the lock of another rank")
	}
	ringer.e.Release()
	if err := <-received; err != nil {
		t.Error(err)
	}
}

func TestRankBell_RungWithoutLock_WakesAtFlush(t *testing.T) {
	p := newEngine(t, impatient)
	ringer, sleeper := newMailbox(t, p), newMailbox(t, p)
	received := sleeper.parkReceiver(t)
	sleeper.post()
	ringer.e.Flush()
	if err := <-received; err != nil {
		t.Error(err)
	}
}

func TestRankBell_NothingSleeps_IsNotDelivered(t *testing.T) {
	p := newEngine(t, impatient)
	ringer, busy := newMailbox(t, p), newMailbox(t, p)
	busy.post()
	ringer.e.Flush()
	if busy.polls.Load() != 0 {
		t.Error("a rank without parked waits was polled")
	}
}

func TestRankBell_OperationInBackground_IsDelivered(t *testing.T) {
	p := newEngine(t, impatient)
	ringer, computing := newMailbox(t, p), newMailbox(t, p)
	computing.e.Lock()
	computing.e.AddBackground(1)
	if !computing.e.Bell().Armed() {
		t.Error("the bell is not armed for an operation in the background")
	}
	computing.e.Release()
	computing.post()
	ringer.e.Flush()
	if computing.available != 1 {
		t.Errorf("%d tokens obtained, want 1", computing.available)
	}
	computing.e.Lock()
	computing.e.AddBackground(-1)
	computing.e.Release()
}

// A chain as long as the ranks of a large
// process, with the stack of one delivery.
func TestRankBell_EachRankRingsTheNext_RunsInOneExecution(t *testing.T) {
	const n = 10000
	p := newEngine(t, impatient)
	ranks := make([]*mailbox, n)
	depth, deepest := 0, 0
	for i := range ranks {
		m := newMailbox(t, p)
		ranks[i] = m
		m.e.Lock()
		m.e.AddBackground(1)
		m.e.Release()
	}
	for i, m := range ranks[:n-1] {
		m.onPoll = func() {
			depth++
			deepest = max(deepest, depth)
			ranks[i+1].post()
			depth--
		}
	}
	ranks[0].post()
	ranks[0].e.Flush()
	if last := ranks[n-1]; last.available != 1 || deepest != 1 {
		t.Errorf("the last rank obtained %d tokens, want 1; depth %d, want 1", last.available, deepest)
	}
}

// Each rank waits for a token of the one before, and
// parks at once.
func TestRankBell_RanksTakeTurns_NoWakeUpIsLost(t *testing.T) {
	const ranks, rounds = 5, 2000
	for _, processors := range []int{1, 2} {
		withProcessors(t, processors, func(t *testing.T) {
			p := newEngine(t, impatient)
			all := make([]*mailbox, ranks)
			for i := range all {
				all[i] = newMailbox(t, p)
			}
			done := make(chan error, ranks)
			for i, m := range all {
				go func() {
					for range rounds {
						if err := m.receive(t.Context()); err != nil {
							done <- err
							return
						}
						all[(i+1)%ranks].post()
						m.e.Flush()
					}
					done <- nil
				}()
			}
			all[0].post()
			all[1].e.Flush()
			for range ranks {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
