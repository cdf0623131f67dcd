package wire

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// A Run is a framework.ProcRun in a message.
type Run struct {
	_         struct{} `cbor:",toarray"`
	Namespace string
	First     uint32
	Stride    int32
	Count     uint32
}

func (r Run) procs() framework.ProcRun {
	return framework.ProcRun{Namespace: r.Namespace, First: r.First, Stride: r.Stride, Count: r.Count}
}

// bounds returns the lowest and the highest rank of a run, which may be invalid.
func (r Run) bounds() (lowest, highest int64) {
	first, last := int64(r.First), int64(r.First)+(int64(r.Count)-1)*int64(r.Stride)
	return min(first, last), max(first, last)
}

// Runs is a group in its order. MakeRuns returns equal runs for equal groups.
type Runs []Run

// MakeRuns returns group as runs.
func MakeRuns(group []framework.Proc) Runs {
	var rs Runs
	for r := range framework.ProcsOf(group...).Runs() {
		rs = append(rs, Run{Namespace: r.Namespace, First: r.First, Stride: r.Stride, Count: r.Count})
	}
	return rs
}

// Index returns the position of rank in the group, or -1. All members share a namespace.
func (rs Runs) Index(rank uint32) int {
	at := 0
	for _, r := range rs {
		if i := r.procs().Index(rank); i >= 0 {
			return at + i
		}
		at += int(r.Count)
	}
	return -1
}

// Len returns the number of members. Call Check first, because it bounds the number.
func (rs Runs) Len() (n int) {
	for _, r := range rs {
		n += int(r.Count)
	}
	return n
}

// All returns the positions and ranks of the members. Call Check first.
func (rs Runs) All() iter.Seq2[int, uint32] {
	return func(yield func(int, uint32) bool) {
		at := 0
		for _, r := range rs {
			run := r.procs()
			for i := range int(r.Count) {
				if !yield(at+i, run.At(i).Rank) {
					return
				}
			}
			at += int(r.Count)
		}
	}
}

// Ranks returns the ranks of the members in order. Call Check first.
func (rs Runs) Ranks() []uint32 {
	var out []uint32
	for _, rank := range rs.All() {
		out = append(out, rank)
	}
	return out
}

// Check returns an error if the group is empty, or has an empty or malformed run, a process outside
// the job of size processes in namespace, or a member twice.
func (rs Runs) Check(namespace string, size int) error {
	if len(rs) == 0 {
		return errors.New("the group is empty")
	}
	for _, r := range rs {
		if r.Namespace != namespace {
			return fmt.Errorf("%s:%d is not a process of this job (%s)", r.Namespace, r.First, namespace)
		}
		if r.Count == 0 {
			return errors.New("the group has an empty run")
		}
		if (r.Stride == 0) != (r.Count == 1) {
			return fmt.Errorf("the group has a run of %d processes with stride %d", r.Count, r.Stride)
		}
		if lowest, highest := r.bounds(); lowest < 0 || highest >= int64(size) {
			return fmt.Errorf("ranks %d to %d are beyond the job's %d processes", lowest, highest, size)
		}
	}
	// Runs without a common interval are disjoint. This check allocates memory for the runs only,
	// because a group of few processes may have high ranks.
	ascending := slices.SortedFunc(slices.Values(rs), func(a, b Run) int {
		lowestOfA, _ := a.bounds()
		lowestOfB, _ := b.bounds()
		return cmp.Compare(lowestOfA, lowestOfB)
	})
	end := int64(-1)
	for _, r := range ascending {
		lowest, highest := r.bounds()
		if lowest <= end {
			return rs.checkDuplicates()
		}
		end = highest
	}
	return nil
}

// checkDuplicates returns an error if a rank is listed twice. It allocates one bit for each rank up
// to the highest.
func (rs Runs) checkDuplicates() error {
	end := int64(0)
	for _, r := range rs {
		_, highest := r.bounds()
		end = max(end, highest)
	}
	listed := make([]uint64, end/64+1)
	for _, rank := range rs.All() {
		if listed[rank/64]&(1<<(rank%64)) != 0 {
			return fmt.Errorf("rank %d is in the group twice", rank)
		}
		listed[rank/64] |= 1 << (rank % 64)
	}
	return nil
}
