// Package worker runs the cases of `ferry matrix` in processes of their own. Work runs cases in such a process and
// reports each as a line on a pipe. Pool starts the processes, reads their reports and records the rows.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/plan"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mtl"
)

// A task is an argument of a worker's command line. The parameters of the stack are in its environment.
type task struct {
	plan.Column
	// As in report.Stack.
	ViaComponent string
	// CaseLimit is the limit of a conformance case in the worker. The Pool, which does not count the time of a stopped
	// process, has a shorter one.
	CaseLimit time.Duration
}

// An Event is the report of one rank about one case.
type Event struct {
	Rank int    `json:"rank,omitempty"`
	Case string `json:"case"` // Cell.
	// Status is empty when the case begins or makes progress.
	Status  report.Status `json:"status,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Seconds float64       `json:"seconds,omitempty"`
	// Further figures of a benchmark.
	Points []report.Point `json:"points,omitempty"`
	// Set by report.OpenCase.
	Device    string `json:"device,omitempty"`
	TagLayout string `json:"mode,omitempty"`
	// In these the case is known to have failed, too.
	OtherRanks []int `json:"others,omitempty"`
	// Result of a survey.
	Survey *plan.SurveyResult `json:"answer,omitempty"`
}

// EventOf returns the event of a case that ended with err.
func EventOf(err error) Event {
	switch {
	case err == nil:
		return Event{Status: report.Pass}
	case errors.Is(err, kittest.ErrSkip):
		return Event{Status: report.Skip, Reason: err.Error()}
	case errors.Is(err, conform.ErrHung):
		return Event{Status: report.Timeout, Reason: err.Error()}
	}
	return Event{Status: report.Fail, Reason: err.Error()}
}

// eventLimit is the maximum length of a line, PIPE_BUF. The lines of several ranks do not mix.
const eventLimit = 4096

// A worker runs cases in one process and reports each on a pipe. It is a CaseRecorder.
type worker struct {
	registry       *framework.Registry
	values         *framework.Values
	sessionOptions []mpi.SessionOption
	task           task
	rank           int
	reportPipe     io.Writer
	// Receives reasons above the eventLimit.
	stderr      io.Writer
	beganAt     time.Time
	runningCase string
	endedCount  int
}

// Work executes the task in text with the components of reg and the given parameters, and reports to out. Sessions
// are opened with opts. It returns early if ctx is canceled. An error is a failure of the worker, recorded in its
// running case.
func Work(ctx context.Context, reg *framework.Registry, values *framework.Values, text string, out, errs io.Writer, opts ...mpi.SessionOption) error {
	w := &worker{registry: reg, values: values, sessionOptions: opts, reportPipe: out, stderr: errs}
	if err := json.Unmarshal([]byte(text), &w.task); err != nil {
		return fmt.Errorf("task of a worker: %w", err)
	}
	// Events of tasks without a session have the rank, too.
	w.rank, _ = strconv.Atoi(os.Getenv(framework.EnvName("bootstrap.local.rank")))
	err := w.runTask(ctx)
	if err == nil || w.isAdded() || w.endedCount == len(w.task.CellNames) {
		return err
	}
	if w.runningCase == "" && w.endedCount == 0 {
		w.Begin(w.task.CellNames[0])
	}
	if w.runningCase != "" {
		e := EventOf(err)
		// An unsupported stack cannot be opened.
		if slices.Contains([]string{report.OpenCase, plan.Providers, plan.Survey}, w.task.Name) && errors.Is(err, framework.ErrUnsupported) {
			e.Status = report.Unavailable
		}
		w.End(e)
	}
	return err
}

// isAdded reports whether a conformance case has added this process to the job. Its events are dropped.
func (w *worker) isAdded() bool { return w.task.AddableProcesses > 0 && w.rank >= w.task.ProcessCount }

func (w *worker) runTask(ctx context.Context) error {
	switch family, policy, _ := strings.Cut(w.task.Name, "/"); family {
	case "btltest", "mtltest", "pmltest":
		return w.runKit(ctx, family, policy)
	case plan.Providers, plan.Survey, plan.Reaches:
		return w.runSurvey(ctx)
	case report.OpenCase, "conform", "bench":
		return w.runRank(ctx)
	}
	return fmt.Errorf("%w: no column %q", framework.ErrConfig, w.task.Name)
}

// Begin implements CaseRecorder.
func (w *worker) Begin(cell string) {
	if w.runningCase != cell {
		w.runningCase, w.beganAt = cell, time.Now()
		w.writeEvent(Event{Case: cell})
	}
}

// Progress implements CaseRecorder.
func (w *worker) Progress(points ...report.Point) {
	w.writeEvent(Event{Case: w.runningCase, Points: points})
}

// End implements CaseRecorder.
func (w *worker) End(e Event) {
	e.Case, e.Seconds = w.runningCase, time.Since(w.beganAt).Seconds()
	w.runningCase = ""
	w.endedCount++
	w.writeEvent(e)
}

func (w *worker) writeEvent(e Event) {
	e.Rank = w.rank
	whole := e.Reason
	line, err := json.Marshal(e)
	for err == nil && len(line) >= eventLimit && e.Reason != "" {
		e.Reason = strings.ToValidUTF8(e.Reason[:len(e.Reason)*3/4], "")
		line, err = json.Marshal(e)
	}
	if e.Reason != whole {
		fmt.Fprintln(w.stderr, whole)
	}
	if err == nil {
		_, err = w.reportPipe.Write(append(line, '\n'))
	}
	if err != nil {
		// The reader has closed the pipe after the end of the run.
		fmt.Fprintf(w.stderr, "report of %s: %v\n", e.Case, err)
	}
}

// runSurvey surveys the providers of an MTL, the candidates of a provider or the reach of a BTL.
func (w *worker) runSurvey(ctx context.Context) error {
	c, err := w.findTransport()
	if err != nil {
		return err
	}
	params := c.Params()
	if err := w.decodeParams(c.Info(), params); err != nil {
		return err
	}
	about := w.task.CellNames[0]
	w.Begin(about)
	e := Event{Status: report.Pass, Survey: &plan.SurveyResult{}}
	asks, ok := framework.As[mtl.Surveyor](c)
	switch {
	case w.task.Name == plan.Reaches:
		if c, ok := c.(btl.Component); ok {
			e.Survey.ReachesOnlySelf, err = btltest.IsSelfOnly(ctx, btltest.Subject{Component: c, Params: w.paramsFunc(c.Info())})
		}
	case w.task.Name == plan.Providers:
		if v := c.Probe(ctx, params); v.Status != framework.StatusUsable {
			e = Event{Status: report.Unavailable, Reason: v.Why()}
		} else if ok {
			e.Survey.Providers, err = asks.Providers(ctx, params)
		}
	case ok:
		var offers []mtl.Candidate
		offers, err = asks.Survey(ctx, params)
		if i := slices.IndexFunc(offers, func(c mtl.Candidate) bool { return strings.EqualFold(c.Provider, about) }); i >= 0 {
			e.Survey.BestCandidate = &offers[i]
		}
	}
	if err == nil {
		w.End(e)
	}
	return err
}
