package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// Faults and bad input of goroutine ranks.

// The error names the rank. Messages, other
// communicators and the parent work on.
func TestThreadComm_ContextEndsInACollective_BreaksThatCommunicatorInAllRanks(t *testing.T) {
	const ranks = 5
	_, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, ranks)
	if err != nil {
		t.Fatal(err)
	}
	defer tc.Close()
	err = tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
		for i, collective := range []func(context.Context, *mpi.Comm) error{
			mpi.Barrier,
			func(ctx context.Context, d *mpi.Comm) error { _, err := allgather(ctx, d, 1); return err },
			func(ctx context.Context, d *mpi.Comm) error { _, err := d.Split(ctx, 0, 0); return err },
		} {
			name := []string{"barrier", "allreduce", "split"}[i]
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			if c.Rank() == 3 { // The others enter, and wait for it.
				ended, cancel := context.WithCancelCause(ctx)
				cancel(errMine)
				if err := collective(ended, d); !errors.Is(err, errMine) {
					return fmt.Errorf("%s: %v", name, err)
				}
			} else if err := collective(ctx, d); !errors.Is(err, mpi.ErrBroken) || !strings.Contains(err.Error(), "rank 3") || strings.Contains(err.Error(), "rank 0") {
				return fmt.Errorf("%s: %v", name, err)
			}
			if err := wants(name, mpi.Barrier(ctx, d), mpi.ErrBroken); err != nil {
				return err
			}
			next, previous := (c.Rank()+1)%ranks, (c.Rank()+ranks-1)%ranks
			if st, err := d.Sendrecv(ctx, []byte{1}, next, 0, make([]byte, 1), previous, 0); err != nil || st.Source != previous {
				return fmt.Errorf("%s: a message: %+v, %v", name, st, err)
			}
			if err := errors.Join(d.Close(), mpi.Barrier(ctx, c)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, mpi.Barrier(t.Context(), parent)); err != nil {
		t.Error(err)
	}
}

// Before the match, the end of a context withdraws an operation. After the match, the operation completes.
func TestThreadComm_ContextEndsBeforeTheMatch_WithdrawsTheOperation(t *testing.T) {
	large := pattern(1<<20, 1)
	inThreads(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			if _, err := c.Recv(ctx, nil, 0, 1); err != nil { // Rank 0 has withdrawn its operations.
				return err
			}
			st, ok, err := c.Iprobe(0, 9)
			if ok || err != nil {
				return fmt.Errorf("a message that was withdrawn: %+v, %v", st, err)
			}
			got := make([]byte, len(large))
			_, err = c.Recv(ctx, got, 0, 3)
			return errors.Join(err, must(bytes.Equal(got, large), "other contents"), c.Send(ctx, []byte{7}, 0, 4))
		}
		waits := func(what string, f func(ctx context.Context) error) error {
			short, cancel := context.WithCancelCause(ctx)
			done := make(chan error, 1)
			go func() { done <- f(short) }()
			for range 20 {
				runtime.Gosched()
			}
			cancel(errMine)
			return wants(what, <-done, errMine)
		}
		err := errors.Join(
			waits("Ssend", func(ctx context.Context) error { return c.Ssend(ctx, []byte("x"), 1, 9) }),
			waits("Send", func(ctx context.Context) error { return c.Send(ctx, large, 1, 9) }),
			waits("Recv", func(ctx context.Context) error { _, err := c.Recv(ctx, nil, 1, mpi.AnyTag); return err }),
			waits("Recv from any", func(ctx context.Context) error { _, err := c.Recv(ctx, nil, mpi.AnySource, 4); return err }),
			waits("Mprobe", func(ctx context.Context) error { _, _, err := c.Mprobe(ctx, 1, 4); return err }),
			waits("Probe", func(ctx context.Context) error { _, err := c.Probe(ctx, mpi.AnySource, 4); return err }),
			c.Send(ctx, nil, 1, 1))
		if err != nil {
			return err
		}
		// A matched send completes, independent of its context.
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		q, err := c.Isend(large, 1, 3)
		if err != nil {
			return err
		}
		var got [1]byte
		if _, err := c.Recv(ctx, got[:], 1, 4); err != nil || got[0] != 7 {
			return fmt.Errorf("the answer: %v, %v", got, err)
		}
		cancel()
		_, err = q.Wait(short)
		return err
	})
}

