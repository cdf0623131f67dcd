package mpitest

import (
	"bytes"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
)

// Labels of goroutines, which those that they start inherit.
const (
	labelJob  = "mpitest-job"
	labelRank = "mpitest-rank"
)

// runs makes the names of jobs unique.
var runs atomic.Uint64

// stacks returns the stacks of a job's goroutines, of one rank if that is not empty;
// "" if there are none.
func stacks(job, rank string) string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return err.Error()
	}
	var found []string
	for block := range strings.SplitSeq(b.String(), "\n\n") {
		if !strings.Contains(block, label(labelJob, job)) || rank != "" && !strings.Contains(block, label(labelRank, rank)) {
			continue
		}
		found = append(found, block)
	}
	return strings.Join(found, "\n\n")
}

// label is how a profile shows one.
func label(key, value string) string { return strconv.Quote(key) + ":" + strconv.Quote(value) }
