package wire

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// A Run is Count processes of one namespace with consecutive ascending ranks.
// WORLD is one Run, whatever its size.
type Run struct {
	_         struct{} `cbor:",toarray"`
	Namespace string
	First     uint32
	Count     uint32
}

// Runs is a group in its order. Equal groups have equal runs when each is as
// long as it can be; MakeRuns makes them so.
type Runs []Run

// MakeRuns returns group as runs.
func MakeRuns(group []framework.Proc) Runs {
	var rs Runs
	for _, p := range group {
		if n := len(rs); n > 0 {
			if r := &rs[n-1]; r.Namespace == p.Namespace && uint64(r.First)+uint64(r.Count) == uint64(p.Rank) {
				r.Count++
				continue
			}
		}
		rs = append(rs, Run{Namespace: p.Namespace, First: p.Rank, Count: 1})
	}
	return rs
}

// Index returns the position of rank in the group, whose members all share a
// namespace, or -1.
func (rs Runs) Index(rank uint32) int {
	at := 0
	for _, r := range rs {
		if rank >= r.First && rank-r.First < r.Count {
			return at + int(rank-r.First)
		}
		at += int(r.Count)
	}
	return -1
}

// Ranks returns the members in order. Check comes first: it bounds the length.
func (rs Runs) Ranks() []uint32 {
	var out []uint32
	for _, r := range rs {
		for i := range r.Count {
			out = append(out, r.First+i)
		}
	}
	return out
}

// Check reports what is wrong with a group of a job of size processes in
// namespace: empty, strangers, or a member twice.
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
		if last := uint64(r.First) + uint64(r.Count) - 1; last >= uint64(size) {
			return fmt.Errorf("rank %d is beyond the job's %d processes", last, size)
		}
	}
	// By runs, not by ranks: a group of few processes may have high ranks.
	ascending := slices.SortedFunc(slices.Values(rs), func(a, b Run) int { return cmp.Compare(a.First, b.First) })
	for i, r := range ascending[1:] {
		if before := ascending[i]; before.First+before.Count > r.First {
			return fmt.Errorf("rank %d is in the group twice", r.First)
		}
	}
	return nil
}
