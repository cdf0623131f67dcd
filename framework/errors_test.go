package framework

import (
	"errors"
	"testing"
)

func TestProcFailedError_RankDiffersFromJob_NamesBoth(t *testing.T) {
	for _, c := range []struct {
		err  ProcFailedError
		want string
	}{
		{ProcFailedError{Ranks: []int{1}}, "process failed: rank 1"},
		{ProcFailedError{Ranks: []int{1}, JobRanks: []int{1}, Cause: "exit status 3"}, "process failed: rank 1 (exit status 3)"},
		{ProcFailedError{Ranks: []int{0}, JobRanks: []int{5}, Cause: "exit status 3"}, "process failed: rank 0 (rank 5 of the job) (exit status 3)"},
		{ProcFailedError{Ranks: []int{0, 2, 3}, JobRanks: []int{0, 7, 9}}, "process failed: rank 0, 2 (rank 7 of the job), 3 (rank 9 of the job)"},
		// Goroutine ranks of one process.
		{ProcFailedError{Ranks: []int{4, 5, 6}, JobRanks: []int{2, 2, 3}}, "process failed: rank 4, 5 (rank 2 of the job), 6 (rank 3 of the job)"},
		{ProcFailedError{Ranks: []int{4, 5}, JobRanks: []int{4}}, "process failed: rank 4, 5"},
	} {
		if got := c.err.Error(); got != c.want || !errors.Is(&c.err, ErrProcFailed) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
