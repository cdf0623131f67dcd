package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// runConform runs the conformance cases of a column in all ranks of a communicator, or in goroutine ranks of its
// processes. It returns an error if the ranks have lost each other, after recording the case.
func runConform(ctx context.Context, session *mpi.Session, world *mpi.Comm, c plan.Column, limit time.Duration, s CaseRecorder) error {
	t := &tally{CaseRecorder: s, rankCount: max(1, c.GoroutineRanks), resultsByCase: map[string][]conform.Result{}}
	var cases []conform.Case
	for _, x := range conform.Cases() {
		cell := c.Name + "/" + x.Name
		if !slices.Contains(c.CellNames, cell) {
			continue
		}
		run := x.Run
		x.Run = func(ctx context.Context, env conform.Env) error {
			t.beginCase(cell)
			env.Die = func() { // The pool waits for an outcome of each rank.
				s.End(Event{Status: report.Pass})
				conform.Kill()
			}
			return run(ctx, env)
		}
		cases = append(cases, x)
	}
	record := func(r conform.Result) { t.addResult(c.Name+"/"+r.Case.Name, r) }
	if c.GoroutineRanks == 0 {
		return conform.Run(ctx, session, world, cases, limit, record)
	}
	err := conform.RunGoroutines(ctx, session, world, c.GoroutineRanks, cases, limit, record)
	if t.endAll(); t.hasStarted || !errors.Is(err, framework.ErrUnsupported) {
		return err
	}
	for _, cell := range c.CellNames {
		s.Begin(cell)
		s.End(Event{Status: report.Skip, Reason: err.Error()})
	}
	return nil
}

// A tally combines the results of the ranks of one process for its CaseRecorder. A rank may begin a case before
// another one has ended the last. The CaseRecorder gets one case at a time.
type tally struct {
	CaseRecorder
	rankCount int

	mu         sync.Mutex
	hasStarted bool
	// Case of the CaseRecorder, or "".
	runningCase   string
	lastBegun     string
	resultsByCase map[string][]conform.Result
}

// beginCase reports that a rank has begun a case.
func (t *tally) beginCase(cell string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.startCase(cell)
}

// startCase is beginCase with t.mu held.
func (t *tally) startCase(cell string) {
	t.hasStarted, t.lastBegun = true, cell
	if t.runningCase == "" {
		t.runningCase = cell
		t.Begin(cell)
	}
}

// addResult records a rank's result. The last one ends the case.
func (t *tally) addResult(cell string, r conform.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.startCase(cell) // Its Run may not have been called.
	t.resultsByCase[cell] = append(t.resultsByCase[cell], r)
	if len(t.resultsByCase[cell]) == t.rankCount {
		t.endCase(cell)
	}
}

// endCase ends a case. t.mu is held.
func (t *tally) endCase(cell string) {
	t.Begin(cell)
	t.End(combineResults(t.resultsByCase[cell], t.rankCount))
	delete(t.resultsByCase, cell)
	t.runningCase = ""
	if t.lastBegun != cell {
		t.startCase(t.lastBegun)
	}
}

// endAll ends the cases with missing results after the last rank has returned.
func (t *tally) endAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for cell := range t.resultsByCase {
		t.lastBegun = cell
		t.endCase(cell)
	}
}

// combineResults returns the event of a case in a process of that many ranks.
func combineResults(results []conform.Result, ranks int) Event {
	slices.SortFunc(results, func(a, b conform.Result) int { return a.Rank - b.Rank })
	var all error
	for _, r := range results {
		err := r.Err
		if err != nil && ranks > 1 {
			err = fmt.Errorf("goroutine rank %d: %w", r.Rank, err)
		}
		switch {
		case all == nil:
			all = err
		case err != nil:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	e := EventOf(all)
	if results[0].Status == conform.Skip {
		e = Event{Status: report.Skip, Reason: results[0].SkipReason}
	}
	for _, rank := range results[0].FailedRanks {
		if process := rank / ranks; !slices.Contains(e.OtherRanks, process) {
			e.OtherRanks = append(e.OtherRanks, process)
		}
	}
	return e
}
