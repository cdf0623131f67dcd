package cm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/cm"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// leave closes a process without a failure.
func leave(t *testing.T, w *pmltest.World, rank int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := w.Procs[rank].Module.Flush(ctx); err != nil {
		t.Errorf("flush of rank %d: %v", rank, err)
	}
	if err := w.Kill(rank); err != nil {
		t.Error(err)
	}
}

// started is a request with the name of its operation.
type started struct {
	r   *pml.Request
	gen uint32
}

func start(t *testing.T) func(r *pml.Request, err error) started {
	return func(r *pml.Request, err error) started {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return started{r, r.Generation()}
	}
}

// wait waits for a bounded time, so that the test names a request that hangs.
func (s started) wait(t *testing.T) (pml.Status, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return s.r.Wait(ctx, s.gen)
}

func wantErr(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", what, err, target)
	}
}

// meet sends a message from a rank to rank 0.
func meet(t *testing.T, c []pml.Comm, from int) {
	t.Helper()
	sent := start(t)(isend(c[from], 0, 1, pml.Standard))
	receive(t, c[0], from, 1, "message")
	if _, err := sent.wait(t); err != nil {
		t.Error(err)
	}
}

// networks are the networks of these tests.
func networks(t *testing.T, f func(t *testing.T, s pmltest.Stack)) {
	t.Run("memory", func(t *testing.T) { f(t, stack(mtltest.Options{})) })
	t.Run("ofi", func(t *testing.T) { f(t, overOFI(t, "tcp;ofi_rxm", 0)) })
	for _, class := range []string{"shm", "tcp"} {
		t.Run("ucx "+class, func(t *testing.T) { f(t, overUCX(t, class, 0)) })
	}
}

func recvInto(c pml.Comm, src, tag int) (*pml.Request, error) {
	return c.Irecv(pml.Buffer{Bytes: make([]byte, 64)}, src, tag, pml.PointToPoint)
}

func isend(c pml.Comm, dst, tag int, mode pml.Mode) (*pml.Request, error) {
	return c.Isend(text("message"), dst, tag, pml.PointToPoint, mode)
}

// TestLeave_PendingOperations_End covers sends to the process and receives from it.
func TestLeave_PendingOperations_End(t *testing.T) {
	networks(t, func(t *testing.T, s pmltest.Stack) {
		w := pmltest.OpenWorld(t, s, 3)
		for _, policy := range pmltest.Policies {
			c := w.Comms(t, policy)
			meet(t, c, 1)
		}
		c := w.Comms(t, cid.PolicyAgree)
		send(t, c[1], 0, 1, "wanted later") // Waits in the network while rank 0 receives another message.
		unmatched := start(t)(isend(c[0], 1, 2, pml.Synchronous))
		specific := start(t)(recvInto(c[0], 1, 3))
		wild := start(t)(recvInto(c[0], pml.AnySource, 4))
		probed := make(chan error)
		go func() {
			_, err := c[0].Probe(t.Context(), 1, 5, pml.PointToPoint)
			probed <- err
		}()
		leave(t, w, 1)
		wantErr(t, "a probe", <-probed, framework.ErrPeerClosed)
		_, err := unmatched.wait(t)
		wantErr(t, "an unmatched synchronous send", err, framework.ErrPeerClosed)
		_, err = specific.wait(t)
		wantErr(t, "a receive", err, framework.ErrPeerClosed)
		_, err = start(t)(isend(c[0], 1, 2, pml.Standard)).wait(t)
		wantErr(t, "a new send", err, framework.ErrPeerClosed)
		receive(t, c[0], 1, 1, "wanted later")
		_, err = c[0].Recv(t.Context(), pml.Buffer{}, 1, 1, pml.PointToPoint)
		wantErr(t, "a new receive", err, framework.ErrPeerClosed)
		other := start(t)(isend(c[2], 0, 4, pml.Standard))
		if st, err := wild.wait(t); err != nil || st.Source != 2 {
			t.Errorf("a receive from any source: %+v %v", st, err)
		}
		if _, err := other.wait(t); err != nil {
			t.Error(err)
		}
	})
}

// TestLeave_HeldSend_Ends covers a receiver that never created the communicator.
func TestLeave_HeldSend_Ends(t *testing.T) {
	networks(t, func(t *testing.T, s pmltest.Stack) {
		w := pmltest.OpenWorld(t, s, 2)
		alone := start(t)(isend(join(t, w, w.NextID(), 0), 1, 1, pml.Standard))
		until(t, "the question", func() bool { return pmltest.Inspect(w.Procs[1].Module).EarlyArrivals == 1 })
		leave(t, w, 1)
		_, err := alone.wait(t)
		wantErr(t, "a send that waits for the receiver's id", err, framework.ErrPeerClosed)
	})
}

// TestFlush_OnlyReceived_SendsGoodbye guards its peers, because the network would retry messages
// to it for ever.
func TestFlush_OnlyReceived_SendsGoodbye(t *testing.T) {
	networks(t, func(t *testing.T, s pmltest.Stack) {
		w := pmltest.OpenWorld(t, s, 2)
		c := w.Comms(t, cid.PolicyAgree)
		meet(t, c, 1)
		unmatched := start(t)(isend(c[1], 0, 1, pml.Synchronous))
		leave(t, w, 0)
		_, err := unmatched.wait(t)
		wantErr(t, "a send", err, framework.ErrPeerClosed)
	})
}

