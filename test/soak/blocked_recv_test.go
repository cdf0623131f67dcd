package soak

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/doorbell"
	"github.com/ferrympi/ferry/mpi"
)

// availableMemory returns the available memory in bytes.
func availableMemory() (bytes int64) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			fmt.Sscan(rest, &bytes)
		}
	}
	return bytes << 10
}

func isPath(name string) bool { return os.Getenv("SOAK_PATH") == name }

// 10,000 goroutines blocked in Recv use fewer than 20 threads.
func TestGoroutines(t *testing.T) { run(t, 2, "goroutines", size(10_000, 1000)) }

func goroutinesRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	n := rounds()
	if c.Rank() == 1 {
		if _, err := c.Recv(ctx, nil, 0, n); err != nil { // All others are blocked.
			return err
		}
		for i := range n {
			if err := c.Send(ctx, []byte{1}, 0, i); err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { _, errs[i] = c.Recv(ctx, make([]byte, 1), 1, i) })
	}
	for {
		in, err := c.Inspect()
		if err != nil {
			return err
		}
		if len(in.Posted) == n {
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d receives are posted: %w", len(in.Posted), n, ctx.Err())
		}
		time.Sleep(time.Millisecond) // Yields to the goroutines that post.
	}
	blocked := threadCount()
	if err := c.Send(ctx, nil, 1, n); err != nil {
		return err
	}
	wg.Wait()
	fmt.Printf("%d goroutines in Recv: %d threads; %d when all had received\n", n, blocked, threadCount())
	if blocked >= 20 {
		return errors.New("too many threads")
	}
	return errors.Join(errs...)
}

func threadCount() int {
	all, _ := os.ReadDir("/proc/self/task")
	return len(all)
}

// A blocked Recv returns within 3 times a raw futex wake-up after the arrival of the message. The
// criterion applies to the full size, because smaller ones are dominated by noise.
func TestWake(t *testing.T) { run(t, 2, "wake", size(1000, 50)) }

// wakeRank measures from the moment before the sender's call to the moment after the receiver's return,
// by the clock that processes share. The receiver sleeps before.
func wakeRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	path := os.Getenv("FERRY_BTL_SHM_DIR") + "/wake"
	if c.Rank() == 0 {
		if err := os.WriteFile(path, make([]byte, os.Getpagesize()), 0o600); err != nil {
			return err
		}
		defer os.Remove(path)
	}
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(mem)
	bell := doorbell.At(mem[:doorbell.Size])
	var raw, recv []int64
	stamp := make([]byte, 8)
	for range rounds() {
		for _, futex := range []bool{true, false} {
			if c.Rank() == 0 {
				if _, err := c.Recv(ctx, nil, 1, 1); err != nil { // The peer is about to sleep.
					return err
				}
				time.Sleep(2 * time.Millisecond) // The peer sleeps now.
				binary.NativeEndian.PutUint64(stamp, uint64(monotonicNow()))
				if futex {
					copy(mem[64:], stamp)
					bell.Ring()
				} else if err := c.Send(ctx, stamp, 1, 2); err != nil {
					return err
				}
				continue
			}
			ticket := bell.Arm()
			if err := c.Send(ctx, nil, 0, 1); err != nil {
				return err
			}
			if futex {
				bell.Sleep(ticket, time.Second)
				raw = append(raw, monotonicNow()-int64(binary.NativeEndian.Uint64(mem[64:])))
				continue
			}
			bell.Disarm()
			if _, err := c.Recv(ctx, stamp, 0, 2); err != nil {
				return err
			}
			recv = append(recv, monotonicNow()-int64(binary.NativeEndian.Uint64(stamp)))
		}
	}
	if c.Rank() == 0 {
		return mpi.Barrier(ctx, c)
	}
	slices.Sort(raw)
	slices.Sort(recv)
	at := func(s []int64, part int) time.Duration { return time.Duration(s[len(s)*part/100]) }
	fmt.Printf("median (90 %%) of %d: futex wake %v (%v), blocked Recv %v (%v)\n", len(raw),
		at(raw, 50), at(raw, 90), at(recv, 50), at(recv, 90))
	if len(raw) >= 1000 && at(recv, 50) > 3*at(raw, 50) {
		return errors.New("Recv returns too late")
	}
	return mpi.Barrier(ctx, c)
}

// monotonicNow returns the monotonic clock, which all processes of the machine share.
func monotonicNow() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
