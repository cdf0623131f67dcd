package soak

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/internal/procstat"
	"github.com/ferrympi/ferry/mpi"
)

// Sessions that open and close, also while others are open, leak nothing.
func TestCycles(t *testing.T) { run(t, 2, "cycles", size(1000, 200)) }

func cycleRank(ctx context.Context) error {
	n, settled := rounds(), 100
	var x, heap, resident []float64
	var first, last procstat.Usage
	for i := range n {
		if err := cycle(ctx, i); err != nil {
			return fmt.Errorf("cycle %d: %w", i, err)
		}
		if i < settled || i%10 != 0 && i != n-1 {
			continue
		}
		last = procstat.Measure()
		if first.Heap == 0 {
			first = last
		}
		x, heap, resident = append(x, float64(i)), append(heap, float64(last.Heap)), append(resident, float64(last.Resident))
	}
	fmt.Printf("after %d cycles %+v, at the end %+v; per cycle: heap %+.0f B, resident %+.0f B\n",
		settled, first, last, procstat.Slope(x, heap), procstat.Slope(x, resident))
	switch {
	case last.Descriptors > first.Descriptors || last.Goroutines > first.Goroutines:
		return errors.New("descriptors or goroutines grow")
	case last.Mappings > first.Mappings+8: // The Go runtime creates mappings occasionally.
		return errors.New("mappings grow")
	case last.Heap-first.Heap > 64<<10: // The runtime and pools retain memory occasionally.
		return errors.New("the heap grows")
	case n >= 1000 && procstat.Slope(x, resident) > 1024: // Shorter runs are dominated by noise.
		return errors.New("resident memory grows")
	}
	return nil
}

// cycle opens a session. Every third cycle opens another one before it closes the first.
func cycle(ctx context.Context, i int) error {
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	c, err := newWorldComm(ctx, s, "cycle")
	if err != nil {
		return err
	}
	talk := func(c *mpi.Comm) error {
		buf := make([]byte, 8)
		st, err := c.Sendrecv(ctx, []byte{byte(i)}, 1-c.Rank(), 1, buf, 1-c.Rank(), 1)
		if err == nil && (st.Bytes != 1 || buf[0] != byte(i)) {
			err = fmt.Errorf("%+v, %v", st, buf)
		}
		return err
	}
	if i%3 == 0 {
		s2, err := mpi.OpenSession(ctx)
		if err != nil {
			return err
		}
		c2, err := newWorldComm(ctx, s2, "overlapping")
		if err != nil {
			return err
		}
		if err := errors.Join(talk(c2), talk(c), c.Close(), s.Close(), talk(c2)); err != nil {
			return err
		}
		return errors.Join(c2.Close(), s2.Close())
	}
	return errors.Join(talk(c), c.Close(), s.Close())
}

// A run dups and closes 100,000 times.
func TestDups(t *testing.T) { run(t, 2, "dups", size(100_000, 3000)) }

func dupRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	n := rounds()
	var before procstat.Usage
	buf := make([]byte, 1)
	for i := range n {
		if i == n/2 {
			before = procstat.Measure()
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return fmt.Errorf("dup %d: %w", i, err)
		}
		if i%10 == 0 {
			if _, err := d.Sendrecv(ctx, []byte{byte(i)}, 1-c.Rank(), 0, buf, 1-c.Rank(), 0); err != nil || buf[0] != byte(i) {
				return fmt.Errorf("dup %d: %v, %v", i, buf[0], err)
			}
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(ctx, c); err != nil { // Close markers are in flight.
		return err
	}
	after := procstat.Measure()
	fmt.Printf("half way %+v, at the end %+v\n", before, after)
	// Tombstones are bounded. Beyond them, a closed communicator retains nothing.
	if grown := after.Heap - before.Heap; grown > 8<<20 {
		return fmt.Errorf("the heap has grown by %d bytes over %d dups", grown, n/2)
	}
	return nil
}

// 40,000 communicators exist at once.
func TestComms(t *testing.T) { run(t, 2, "comms", size(40_000, 2000)) }

func commsRank(ctx context.Context, _ *mpi.Session, c *mpi.Comm) error {
	before := procstat.Measure()
	all := make([]*mpi.Comm, rounds())
	for i := range all {
		var err error
		if all[i], err = c.Dup(ctx); err != nil {
			return fmt.Errorf("dup %d: %w", i, err)
		}
	}
	buf := make([]byte, 8)
	for i := len(all) - 1; i >= 0; i -= 97 { // Includes the last one.
		if _, err := mpi.Sendrecv(ctx, all[i], []int32{int32(i)}, 1-c.Rank(), 5, make([]int32, 1), 1-c.Rank(), 5); err != nil {
			return fmt.Errorf("communicator %d: %w", i, err)
		}
		if st, ok, err := all[(i+1)%len(all)].Iprobe(mpi.AnySource, mpi.AnyTag); ok || err != nil {
			return fmt.Errorf("communicator %d has a message of another one: %+v, %v", i+1, st, err)
		}
	}
	held := procstat.Measure()
	for _, d := range all {
		if err := d.Close(); err != nil {
			return err
		}
	}
	if _, err := c.Sendrecv(ctx, []byte{1}, 1-c.Rank(), 0, buf, 1-c.Rank(), 0); err != nil {
		return err
	}
	fmt.Printf("%d communicators take %d B of heap each\n", len(all), (held.Heap-before.Heap)/int64(len(all)))
	return nil
}
