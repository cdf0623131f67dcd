// Package bootstraptest is the kit for implementations of the bootstrap
// contract: it starts jobs through a Factory and checks what the contract
// claims, under absence, death, cancellation and closing, too.
//
// It never looks inside an implementation, and never sleeps to wait: what has
// to happen is awaited through the contract, within a deadline.
package bootstraptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

// Want says what a case needs of a job.
type Want struct {
	Size    int
	Timeout time.Duration       // for bootstrap.Env of every client
	Psets   map[string][]uint32 // named by the launcher
	Most    int                 // Largest number of processes at a time; 0: Size.
	Needs   Guarantees          // of those that a client may lack
	Reports bool                // Job.ReportDead is called.
}

// Job is a running job whose processes are all clients of this one.
type Job struct {
	Clients []bootstrap.Client // by rank
	// Kill ends a process as a crash would: without Close. When it returns, the
	// client is of no use. nil: the kit can't do that with this implementation.
	Kill func(rank int) error
	// ReportDead reports a live process dead, as a launcher that is wrong does, and returns the reason in the
	// event. Another process has an OnEvent. Nil skips such cases.
	ReportDead func(rank int) (reason string, err error)
	// LoseHost ends processes as the loss of their host does. Their connections do not end. It returns when all
	// others are due to have noticed. Nil: the processes are on one host.
	LoseHost func(ranks []int) error
	// Break breaks all connections of a process, and returns when both ends have noticed. The
	// processes may restore them before. Nil: a broken connection is the death of a process.
	Break func(rank int) error
	// Added returns the client of a process that a change has started, and waits for it. nil: the
	// launcher starts no processes while the job runs.
	Added func(ctx context.Context, rank int) (bootstrap.Client, error)
	// Close ends the job, and clients that are still open.
	Close func() error
}

// A Factory starts a job. An error that wraps ErrSkip says that the
// implementation has no such jobs, and why.
type Factory func(ctx context.Context, want Want) (*Job, error)

// ErrSkip marks a case that does not apply; the wrapping error gives the reason.
var ErrSkip = kittest.ErrSkip

const (
	// long is the clients' deadline where it must not pass.
	long = 50 * time.Second
	// short is the same where it must. It is long enough for those who are there
	// to come, on a busy machine.
	short = time.Second
)

// claims are those of the contract, with the job that each needs.
type claims = []kittest.Claim[Want, *job]

// job is a job for as long as a case runs.
type job struct {
	*kittest.T
	*Job
}

// Cases returns the claims of the contract, to be made of the jobs of factory.
func Cases(factory Factory) kittest.Cases {
	all := slices.Concat(storeCases(), groupCases(), faultCases(), revocationCases(), reportedDeadCases(), connectionCases(), directoryCases(), setCases(), changeCases(), changeEndCases())
	return kittest.Bind(all, func(t *kittest.T, want Want) *job {
		j, err := factory(t.Context(), want)
		t.Check(err)
		t.Cleanup(j.Close)
		for rank, c := range j.Clients {
			_, err := bootstrap.CheckedClient(fmt.Sprintf("of rank %d", rank), c)
			t.Check(err)
		}
		return &job{t, j}
	})
}

// world returns the group of all processes.
func (j *job) world() []framework.Proc { return j.group(j.ranks()...) }

// ranks returns those of all processes.
func (j *job) ranks() []int {
	all := make([]int, len(j.Clients))
	for i := range all {
		all[i] = i
	}
	return all
}

// group returns the processes of ranks.
func (j *job) group(ranks ...int) []framework.Proc {
	g := make([]framework.Proc, len(ranks))
	for i, r := range ranks {
		g[i] = j.Clients[r].Identity().Proc
	}
	return g
}

// all runs f for every rank at the same time.
func (j *job) all(f func(rank int)) { j.Each(len(j.Clients), f) }

// put, get, fence and construct are calls that succeed, of a rank's client.
func (j *job) put(rank int, key, value string) {
	if err := j.Clients[rank].Put(j.Context(), key, []byte(value)); err != nil {
		j.Fatalf("rank %d: put %q: %v", rank, key, err)
	}
}

func (j *job) get(rank, of int, key, want string) {
	v, err := j.Clients[rank].Get(j.Context(), j.group(of)[0], key)
	if err != nil || string(v) != want {
		j.Fatalf("rank %d: get %q of rank %d: %.100q, %v, want %.100q", rank, key, of, v, err, want)
	}
}

func (j *job) fence(rank int, tag string, members ...int) {
	if err := j.Clients[rank].Fence(j.Context(), j.group(members...), tag); err != nil {
		j.Fatalf("rank %d: fence %q of %v: %v", rank, tag, members, err)
	}
}

// meet is a fence of all.
func (j *job) meet(tag string) { j.all(func(r int) { j.fence(r, tag, j.ranks()...) }) }

// construct makes one of members, whose payloads say who and which.
func (j *job) construct(rank int, members []int, tag string, seen *ids, who string) {
	group := j.group(members...)
	pay := func(p framework.Proc) string { return fmt.Sprintf("%s from %d", who, p.Rank) }
	got, err := j.Clients[rank].Construct(j.Context(), group, tag, []byte(pay(j.group(rank)[0])))
	if err != nil {
		j.Fatalf("rank %d: construct %s: %v", rank, who, err)
	}
	if len(got.Payloads) != len(group) {
		j.Fatalf("construct %s: %d payloads for %d members", who, len(got.Payloads), len(group))
	}
	for i, p := range group {
		if string(got.Payloads[i]) != pay(p) {
			j.Fatalf("construct %s: payload of %s is %q, want %q", who, p, got.Payloads[i], pay(p))
		}
	}
	seen.add(j, got.ContextID, who)
}

// missing fails unless err names exactly missing and failed.
func (j *job) missing(what string, err error, missing, failed []framework.Proc) {
	var m *framework.MissingError
	if !errors.As(err, &m) {
		j.Fatalf("%s: got error %v, want a MissingError", what, err)
	}
	if !sameProcs(m.Missing, missing) || !sameProcs(m.Failed, failed) {
		j.Fatalf("%s: missing %v, failed %v; want %v and %v", what, m.Missing, m.Failed, missing, failed)
	}
}

// sameProcs compares as sets.
func sameProcs(a, b []framework.Proc) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p framework.Proc) bool { return !slices.Contains(b, p) })
}
