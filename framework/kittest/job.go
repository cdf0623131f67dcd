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

// AddedFirst is a First for jobs of processes that were added after many changes. A job assigns
// 1,048,576 ranks at most.
const AddedFirst = 1_048_000

// Job is the processes of a case, which all live inside this one.
type Job struct {
	Namespace string // no other job has it
	// First is the rank of the first process in the namespace. Above 0, the processes are those
	// of one change, which were added to a running job.
	First  int
	locals [][]uint32
	size   int
	lives  int
}

var jobs atomic.Uint64 // makes namespaces unique

// NewJob returns a job of size processes, which believe that they are on so many
// nodes, in turns.
func NewJob(size, nodes int) *Job {
	j := &Job{Namespace: fmt.Sprintf("job-%d-%d", time.Now().UnixNano(), jobs.Add(1)), size: size, locals: make([][]uint32, nodes)}
	for rank := range size {
		j.locals[rank%nodes] = append(j.locals[rank%nodes], uint32(rank))
	}
	return j
}

// Begin returns what the modules of a process are opened with: each time it is called
// for a rank, which counts from First, a life of its own. Whoever calls it closes the engine.
func (j *Job) Begin(rank int, opt progress.Options) progress.Env {
	j.lives++
	proc := framework.Proc{Namespace: j.Namespace, Rank: uint32(j.First + rank)}
	here := slices.Clone(j.locals[rank%len(j.locals)])
	for i := range here {
		here[i] += uint32(j.First)
	}
	opt.NodeProcs = len(here)
	return progress.Env{
		Identity: bootstrap.Identity{Proc: proc, First: j.First, Size: j.size, Most: j.size, LocalRank: rank / len(j.locals), LocalSize: len(here), Locals: here},
		Worlds:   framework.NewWorlds(j.Namespace),
		Self:     framework.Life{ID: framework.MakeProcID(0, proc.Rank), Nonce: framework.NamespaceHash(fmt.Sprint(proc, j.lives))},
		Node:     fmt.Sprintf("%s/%d", j.Namespace, rank%len(j.locals)),
		Engine:   progress.New(opt),
		Logger:   slog.New(slog.DiscardHandler),
	}
}

// Params returns the parameters of a component: their defaults, which change may
// change. It may be nil.
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
