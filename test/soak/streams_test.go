package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/procstat"
	"github.com/ferrympi/ferry/mpi"
)

// Streams end with their last communicators, 16 at once.
func TestStreams_CreatedAndEnded_LeaveNothing(t *testing.T) {
	for _, stack := range []string{"FERRY_BTL=self,shm", "FERRY_BTL=self,tcp"} {
		t.Run(stack, func(t *testing.T) { run(t, 2, "streams", size(1000, 64), stack) })
	}
}

// streamsAtOnce is the number of streams that are open at the same time.
const streamsAtOnce = 16

// Limits of the growth from the second half of the streams. Threads and mappings of the Go runtime
// and the memory of pools vary.
const (
	moreThreads       = 8
	moreMappings      = 16
	maxHeapGrowth     = 1 << 20 // Transports retain a buffer of the last messages for a while.
	maxResidentGrowth = 4 << 10 // Bytes per stream.
)

func streamsRank(ctx context.Context, s *mpi.Session, c *mpi.Comm) error {
	n := rounds()
	for range 3 { // The paths and the collective segment of the processes exist afterwards.
		if err := exchangeOnStream(ctx, c); err != nil {
			return err
		}
	}
	without := measureStreams()
	without.Descriptors++                       // A stream checks for stale segments, and a descriptor of this process's own inbox stays open for the next one.
	if err := mpi.Barrier(ctx, c); err != nil { // The other process has measured, too.
		return err
	}
	var first, last streamUsage
	var x, resident []float64
	for done := 0; done < n; {
		batch := min(streamsAtOnce, n-done)
		if err := useStreams(ctx, s, c, batch); err != nil {
			return fmt.Errorf("streams %d to %d: %w", done, done+batch-1, err)
		}
		done += batch
		var err error
		if last, err = awaitEnds(ctx, without); err == nil {
			err = mpi.Barrier(ctx, c) // The other process counts segments, too.
		}
		if err != nil {
			return fmt.Errorf("after %d streams: %w", done, err)
		}
		if done < n/2 {
			continue
		}
		if first.Heap == 0 {
			first = last
		}
		x, resident = append(x, float64(done)), append(resident, float64(last.Resident))
	}
	growth := procstat.Slope(x, resident)
	fmt.Printf("without streams %+v, after %d %+v, after %d %+v; resident memory per stream %+.0f B\n", without, n/2, first, n, last, growth)
	switch {
	case last.Threads > first.Threads+moreThreads:
		return fmt.Errorf("%d threads after %d", last.Threads, first.Threads)
	case last.Mappings > first.Mappings+moreMappings:
		return fmt.Errorf("%d mappings after %d", last.Mappings, first.Mappings)
	case last.Heap > first.Heap+maxHeapGrowth:
		return fmt.Errorf("a heap of %d bytes after %d", last.Heap, first.Heap)
	case n >= 1000 && growth > maxResidentGrowth: // Shorter runs are dominated by noise.
		return fmt.Errorf("resident memory grows by %.0f B for each stream", growth)
	}
	return nil
}

// useStreams creates streams, exchanges messages on each, and closes their communicators in turn.
func useStreams(ctx context.Context, s *mpi.Session, c *mpi.Comm, n int) error {
	var onStreams []*mpi.Comm
	for range n {
		stream, err := s.NewStream()
		if err != nil {
			return err
		}
		d, err := c.WithStream(ctx, stream)
		if err != nil {
			return err
		}
		onStreams = append(onStreams, d)
	}
	for i, d := range onStreams {
		if err := errors.Join(exchangeOnStream(ctx, d), d.Close()); err != nil {
			return fmt.Errorf("stream %d: %w", i, err)
		}
	}
	return nil
}

// exchangeOnStream exchanges a small and a large message, and executes a barrier.
func exchangeOnStream(ctx context.Context, c *mpi.Comm) error {
	peer := 1 - c.Rank()
	for _, bytes := range []int{1, 256 << 10} {
		out, in := make([]byte, bytes), make([]byte, bytes)
		out[bytes-1] = byte(peer + 1)
		if st, err := c.Sendrecv(ctx, out, peer, bytes, in, peer, bytes); err != nil || st.Bytes != bytes || in[bytes-1] != byte(c.Rank()+1) {
			return fmt.Errorf("%d bytes: %+v, %d at the end, %w", bytes, st, in[bytes-1], err)
		}
	}
	return mpi.Barrier(ctx, c)
}

// streamUsage is the usage of a process with the number of segments of all processes.
type streamUsage struct {
	procstat.Usage
	Threads, Segments int
}

func measureStreams() streamUsage {
	u := streamUsage{Usage: procstat.Measure(), Threads: threadCount()}
	entries, _ := os.ReadDir(os.Getenv("FERRY_BTL_SHM_DIR")) // run has created it.
	u.Segments = len(entries)
	return u
}

// awaitEnds returns when the streams have ended, which they do in the background.
func awaitEnds(ctx context.Context, without streamUsage) (u streamUsage, err error) {
	ctx, cancel := context.WithTimeout(ctx, promptLimit)
	defer cancel()
	for pause := time.Millisecond; ; pause *= 2 {
		if u = measureStreams(); u.Segments <= without.Segments && u.Descriptors <= without.Descriptors && u.Goroutines <= without.Goroutines {
			return u, nil
		}
		select {
		case <-ctx.Done():
			return u, fmt.Errorf("leaked segments, descriptors or goroutines: %+v, without streams %+v", u, without)
		case <-time.After(pause):
		}
	}
}
