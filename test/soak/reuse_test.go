package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/btl/btlfault"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/btl/tcp"
	"github.com/ferrympi/ferry/coll/basic"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/pml/ob1"
)

// Communicators are closed with messages in flight, and their indices are reused. No message may
// arrive at a communicator to which it was not sent. Frames are delayed.
func TestReuse(t *testing.T) {
	for _, policy := range []string{"agree", "lazy"} {
		t.Run(policy, func(t *testing.T) { run(t, 2, "reuse", size(10_000, 3000), "FERRY_CID_POLICY="+policy) })
	}
}

func reuseRank(ctx context.Context) error {
	mover := shm.Component()
	if slices.Contains(os.Environ(), envRootsFrom) { // The ranks are on two nodes.
		mover = tcp.Component()
	}
	faults := btlfault.Wrap(mover, btlfault.Plan{Seed: rand.Uint64(), Delay: 3, MaxDelay: 200, WouldBlock: 10})
	reg := framework.NewRegistry()
	for _, c := range []framework.Component{ob1.Component(), self.Component(), faults, local.Component(), basic.Component()} {
		reg.Register(c)
	}
	s, err := mpi.OpenSession(ctx, mpi.WithRegistry(reg))
	if err != nil {
		return err
	}
	c, err := newWorldComm(ctx, s, "reuse")
	if err != nil {
		return err
	}
	peer := 1 - c.Rank()
	rng := rand.New(rand.NewPCG(uint64(c.Rank()), 1)) // Different numbers than those of the peer.
	received, buf := 0, make([]int64, 600)
	for i := range rounds() {
		d, err := c.Dup(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		// Receive some of them, large or small, possibly none.
		for k := range rng.IntN(4) {
			message := make([]int64, 1+599*(k%2))
			message[0] = int64(i)
			if err := mpi.Send(ctx, d, message, peer, k); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		for range rng.IntN(3) {
			st, ok, err := d.Iprobe(peer, mpi.AnyTag)
			if err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
			if !ok {
				continue
			}
			if _, err := mpi.Recv(ctx, d, buf, peer, st.Tag); err != nil || buf[0] != int64(i) {
				return fmt.Errorf("round %d: a message of round %d, %+v, %v", i, buf[0], st, err)
			}
			received++
		}
		if err := d.Close(); err != nil {
			return err
		}
		// Ranks drift apart within a limit.
		if i%200 == 199 {
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
		}
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	var dropped uint64
	for _, p := range s.Stats().Peers {
		dropped += p.Dropped
	}
	fmt.Printf("%d messages received, %d dropped, %d frames late or blocked\n", received, dropped, faults.Injected())
	if received == 0 || dropped == 0 || faults.Injected() == 0 {
		return errors.New("inconclusive: no message was received, dropped or delayed")
	}
	return errors.Join(c.Close(), s.Close())
}

// Rank 0 dups and sends. Rank 1 dups a minute later and receives.
func TestLateDup(t *testing.T) { run(t, 2, "late-dup", size(60_000, 300)) }

func lateDupRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	if c.Rank() == 1 {
		time.Sleep(time.Duration(rounds()) * time.Millisecond) // The delay is the subject of the test.
	}
	d, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	large := make([]int64, 100_000)
	for i := range 50 {
		large[0] = int64(i)
		if c.Rank() == 0 {
			err = errors.Join(mpi.Send(ctx, d, large[:1], 1, 0), mpi.Send(ctx, d, large, 1, 1))
		} else {
			small := make([]int64, 1)
			_, err = mpi.Recv(ctx, d, small, 0, 0)
			if err == nil {
				clear(large)
				_, err = mpi.Recv(ctx, d, large, 0, 1)
			}
			if small[0] != int64(i) || large[0] != int64(i) {
				err = errors.Join(err, fmt.Errorf("messages %d and %d", small[0], large[0]))
			}
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
	}
	return d.Close()
}
