package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// rounds sends a buffer several times to the next rank, and checks the contents from the previous rank.
func rounds(ctx context.Context, c *mpi.Comm, size, out, in int) error {
	left, right := (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	send, recv := make([]byte, size), make([]byte, size)
	s, err := c.PsendInit(send, out, right, 5)
	if err != nil {
		return err
	}
	r, err := c.PrecvInit(recv, in, left, 5)
	if err != nil {
		return err
	}
	for round := range 5 {
		if err := mpi.StartAll([]*mpi.Persistent{s, r}); err != nil {
			return err
		}
		var parts sync.WaitGroup
		errs := make([]error, 4)
		for g := range errs {
			parts.Go(func() {
				for i := g; i < out; i += len(errs) {
					n := size / out
					copy(send[i*n:(i+1)*n], pattern(size, c.Rank()+round)[i*n:])
					errs[g] = errors.Join(errs[g], s.Pready(i))
				}
			})
		}
		err := mpi.WaitAll(ctx, []mpi.Request{r.Request(), s.Request()}, nil)
		parts.Wait()
		if err := errors.Join(append(errs, err)...); err != nil {
			return err
		}
		if string(recv) != string(pattern(size, left+round)) {
			return fmt.Errorf("round %d: wrong contents", round)
		}
	}
	return errors.Join(s.Free(), r.Free())
}

func TestPartitioned_SeveralGoroutines_ContentsArrive(t *testing.T) {
	for name, params := range stacksOfRevoke {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			jobOf(3, params).Run(t, func(ctx context.Context, c *mpi.Comm) error {
				return errors.Join(rounds(ctx, c, 8000, 1000, 4), rounds(ctx, c, 1<<20, 16, 64))
			})
		})
	}
}

// The receiver starts before the sender has initialized the operation. Another operation with the sender is active.
func TestPartitionedReceive_StartedBeforeInitializationOfSend_Matches(t *testing.T) {
	ranks(t, 2, inWorld(func(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
		peer, in := 1-c.Rank(), make([]byte, 4)
		receive := func(tag int) (*mpi.Persistent, error) {
			r, err := c.PrecvInit(in, 2, peer, tag)
			if err != nil {
				return nil, err
			}
			return r, r.Start()
		}
		late, err := receive(1)
		if err != nil {
			return err
		}
		if err := rounds(ctx, c, 400, 4, 2); err != nil { // Its headers come behind the one of late.
			return err
		}
		s, err := c.PsendInit([]byte{1, 2, 3, byte(c.Rank())}, 4, peer, 1)
		if err != nil {
			return err
		}
		if err := errors.Join(s.Start(), s.PreadyList(3, 1, 0, 2)); err != nil {
			return err
		}
		_, sent := s.Wait(ctx)
		st, err := late.Wait(ctx)
		return errors.Join(sent, err, must(st.Bytes == 4 && in[2] == 3 && in[3] == byte(peer), "%+v, contents %v", st, in))
	}))
}