// TestThreadComm_RankHasNotStarted_MessagesWaitForIt in the order of their sends, without limit.
func TestThreadComm_RankHasNotStarted_MessagesWaitForIt(t *testing.T) {
	tc := threadComm(t, 2)
	ctx := t.Context()
	a, err := tc.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const messages = 500
	var sends []mpi.Request
	for i := range messages {
		start := a.Isend
		if i%7 == 0 {
			start = a.Issend
		}
		q, err := start(pattern(1+i*100, i), 1, i%3)
		if err != nil {
			t.Fatal(err)
		}
		sends = append(sends, q)
	}
	child, err := a.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	early, err := child.Isend([]byte("early"), 1, 0) // Send waits when many messages are unmatched.
	if err != nil {
		t.Fatal(err)
	}
	sends = append(sends, early)
	b, err := tc.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, messages*100)
	for i := range messages {
		st, err := b.Recv(ctx, buf, 0, mpi.AnyTag)
		if err != nil || st.Tag != i%3 || !bytes.Equal(buf[:st.Bytes], pattern(1+i*100, i)) {
			t.Fatalf("message %d: %+v, %v", i, st, err)
		}
	}
	other, err := b.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := other.Recv(ctx, buf, mpi.AnySource, mpi.AnyTag); err != nil || string(buf[:st.Bytes]) != "early" {
		t.Errorf("%q, %v", buf[:st.Bytes], err)
	}
	if err := mpi.WaitAll(ctx, sends, nil); err != nil {
		t.Error(err)
	}
	if err := errors.Join(child.Close(), other.Close(), tc.Finish(ctx, a), tc.Finish(ctx, b)); err != nil {
		t.Error(err)
	}
}

// Sends complete, and synchronous ones fail. So do those to
// a rank that has finished.
func TestThreadComm_ReceiverHasClosed_MessagesAreDroppedAndCounted(t *testing.T) {
	s, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 2)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	a, err := tc.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b, err := tc.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	child, err := a.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	its, err := b.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, to *mpi.Comm) {
		t.Helper()
		before := droppedOf(s)
		for _, size := range []int{0, 8, 1000, 1 << 20} {
			if err := to.Send(ctx, make([]byte, size), 1, 0); err != nil {
				t.Errorf("%s: Send of %d bytes: %v", what, size, err)
			}
			if err := to.Ssend(ctx, make([]byte, size), 1, 0); !errors.Is(err, mpi.ErrTransport) {
				t.Errorf("%s: Ssend of %d bytes: %v", what, size, err)
			}
		}
		if n := droppedOf(s) - before; n != 8 {
			t.Errorf("%s: %d messages are counted as dropped", what, n)
		}
	}
	waiting, err := child.Issend(nil, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := its.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.Wait(ctx); !errors.Is(err, mpi.ErrTransport) {
		t.Errorf("Issend that waited: %v", err)
	}
	check("closed duplicate", child)
	if err := tc.Finish(ctx, b); err != nil {
		t.Fatal(err)
	}
	check("finished rank", a)
	if err := errors.Join(child.Close(), tc.Finish(ctx, a), tc.Close()); err != nil {
		t.Error(err)
	}
}

// droppedOf counts the messages between goroutine ranks that were dropped.
func droppedOf(s *mpi.Session) uint64 {
	for _, p := range s.Stats().Peers {
		if p.Transport == "threads" {
			return p.Dropped
		}
	}
	return 0
}

