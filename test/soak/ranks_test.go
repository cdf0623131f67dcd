package soak

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/procstat"
	"github.com/ferrympi/ferry/mpi"
)

// 10,000 goroutine ranks of one process work, wait, split and end without a leak. The time limits
// apply to the full size, because smaller ones are dominated by noise.
func TestGoroutineRanks(t *testing.T) { run(t, 1, "goroutine-ranks", size(10_000, 1000)) }

// Limits of the full size.
const (
	maxWorkTime      = 10 * time.Second // Time of hello, barrier, allreduce and ring.
	maxRankMemory    = 32 << 10         // Bytes per rank.
	maxThreads       = 20               // Threads of the process.
	maxIdleProcessor = 0.01             // Processors used by all blocked ranks.
	maxEndTime       = time.Second      // Time from a panic to the end of all ranks.
)

// isFull reports whether the program runs at its full size.
func isFull() bool { return rounds() >= 10_000 }

func goroutineRanks(ctx context.Context, _ *mpi.Session, world *mpi.Comm) error {
	n := rounds()
	if err := workAndWait(ctx, world, n); err != nil {
		return fmt.Errorf("work and wait: %w", err)
	}
	if err := panicOne(ctx, world, n); err != nil {
		return fmt.Errorf("panic: %w", err)
	}
	if err := splitRanks(ctx, world, n/10); err != nil {
		return fmt.Errorf("split: %w", err)
	}
	return createThreadComms(ctx, world, n/10)
}

// inRanks runs f in n goroutine ranks.
func inRanks(ctx context.Context, world *mpi.Comm, n int, f func(context.Context, *mpi.Comm) error) (err error) {
	tc, err := mpi.NewThreadComm(ctx, world, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tc.Close()) }() // Also if Run panics.
	return tc.Run(ctx, f)
}

// workAndWait measures the time of some operations, and then blocked ranks.
func workAndWait(ctx context.Context, world *mpi.Comm, n int) error {
	before := memoryInUse()
	start := time.Now()
	var blocked atomic.Int64
	return inRanks(ctx, world, n, func(ctx context.Context, c *mpi.Comm) error {
		if err := workOnce(ctx, c); err != nil {
			return err
		}
		if c.Rank() > 0 {
			q, err := c.Irecv(nil, 0, 9)
			if err != nil {
				return err
			}
			blocked.Add(1)
			_, err = q.Wait(ctx)
			return err
		}
		elapsed := time.Since(start)
		for blocked.Load() < int64(n-1) && ctx.Err() == nil {
			time.Sleep(time.Millisecond) // Yields to ranks that are about to wait.
		}
		err := checkBlocked(n, elapsed, before)
		for rank := 1; rank < n; rank++ {
			err = errors.Join(err, c.Send(ctx, nil, rank, 9))
		}
		return err
	})
}

