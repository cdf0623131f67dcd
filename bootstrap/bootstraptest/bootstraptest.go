// Package bootstraptest is the kit for implementations of the bootstrap contract. It starts jobs
// through a Factory and checks the contract, including absence, death, cancellation and closing.
//
// It treats implementations as black boxes, and never sleeps to wait. Conditions are awaited
// through the contract, within a deadline.
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

// Want describes the job of a case.
type Want struct {
	Size int
	// Of bootstrap.Env in every client.
	Timeout time.Duration
	// Process sets of the launcher.
	Psets map[string][]uint32
	// Largest number of processes at a time. 0 means Size.
	MaxProcs int
	// Guarantees that the case needs.
	Needs Guarantees
	// The case calls Job.ReportDead.
	Reports bool
}

// Job is a running job with the clients of all its processes.
type Job struct {
	// By rank.
	Clients []bootstrap.Client
	// Kill ends a process as a crash would, without Close. Its client is unusable afterwards. nil
	// skips such cases.
	Kill func(rank int) error
	// ReportDead reports a live process dead, as a faulty launcher does, and returns the reason in
	// the event. Another process has called OnEvent. nil skips such cases.
	ReportDead func(rank int) (reason string, err error)
	// LoseHost ends processes as the loss of their host does, without ending their connections. It
	// returns when all others must have noticed. nil means that the processes are on one host.
	LoseHost func(ranks []int) error
	// Break breaks all connections of a process, and returns when both ends have noticed. The
	// processes may restore them earlier. nil means that a broken connection is the death of a
	// process.
	Break func(rank int) error
	// Added waits for a process that a change has started, and returns its client. nil means that
	// the launcher starts no processes while the job runs.
	Added func(ctx context.Context, rank int) (bootstrap.Client, error)
	// Close ends the job and the open clients.
	Close func() error
}

// A Factory starts a job. An error that wraps ErrSkip gives the reason why the implementation has
// no such jobs.
type Factory func(ctx context.Context, want Want) (*Job, error)

// ErrSkip is wrapped by the reason why a case does not apply.
var ErrSkip = kittest.ErrSkip

const (
	// longTimeout is the clients' timeout in cases that must not reach it.
	longTimeout = 50 * time.Second
	// shortTimeout is the clients' timeout in cases that must reach it. On a busy machine it
	// suffices for the present members to call.
	shortTimeout = time.Second
)

// claimList has claims of the contract, with the jobs that they need.
type claimList = []kittest.Claim[Want, *job]

// job is the job of a running case.
type job struct {
	*kittest.T
	*Job
}

// Cases returns the claims of the contract, checked with jobs of factory.
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

// ranks returns the ranks of all processes.
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

// onAllRanks runs f for every rank concurrently.
func (j *job) onAllRanks(f func(rank int)) { j.Each(len(j.Clients), f) }

// put, get, fence and construct make calls that must succeed.
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

// fenceAll runs a fence of all processes.
func (j *job) fenceAll(tag string) { j.onAllRanks(func(r int) { j.fence(r, tag, j.ranks()...) }) }

// construct makes a construct of members, whose payloads contain name and their ranks.
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

// checkMissing fails unless err names exactly missing and failed.
func (j *job) checkMissing(what string, err error, missing, failed []framework.Proc) {
	var m *framework.MissingError
	if !errors.As(err, &m) {
		j.Fatalf("%s: got error %v, want a MissingError", what, err)
	}
	if !sameProcs(m.Missing, missing) || !sameProcs(m.Failed, failed) {
		j.Fatalf("%s: missing %v, failed %v; want %v and %v", what, m.Missing, m.Failed, missing, failed)
	}
}

// sameProcs compares sets of processes.
func sameProcs(a, b []framework.Proc) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(p framework.Proc) bool { return !slices.Contains(b, p) })
}
