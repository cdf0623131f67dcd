package ob1_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// A sender starts more messages than the receiver's limit for unexpected ones, before a
// receive is posted. The receiver's memory stays within the limit, the rest stays with the
// sender, and the order is kept.
func TestUnexpected_ManyMessages_StayWithinLimit(t *testing.T) {
	// 5 MB, more than the limit of 2 MiB.
	const messages, size = 10000, 512
	w := pmltest.OpenWorld(t, stack(), 2)
	c := w.Comms(t, cid.PolicyAgree)
	reqs := make([]*pml.Request, messages)
	for i := range reqs {
		buf := make([]byte, size)
		binary.LittleEndian.PutUint32(buf, uint32(i))
		r, err := c[0].Isend(pml.Buffer{Bytes: buf}, 1, 1, pml.PointToPoint, pml.Standard)
		if err != nil {
			t.Fatal(err)
		}
		reqs[i] = r
	}
	// All messages are at the receiver once the sender's RTSs are.
	held := func() (eager int64, n int) {
		for _, ci := range pmltest.Inspect(w.Procs[1].Module).Comms {
			for _, m := range ci.Unexpected {
				n++
				if m.State == "arrived" {
					eager += m.Bytes
				}
			}
		}
		return eager, n
	}
	for {
		if _, _, err := c[1].Iprobe(0, 2, pml.PointToPoint); err != nil {
			t.Fatal(err)
		}
		eager, n := held()
		if eager > 2<<20 {
			t.Fatalf("the receiver holds %d bytes, more than its budget", eager)
		}
		if n == messages {
			break
		}
		// The sender must make progress, since the messages do not fit into the ring.
		c[0].Iprobe(1, 2, pml.PointToPoint)
	}
	buf := make([]byte, size)
	err := pmltest.Each(c, func(rank int, c pml.Comm) error {
		if rank == 0 {
			for _, r := range reqs {
				if _, err := r.Wait(context.Background(), r.Generation()); err != nil {
					return err
				}
			}
			return nil
		}
		for i := range messages {
			if _, err := c.Recv(context.Background(), pml.Buffer{Bytes: buf}, 0, 1, pml.PointToPoint); err != nil {
				return err
			}
			if got := binary.LittleEndian.Uint32(buf); got != uint32(i) {
				return fmt.Errorf("message %d arrived as number %d", got, i)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// 10,000 messages with tag 1 precede one with tag 2, which is received first.
func TestUnexpected_OtherTagBehindMany_IsFound(t *testing.T) {
	const messages = 10000
	w := pmltest.OpenWorld(t, stack(), 2)
	c := w.Comms(t, cid.PolicyAgree)
	err := pmltest.Each(c, func(rank int, c pml.Comm) error {
		ctx := context.Background()
		if rank == 0 {
			reqs := make([]*pml.Request, 0, messages+1)
			for i := range messages + 1 {
				tag := 1
				if i == messages {
					tag = 2
				}
				r, err := c.Isend(pml.Buffer{Bytes: make([]byte, 300)}, 1, tag, pml.PointToPoint, pml.Standard)
				if err != nil {
					return err
				}
				reqs = append(reqs, r)
			}
			for _, r := range reqs {
				if _, err := r.Wait(ctx, r.Generation()); err != nil {
					return err
				}
			}
			return nil
		}
		buf := make([]byte, 300)
		if _, err := c.Recv(ctx, pml.Buffer{Bytes: buf}, 0, 2, pml.PointToPoint); err != nil {
			return err
		}
		for range messages {
			if _, err := c.Recv(ctx, pml.Buffer{Bytes: buf}, 0, 1, pml.PointToPoint); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Rank 0 closes while messages of rank 1 are in flight. Its index stays quarantined until the
// CLOSED of rank 1.
func TestClose_PeerStillSends_IndexIsQuarantined(t *testing.T) {
	for _, policy := range []cid.Policy{cid.PolicyAgree, cid.PolicyGather, cid.PolicyLazy} {
		t.Run(policy.String(), func(t *testing.T) {
			w := pmltest.OpenWorld(t, stack(), 2)
			table := w.Procs[0].Module.CIDs()
			for round := range 200 {
				c := w.Comms(t, policy)
				// Rank 0 receives from rank 1 first, so that it expects its CLOSED.
				err := pmltest.Each(c, func(rank int, c pml.Comm) error {
					if rank == 1 {
						return c.Send(context.Background(), pml.Buffer{}, 0, 0, pml.PointToPoint, pml.Standard)
					}
					_, err := c.Recv(context.Background(), pml.Buffer{}, 1, 0, pml.PointToPoint)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				c[0].Close()
				if _, _, quarantined := table.Counts(); quarantined != 1 {
					t.Fatalf("round %d: %d indices are quarantined after rank 0 has closed, want 1", round, quarantined)
				}
				// Late messages are dropped, and their sends complete.
				late := []byte{1, 2, 3}
				if err := c[1].Send(context.Background(), pml.Buffer{Bytes: late}, 0, 0, pml.PointToPoint, pml.Standard); err != nil {
					t.Fatal(err)
				}
				r, err := c[1].Isend(pml.Buffer{Bytes: make([]byte, 1<<20)}, 0, 0, pml.PointToPoint, pml.Standard)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.Wait(context.Background(), r.Generation()); err != nil {
					t.Fatal(err)
				}
				c[1].Close()
				for {
					w.Procs[0].Engine.Lock()
					w.Procs[0].Engine.Progress()
					w.Procs[0].Engine.Unlock()
					if _, _, quarantined := table.Counts(); quarantined == 0 {
						break
					}
				}
			}
			for _, p := range w.Procs {
				if n := pmltest.Inspect(p.Module).EarlyArrivals; n != 0 {
					t.Errorf("rank %d keeps %d frames for communicators that will never be", p.Rank, n)
				}
			}
		})
	}
}

// Rank 0 sends and closes before rank 1 has received anything. Rank 1 closes without a poll.
func TestClose_PeerHasReceivedNothing_Confirms(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(), 2)
	for range 100 {
		c := w.Comms(t, cid.PolicyAgree)
		c[1].Close()
		if err := c[0].Send(context.Background(), pml.Buffer{Bytes: []byte{1}}, 1, 0, pml.PointToPoint, pml.Standard); err != nil {
			t.Fatal(err)
		}
		c[0].Close()
		for {
			quarantined := 0
			for _, p := range w.Procs {
				p.Engine.Lock()
				p.Engine.Progress()
				p.Engine.Unlock()
				_, _, n := p.Module.CIDs().Counts()
				quarantined += n
			}
			if quarantined == 0 {
				break
			}
		}
	}
}

func TestMprobe_ClaimedMessage_IsReceivedOnce(t *testing.T) {
	for _, size := range []int{0, 100, 1 << 20} {
		w := pmltest.OpenWorld(t, stack(), 2)
		c := w.Comms(t, cid.PolicyAgree)
		err := pmltest.Each(c, func(rank int, c pml.Comm) error {
			ctx := context.Background()
			if rank == 0 {
				for i := range 2 {
					buf := make([]byte, size)
					for j := range buf {
						buf[j] = byte(i + 1)
					}
					if err := c.Send(ctx, pml.Buffer{Bytes: buf}, 1, 5, pml.PointToPoint, pml.Standard); err != nil {
						return err
					}
				}
				return nil
			}
			m, st, err := c.Mprobe(ctx, pml.AnySource, pml.AnyTag, pml.PointToPoint)
			if err != nil || st.Source != 0 || st.Tag != 5 || st.Bytes != size {
				return fmt.Errorf("%+v, %v", st, err)
			}
			buf := make([]byte, size)
			receive := func(want byte, f func() (pml.Status, error)) error {
				st, err := f()
				if err != nil || st.Bytes != size {
					return fmt.Errorf("%+v, %v", st, err)
				}
				for i, b := range buf {
					if b != want {
						return fmt.Errorf("byte %d is %d, want %d", i, b, want)
					}
				}
				return nil
			}
			if size == 0 || size == 100 {
				if err := receive(2, func() (pml.Status, error) {
					return c.Recv(ctx, pml.Buffer{Bytes: buf}, 0, 5, pml.PointToPoint)
				}); err != nil {
					return fmt.Errorf("second message: %w", err)
				}
			}
			if err := receive(1, func() (pml.Status, error) { return m.Recv(ctx, pml.Buffer{Bytes: buf}) }); err != nil {
				return fmt.Errorf("claimed message: %w", err)
			}
			if _, err := m.Recv(ctx, pml.Buffer{Bytes: buf}); err == nil {
				return fmt.Errorf("a claimed message was received twice")
			}
			if size == 1<<20 {
				return receive(2, func() (pml.Status, error) {
					return c.Recv(ctx, pml.Buffer{Bytes: buf}, 0, 5, pml.PointToPoint)
				})
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
	}
}
