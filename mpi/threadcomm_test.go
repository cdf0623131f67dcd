package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/pml"
)

// threadComm makes a thread communicator over this test process alone.
func threadComm(t *testing.T, goroutines int, opts ...mpi.SessionOption) *mpi.ThreadComm {
	t.Helper()
	_, c := singleton(t, opts...)
	tc, err := mpi.NewThreadComm(t.Context(), c, goroutines)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tc.Close(); err != nil && !errors.Is(err, mpi.ErrClosed) {
			t.Error(err)
		}
	})
	return tc
}

// inThreads runs f in the goroutine ranks of one process.
func inThreads(t *testing.T, goroutines int, f func(ctx context.Context, c *mpi.Comm) error) {
	t.Helper()
	if err := threadComm(t, goroutines).Run(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func TestThreadComm_MessagesAndWildcards_ReachTheirRanks(t *testing.T) {
	inThreads(t, 4, func(ctx context.Context, c *mpi.Comm) error {
		right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		var got [1]int64
		st, err := mpi.Sendrecv(ctx, c, []int64{int64(c.Rank())}, right, 3, got[:], left, 3)
		if err != nil || int(got[0]) != left || st.Source != left {
			return fmt.Errorf("rank %d got %d, %+v, %v", c.Rank(), got, st, err)
		}
		if c.Rank() > 0 {
			return mpi.Send(ctx, c, make([]byte, 100<<10*c.Rank()), 0, c.Rank())
		}
		var seen []int
		buf := make([]byte, 1<<20)
		for range c.Size() - 1 {
			st, err := c.Recv(ctx, buf, mpi.AnySource, mpi.AnyTag)
			if err != nil || st.Bytes != 100<<10*st.Source || st.Tag != st.Source {
				return fmt.Errorf("%+v, %v", st, err)
			}
			seen = append(seen, st.Source)
		}
		slices.Sort(seen)
		return must(slices.Equal(seen, []int{1, 2, 3}), "messages of %v", seen)
	})
}

func TestThreadComm_Collectives_EqualThoseOfProcesses(t *testing.T) {
	inThreads(t, 5, func(ctx context.Context, c *mpi.Comm) error {
		for round := range 20 {
			sum, err := allgather(ctx, c, int64(c.Rank()+round))
			if err != nil || sum[4] != int64(4+round) {
				return fmt.Errorf("%v, %v", sum, err)
			}
			all := make([]int32, c.Size())
			if err := mpi.Allgather(ctx, c, []int32{int32(c.Rank())}, all); err != nil || all[3] != 3 {
				return fmt.Errorf("%v, %v", all, err)
			}
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
			q, err := mpi.Ibarrier(c)
			if err == nil {
				_, err = q.Wait(ctx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func TestThreadComm_ChildrenOfItsCommunicators_Work(t *testing.T) {
	key := mpi.NewKey(mpi.KeyHooks[int]{Copy: func(n int) (int, bool) { return n + 1, true }})
	inThreads(t, 6, func(ctx context.Context, c *mpi.Comm) error {
		if err := mpi.SetAttr(c, key, c.Rank()); err != nil {
			return err
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if n, ok := mpi.Attr(d, key); !ok || n != c.Rank()+1 {
			return fmt.Errorf("attribute %d, %v", n, ok)
		}
		r, err := d.Idup()
		if err != nil {
			return err
		}
		e, err := r.Wait(ctx)
		if err != nil {
			return err
		}
		half, err := e.Split(ctx, c.Rank()%2, -c.Rank())
		if err != nil {
			return err
		}
		if half.Size() != 3 || half.Rank() != 2-c.Rank()/2 {
			return fmt.Errorf("rank %d is %d of %d in its half", c.Rank(), half.Rank(), half.Size())
		}
		g, err := c.Group().Incl(1, 2, 5)
		if err != nil {
			return err
		}
		some, err := c.Create(ctx, g)
		if g.Rank() == mpi.Undefined {
			err = wants("create", err, mpi.ErrNoComm)
		} else if err == nil {
			var other *mpi.Comm
			if other, err = c.CreateGroup(ctx, g, 7); err == nil {
				err = errors.Join(mpi.Barrier(ctx, other), other.Close(), mpi.Barrier(ctx, some), some.Close())
			}
		}
		if _, groupErr := mpi.CommFromGroup(ctx, g, "ranks"); !errors.Is(groupErr, mpi.ErrGroup) || !strings.Contains(groupErr.Error(), "CreateGroup") {
			return fmt.Errorf("communicator from a group of ranks: %v", groupErr)
		}
		if _, nested := mpi.NewThreadComm(ctx, c, 2); !errors.Is(nested, mpi.ErrUnsupported) {
			return fmt.Errorf("nested thread communicator: %v", nested)
		}
		return errors.Join(err, mpi.Barrier(ctx, half), half.Close(), e.Close(), d.Close())
	})
}

func TestGroup_OfGoroutineRanks_TellsThemApart(t *testing.T) {
	_, parent := singleton(t)
	inThreads(t, 4, func(ctx context.Context, c *mpi.Comm) error {
		g := c.Group()
		some, err := g.Incl(3, 1)
		if err != nil {
			return err
		}
		rest := g.Difference(some)
		if some.Size() != 2 || rest.Size() != 2 || some.Union(rest).Compare(g) != mpi.Similar {
			return fmt.Errorf("%d and %d of 4 ranks", some.Size(), rest.Size())
		}
		to, err := g.Translate([]int{0, 1, 2, 3}, some)
		if err != nil || !slices.Equal(to, []int{mpi.Undefined, 1, mpi.Undefined, 0}) {
			return fmt.Errorf("%v, %v", to, err)
		}
		if want := map[int]int{3: 0, 1: 1}; c.Rank()%2 == 1 && some.Rank() != want[c.Rank()] {
			return fmt.Errorf("rank %d is %d", c.Rank(), some.Rank())
		}
		if n := len(g.Members()); n != 4 || g.Members()[0] != parent.Group().Members()[0] {
			return fmt.Errorf("members %v", g.Members())
		}
		return must(g.Intersection(parent.Group()).Size() == 0, "a goroutine rank is a process")
	})
}

var errMine = errors.New("this rank gives up")

func TestThreadComm_RankFails_OthersEndWithItsError(t *testing.T) {
	panics := func(context.Context, *mpi.Comm) error { panic(errMine) }
	for name, fail := range map[string]func(context.Context, *mpi.Comm) error{
		"error":  func(context.Context, *mpi.Comm) error { return errMine },
		"panic":  panics,
		"goexit": func(context.Context, *mpi.Comm) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			tc := threadComm(t, 6)
			var mu sync.Mutex
			var ends []error
			run := func() (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = v.(error)
					}
				}()
				return tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
					if c.Rank() == 4 {
						return fail(ctx, c)
					}
					d, err := c.Dup(ctx)
					switch {
					case err != nil:
					case c.Rank() == 0:
						_, err = d.Recv(ctx, nil, mpi.AnySource, 1)
					case c.Rank() == 1:
						_, err = d.Probe(ctx, 4, 1)
					case c.Rank() == 2:
						err = d.Ssend(ctx, nil, 4, 1)
					case c.Rank() == 3:
						err = mpi.Barrier(ctx, d)
					case c.Rank() == 5:
						<-ctx.Done()
						err = context.Cause(ctx)
					}
					mu.Lock()
					ends = append(ends, err)
					mu.Unlock()
					return err
				})
			}
			if err := run(); name != "goexit" && err != errMine || err == nil {
				t.Errorf("Run returns %v", err)
			}
			if len(ends) != 5 {
				t.Fatalf("%d ranks ended", len(ends))
			}
			for _, err := range ends {
				if !errors.Is(err, mpi.ErrBroken) || !strings.Contains(err.Error(), "rank 4 of the thread communicator has failed") {
					t.Errorf("a rank ended with %v", err)
				}
			}
			if err := tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error { return mpi.Barrier(ctx, c) }); err != nil {
				t.Errorf("the next Run: %v", err)
			}
		})
	}
}

func TestThreadComm_StartAndFinish_AssignRanksInOrder(t *testing.T) {
	tc := threadComm(t, 2)
	ctx := t.Context()
	for round := range 3 {
		a, err := tc.Start(ctx)
		if err != nil || a.Rank() != 0 || a.Size() != 2 {
			t.Fatal(a, err)
		}
		b, err := tc.Start(ctx)
		if err != nil || b.Rank() != 1 {
			t.Fatal(b, err)
		}
		if _, err := tc.Start(ctx); !errors.Is(err, mpi.ErrRank) {
			t.Errorf("a third Start: %v", err)
		}
		if err := tc.Run(ctx, nil); !errors.Is(err, mpi.ErrPending) {
			t.Errorf("Run beside Start: %v", err)
		}
		if err := tc.Close(); !errors.Is(err, mpi.ErrPending) || !strings.Contains(err.Error(), "ranks 0, 1") {
			t.Errorf("Close: %v", err)
		}
		q, err := a.Isend([]byte{byte(round)}, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got [1]byte
		if _, err := b.Recv(ctx, got[:], 0, 0); err != nil || int(got[0]) != round {
			t.Fatal(got, err)
		}
		if _, err := q.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		r, err := a.Idup()
		if err != nil {
			t.Fatal(err)
		}
		d, err := r.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		d.SetName("halo")
		if err := tc.Finish(ctx, a); !errors.Is(err, mpi.ErrPending) || !strings.Contains(err.Error(), `"halo"`) {
			t.Errorf("Finish with a duplicate: %v", err)
		}
		if err := tc.Finish(ctx, d); !errors.Is(err, mpi.ErrGroup) {
			t.Errorf("Finish of the duplicate: %v", err)
		}
		if err := errors.Join(d.Close(), tc.Finish(ctx, a)); err != nil {
			t.Fatal(err)
		}
		if err := tc.Finish(ctx, a); !errors.Is(err, mpi.ErrClosed) {
			t.Errorf("a second Finish: %v", err)
		}
		if err := a.Send(ctx, nil, 1, 0); !errors.Is(err, mpi.ErrClosed) {
			t.Errorf("Send after Finish: %v", err)
		}
		waits, cancel := context.WithCancelCause(ctx)
		cancel(errMine)
		if _, err := tc.Start(waits); !errors.Is(err, errMine) {
			t.Errorf("Start while a rank is missing: %v", err)
		}
		if err := tc.Finish(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	if err := tc.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tc.Close(); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
	if _, err := tc.Start(ctx); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("Start after Close: %v", err)
	}
}

func TestThreadComm_RunLeavesCommunicatorsOpen_ReturnsErrPending(t *testing.T) {
	s, c := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), c, 3)
	if err != nil {
		t.Fatal(err)
	}
	err = tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
		d, err := c.Dup(ctx)
		if err == nil {
			d.SetName("left open")
		}
		return err
	})
	if !errors.Is(err, mpi.ErrPending) || !strings.Contains(err.Error(), `"left open"`) {
		t.Errorf("Run returns %v", err)
	}
	if err := errors.Join(tc.Close(), c.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

func TestNewThreadComm_NumberOutOfRange_IsErrRankInAllMembers(t *testing.T) {
	ranks(t, 3, inWorld(func(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
		for _, bad := range []int{0, -1, mpi.MaxGoroutines + 1} {
			n := 2
			if c.Rank() == 1 {
				n = bad
			}
			if _, err := mpi.NewThreadComm(ctx, c, n); !errors.Is(err, mpi.ErrRank) || !strings.Contains(err.Error(), "65535") {
				return fmt.Errorf("%d goroutines in rank 1: %v", bad, err)
			}
		}
		return mpi.Barrier(ctx, c)
	}))
}

func TestThreadComm_NonblockingOfSeveralRanks_WaitTogether(t *testing.T) {
	tc := threadComm(t, 2)
	a, err := tc.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := tc.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got [2]byte
	var reqs []mpi.Request
	for _, start := range []func() (mpi.Request, error){
		func() (mpi.Request, error) { return a.Irecv(got[:1], 1, 0) },
		func() (mpi.Request, error) { return b.Irecv(got[1:], 0, 0) },
		func() (mpi.Request, error) { return a.Issend([]byte{1}, 1, 0) },
		func() (mpi.Request, error) { return b.Issend([]byte{2}, 0, 0) },
	} {
		q, err := start()
		if err != nil {
			t.Fatal(err)
		}
		reqs = append(reqs, q)
	}
	if err := mpi.WaitAll(t.Context(), reqs, nil); err != nil || got != [2]byte{2, 1} {
		t.Error(got, err)
	}
	if err := errors.Join(tc.Finish(t.Context(), a), tc.Finish(t.Context(), b)); err != nil {
		t.Error(err)
	}
}

func TestThreadComm_ManyGoroutinesForOneRank_AreSafe(t *testing.T) {
	var received atomic.Int64
	inThreads(t, 3, func(ctx context.Context, c *mpi.Comm) error {
		const each, messages = 4, 50
		errs := make([]error, 2*each)
		var wg sync.WaitGroup
		for i := range each {
			wg.Go(func() {
				for range messages {
					errs[i] = errors.Join(errs[i], c.Send(ctx, make([]byte, 8<<10*i), (c.Rank()+1)%3, i))
				}
			})
			wg.Go(func() {
				buf := make([]byte, 64<<10)
				for range messages {
					_, err := c.Recv(ctx, buf, mpi.AnySource, i)
					errs[each+i] = errors.Join(errs[each+i], err)
					received.Add(1)
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
	if n := received.Load(); n != 600 {
		t.Errorf("%d messages", n)
	}
}

func TestThreadComm_BlockedRanks_AppearInInspectionAndStats(t *testing.T) {
	s, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer tc.Close()
	err = tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			if _, err := c.Recv(ctx, nil, 0, 1); err != nil {
				return err
			}
			x, err := c.Inspect()
			if err != nil || len(x.Unexpected) != 1 || x.Unexpected[0].Tag != 9 || x.Endpoint != 1 {
				return fmt.Errorf("%+v, %v", x, err)
			}
			return errors.Join(c.Send(ctx, nil, 0, 2), func() error { _, err := c.Recv(ctx, make([]byte, 5), 0, 9); return err }())
		}
		q, err := c.Irecv(nil, 1, 2)
		if err != nil {
			return err
		}
		x, err := c.Inspect()
		if err != nil || len(x.Posted) != 1 || x.Posted[0].Peer != 1 {
			return fmt.Errorf("%+v, %v", x, err)
		}
		if tr, err := c.Transport(1); err != nil || tr.PML != "threads" {
			return fmt.Errorf("%+v, %v", tr, err)
		}
		if err := errors.Join(c.Send(ctx, make([]byte, 5), 1, 9), c.Send(ctx, nil, 1, 1)); err != nil {
			return err
		}
		_, err = q.Wait(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		i := slices.IndexFunc(s.Stats().Peers, func(p mpi.PeerStats) bool { return p.Transport == "threads" })
		if i < 0 || s.Stats().Peers[i].Received != 3 || s.Stats().Peers[i].ReceivedBytes != 5 {
			t.Errorf("%s: %+v", when, s.Stats().Peers)
		}
	}
	check("before Close")
	if err := tc.Close(); err != nil {
		t.Fatal(err)
	}
	check("after Close")
}

// rankHooks counts events of the user's messages.
type rankHooks struct {
	calls atomic.Int32 // In progress.
	// Whether two calls came at the same time.
	beside atomic.Bool
	// By kind. Unsynchronized, because calls come one at a time.
	counts [8]int
	bytes  int64 // Of matches.
}

func (h *rankHooks) Event(e pml.Event) {
	if h.calls.Add(1) != 1 {
		h.beside.Store(true)
	}
	if e.Plane == pml.PointToPoint && int(e.Kind) < len(h.counts) {
		h.counts[e.Kind]++
		if e.Kind == pml.EventMatch {
			h.bytes += e.Bytes
		}
	}
	h.calls.Add(-1)
}

func TestThreadComm_Hooks_SeeMessagesOfRanks(t *testing.T) {
	const rounds = 200
	for _, size := range []int{0, 40, 1 << 10, 100 << 10} {
		h := new(rankHooks)
		client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: &local.Params{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		tc := threadComm(t, 4, mpi.WithHooks(h), mpi.WithBootstrap(client))
		err = tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error {
			buf, peer := make([]byte, size), c.Rank()^1
			for range rounds {
				if _, err := c.Sendrecv(ctx, buf, peer, 1, make([]byte, size), peer, 1); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		const all = 4 * rounds
		if h.counts[pml.EventSend] != all || h.counts[pml.EventRecv] != all || h.counts[pml.EventMatch] != all || h.bytes != all*int64(size) || h.beside.Load() {
			t.Errorf("%d bytes: %d sends, %d receives, %d matches of %d bytes; at the same time: %v", size, h.counts[pml.EventSend], h.counts[pml.EventRecv], h.counts[pml.EventMatch], h.bytes, h.beside.Load())
		}
	}
}
