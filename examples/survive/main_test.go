package main

import (
	"context"
	"errors"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

func TestMain(m *testing.M) { ferrytest.Main(m, map[string]func(){"survive": main}) }

func TestScripts(t *testing.T) { ferrytest.Run(t) }

// small is a computation that takes a moment.
func small(kill ...int) options {
	o := options{gridSize: 24, stepCount: 40, checkpointInterval: 5, copyCount: 1, killedRanks: map[int]bool{}}
	for _, rank := range kill {
		o.killedRanks[rank] = true
	}
	return o
}

// TestSurvive_RanksDie_ResultIsThatOfAnUninterruptedRun has ranks that die at random steps.
func TestSurvive_RanksDie_ResultIsThatOfAnUninterruptedRun(t *testing.T) {
	for range 10 {
		for name, o := range map[string]options{"none": small(), "first": small(0), "last": small(5), "two": small(1, 3), "three": small(0, 2, 4)} {
			t.Run(name, func(t *testing.T) {
				mpitest.Run(t, 6, func(ctx context.Context, c *mpi.Comm) error {
					return survive(ctx, c, o, func() { mpitest.Die(ctx) })
				})
			})
		}
	}
}

// TestSurvive_BuddyDiesToo_BlockIsLost has two neighbors that die in the same step.
func TestSurvive_BuddyDiesToo_BlockIsLost(t *testing.T) {
	for copies, want := range map[int]error{1: errLost, 2: nil} {
		o := small()
		o.copyCount = copies
		mpitest.Run(t, 5, func(ctx context.Context, c *mpi.Comm) error {
			m := newMember(c, o)
			defer m.close()
			if c.Rank() == 2 || c.Rank() == 3 {
				m.dieAt, m.dieNow = 12, func() { mpitest.Die(ctx) }
			}
			if err := m.solve(ctx); !errors.Is(err, want) {
				return err
			}
			return nil
		})
	}
}
