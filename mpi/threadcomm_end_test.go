package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// How the ranks of a thread communicator end: Finish, the end of Run, Close, and their order.

func TestFinish_CommunicatorOfRun_IsErrGroup(t *testing.T) {
	tc := threadComm(t, 2)
	for range 2 { // The second Run needs the end of the first.
		err := tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
			return errors.Join(wants("finish", tc.Finish(ctx, c), mpi.ErrGroup), mpi.Barrier(ctx, c))
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestStart_EndedContext_TakesNoRank(t *testing.T) {
	tc := threadComm(t, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errMine)
	if _, err := tc.Start(ctx); !errors.Is(err, errMine) {
		t.Errorf("Start: %v", err)
	}
	c, err := tc.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tc.Finish(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// Once Close has succeeded, no rank has a communicator open, also
// in a goroutine that has not returned from Finish.
func TestClose_FinishIsInProgress_IsErrPending(t *testing.T) {
	tc := threadComm(t, 1)
	during := errors.New("the hook did not run")
	key := mpi.NewKey(mpi.KeyHooks[int]{Delete: func(int) { during = tc.Close() }})
	c, err := tc.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(mpi.SetAttr(c, key, 1), tc.Finish(t.Context(), c)); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(during, mpi.ErrPending) || !strings.Contains(during.Error(), "rank 0") {
		t.Errorf("Close during Finish: %v", during)
	}
	if err := tc.Close(); err != nil {
		t.Error(err)
	}
}

// TestRun_DeleteHookPanics_RaisesItsValue: Run closes what f has left open, and hooks of attributes run
// then.
func TestRun_DeleteHookPanics_RaisesItsValue(t *testing.T) {
	noLeak(t)
	for name, ends := range map[string]func(){"panic": func() { panic(errMine) }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			s, parent := singleton(t)
			tc, err := mpi.NewThreadComm(t.Context(), parent, 3)
			if err != nil {
				t.Fatal(err)
			}
			key := mpi.NewKey(mpi.KeyHooks[int]{Delete: func(int) { ends() }})
			run := func() (raised any, err error) {
				defer func() { raised = recover() }()
				return nil, tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
					d, err := c.Dup(ctx)
					if err == nil && c.Rank() == 1 {
						err = errors.Join(mpi.SetAttr(c, key, 1), mpi.SetAttr(d, key, 2))
					}
					return err
				})
			}
			raised, err := run()
			if name == "panic" && raised != errMine || name == "goexit" && (raised != nil || err == nil) {
				t.Errorf("Run raises %v, returns %v", raised, err)
			}
			if err := errors.Join(tc.Close(), parent.Close(), s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The panic reaches the caller of Finish, as that of Close does.
func TestFinish_DeleteHookPanics_FinishesTheRank(t *testing.T) {
	tc := threadComm(t, 1)
	key := mpi.NewKey(mpi.KeyHooks[int]{Delete: func(int) { panic(errMine) }})
	c, err := tc.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := mpi.SetAttr(c, key, 1); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if v := recover(); v != errMine {
				t.Errorf("Finish raises %v", v)
			}
		}()
		err := tc.Finish(t.Context(), c)
		t.Errorf("Finish returns %v", err)
	}()
	if err := tc.Finish(t.Context(), c); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("a second Finish: %v", err)
	}
	if err := tc.Close(); err != nil {
		t.Error(err)
	}
}

// TestThreadCommClose_CollectiveThatNobodyJoins_EndsIt: Run reports the collective, and the request fails once the
// ranks have no engine any more.
func TestThreadCommClose_CollectiveThatNobodyJoins_EndsIt(t *testing.T) {
	noLeak(t)
	s, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 3)
	if err != nil {
		t.Fatal(err)
	}
	var q mpi.Request
	err = tc.Run(t.Context(), func(_ context.Context, c *mpi.Comm) (err error) {
		if c.Rank() == 0 {
			q, err = mpi.Ibarrier(c)
		}
		return err
	})
	if !errors.Is(err, mpi.ErrPending) {
		t.Errorf("Run returns %v", err)
	}
	if err := tc.Close(); err != nil {
		t.Error(err)
	}
	if _, err := q.Wait(t.Context()); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("Wait returns %v", err)
	}
	if err := errors.Join(parent.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

// TestSessionClose_ThreadCommIsOpen_IsErrPending, also when the parent is closed, over which ranks go on.
func TestSessionClose_ThreadCommIsOpen_IsErrPending(t *testing.T) {
	s, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Close(); err != nil {
		t.Fatal(err)
	}
	err = tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
		sum, err := allgather(ctx, c, int64(c.Rank()))
		return errors.Join(err, must(len(sum) == 2 && sum[1] == 1, "%v", sum), wants("session", s.Close(), mpi.ErrPending),
			wants("thread communicator", tc.Close(), mpi.ErrPending), func() error { _, err := tc.Start(ctx); return wants("start", err, mpi.ErrPending) }())
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.Close(); !errors.Is(err, mpi.ErrPending) {
		t.Errorf("Close of the session: %v", err)
	}
	if err := errors.Join(tc.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if _, err := mpi.NewThreadComm(t.Context(), parent, 1); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("thread communicator of a closed communicator: %v", err)
	}
}

// Nothing that a rank has left touches another rank
// later.
func TestThreadCommClose_HandlesThatAreKept_AnswerErrClosed(t *testing.T) {
	noLeak(t)
	s, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 2)
	if err != nil {
		t.Fatal(err)
	}
	a, err := tc.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := tc.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	recv, err := a.Irecv(make([]byte, 1), 1, 7)
	if err != nil {
		t.Fatal(err)
	}
	send, err := a.Issend(make([]byte, 100_000), 1, 8)
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.RecvInit(make([]byte, 1), 1, 9)
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := b.Isend([]byte{5}, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := a.Mprobe(t.Context(), 1, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := claimed.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tc.Finish(t.Context(), a), tc.Finish(t.Context(), b), tc.Close()); err != nil {
		t.Fatal(err)
	}
	_, recvErr := recv.Wait(t.Context())
	_, sendErr := send.Wait(t.Context())
	var got [1]byte
	if _, err := m.Recv(t.Context(), got[:]); err != nil || got[0] != 5 {
		t.Errorf("claimed message: %v, %v", got, err)
	}
	_, inspectErr := a.Inspect()
	_, transportErr := a.Transport(1)
	for what, err := range map[string]error{"receive": recvErr, "Start": again.Start(), "Inspect": inspectErr, "Transport": transportErr,
		"Send": a.Send(t.Context(), nil, 1, 0), "Barrier": mpi.Barrier(t.Context(), a)} {
		if !errors.Is(err, mpi.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if sendErr == nil {
		t.Error("a synchronous send without a receive has succeeded")
	}
	if err := errors.Join(parent.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

// Many more goroutines than ranks start, exchange a message with
// the next rank of their activation, and finish.
func TestStartAndFinish_StormOfGoroutines_EachGetsARank(t *testing.T) {
	noLeak(t)
	const ranks, goroutines = 3, 12
	var left atomic.Int64 // Starts to do. A multiple of ranks, so that the last activation ends.
	left.Store(200 * ranks)
	tc := threadComm(t, ranks)
	work := func() error {
		var c *mpi.Comm
		for c == nil {
			var err error
			if c, err = tc.Start(t.Context()); err != nil && !errors.Is(err, mpi.ErrRank) {
				return err
			}
			runtime.Gosched()
		}
		next, previous := (c.Rank()+1)%ranks, (c.Rank()+ranks-1)%ranks
		var got [1]int64
		st, err := mpi.Sendrecv(t.Context(), c, []int64{int64(c.Rank())}, next, 1, got[:], previous, 1)
		if err == nil && (st.Source != previous || got[0] != int64(previous)) {
			err = fmt.Errorf("rank %d got %d, %+v", c.Rank(), got, st)
		}
		return errors.Join(err, tc.Finish(t.Context(), c))
	}
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				errs[i] = errors.Join(errs[i], work())
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// gatedConstructs is a bootstrap client that blocks group constructs for children of communicators.
type gatedConstructs struct {
	bootstrap.Client
	entered chan struct{}
	open    chan struct{}
}

func (g *gatedConstructs) Unwrap() any { return g.Client }

func (g *gatedConstructs) Construct(ctx context.Context, group []framework.Proc, tag string, b []byte) (bootstrap.Constructed, error) {
	if strings.HasPrefix(tag, "\x00children") {
		close(g.entered)
		<-g.open
	}
	return g.Client.Construct(ctx, group, tag, b)
}

// A duplicate of duplicates gets its id by a construct, for which Idup does
// not wait. Its rank may have ended meanwhile.
func TestRun_IdupCompletesLater_LeavesNoCommunicator(t *testing.T) {
	noLeak(t)
	client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: &local.Params{}})
	if err != nil {
		t.Fatal(err)
	}
	gate := &gatedConstructs{client, make(chan struct{}), make(chan struct{})}
	s, parent := singleton(t, mpi.WithBootstrap(gate))
	tc, err := mpi.NewThreadComm(t.Context(), parent, 1)
	if err != nil {
		t.Fatal(err)
	}
	var later *mpi.CommRequest
	err = tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) (err error) {
		for range 2 { // The last level has no ids for children.
			if c, err = c.Dup(ctx); err != nil {
				return err
			}
		}
		later, err = c.Idup()
		<-gate.entered
		return err
	})
	if !errors.Is(err, mpi.ErrPending) {
		t.Errorf("Run returns %v", err)
	}
	if err := errors.Join(tc.Close(), parent.Close()); err != nil {
		t.Error(err)
	}
	close(gate.open)
	if _, err := later.Wait(t.Context()); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("Idup ends with %v", err)
	}
	if err := errors.Join(s.Close(), client.Close()); err != nil {
		t.Error(err)
	}
}
