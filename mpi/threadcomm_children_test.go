package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// Communicators that goroutine ranks create.

// TestDup_RankIsManyBasesAhead_DerivesTheSameIDs: Dup waits for no other rank. A rank may have drawn several bases for
// ids, each of 65,535 children, before another rank draws the first.
func TestDup_RankIsManyBasesAhead_DerivesTheSameIDs(t *testing.T) {
	const dups = 2*65535 + 2
	ids := [2]map[int]mpi.CommID{{}, {}}
	inThreads(t, 2, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			if _, err := c.Recv(ctx, nil, 0, 1); err != nil {
				return err
			}
		}
		for i := range dups {
			d, err := c.Dup(ctx)
			if err != nil {
				return fmt.Errorf("dup %d: %w", i, err)
			}
			if i%1000 == 0 || i == dups-1 {
				ids[c.Rank()][i] = d.ID()
			}
			if err := d.Close(); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			return c.Send(ctx, nil, 1, 1)
		}
		return nil
	})
	for i, id := range ids[0] {
		if ids[1][i] != id {
			t.Errorf("duplicate %d is %v in rank 0 and %v in rank 1", i, id, ids[1][i])
		}
	}
}

// A program may spend its life in one Run.
func TestSplit_ManyInOneRun_LeaveNothing(t *testing.T) {
	const ranks = 32
	splits := 200
	if underRace {
		splits = 20
	}
	var before, after uint64
	inThreads(t, ranks, func(ctx context.Context, c *mpi.Comm) error {
		for round := range 4 {
			for range splits {
				d, err := c.Split(ctx, 0, -c.Rank())
				if err != nil {
					return err
				}
				g, err := d.Group().Incl(0, 1, 2)
				if err != nil {
					return err
				}
				var e *mpi.Comm
				if g.Rank() != mpi.Undefined {
					if e, err = d.CreateGroup(ctx, g, 1); err != nil {
						return err
					}
					err = errors.Join(mpi.Barrier(ctx, e), e.Close())
				}
				if err := errors.Join(err, mpi.Barrier(ctx, d), d.Close()); err != nil {
					return err
				}
			}
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
			if c.Rank() == 0 && round == 1 {
				before = heapInUse()
			}
			if c.Rank() == 0 && round == 3 {
				after = heapInUse()
			}
			if err := mpi.Barrier(ctx, c); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("%d splits: %d bytes, then %d", 2*splits, before, after)
	// The members of one communicator take a kilobyte.
	if limit := before + 200<<10; after > limit {
		t.Errorf("%d splits have left %d bytes", 2*splits, after-before)
	}
}

// A table for each rank takes ranks x ranks entries.
func TestSplit_RanksOfAProcess_ShareTheMembers(t *testing.T) {
	const ranks = 8
	var tables [ranks][3]any
	inThreads(t, ranks, func(ctx context.Context, c *mpi.Comm) error {
		half, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		d, err := half.Dup(ctx)
		if err != nil {
			return err
		}
		tables[c.Rank()] = [3]any{mpi.TableOf(c), mpi.TableOf(half), mpi.TableOf(d)}
		return errors.Join(d.Close(), half.Close())
	})
	for rank, of := range tables {
		if of[0] != tables[0][0] || of[1] != tables[rank%2][1] || of[2] != of[1] {
			t.Errorf("rank %d has tables of its own", rank)
		}
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // Pools keep objects for one collection.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
