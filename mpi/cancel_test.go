package mpi_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// chances makes a test's choices.
type chances uint64

const envSeed = "SEED"

// seed returns the random source of a test. A failure prints its seed, and SEED=n repeats it.
func seed(t *testing.T) chances {
	t.Helper()
	k := chances(rand.Uint64())
	if s := os.Getenv(envSeed); s != "" {
		k = seedOf(s)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d", envSeed, k)
		}
	})
	return k
}

func seedOf(text string) chances {
	n, _ := strconv.ParseUint(text, 10, 64)
	return chances(n)
}

// of returns the choices of a rank.
func (k chances) of(rank int) *rand.Rand { return rand.New(rand.NewPCG(uint64(k), uint64(rank))) }

// soon returns a context that is canceled at a random time, before, during or after the call. The returned function
// cancels it and waits for the goroutine.
func soon(ctx context.Context, rng *rand.Rand) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	turns := rng.IntN(60) - 5
	if turns <= 0 {
		cancel()
		return ctx, cancel
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range turns {
			runtime.Gosched()
		}
		cancel()
	})
	return ctx, func() { cancel(); wg.Wait() }
}

func TestWithdraw_AnyMoment_MessageIsCompleteOrAbsent(t *testing.T) {
	policies(t, 2, inWorld(seed(t).withdraw), "agree", "lazy")
}

