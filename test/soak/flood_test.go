package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/procstat"
	"github.com/ferrympi/ferry/mpi"
)

// The receiver takes the last of 10,000 messages with tag 1 and one with tag 2 first. Its memory is
// bounded.
func TestLateTag(t *testing.T) { run(t, 2, "late-tag", size(10_000, 1000)) }

func lateTagRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	n := rounds()
	message := bytes.Repeat([]byte{7}, 4000)
	if c.Rank() == 0 {
		reqs := make([]mpi.Request, n+1)
		for i := range reqs {
			var err error
			if reqs[i], err = c.Isend(message, 1, 1+i/n); err != nil {
				return err
			}
		}
		return mpi.WaitAll(ctx, reqs, nil)
	}
	before := procstat.Measure()
	if _, err := c.Recv(ctx, make([]byte, 4000), 0, 2); err != nil {
		return err
	}
	grown := procstat.Measure().Heap - before.Heap
	fmt.Printf("%d messages of %d B take %d B at their receiver\n", n, len(message), grown)
	// The budget is 1 MiB with rounding. The other messages are RTS of about 150 B.
	if limit := int64(3<<20 + n*300); grown > limit {
		return fmt.Errorf("want at most %d", limit)
	}
	buf := make([]byte, 4000)
	for range n {
		clear(buf)
		if _, err := c.Recv(ctx, buf, 0, 1); err != nil || !bytes.Equal(buf, message) {
			return fmt.Errorf("tag 1: %w", err)
		}
	}
	return nil
}

// A computing process gets 10,000 unmatched small messages.
func TestFlood(t *testing.T) { run(t, 2, "flood", size(10_000, 2000)) }

func floodRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	n := rounds()
	if c.Rank() == 0 {
		if err := mpi.Barrier(ctx, c); err != nil {
			return err
		}
		reqs := make([]mpi.Request, n)
		start := time.Now()
		for i := range reqs {
			var err error
			if reqs[i], err = mpi.Isend(c, []int64{int64(i), 0, 0, 0, 0, 0, 0, 0}, 1, 3); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		fmt.Printf("%d messages given to the library in %v\n", n, time.Since(start))
		return mpi.WaitAll(ctx, reqs, nil)
	}
	before := procstat.Measure()
	if err := mpi.Barrier(ctx, c); err != nil {
		return err
	}
	compute(time.Second, func() bool { return false })
	grown := procstat.Measure().Heap - before.Heap
	fmt.Printf("they take %d B while their receiver computes\n", grown)
	if limit := int64(3<<20 + n*300); grown > limit {
		return fmt.Errorf("want at most %d", limit)
	}
	got := make([]int64, 8)
	for i := range n {
		if _, err := mpi.Recv(ctx, c, got, 0, 3); err != nil || got[0] != int64(i) {
			return fmt.Errorf("received message %d, want %d: %v", got[0], i, err)
		}
	}
	return nil
}

// computeResult keeps the result of compute alive.
var computeResult uint64

// compute neither calls ferry nor blocks until ends returns true, or for a time.
func compute(d time.Duration, ends func() bool) {
	for end := time.Now().Add(d); time.Now().Before(end) && !ends(); {
		for range 10_000 {
			computeResult = computeResult*6364136223846793005 + 1442695040888963407
		}
	}
}

// An Isend of 1 MiB to a computing process returns at once, and completes while that process
// computes.
func TestIsend_PeerComputes_Completes(t *testing.T) {
	run(t, 2, "keeper", size(20, 3), "SOAK_COMPLETE="+filepath.Join(t.TempDir(), "complete"))
}

func computingPeerRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	buf := make([]byte, 1<<20)
	span := make([]int64, 1) // Duration of the computation of the receiver.
	for i := range rounds() {
		if c.Rank() == 0 {
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
			start := time.Now()
			r, err := c.Isend(buf, 1, i)
			if err != nil {
				return err
			}
			returned := time.Since(start)
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
			done := time.Since(start)
			if err := os.WriteFile(completionFile(i), nil, 0o600); err != nil {
				return err
			}
			if _, err := mpi.Recv(ctx, c, span, 1, i); err != nil {
				return err
			}
			if i == 0 {
				fmt.Printf("Isend of 1 MiB returned after %v and was complete after %v\n", returned, done)
			}
			if d := time.Duration(span[0]); d >= promptLimit {
				return fmt.Errorf("round %d: Isend took %v and was complete after %v, and the receiver computed for %v", i, returned, done, d)
			}
			continue
		}
		r, err := c.Irecv(buf, 0, i)
		if err != nil {
			return err
		}
		if err := mpi.Barrier(ctx, c); err != nil {
			return err
		}
		start := time.Now()
		compute(promptLimit, func() bool { return exists(completionFile(i)) })
		span[0] = int64(time.Since(start))
		if _, err := r.Wait(ctx); err != nil {
			return err
		}
		if err := mpi.Send(ctx, c, span, 0, i); err != nil {
			return err
		}
	}
	return nil
}

// completionFile returns the file that notifies the receiver, without a message, that the sender's
// request is complete.
func completionFile(round int) string { return fmt.Sprint(os.Getenv("SOAK_COMPLETE"), round) }

// A message of 5 GiB is transferred over each path for large messages.
func TestBig(t *testing.T) {
	needs.Time(t)
	mib := size(5<<10, 32)
	if *full && availableMemory() < 14<<30 {
		t.Skipf("needs 14 GiB of memory, and %d MiB are available", availableMemory()>>20)
	}
	for _, path := range []string{"off", "cma", "memory"} {
		t.Run(path, func(t *testing.T) { run(t, 2, "big", mib, "FERRY_BTL_SHM_SINGLE_COPY="+path, "SOAK_PATH="+path) })
	}
	for _, provider := range []string{"tcp;ofi_rxm", "sockets"} { // sockets transfers at most 8 MiB at a time, and tcp;ofi_rxm any size.
		t.Run(provider, func(t *testing.T) {
			run(t, 2, "big", mib, append(overNetwork(t), "FERRY_MTL_OFI_PROVIDER_INCLUDE="+provider)...)
		})
	}
}

func bigRank(ctx context.Context, s *mpi.Session, c *mpi.Comm) (err error) {
	n := rounds() << 20
	var words []uint64
	if c.Rank() == 0 && isPath("memory") {
		mem, err := mpi.AllocMem(s, n)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, mem.Close()) }()
		words = mpi.View[uint64](mem)
	} else {
		words = make([]uint64, n/8)
	}
	const every = 1 << 20 / 8 // A mark in each MiB, and in the last word.
	mark := func(i int) uint64 { return uint64(i)*0x9E3779B97F4A7C15 + 1 }
	if c.Rank() == 0 {
		for i := 0; i < len(words); i += every {
			words[i] = mark(i)
		}
		words[len(words)-1] = mark(-1)
		start := time.Now()
		if err := mpi.Send(ctx, c, words, 1, 0); err != nil {
			return err
		}
		t := time.Since(start)
		fmt.Printf("%d MiB in %v, %.1f GB/s\n", n>>20, t.Round(time.Millisecond), float64(n)/t.Seconds()/1e9)
		_, err := c.Recv(ctx, nil, 1, 1)
		return err
	}
	st, err := mpi.Recv(ctx, c, words, 0, 0)
	if err != nil || st.Bytes != n {
		return fmt.Errorf("%+v, %v", st, err)
	}
	for i, w := range words {
		want := uint64(0)
		switch {
		case i == len(words)-1:
			want = mark(-1)
		case i%every == 0:
			want = mark(i)
		}
		if w != want {
			return fmt.Errorf("word %d of %d is %#x, want %#x", i, len(words), w, want)
		}
	}
	return c.Send(ctx, nil, 0, 1)
}
