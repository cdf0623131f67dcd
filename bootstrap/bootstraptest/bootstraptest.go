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
	"sync"
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
}

// Job is a running job whose processes are all clients of this one.
type Job struct {
	Clients []bootstrap.Client // by rank
	// Kill ends a process as a crash would: without Close. When it returns, the
	// client is of no use. nil: the kit can't do that with this implementation.
	Kill func(rank int) error
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
	short = 300 * time.Millisecond
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
	all := slices.Concat(storeCases(), groupCases(), faultCases(), directoryCases())
	return kittest.Bind(all, func(t *kittest.T, want Want) *job {
		j, err := factory(t.Context(), want)
		t.Check(err)
		t.Cleanup(j.Close)
		return &job{t, j}
	})
}

// world returns the group of all processes.
func (j *job) world() []framework.Proc {
	g := make([]framework.Proc, len(j.Clients))
	for i, c := range j.Clients {
		g[i] = c.Identity().Proc
	}
	return g
}

// group returns the processes of ranks.
func (j *job) group(ranks ...int) []framework.Proc {
	g := make([]framework.Proc, len(ranks))
	for i, r := range ranks {
		g[i] = j.Clients[r].Identity().Proc
	}
	return g
}

// each runs f for each of ranks at the same time, and joins the errors.
func each(ranks []int, f func(rank int) error) error {
	errs := make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, r := range ranks {
		wg.Go(func() {
			if err := f(r); err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", r, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// all returns 0 to n-1.
func all(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = i
	}
	return r
}

// wantIs fails unless err is target.
func wantIs(what string, err, target error) error {
	if !errors.Is(err, target) {
		return fmt.Errorf("%s: got error %v, want %v", what, err, target)
	}
	return nil
}

// wantMissing fails unless err names exactly missing and failed.
func wantMissing(what string, err error, missing, failed []framework.Proc) error {
	var m *framework.MissingError
	if !errors.As(err, &m) {
		return fmt.Errorf("%s: got error %v, want a MissingError", what, err)
	}
	if !sameProcs(m.Missing, missing) || !sameProcs(m.Failed, failed) {
		return fmt.Errorf("%s: missing %v, failed %v; want %v and %v", what, m.Missing, m.Failed, missing, failed)
	}
	return nil
}

// sameProcs compares as sets.
func sameProcs(a, b []framework.Proc) bool {
	if len(a) != len(b) {
		return false
	}
	in := map[framework.Proc]bool{}
	for _, p := range a {
		in[p] = true
	}
	for _, p := range b {
		if !in[p] {
			return false
		}
	}
	return len(in) == len(b)
}
