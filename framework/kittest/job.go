package kittest

import (
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// AddedFirst is a value of First for processes added after many changes. A job assigns at most 1,048,576 ranks.
const AddedFirst = 1_048_000

// Job simulates the processes of a case within the process of the test.
type Job struct {
	Namespace string // Unique.
	// First is the rank of the first process in the namespace. Above 0, the processes were added to a running job by one
	// change.
	First        int
	nodeRanks    [][]uint32
	size         int
	incarnations int
}

var jobs atomic.Uint64 // Makes namespaces unique.

// NewJob returns a job of size processes, placed on nodes round robin.
func NewJob(size, nodes int) *Job {
	j := &Job{Namespace: fmt.Sprintf("job-%d-%d", time.Now().UnixNano(), jobs.Add(1)), size: size, nodeRanks: make([][]uint32, nodes)}
	for rank := range size {
		j.nodeRanks[rank%nodes] = append(j.nodeRanks[rank%nodes], uint32(rank))
	}
	return j
}

// Begin returns the environment of a new incarnation of a rank, which counts from First. The caller closes the engine.
func (j *Job) Begin(rank int, opt progress.Options) progress.Env {
	j.incarnations++
	proc := framework.Proc{Namespace: j.Namespace, Rank: uint32(j.First + rank)}
	nodeRanks := slices.Clone(j.nodeRanks[rank%len(j.nodeRanks)])
	for i := range nodeRanks {
		nodeRanks[i] += uint32(j.First)
	}
	opt.NodeProcs = len(nodeRanks)
	return progress.Env{
		Identity: bootstrap.Identity{Proc: proc, FirstRank: j.First, Size: j.size, MaxSize: j.size, LocalRank: rank / len(j.nodeRanks), LocalSize: len(nodeRanks), LocalRanks: nodeRanks},
		Worlds:   framework.NewWorlds(j.Namespace),
		Self:     framework.Incarnation{ID: framework.MakeProcID(0, proc.Rank), Nonce: framework.NamespaceHash(fmt.Sprint(proc, j.incarnations))},
		Node:     fmt.Sprintf("%s/%d", j.Namespace, rank%len(j.nodeRanks)),
		Engine:   progress.New(opt),
		Logger:   slog.New(slog.DiscardHandler),
	}
}

// Params returns the default parameters of a component after a call of change, which may be nil.
func Params(c framework.Component, change func(params any)) any {
	params := c.Params()
	if params != nil {
		framework.FillDefaults(params)
		if change != nil {
			change(params)
		}
	}
	return params
}