// workOnce is hello, barrier, allreduce and ring.
func workOnce(ctx context.Context, c *mpi.Comm) error {
	n, rank := c.Size(), c.Rank()
	hello := fmt.Appendf(nil, "hello from %d", rank)
	if rank > 0 {
		if err := c.Send(ctx, hello, 0, 1); err != nil {
			return err
		}
	}
	buf := make([]byte, 32)
	for i := 1; rank == 0 && i < n; i++ {
		st, err := c.Recv(ctx, buf, mpi.AnySource, 1)
		if err != nil || string(buf[:st.Bytes]) != fmt.Sprint("hello from ", st.Source) {
			return fmt.Errorf("%q, %+v, %w", buf[:st.Bytes], st, err)
		}
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	sum := []int64{int64(rank)}
	if err := mpi.Allreduce(ctx, c, nil, sum, mpi.Sum[int64]()); err != nil || sum[0] != int64(n)*int64(n-1)/2 {
		return fmt.Errorf("sum %d, %w", sum[0], err)
	}
	if rank == 0 {
		if err := c.Send(ctx, []byte("token"), 1%n, 2); err != nil {
			return err
		}
	}
	st, err := c.Recv(ctx, buf, (rank+n-1)%n, 2)
	if err == nil && rank > 0 {
		err = c.Send(ctx, buf[:st.Bytes], (rank+1)%n, 2)
	}
	if err != nil || string(buf[:st.Bytes]) != "token" {
		return fmt.Errorf("ring: %q, %w", buf[:st.Bytes], err)
	}
	return mpi.Barrier(ctx, c)
}

// checkBlocked measures the process while n ranks are blocked.
func checkBlocked(n int, elapsed time.Duration, before int64) error {
	each := (memoryInUse() - before) / int64(n)
	const span = 2 * time.Second
	used := processorTime()
	time.Sleep(span) // The idle time is the subject of the test.
	share := float64(processorTime()-used) / float64(span)
	fmt.Printf("%d ranks: hello, barrier, allreduce, ring in %v; blocked, they take %d B each, %d threads, %.2f %% of a processor\n",
		n, elapsed.Round(time.Millisecond), each, threadCount(), 100*share)
	switch {
	case each >= maxRankMemory:
		return errors.New("too much memory")
	case threadCount() >= maxThreads:
		return errors.New("too many threads")
	case isFull() && elapsed > maxWorkTime:
		return errors.New("too slow")
	case isFull() && share >= maxIdleProcessor:
		return errors.New("blocked ranks use the processor")
	}
	return nil
}

// memoryInUse returns the size of heap and stacks after a garbage collection.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC() // Pools retain objects for one collection.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// splitRanks splits n ranks, and the parts again.
func splitRanks(ctx context.Context, world *mpi.Comm, n int) error {
	start := time.Now()
	err := inRanks(ctx, world, n, func(ctx context.Context, c *mpi.Comm) error {
		for _, parts := range []int{1, 7, n} {
			part, err := c.Split(ctx, c.Rank()%parts, -c.Rank())
			if err != nil {
				return err
			}
			half, err := part.Split(ctx, part.Rank()%2, 0)
			if err != nil {
				return err
			}
			for _, d := range []*mpi.Comm{part, half} {
				count := []int64{1}
				if err := mpi.Allreduce(ctx, d, nil, count, mpi.Sum[int64]()); err != nil || int(count[0]) != d.Size() {
					return fmt.Errorf("%d of %d members, %w", count[0], d.Size(), err)
				}
				if err := d.Close(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	fmt.Printf("%d ranks split 6 times in %v\n", n, time.Since(start).Round(time.Millisecond))
	return err
}

// createThreadComms creates and closes n thread communicators.
func createThreadComms(ctx context.Context, world *mpi.Comm, n int) error {
	settled := n / 2
	var before procstat.Usage
	for i := range n {
		if i == settled {
			before = procstat.Measure()
		}
		err := inRanks(ctx, world, 4, func(ctx context.Context, c *mpi.Comm) error {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			return errors.Join(mpi.Barrier(ctx, d), d.Close())
		})
		if err != nil {
			return fmt.Errorf("thread communicator %d: %w", i, err)
		}
	}
	after := procstat.Measure()
	fmt.Printf("after %d thread communicators %+v, after %d %+v\n", settled, before, n, after)
	switch {
	case after.Descriptors > before.Descriptors || after.Goroutines > before.Goroutines:
		return errors.New("descriptors or goroutines grow")
	case after.Heap-before.Heap > 64<<10: // The runtime and pools retain memory occasionally.
		return errors.New("the heap grows")
	}
	return nil
}

// panicOne measures the time until the other ranks end.
func panicOne(ctx context.Context, world *mpi.Comm, n int) error {
	const reason = "a rank of the soak test panics"
	var panicked time.Time
	var broken atomic.Int64
	raised := func() (v any) {
		defer func() { v = recover() }()
		return inRanks(ctx, world, n, func(ctx context.Context, c *mpi.Comm) error {
			err := mpi.Barrier(ctx, c)
			if c.Rank() == n*7/10 {
				panicked = time.Now()
				panic(reason)
			}
			if err == nil {
				_, err = c.Recv(ctx, nil, mpi.AnySource, 1)
			}
			if errors.Is(err, mpi.ErrBroken) {
				broken.Add(1)
			}
			return err
		})
	}()
	elapsed := time.Since(panicked)
	fmt.Printf("one of %d ranks panicked, and all had ended after %v\n", n, elapsed.Round(time.Millisecond))
	switch {
	case raised != reason:
		return fmt.Errorf("Run raised %v", raised)
	case broken.Load() != int64(n-1):
		return fmt.Errorf("%d of %d ranks ended with ErrBroken", broken.Load(), n-1)
	case isFull() && elapsed > maxEndTime:
		return errors.New("too slow")
	}
	return nil
}