// withdraw: rank 0 sends numbered messages with contexts that end at random, and
// rank 1 receives likewise. Exactly those whose send returned no error arrive,
// whole and in order.
func (k chances) withdraw(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	const rounds, most = 1500, 200_000
	rng := k.of(c.Rank())
	canceled := 0
	bodies := pattern(most+256, 0)
	buf := make([]byte, most)
	if c.Rank() == 0 {
		var sent []int64
		for i := range rounds {
			// The reason for a length: eager, in several cells, an offer.
			size := 8 + []int{rng.IntN(32), rng.IntN(4000), rng.IntN(most - 8)}[rng.IntN(3)]
			binary.LittleEndian.PutUint64(buf, uint64(i))
			copy(buf[8:size], bodies[i%256:])
			short, cancel := soon(ctx, rng)
			var err error
			switch rng.IntN(4) {
			case 0:
				err = c.Ssend(short, buf[:size], 1, 1)
			case 1:
				_, err = c.Sendrecv(short, buf[:size], 1, 1, nil, mpi.ProcNull, 0)
			default:
				err = c.Send(short, buf[:size], 1, 1)
			}
			cancel()
			switch {
			case err == nil:
				sent = append(sent, int64(i))
			case errors.Is(err, mpi.ErrCanceled) && errors.Is(err, context.Canceled):
				canceled++
			default:
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		if err := errors.Join(c.Send(ctx, nil, 1, 1), mpi.Send(ctx, c, sent, 1, 2)); err != nil {
			return err
		}
		return must(canceled > 0 && len(sent) > 0, "%d sent, %d withdrawn: the moments are not random", len(sent), canceled)
	}
	var got []int64
	for {
		short, cancel := soon(ctx, rng)
		var st mpi.Status
		var err error
		switch rng.IntN(4) {
		case 0:
			_, err = c.Probe(short, 0, 1)
			if err == nil {
				st, err = c.Recv(short, buf, 0, 1)
			}
		case 1:
			var m *mpi.Message
			if m, _, err = c.Mprobe(short, 0, 1); err == nil {
				st, err = m.Recv(short, buf)
			}
		default:
			st, err = c.Recv(short, buf, mpi.AnySource, 1)
		}
		cancel()
		if errors.Is(err, mpi.ErrCanceled) {
			canceled++
			continue
		}
		if err != nil {
			return err
		}
		if st.Bytes == 0 {
			break
		}
		i := int(binary.LittleEndian.Uint64(buf))
		if err := kittest.Differ(buf[8:st.Bytes], bodies[i%256:][:st.Bytes-8]); err != nil {
			return fmt.Errorf("message %d of %d bytes: %w", i, st.Bytes, err)
		}
		got = append(got, int64(i))
	}
	want := make([]int64, rounds)
	st, err := mpi.Recv(ctx, c, want, 0, 2)
	if err != nil {
		return err
	}
	n, _ := mpi.Count[int64](st)
	if n != len(got) {
		return fmt.Errorf("%d messages arrived of %d sent", len(got), n)
	}
	for k, i := range want[:n] {
		if got[k] != i {
			return fmt.Errorf("place %d: message %d arrived where %d was sent", k, got[k], i)
		}
	}
	return nil
}

func TestCreation_ContextEndsAtAnyMoment_OthersWork(t *testing.T) {
	ranks(t, 3, inWorld(seed(t).endedCreations), "bootstrap.timeout=20s")
}

// endedCreations: all members make communicators, and their contexts end at
// random. Each call returns; what was made works or is closed; and afterwards
// session and parent go on.
func (k chances) endedCreations(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	rng := k.of(c.Rank())
	made, failed := 0, 0
	for round := range 60 {
		// Every round has a separate parent, because a failure breaks its collectives.
		parent, err := c.Dup(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		short, cancel := soon(ctx, rng)
		var d *mpi.Comm
		switch kind := round % 5; kind {
		case 0:
			d, err = mpi.CommFromGroup(short, c.Group(), fmt.Sprint("round ", round))
		case 1:
			d, err = parent.Split(short, c.Rank()%2, 0)
		case 2:
			d, err = parent.Create(short, c.Group())
		case 3:
			d, err = parent.CreateGroup(short, c.Group(), round)
		case 4:
			d, err = parent.Dup(short)
		}
		cancel()
		if err == nil {
			made++
			// It is whole on this side: a message to oneself works whatever the others have.
			if _, err := d.Sendrecv(ctx, []byte{1}, d.Rank(), 0, make([]byte, 1), d.Rank(), 0); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			err = d.Close()
		} else {
			failed++
			if !errors.Is(err, mpi.ErrCanceled) && !errors.Is(err, mpi.ErrTimeout) && !errors.Is(err, mpi.ErrBroken) {
				return fmt.Errorf("round %d: %w", round, err)
			}
			if round%5 != 0 {
				err = wants("a collective after a creation that failed", mpi.Barrier(ctx, parent), mpi.ErrBroken)
			} else {
				err = nil
			}
		}
		if err := errors.Join(err, parent.Close()); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := mpi.Barrier(ctx, c); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return must(made > 0 && failed > 0, "%d made, %d failed: the moments are not random", made, failed)
}

func TestSend_UnknownPeer_IsWithdrawn(t *testing.T) {
	ranks(t, 2, lateCard)
}

// lateClient finishes a construct late in rank 1.
type lateClient struct{ bootstrap.Client }

func (c *lateClient) Unwrap() any { return c.Client }

func (c *lateClient) Construct(ctx context.Context, group []framework.Proc, tag string, b []byte) (bootstrap.Constructed, error) {
	made, err := c.Client.Construct(ctx, group, tag, b)
	if err == nil && c.Identity().Proc.Rank == 1 {
		if _, err := c.Get(ctx, group[0], "withdrawing"); err != nil {
			return made, err
		}
		for range 20_000 { // The progress goroutine receives the frames of a process that is unknown here.
			runtime.Gosched()
		}
	}
	return made, err
}

func lateCard(ctx context.Context) error {
	late := &lateClient{mpitest.Client(ctx)}
	s, err := mpitest.Open(ctx, mpi.WithBootstrap(late), mpi.WithParam("cid.policy", "lazy"))
	if err != nil {
		return err
	}
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, world, "late")
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		sent := make(chan error)
		go func() { sent <- c.Ssend(short, []byte("withdrawn"), 1, 1) }()
		in := func(state string) error {
			for {
				x, err := c.Inspect()
				if err != nil || len(x.Sends) == 1 && x.Sends[0].State == state {
					return err
				}
				runtime.Gosched()
			}
		}
		if err := in("offered"); err != nil {
			return err
		}
		cancel()
		if err := errors.Join(in("withdrawing"), late.Put(ctx, "withdrawing", nil)); err != nil {
			return err
		}
		// Rank 1 may be quick, and match the offer first.
		if err := <-sent; err != nil && !errors.Is(err, mpi.ErrCanceled) {
			return err
		}
		if err := c.Send(ctx, []byte("kept"), 1, 1); err != nil {
			return err
		}
	} else {
		for buf, n := make([]byte, 16), 0; string(buf[:n]) != "kept"; {
			st, err := c.Recv(ctx, buf, 0, 1)
			if err != nil {
				return err
			}
			n = st.Bytes
		}
	}
	return errors.Join(c.Close(), s.Close())
}
