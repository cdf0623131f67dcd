package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/pml"
)

// watcher keeps the collectives that began and ended, and the receive that waited longest.
type watcher struct {
	mu     sync.Mutex
	begun  []string
	ended  map[string]error
	waited map[int]time.Duration // by tag
	peers  map[int]pml.Event
}

func newWatcher() *watcher {
	return &watcher{ended: map[string]error{}, waited: map[int]time.Duration{}, peers: map[int]pml.Event{}}
}

func (w *watcher) Event(e pml.Event) {
	if e.Kind != pml.EventMatch || e.Plane != pml.PointToPoint {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waited[e.Tag] = e.Waited
	w.peers[e.Tag] = e
}

func (w *watcher) Collective(_ context.Context, op mpi.CollectiveOp) func(error) {
	what := fmt.Sprintf("%s %d bytes, %d, nonblocking %t", op.Name, op.Bytes, op.Seq, op.Nonblocking)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = append(w.begun, what)
	return func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, twice := w.ended[what]; twice {
			err = errors.New("it ended twice")
		}
		w.ended[what] = err
	}
}

// withWatchers runs ranks with a watcher each.
func withWatchers(t *testing.T, n int, params map[string]string, f mpitest.Program) []*watcher {
	t.Helper()
	all := make([]*watcher, n)
	for i := range all {
		all[i] = newWatcher()
	}
	mpitest.Job{Size: n, Params: params, Options: func(rank int) []mpi.SessionOption {
		return []mpi.SessionOption{mpi.WithHooks(all[rank])}
	}}.Run(t, f)
	return all
}

func TestCollectiveHooks_AllMembers_HaveEqualSequences(t *testing.T) {
	all := withWatchers(t, 2, nil, func(ctx context.Context, c *mpi.Comm) error {
		sum := make([]int64, 2)
		if err := errors.Join(mpi.Barrier(ctx, c), mpi.Allreduce(ctx, c, []int64{1, 2}, sum, mpi.Sum[int64]())); err != nil {
			return err
		}
		r, err := mpi.Ibcast(c, sum, 0)
		if err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		if err := mpi.Bcast(ctx, c, sum, 7); err == nil {
			return errors.New("a root out of range")
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		return d.Close()
	})
	want := regexp.MustCompile(`^barrier 0 bytes, \d+, nonblocking false; allreduce 16 bytes, \d+, nonblocking false; ` +
		`ibcast 16 bytes, \d+, nonblocking true; dup 0 bytes, \d+, nonblocking false$`)
	for rank, w := range all {
		if !slices.Equal(w.begun, all[0].begun) || !want.MatchString(strings.Join(w.begun, "; ")) {
			t.Errorf("rank %d: %q", rank, w.begun)
		}
		for _, what := range w.begun {
			if err, over := w.ended[what]; !over || err != nil {
				t.Errorf("rank %d: %s: over: %t, %v", rank, what, over, err)
			}
		}
	}
}

// A hook that counts operations in progress requires the end of an operation that panics.
func TestCollectiveHooks_OperationPanics_EndIsCalled(t *testing.T) {
	w := newWatcher()
	_, c := singleton(t, mpi.WithHooks(w))
	bad := mpi.NewOp(func(_, _ []int) { panic("bad") }, true)
	func() {
		defer func() { _ = recover() }()
		k := mpi.NewKey(mpi.KeyHooks[int]{Copy: func(int) (int, bool) { panic("bad") }})
		if err := mpi.SetAttr(c, k, 1); err != nil {
			t.Error(err)
		}
		_, _ = c.Idup()
	}()
	if err := w.ended["idup 0 bytes, 0, nonblocking false"]; err == nil {
		t.Errorf("%q began, and ended as %v", w.begun, w.ended)
	}
	if err := mpi.Allreduce(t.Context(), c, []int{1}, make([]int, 1), bad); !errors.Is(err, mpi.ErrBroken) {
		t.Error(err)
	}
}

// The wait of a receive is the time that it was posted before its message, over each PML.
func TestHooks_Receive_HasWaitTime(t *testing.T) {
	const late = 50 * time.Millisecond
	for _, stack := range []string{"ob1", "cm"} {
		t.Run(stack, func(t *testing.T) {
			w := newWatcher()
			_, c := singleton(t, mpi.WithHooks(w), mpi.WithRegistry(withNetwork(true)), mpi.WithParam("pml", stack), mpi.WithParam("pml.cm.shared_memory", "false"))
			r, err := c.Irecv(make([]byte, 1), 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(late) // the sender is late
			if err := c.Send(t.Context(), []byte{1}, 0, 1); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if w.waited[1] < late {
				t.Errorf("the receive waited %v, and its message came after %v", w.waited[1], late)
			}
			m := make(chan error, 1)
			go func() { m <- c.Send(t.Context(), []byte{1}, 0, 2) }()
			if _, err := c.Probe(t.Context(), 0, 2); err != nil { // the message is first
				t.Fatal(err)
			}
			before := time.Now()
			if _, err := c.Recv(t.Context(), make([]byte, 1), 0, 2); err != nil {
				t.Fatal(err)
			}
			if w.waited[2] > time.Since(before) {
				t.Errorf("a receive of a message that was there waited %v", w.waited[2])
			}
			if err := <-m; err != nil {
				t.Error(err)
			}
		})
	}
}

// Stats name a peer as events do.
func TestStats_Incarnation_IsThatOfEvents(t *testing.T) {
	w := newWatcher()
	s, c := singleton(t, mpi.WithHooks(w))
	if err := c.Send(t.Context(), []byte{1}, 0, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Recv(t.Context(), make([]byte, 1), 0, 3); err != nil {
		t.Fatal(err)
	}
	peers := s.Stats().Peers
	if len(peers) != 1 || peers[0].Incarnation != w.peers[3].Peer {
		t.Errorf("%+v, and events of %+v", peers, w.peers[3].Peer)
	}
}

// Members that call different things end by another way, which must not be forgotten.
func TestCollectiveHooks_CallsDiffer_EndIsCalled(t *testing.T) {
	all := withWatchers(t, 2, map[string]string{"coll.check": "true"}, func(ctx context.Context, c *mpi.Comm) error {
		var r mpi.Request
		var err error
		if c.Rank() == 0 {
			r, err = mpi.Ibarrier(c)
		} else {
			r, err = mpi.Iallreduce(c, nil, make([]int, 1), mpi.Sum[int]())
		}
		if err != nil {
			return err
		}
		if _, err := r.Wait(ctx); err == nil {
			return errors.New("different operations end well")
		}
		return nil
	})
	for rank, w := range all {
		if len(w.begun) != 1 || w.ended[w.begun[0]] == nil {
			t.Errorf("rank %d: %q began, and ended as %v", rank, w.begun, w.ended)
		}
	}
}