func TestPartitioned_RequestFreedWhileActive_StartIsErrPending(t *testing.T) {
	_, c := singleton(t)
	s, r := selfPartitioned(t, c, make([]byte, 8), make([]byte, 8), 2)
	if err := errors.Join(mpi.StartAll([]*mpi.Persistent{s, r}), s.Request().Free()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); !errors.Is(err, mpi.ErrPending) {
		t.Errorf("start of a round that goes on: %v", err)
	}
	if err := s.PreadyRange(0, 1); err != nil {
		t.Error(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(mpi.StartAll([]*mpi.Persistent{s, r}), s.PreadyRange(0, 1)); err != nil {
		t.Error(err)
	}
	_, err := r.Wait(t.Context())
	if _, sent := s.Wait(t.Context()); err != nil || sent != nil {
		t.Error(err, sent)
	}
}

// selfPartitioned initializes both sides of an operation from a rank to itself.
func selfPartitioned(t *testing.T, c *mpi.Comm, out, in []byte, partitions int) (s, r *mpi.Persistent) {
	t.Helper()
	s, err := c.PsendInit(out, partitions, 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = c.PrecvInit(in, partitions, 0, 7); err != nil {
		t.Fatal(err)
	}
	return s, r
}

func TestClose_PartitionedOperationsActive_SessionIsPendingUntilTheyEnd(t *testing.T) {
	session, c := singleton(t, mpi.WithParam("session.linger", "1ms"))
	in := make([]byte, 100000)
	s, r := selfPartitioned(t, c, pattern(len(in), 1), in, 4)
	idle, _ := selfPartitioned(t, c, nil, nil, 1)
	if err := errors.Join(mpi.StartAll([]*mpi.Persistent{s, r}), s.Pready(0), c.Close()); err != nil {
		t.Fatal(err)
	}
	if err := session.Close(); !errors.Is(err, mpi.ErrPending) {
		t.Errorf("session closed with active operations: %v", err)
	}
	if err := idle.Start(); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("start on a closed communicator: %v", err)
	}
	if _, err := c.PsendInit(nil, 1, 0, 0); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("initialization on a closed communicator: %v", err)
	}
	if err := s.PreadyRange(1, 3); err != nil {
		t.Error(err)
	}
	_, err := r.Wait(t.Context())
	if _, sent := s.Wait(t.Context()); err != nil || sent != nil || string(in) != string(pattern(len(in), 1)) {
		t.Errorf("receive: %v, send: %v", err, sent)
	}
	if err := errors.Join(s.Free(), r.Free()); err != nil {
		t.Error(err)
	}
	for {
		err := session.Close()
		if err == nil {
			break
		}
		if !errors.Is(err, mpi.ErrPending) { // The end of the communicator is under way.
			t.Fatal(err)
		}
	}
}

func TestMemory_ClosedWithActivePartitionedOperation_IsErrPending(t *testing.T) {
	session, c := singleton(t)
	m, err := mpi.AllocMem(session, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	s, r := selfPartitioned(t, c, mpi.View[byte](m), make([]byte, 1<<20), 2)
	if err := errors.Join(mpi.StartAll([]*mpi.Persistent{s, r})); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); !errors.Is(err, mpi.ErrPending) {
		t.Fatalf("memory closed: %v", err)
	}
	if err := s.PreadyRange(0, 1); err != nil {
		t.Error(err)
	}
	_, err = r.Wait(t.Context())
	_, sent := s.Wait(t.Context())
	if err := errors.Join(err, sent, m.Close()); err != nil {
		t.Error(err)
	}
}

func TestInspect_ActivePartitionedOperations_NamesPartitions(t *testing.T) {
	_, c := singleton(t)
	s, r := selfPartitioned(t, c, make([]byte, 20), make([]byte, 20), 20)
	check := func(wantPosted, wantSends string) {
		t.Helper()
		x, err := c.Inspect()
		if err != nil {
			t.Fatal(err)
		}
		var posted, sends []string
		for _, p := range x.Posted {
			posted = append(posted, p.State)
		}
		for _, p := range x.Sends {
			sends = append(sends, p.State)
		}
		if got := strings.Join(posted, ";"); got != wantPosted {
			t.Errorf("receives: %q, want %q", got, wantPosted)
		}
		if got := strings.Join(sends, ";"); got != wantSends {
			t.Errorf("sends: %q, want %q", got, wantSends)
		}
	}
	if err := errors.Join(s.Start(), s.PreadyRange(0, 3), s.Pready(5)); err != nil {
		t.Fatal(err)
	}
	check("", "partitioned: partitions 4, 6 to 19 not ready")
	if err := s.PreadyList(4, 6, 8, 10, 12, 14, 16, 18); err != nil {
		t.Fatal(err)
	}
	check("", "partitioned: partitions 7, 9, 11, 13, 15, 17, 19 not ready")
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{4, 18} {
		for {
			if has, err := r.Parrived(i); err != nil {
				t.Fatal(err)
			} else if has {
				break
			}
		}
	}
	check("partitioned: partitions 7, 9, 11, 13, 15, 17, 19 not arrived", "partitioned: partitions 7, 9, 11, 13, 15, 17, 19 not ready")
	if err := s.PreadyList(7, 9, 11, 13, 15, 17, 19); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*mpi.Persistent{r, s} {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	check("", "")
}

// The largest tag of the control plane is that of partitioned communication.
func TestCreateGroup_LargestTag_IsErrTag(t *testing.T) {
	_, c := singleton(t)
	_, err := c.CreateGroup(t.Context(), c.Group(), c.TagMax())
	if err := wants("CreateGroup", err, mpi.ErrTag); err != nil {
		t.Error(err)
	}
}

func TestThreadComm_RankWithActivePartitionedOperation_FinishIsErrPending(t *testing.T) {
	_, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tc.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, r := selfPartitioned(t, c, make([]byte, 2), make([]byte, 2), 2)
	if err := mpi.StartAll([]*mpi.Persistent{s, r}); err != nil {
		t.Fatal(err)
	}
	if err := tc.Finish(t.Context(), c); !errors.Is(err, mpi.ErrPending) || !strings.Contains(err.Error(), "partitioned operations") {
		t.Errorf("finish with an active operation: %v", err)
	}
	err = s.PreadyRange(0, 1)
	_, received := r.Wait(t.Context())
	_, sent := s.Wait(t.Context())
	if err := errors.Join(err, received, sent, tc.Finish(t.Context(), c), tc.Close()); err != nil {
		t.Error(err)
	}
}
