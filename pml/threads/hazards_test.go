package threads_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
	"github.com/ferrympi/ferry/pml/threads"
	"github.com/ferrympi/ferry/progress"
)

const p2p = pml.PointToPoint

func filled(n int, with byte) []byte { return bytes.Repeat([]byte{with}, n) }

// open returns the handles of a communicator of n goroutine ranks, and their world.
func open(t testing.TB, s pmltest.Stack, n int) (*pmltest.World, []pml.Comm) {
	t.Helper()
	w := pmltest.OpenWorld(t, s, n)
	return w, w.Comms(t, cid.PolicyAgree)
}

// TestSend_LockOfReceiverIsBusy_ReturnsAndIsDelivered checks that a sender never waits for a rank. The process's engine
// delivers, although no goroutine of the receiver polls afterwards.
func TestSend_LockOfReceiverIsBusy_ReturnsAndIsDelivered(t *testing.T) {
	w, comms := open(t, stack(nil), 2)
	ctx := t.Context()
	for _, size := range []int{8, 1000, 100_000} {
		const messages = 100 // more than a ring has cells
		bufs := make([][]byte, messages)
		var done sync.WaitGroup
		done.Add(messages)
		e := w.Procs[1].Engine
		e.Lock()
		for i := range bufs {
			bufs[i] = make([]byte, size)
			comms[1].StartRecv(pml.Buffer{Bytes: bufs[i]}, 0, i, p2p).Notify(notifier(done.Done))
		}
		for i := range messages { // while the lock is held
			r, err := comms[0].Isend(pml.Buffer{Bytes: filled(size, byte(i))}, 1, i, p2p, pml.Standard)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Free(r.Generation()); err != nil {
				t.Fatal(err)
			}
		}
		e.Unlock() // runs nothing that was deferred
		done.Wait()
		for i, b := range bufs {
			if !bytes.Equal(b, filled(size, byte(i))) {
				t.Fatalf("message %d of %d bytes is not what was sent", i, size)
			}
		}
		if err := comms[0].Send(ctx, pml.Buffer{}, 1, 0, p2p, pml.Standard); err != nil {
			t.Fatal(err)
		}
		if _, err := comms[1].Recv(ctx, pml.Buffer{}, 0, 0, p2p); err != nil {
			t.Fatal(err)
		}
	}
}

type notifier func()

func (f notifier) Completed(r *pml.Request) {
	_, _, _ = r.Take(r.Generation())
	f()
}

// TestAbort_PendingOperations_EndWithItsError covers unmatched operations on the plane, and later ones that cannot
// complete at once. A message that has arrived is received.
func TestAbort_PendingOperations_EndWithItsError(t *testing.T) {
	_, comms := open(t, stack(nil), 3)
	ctx, reason := t.Context(), errors.New("the reason")
	c := comms[0]
	if err := comms[1].Send(ctx, pml.Buffer{Bytes: filled(8, 1)}, 0, 5, p2p, pml.Standard); err != nil {
		t.Fatal(err)
	}
	type op struct {
		what string
		wait func() error
	}
	var ops []op
	add := func(what string, r *pml.Request, err error) {
		if err != nil {
			t.Fatal(err)
		}
		g := r.Generation()
		ops = append(ops, op{what, func() error { _, err := r.Wait(ctx, g); return err }})
	}
	r, err := c.Irecv(pml.Buffer{}, 1, 1, p2p)
	add("receive", r, err)
	r, err = c.Irecv(pml.Buffer{}, pml.AnySource, 1, p2p)
	add("receive from any source", r, err)
	r, err = c.Isend(pml.Buffer{Bytes: make([]byte, 100_000)}, 1, 1, p2p, pml.Standard)
	add("offered send", r, err)
	r, err = c.Isend(pml.Buffer{}, 2, 1, p2p, pml.Synchronous)
	add("synchronous send", r, err)
	other, err := c.Irecv(pml.Buffer{}, 1, 1, pml.Collective)
	if err != nil {
		t.Fatal(err)
	}
	generation := other.Generation()
	probed := make(chan error)
	go func() {
		_, err := c.Probe(ctx, 2, 9, p2p)
		probed <- err
	}()
	c.Abort(p2p, reason)
	for _, o := range ops {
		if err := o.wait(); !errors.Is(err, reason) {
			t.Errorf("%s: %v", o.what, err)
		}
	}
	if err := <-probed; !errors.Is(err, reason) {
		t.Errorf("probe: %v", err)
	}
	if _, err := c.Recv(ctx, pml.Buffer{}, 1, 1, p2p); !errors.Is(err, reason) {
		t.Errorf("later receive: %v", err)
	}
	if err := c.Send(ctx, pml.Buffer{}, 1, 1, p2p, pml.Synchronous); !errors.Is(err, reason) {
		t.Errorf("later send: %v", err)
	}
	if st, err := c.Recv(ctx, pml.Buffer{Bytes: make([]byte, 8)}, 1, 5, p2p); err != nil || st.Bytes != 8 {
		t.Errorf("a message that was here: %+v, %v", st, err)
	}
	if err := comms[1].Send(ctx, pml.Buffer{}, 0, 1, pml.Collective, pml.Standard); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Wait(ctx, generation); err != nil {
		t.Errorf("another plane: %v", err)
	}
}