// The others wait in creations of all kinds. The rank fails at random times.
func TestThreadComm_RankFailsWhileOthersCreate_AllEnd(t *testing.T) {
	noLeak(t)
	rounds := 25
	if underRace {
		rounds = 5
	}
	seed := seed(t)
	s, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 6)
	if err != nil {
		t.Fatal(err)
	}
	idup := func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) {
		r, err := c.Idup()
		if err != nil {
			return nil, err
		}
		return r.Wait(ctx)
	}
	with := func(f func(context.Context, *mpi.Comm) error) func(context.Context, *mpi.Comm) (*mpi.Comm, error) {
		return func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { return nil, f(ctx, c) }
	}
	for name, call := range map[string]func(context.Context, *mpi.Comm) (*mpi.Comm, error){
		"Dup":         func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { return c.Dup(ctx) },
		"Split":       func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { return c.Split(ctx, c.Rank()%2, 0) },
		"Create":      func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { return c.Create(ctx, c.Group()) },
		"CreateGroup": func(ctx context.Context, c *mpi.Comm) (*mpi.Comm, error) { return c.CreateGroup(ctx, c.Group(), 1) },
		"Idup":        idup,
		"Ibarrier": with(func(ctx context.Context, c *mpi.Comm) error {
			q, err := mpi.Ibarrier(c)
			if err == nil {
				_, err = q.Wait(ctx)
			}
			return err
		}),
		"Sendrecv": with(func(ctx context.Context, c *mpi.Comm) error {
			b := make([]byte, 100_000)
			_, err := c.Sendrecv(ctx, b, (c.Rank()+1)%6, 0, make([]byte, len(b)), (c.Rank()+5)%6, 0)
			return err
		}),
		"WaitAny": with(func(ctx context.Context, c *mpi.Comm) error {
			var qs []mpi.Request
			for to := range 6 {
				recv, err := c.Irecv(make([]byte, 10), to, 3)
				if err != nil {
					return err
				}
				send, err := c.Issend(make([]byte, 10), to, 3)
				if err != nil {
					return err
				}
				qs = append(qs, recv, send)
			}
			for range qs {
				if _, _, err := mpi.WaitAny(ctx, qs); err != nil {
					return err
				}
			}
			return nil
		}),
	} {
		for round := range rounds {
			rng := rand.New(rand.NewPCG(uint64(seed), uint64(round)))
			fails, after, panics := rng.IntN(6), rng.IntN(30), round%3 == 0
			var raised any
			run := func() (err error) {
				defer func() { raised = recover() }()
				return tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
					for i := 0; ; i++ {
						if c.Rank() == fails && i == after {
							if panics {
								panic(errMine)
							}
							return errMine
						}
						d, err := call(ctx, c)
						if err != nil {
							if !errors.Is(err, mpi.ErrBroken) && !errors.Is(err, mpi.ErrCanceled) {
								t.Errorf("%s: rank %d: %v", name, c.Rank(), err)
							}
							return err
						}
						if d != nil {
							_ = d.Close()
						}
						if name == "Dup" || name == "Idup" { // They do not block.
							if err := mpi.Barrier(ctx, c); err != nil {
								return err
							}
						}
					}
				})
			}
			if err := run(); panics && raised != errMine || !panics && err != errMine {
				t.Fatalf("%s, round %d: Run returns %v, raises %v", name, round, err, raised)
			}
		}
	}
	if err := errors.Join(tc.Close(), parent.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

// TestThreadComm_RankFails_SendsToRanksThatEndFirstReportTheFailure, and not a closed communicator.
func TestThreadComm_RankFails_SendsToRanksThatEndFirstReportTheFailure(t *testing.T) {
	const ranks = 200
	tc := threadComm(t, ranks)
	for range 5 {
		err := tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
			var err error
			switch c.Rank() {
			case ranks - 1:
				return errMine
			case 0:
				_, err = c.Recv(ctx, nil, 0, 1)
			default:
				err = c.Ssend(ctx, nil, 0, 2)
			}
			if !errors.Is(err, mpi.ErrBroken) || !errors.Is(err, errMine) || !strings.Contains(err.Error(), "rank 199") {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
			return err
		})
		if err != errMine {
			t.Fatal(err)
		}
	}
}

// TestThreadComm_AllRanksFailAtOnce_RunReturnsOneOfTheErrors, and the thread communicator can be used again.
func TestThreadComm_AllRanksFailAtOnce_RunReturnsOneOfTheErrors(t *testing.T) {
	noLeak(t)
	tc := threadComm(t, 50)
	var mu sync.Mutex
	for round := range 20 {
		errs := map[error]bool{}
		err := tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
			err := fmt.Errorf("rank %d: %w", c.Rank(), errMine)
			mu.Lock()
			errs[err] = true
			mu.Unlock()
			return err
		})
		if !errs[err] {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error { return mpi.Barrier(ctx, c) }); err != nil {
			t.Fatal(err)
		}
	}
}

// Ranks of different activations are different members.
func TestCreate_GroupOfAnotherActivation_IsErrGroup(t *testing.T) {
	_, parent := singleton(t)
	tc := threadComm(t, 2)
	var earlier *mpi.Group
	for round := range 2 {
		err := tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
			if round == 0 {
				if c.Rank() == 0 {
					earlier = c.Group()
				}
				return nil
			}
			_, create := c.Create(ctx, earlier)
			_, createGroup := c.CreateGroup(ctx, parent.Group(), 1)
			_, fromGroup := mpi.CommFromGroup(ctx, parent.Group().Union(c.Group()), "both")
			_, below := parent.Create(ctx, c.Group())
			return errors.Join(wants("create", create, mpi.ErrGroup), wants("create group", createGroup, mpi.ErrGroup),
				wants("from group", fromGroup, mpi.ErrGroup), wants("create of the parent", below, mpi.ErrGroup),
				must(earlier.Compare(c.Group()) == mpi.Unequal, "equal groups of two activations"), mpi.Barrier(ctx, c))
		})
		if err != nil {
			t.Error(err)
		}
	}
}