// TestFlush_SendCannotLeave_SendsGoodbyes covers a process that accepts no message. All
// processes get a goodbye.
func TestFlush_SendCannotLeave_SendsGoodbyes(t *testing.T) {
	networks(t, func(t *testing.T, s pmltest.Stack) {
		w := pmltest.OpenWorld(t, s, 3)
		c := w.Comms(t, cid.PolicyAgree)
		meet(t, c, 2)
		stuck := start(t)(isend(c[2], 1, 5, pml.Synchronous))
		if _, err := c[1].Probe(t.Context(), 2, 5, pml.PointToPoint); err != nil {
			t.Fatal(err)
		}
		waits := []started{start(t)(recvInto(c[0], 2, 3)), start(t)(recvInto(c[1], 2, 3))}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, "the flush", w.Procs[2].Module.Flush(over), context.Canceled)
		if err := w.Kill(2); err != nil {
			t.Error(err)
		}
		_, err := stuck.wait(t)
		wantErr(t, "the send", err, framework.ErrClosed)
		for _, r := range waits {
			_, err := r.wait(t)
			wantErr(t, "a receive", err, framework.ErrPeerClosed)
		}
	})
}

// TestLearn_NewIncarnation_OlderMessagesAreReceived checks that these messages are received, until the
// goodbye that follows them.
func TestLearn_NewIncarnation_OlderMessagesAreReceived(t *testing.T) {
	defer cm.SetMaxFruitlessSearches(math.MaxInt)()
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 2)
	m := w.Procs[0].Module
	c := w.Comms(t, cid.PolicyAgree)
	meet(t, c, 1)
	net.SetFaults(mtltest.Faults{Polls: 2000})
	send(t, c[1], 0, 3, "late")
	net.SetFaults(mtltest.Faults{})
	r, more := start(t)(recvInto(c[0], 1, 3)), start(t)(recvInto(c[0], 1, 3))
	old := w.Group()[1]
	if err := m.Learn(framework.Incarnation{ID: old.ID, Nonce: 424242}, w.Procs[1].Card()); err != nil {
		t.Fatal(err)
	}
	if st, err := r.wait(t); err != nil || st.Bytes != len("late") {
		t.Errorf("a receive: %+v %v", st, err)
	}
	_, err := start(t)(isend(c[0], 1, 3, pml.Standard)).wait(t)
	wantErr(t, "a send to the old life", err, framework.ErrPeerClosed)
	net.Inject(0, goodbye(w.Group()[0].Nonce, old.Nonce, 2))
	_, err = more.wait(t)
	wantErr(t, "one receive more", err, framework.ErrPeerClosed)
	if n := pmltest.Inspect(m).EarlyArrivals; n != 0 {
		t.Errorf("%d are kept still", n)
	}
}

// TestFlush_AllLeaveTogether_DoesNotWait covers processes that close at once, and have exchanged
// messages before.
func TestFlush_AllLeaveTogether_DoesNotWait(t *testing.T) {
	networks(t, func(t *testing.T, s pmltest.Stack) {
		for round := range 5 {
			w := pmltest.OpenWorld(t, s, 3)
			c := w.Comms(t, pmltest.Policies[round%len(pmltest.Policies)])
			var all sync.WaitGroup
			for rank := range 3 {
				all.Go(func() {
					next, before := (rank+1)%3, (rank+2)%3
					sent := start(t)(isend(c[rank], next, 1, pml.Standard))
					receive(t, c[rank], before, 1, "message")
					if _, err := sent.wait(t); err != nil {
						t.Error(err)
					}
					c[rank].Close()
					leave(t, w, rank)
				})
			}
			all.Wait()
		}
	})
}

// goodbye is the control message of a process that leaves after n messages.
func goodbye(to, from uint64, n int) []byte {
	b := make([]byte, 72)
	binary.LittleEndian.PutUint32(b, 5|cm.WireVersion<<8)
	binary.LittleEndian.PutUint32(b[4:], 1<<32-1)
	binary.LittleEndian.PutUint64(b[8:], to)
	binary.LittleEndian.PutUint64(b[16:], from)
	binary.LittleEndian.PutUint64(b[48:], uint64(n))
	return b
}

// TestGoodbye_OvertakesMessages_ReceivesMatch checks that receives posted before and after
// the goodbye match all messages that it counts.
func TestGoodbye_OvertakesMessages_ReceivesMatch(t *testing.T) {
	net := mtltest.NewMemory(mtltest.Options{})
	w := pmltest.OpenWorld(t, over(net), 2)
	c := w.Comms(t, cid.PolicyAgree)
	const n = 6
	var reqs []started
	post := func(tag int) { reqs = append(reqs, start(t)(recvInto(c[0], 1, tag))) }
	for tag := range n / 2 {
		post(tag)
	}
	net.Inject(0, goodbye(w.Group()[0].Nonce, w.Group()[1].Nonce, n))
	until(t, "the goodbye", func() bool {
		err := c[0].Send(t.Context(), pml.Buffer{}, 1, 1, pml.PointToPoint, pml.Standard)
		return errors.Is(err, framework.ErrPeerClosed)
	})
	for tag := n - 1; tag >= 0; tag-- {
		if tag == 1 {
			for tag := n / 2; tag < n; tag++ {
				post(tag)
			}
			post(n) // It matches no message.
		}
		send(t, c[1], 0, tag, "late")
	}
	for tag := range n {
		if st, err := reqs[tag].wait(t); err != nil || st.Tag != tag {
			t.Errorf("message %d: %+v %v", tag, st, err)
		}
	}
	_, err := reqs[n].wait(t)
	wantErr(t, "one more", err, framework.ErrPeerClosed)
}
