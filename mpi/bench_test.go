package mpi_test

import (
	"context"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// self returns a communicator of this process alone, for measuring the software of a message.
func self(b *testing.B) *mpi.Comm {
	b.Helper()
	ctx := context.Background()
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	g, err := s.Group(ctx, "mpi://SELF")
	if err != nil {
		b.Fatal(err)
	}
	c, err := mpi.CommFromGroup(ctx, g, "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// BenchmarkSendRecv is one message of 8 bytes by Send and Recv.
func BenchmarkSendRecv(b *testing.B) {
	c, ctx, buf := self(b), context.Background(), make([]byte, 8)
	for b.Loop() {
		if err := c.Send(ctx, buf, 0, 1); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Recv(ctx, buf, 0, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExchange is a send and a receive of 8 bytes by Isend, Irecv and WaitAll, and by
// Isendrecv and Wait.
func BenchmarkExchange(b *testing.B) {
	c, ctx, in, out := self(b), context.Background(), make([]byte, 8), make([]byte, 8)
	both := make([]mpi.Request, 2)
	b.Run("Isend and Irecv", func(b *testing.B) {
		for b.Loop() {
			both[0], _ = c.Irecv(in, 0, 1)
			both[1], _ = c.Isend(out, 0, 1)
			if err := mpi.WaitAll(ctx, both, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Isendrecv", func(b *testing.B) {
		for b.Loop() {
			q, _ := c.Isendrecv(out, 0, 1, in, 0, 1)
			if _, err := q.Wait(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWindow is a window of 64 messages of 8 bytes, by Irecv, Isend and
// WaitAll, as in OSU's mbw_mr: divide by 64.
func BenchmarkWindow(b *testing.B) {
	c, ctx, in, out := self(b), context.Background(), make([]byte, 8), make([]byte, 8)
	recvs, sends := make([]mpi.Request, 64), make([]mpi.Request, 64)
	for b.Loop() {
		var err error
		for i := range recvs {
			if recvs[i], err = c.Irecv(in, 0, 1); err != nil {
				b.Fatal(err)
			}
		}
		for i := range sends {
			if sends[i], err = c.Isend(out, 0, 1); err != nil {
				b.Fatal(err)
			}
		}
		if err := mpi.WaitAll(ctx, sends, nil); err != nil {
			b.Fatal(err)
		}
		if err := mpi.WaitAll(ctx, recvs, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAllreduce is one of 8 bytes among two ranks in its three forms.
func BenchmarkAllreduce(b *testing.B) {
	op := mpi.Sum[int64]()
	for _, x := range []struct {
		name string
		form func(ctx context.Context, c *mpi.Comm, in, out []int64) (func() error, error)
	}{
		{"blocking", func(ctx context.Context, c *mpi.Comm, in, out []int64) (func() error, error) {
			return func() error { return mpi.Allreduce(ctx, c, in, out, op) }, nil
		}},
		{"nonblocking", func(ctx context.Context, c *mpi.Comm, in, out []int64) (func() error, error) {
			return func() error { return waitFor(ctx)(mpi.Iallreduce(c, in, out, op)) }, nil
		}},
		{"persistent", func(ctx context.Context, c *mpi.Comm, in, out []int64) (func() error, error) {
			p, err := mpi.AllreduceInit(ctx, c, in, out, op)
			return func() error {
				if err := p.Start(); err != nil {
					return err
				}
				_, err := p.Wait(ctx)
				return err
			}, err
		}},
	} {
		b.Run(x.name, func(b *testing.B) {
			mpitest.Job{Size: 2}.Run(b, func(ctx context.Context, c *mpi.Comm) error {
				call, err := x.form(ctx, c, []int64{1}, make([]int64, 1))
				if err != nil {
					return err
				}
				for range 3 { // Instances are open then.
					if err := mpi.Barrier(ctx, c); err != nil {
						return err
					}
				}
				if c.Rank() == 0 {
					b.ResetTimer()
				}
				for range b.N {
					if err := call(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