// TestRanks_MoreThanProcessors_NoneStarves passes tokens around rings of ranks with one and
// with two processors, while the collector runs.
func TestRanks_MoreThanProcessors_NoneStarves(t *testing.T) {
	ranks, rounds := 100, 20
	if underRace {
		rounds = 5
	}
	for _, procs := range []int{1, 2} {
		t.Run(fmt.Sprintf("GOMAXPROCS=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			_, comms := open(t, stack(nil), ranks)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			stop := make(chan struct{})
			var collector sync.WaitGroup
			collector.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						runtime.GC()
					}
				}
			})
			err := pmltest.Each(comms, func(rank int, c pml.Comm) error {
				next, previous := (rank+1)%ranks, (rank+ranks-1)%ranks
				for round := range rounds {
					size := []int{8, 500, 50_000}[round%3]
					got := make([]byte, size)
					r, err := c.Irecv(pml.Buffer{Bytes: got}, previous, round, p2p)
					if err != nil {
						return err
					}
					g := r.Generation()
					if err := c.Send(ctx, pml.Buffer{Bytes: filled(size, byte(rank))}, next, round, p2p, pml.Standard); err != nil {
						return err
					}
					if _, err := r.Wait(ctx, g); err != nil {
						return err
					}
					if !bytes.Equal(got, filled(size, byte(previous))) {
						return fmt.Errorf("round %d: not what was sent", round)
					}
				}
				return nil
			})
			close(stop)
			collector.Wait()
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRanks_TenThousand_TakeLittleMemory is the memory of a rank that has exchanged messages with
// a few others: less than 24 KiB, of the 32 KiB that a rank may take with its goroutine.
func TestRanks_TenThousand_TakeLittleMemory(t *testing.T) {
	ranks := 10_000
	if underRace {
		ranks = 500
	}
	e := progress.New(progress.Options{})
	defer e.Close()
	p := new(threads.Params)
	framework.FillDefaults(p)
	before := heapInUse()
	self := framework.Incarnation{ID: 1, Nonce: 1}
	team := threads.NewTeam(self, e, ranks, *p)
	defer team.Close()
	group := make([]pml.Member, ranks)
	for rank := range group {
		group[rank] = pml.Member{Incarnation: self, Endpoint: uint16(rank)}
	}
	comms := make([]pml.Comm, ranks)
	for rank := range comms {
		c, err := team.Rank(rank).AddComm(pml.CommSpec{ID: cid.Extended{Base: 1}, Members: pml.NewMembers(group), Rank: rank})
		if err != nil {
			t.Fatal(err)
		}
		comms[rank] = c
	}
	buf := pml.Buffer{Bytes: make([]byte, 8)}
	for d := 1; d < ranks; d *= 2 { // as trees do
		for rank, c := range comms {
			if err := c.Send(t.Context(), buf, (rank+d)%ranks, d, p2p, pml.Standard); err != nil {
				t.Fatal(err)
			}
		}
		for rank, c := range comms {
			if _, err := c.Recv(t.Context(), buf, (rank+ranks-d)%ranks, d, p2p); err != nil {
				t.Fatal(err)
			}
		}
	}
	each := (heapInUse() - before) / uint64(ranks)
	t.Logf("%d bytes for each rank", each)
	if each > 24<<10 {
		t.Errorf("%d bytes for each rank", each)
	}
	runtime.KeepAlive(comms)
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

func TestClose_ReceiveAfterIt_LeavesTheCommunicatorToOthers(t *testing.T) {
	e := progress.New(progress.Options{})
	defer e.Close()
	p := new(threads.Params)
	framework.FillDefaults(p)
	self := framework.Incarnation{ID: 1, Nonce: 1}
	team := threads.NewTeam(self, e, 2, *p)
	defer team.Close()
	members := pml.NewMembers([]pml.Member{{Incarnation: self}, {Incarnation: self, Endpoint: 1}})
	add := func(rank int) pml.Comm {
		c, err := team.Rank(rank).AddComm(pml.CommSpec{ID: cid.Extended{Base: 1}, Members: members, Rank: rank})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	sender := add(0)
	if err := sender.Send(t.Context(), pml.Buffer{Bytes: []byte("message!")}, 1, 7, p2p, pml.Standard); err != nil {
		t.Fatal(err)
	}
	sender.Close()
	if _, err := sender.Recv(t.Context(), pml.Buffer{}, 1, 7, p2p); !errors.Is(err, framework.ErrClosed) {
		t.Fatalf("receive after Close: %v", err)
	}
	receiver := add(1) // The first time.
	if st, ok, err := receiver.Iprobe(0, 7, p2p); !ok || err != nil || st.Bytes != 8 {
		t.Errorf("%+v, %t, %v: want the early arrival", st, ok, err)
	}
	receiver.Close()
}
