package mpi_test

import (
	"context"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// TestThreadComm_ProgramsOfProcesses_WorkInGoroutineRanks runs programs that other tests run in processes.
func TestThreadComm_ProgramsOfProcesses_WorkInGoroutineRanks(t *testing.T) {
	noLeak(t)
	bsendLimit := mpi.WithParam("session.bsend_limit", "1MiB")
	for _, x := range []struct {
		name    string
		ranks   int
		program worldProgram
		opts    []mpi.SessionOption
	}{
		{"arguments", 2, arguments, nil},
		{"bsend", 2, bsend, []mpi.SessionOption{bsendLimit}},
		{"carts", 6, carts, nil},
		{"collective that fails", 2, broken, nil},
		{"collectives of 1", 1, collectives, nil},
		{"collectives of 3", 3, collectives, nil},
		{"collectives of 8", 8, collectives, nil},
		{"contexts", 2, contexts, nil},
		{"create", 5, create, nil},
		{"createGroup", 4, createGroup, nil},
		{"ended contexts", 2, callWithEndedContext, nil},
		{"exchange of all sizes", 2, exchangeAllSizes, nil},
		{"goroutines", 2, goroutines, nil},
		{"graphs", 3, graphs, nil},
		{"idup", 3, idup, nil},
		{"layouts", 2, layouts, nil},
		{"many duplicates", 2, manyDups, nil},
		{"mixed tags", 3, mixedTags, nil},
		{"mprobe", 2, mprobe, nil},
		{"neighbors", 4, neighbors, nil},
		{"persistent", 2, persistent, nil},
		{"requests", 2, requests, nil},
		{"split", 5, split, nil},
		{"wait for some", 2, some, nil},
		{"withdraw", 2, seed(t).withdraw, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, parent := singleton(t, x.opts...)
			tc, err := mpi.NewThreadComm(t.Context(), parent, x.ranks)
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error { return x.program(ctx, s, c) }); err != nil {
				t.Error(err)
			}
			if err := tc.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The memory is unmapped otherwise, and the receiver's
// copy crashes the program.
func TestMemoryClose_GoroutineRankSendsFromIt_IsErrPending(t *testing.T) {
	s, parent := singleton(t)
	tc, err := mpi.NewThreadComm(t.Context(), parent, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := tc.Run(t.Context(), func(ctx context.Context, c *mpi.Comm) error { return memory(ctx, s, c) }); err != nil {
		t.Error(err)
	}
	if err := tc.Close(); err != nil {
		t.Error(err)
	}
}
