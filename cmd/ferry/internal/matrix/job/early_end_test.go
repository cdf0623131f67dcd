package job

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
)

// A stepClient is a client that calls onStep before each of its operations.
type stepClient struct {
	bootstrap.Client
	onStep func()
}

func (s stepClient) Unwrap() any { return s.Client }

func (s stepClient) Put(ctx context.Context, key string, value []byte) error {
	s.onStep()
	return s.Client.Put(ctx, key, value)
}

func (s stepClient) Get(ctx context.Context, p framework.Proc, key string) ([]byte, error) {
	s.onStep()
	return s.Client.Get(ctx, p, key)
}

func (s stepClient) Fence(ctx context.Context, group []framework.Proc, tag string) error {
	s.onStep()
	return s.Client.Fence(ctx, group, tag)
}

func (s stepClient) Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (bootstrap.Constructed, error) {
	s.onStep()
	return s.Client.Construct(ctx, group, tag, payload)
}

// A beginObserver is an observer that calls itself when a case begins.
type beginObserver func()

func (f beginObserver) Begin([]report.Stack, map[string]int) {}
func (f beginObserver) Running(string, string)               { f() }
func (f beginObserver) Done(report.Row)                      {}

// launchJobs returns the ranks of a job, and their launcher.
func launchJobs(t *testing.T, size int) (jobs []*Job, s *server.Server) {
	t.Helper()
	s, err := server.New(server.Options{Size: size})
	if err == nil {
		err = s.Listen("")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for n := range size {
		j := &Job{Request: &plan.Request{Suite: plan.Quick(), CasePattern: regexp.MustCompile("^conform/3/message/modes"), CaseLimit: time.Minute}}
		if j.client, err = local.Dial(t.Context(), s.Environ(n), bootstrap.Env{Timeout: j.exchangeTimeout()}); err != nil {
			t.Fatal(err)
		}
		j.setIdentity()
		jobs = append(jobs, j)
	}
	return jobs, s
}

var testStacks = []report.Stack{{Name: "ob1+shm", PML: "ob1", ViaComponent: "btl shm", SetParams: []string{"pml=ob1", "btl=shm,self"}}}

// runInterrupted runs a job of three ranks, in which one rank is interrupted before its step of that number. ended
// reports that the rank had fewer steps.
func runInterrupted(t *testing.T, rank, step int) (r *report.Report, ended bool) {
	t.Helper()
	jobs, s := launchJobs(t, 3)
	var ranks sync.WaitGroup
	var steps atomic.Int32
	for n, j := range jobs {
		ctx, interrupt := context.WithCancelCause(t.Context())
		defer interrupt(nil)
		hear := func() {
			if n == rank && int(steps.Add(1)) == step {
				interrupt(errors.New("interrupt signal received"))
			}
		}
		j.client = stepClient{j.client, hear}
		ranks.Go(func() {
			var p *plan.Plan
			if n == 0 {
				p = j.PlanFor(testStacks)
			}
			found, err := j.Run(ctx, p, beginObserver(hear))
			if n == 0 {
				r = found
			}
			how := "" // A rank after its last case exits with success.
			switch {
			case j.WasInterrupted():
				how = "exit status 130"
			case err != nil:
				t.Errorf("rank %d, step %d: rank %d: %v", rank, step, n, err)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
			s.ProcExited(n, how)
		})
	}
	ranks.Wait()
	return r, int(steps.Load()) < step
}

// The other ranks see failing operations or the exit of the rank before their own signal, or without one.
func TestRun_OneRankIsInterrupted_NoCaseFails(t *testing.T) {
	t.Setenv("FERRY_BTL_SHM_DIR", t.TempDir())
	for rank := range 3 {
		for step := 1; ; step++ {
			r, ended := runInterrupted(t, rank, step)
			for _, row := range r.Rows {
				if row.Status.Bad() || row.Status == report.Skip && !strings.HasPrefix(row.Reason, "not run: interrupt") {
					t.Errorf("rank %d, step %d: %s: %s: %s", rank, step, row.Case, row.Status, row.Reason)
				}
			}
			if ended {
				if r.EndReason != "" || len(r.Rows) < 2 || step < 5 {
					t.Errorf("rank %d has no more than %d steps: %+v", rank, step, r)
				}
				break
			}
			if r.EndReason != "" && !strings.HasPrefix(r.EndReason, "interrupt") {
				t.Errorf("rank %d, step %d: partial %q", rank, step, r.EndReason)
			}
		}
	}
}

// A rank that leaves closes its session before it exits, and the other ranks see that first.
func TestSupervise_AnotherRankLeaves_ReasonIsItsEnd(t *testing.T) {
	const seen = "the peer has closed its session"
	for name, c := range map[string]struct {
		// Action of the other rank.
		leave func(interrupt func(), its *Job)
		want  string
	}{
		"it stays":          {func(func(), *Job) {}, seen},
		"it is interrupted": {func(interrupt func(), _ *Job) { interrupt() }, ""},
		"it sees a failure": {func(_ func(), its *Job) {
			its.client.(*watchedClient).notify(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: its.group[2], Reason: "signal: killed"})
		}, "rank 2 has ended (signal: killed): " + seen},
		"it sees an interrupt of another rank": {func(_ func(), its *Job) {
			its.client.(*watchedClient).notify(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: its.group[2], Reason: "exit status 130"})
		}, ""},
	} {
		jobs, _ := launchJobs(t, 3)
		first, other := jobs[0], jobs[1]
		first.plan = first.PlanFor(testStacks)
		first.record = first.plan.Begin(nil)
		alive, stop := first.watchForEnd(t.Context())
		defer stop()
		ctx, interrupt := context.WithCancel(t.Context())
		its, stop := other.watchForEnd(ctx)
		defer stop()
		v := first.supervise(alive, testStacks[0], func(*stackRun) error {
			if c.leave(interrupt, other); c.want != seen {
				<-its.Done() // It closes its session now.
			}
			return errors.New(seen)
		})
		if got := v.failureReason(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if why := context.Cause(alive); isInterrupt(why) != (c.want == "") || isReported(why) != strings.Contains(c.want, "ended") {
			t.Errorf("%s: the run ends with %v", name, why)
		}
		for _, j := range jobs {
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}
		interrupt()
	}
}

func TestRankEndError_StatusOfInterrupt_IsNoLoss(t *testing.T) {
	for reason, want := range map[string]bool{
		"exit status 129": true, "exit status 130": true, "exit status 131": true, "exit status 143": true,
		"signal: interrupt": true, "signal: terminated": true, "signal: hangup": true,
		"exit status 1": false, "signal: killed": false, "connection lost": false,
	} {
		err := jobOf("a").rankEndError(2, reason)
		if isInterrupt(err) != want || isReported(err) == want || !strings.Contains(err.Error(), fmt.Sprintf("rank 2 (b) has ended (%s)", reason)) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
