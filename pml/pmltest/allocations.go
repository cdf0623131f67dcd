package pmltest

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// A measurement counts the allocations in rounds of a ping-pong, after as many warm-up rounds.
// AllocsPerRun counts those of the whole process, including both sides and occasional tasks of the
// runtime. An allocation per message is in every measurement.
const (
	steadyRounds = 200
	measurements = 3
)

// steady fails if each of the measurements of a ping-pong between two processes counts allocations.
func steady(t *testing.T, stack Stack, name string, play func(ctx context.Context, rank int, c pml.Comm) error) {
	t.Run(name, func(t *testing.T) {
		w, err := NewWorld(stack, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		comms, err := w.Comm(cid.PolicyAgree)
		if err != nil {
			t.Fatal(err)
		}
		counts := make([]float64, 0, measurements)
		for range measurements {
			n := allocationsPerRound(t, comms, play)
			if n == 0 {
				return
			}
			counts = append(counts, n)
		}
		t.Errorf("%v allocations per message and its answer", counts)
	})
}

// allocationsPerRound returns the allocations of both sides in a round of the ping-pong.
func allocationsPerRound(t *testing.T, comms []pml.Comm, play func(ctx context.Context, rank int, c pml.Comm) error) float64 {
	ctx := context.Background()
	other := make(chan error, 1)
	go func() {
		for range steadyRounds + 1 + steadyRounds { // AllocsPerRun calls its function once more than it counts.
			if err := play(ctx, 1, comms[1]); err != nil {
				other <- err
				return
			}
		}
		other <- nil
	}()
	round := func() {
		if err := play(ctx, 0, comms[0]); err != nil {
			t.Fatal(err)
		}
	}
	for range steadyRounds {
		round()
	}
	n := testing.AllocsPerRun(steadyRounds, round)
	if err := <-other; err != nil {
		t.Fatal(err)
	}
	return n
}

// NoAllocations requires that messages do not allocate memory once all pools are filled. It sends short and
// long messages, blocking and nonblocking, expected and unexpected.
func NoAllocations(t *testing.T, stack Stack) {
	const plane = pml.PointToPoint
	empty := pml.Buffer{}
	for _, size := range []int{8, 4096, 1 << 20} {
		buf := [2]pml.Buffer{{Bytes: make([]byte, size)}, {Bytes: make([]byte, size)}}
		steady(t, stack, fmt.Sprintf("send and receive %d", size), func(ctx context.Context, rank int, c pml.Comm) error {
			if rank == 1 {
				if _, err := c.Recv(ctx, buf[1], 0, 1, plane); err != nil {
					return err
				}
				return c.Send(ctx, buf[1], 0, 1, plane, pml.Standard)
			}
			if err := c.Send(ctx, buf[0], 1, 1, plane, pml.Standard); err != nil {
				return err
			}
			_, err := c.Recv(ctx, buf[0], pml.AnySource, pml.AnyTag, plane)
			return err
		})
		steady(t, stack, fmt.Sprintf("start and wait %d", size), func(ctx context.Context, rank int, c pml.Comm) error {
			r, err := c.Irecv(buf[rank], 1-rank, 1, plane)
			if err != nil {
				return err
			}
			rg := r.Generation()
			s, err := c.Isend(buf[rank], 1-rank, 1, plane, pml.Standard)
			if err != nil {
				return err
			}
			sg := s.Generation()
			if _, err = r.Wait(ctx, rg); err == nil {
				_, err = s.Wait(ctx, sg)
			}
			return err
		})
	}
	small := pml.Buffer{Bytes: make([]byte, 500)}
	room := pml.Buffer{Bytes: make([]byte, 500)}
	steady(t, stack, "unexpected", func(ctx context.Context, rank int, c pml.Comm) error {
		if rank == 0 { // Tag 2 is sent after tag 1 and received first.
			if err := c.Send(ctx, small, 1, 1, plane, pml.Standard); err != nil {
				return err
			}
			if err := c.Send(ctx, small, 1, 2, plane, pml.Standard); err != nil {
				return err
			}
			_, err := c.Recv(ctx, empty, 1, 3, plane)
			return err
		}
		if _, err := c.Recv(ctx, room, 0, 2, plane); err != nil {
			return err
		}
		if _, err := c.Recv(ctx, room, 0, 1, plane); err != nil {
			return err
		}
		return c.Send(ctx, empty, 0, 3, plane, pml.Standard)
	})
	steady(t, stack, "iprobe", func(ctx context.Context, rank int, c pml.Comm) error {
		if rank == 0 {
			if err := c.Send(ctx, small, 1, 1, plane, pml.Standard); err != nil {
				return err
			}
			_, err := c.Recv(ctx, empty, 1, 3, plane)
			return err
		}
		for {
			_, ok, err := c.Iprobe(pml.AnySource, pml.AnyTag, plane)
			if err != nil {
				return err
			}
			if ok {
				break
			}
			runtime.Gosched() // AllocsPerRun leaves one processor.
		}
		if _, err := c.Recv(ctx, room, 0, 1, plane); err != nil {
			return err
		}
		return c.Send(ctx, empty, 0, 3, plane, pml.Standard)
	})
}
