// Package worker runs the cases of `ferry matrix`, in processes of their own. It is
// both ends of that: the process that runs cases and reports each as a line on a
// pipe (Work), and the one that starts it, hears it, survives its end and makes rows
// of it (Pool).
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

// A task is what a worker is told to do: an argument of its command line. Which
// stack it is about stands in the parameters of its environment.
type task struct {
	plan.Column
	Via string // as in report.Stack
	// Limit is when a conformance case gives up by itself. The Pool, which knows when
	// time stood still, ends it sooner.
	Limit time.Duration
}

// An Event is what one rank says of one case.
type Event struct {
	Rank int    `json:"rank,omitempty"`
	Case string `json:"case"` // its cell
	// Status is empty when the case begins, or goes on.
	Status  report.Status  `json:"status,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Seconds float64        `json:"seconds,omitempty"`
	Points  []report.Point `json:"points,omitempty"` // more figures of a benchmark
	Device  string         `json:"device,omitempty"` // of report.OpenCase
	Mode    string         `json:"mode,omitempty"`
	Others  []int          `json:"others,omitempty"` // ranks in which the case failed, as far as this one knows
	Answer  *plan.Answer   `json:"answer,omitempty"` // of a survey
}

// Ended is the event of a case that ended with err.
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

// eventLimit is the longest line, in bytes: what a pipe takes in one piece
// (PIPE_BUF), so that the lines of ranks never mix.
const eventLimit = 4096

// A worker runs cases inside one process, and reports each on a pipe. It is a Scribe.
type worker struct {
	registry       *framework.Registry
	values         *framework.Values
	sessionOptions []mpi.SessionOption
	task           task
	rank           int
	reports        io.Writer
	stderr         io.Writer // where what is too long for a report goes
	beganAt        time.Time
	runningCase    string // the case that has begun
	endedCount     int    // how many have ended
}

// Work does what text, the task of a Pool, says, with the components of reg and the
// given parameters, and reports to out. Sessions are opened with opts. It ends when
// ctx does. An error says that the worker as a whole has failed; the case during
// which it did was reported.
func Work(ctx context.Context, reg *framework.Registry, values *framework.Values, text string, out, errs io.Writer, opts ...mpi.SessionOption) error {
	w := &worker{registry: reg, values: values, sessionOptions: opts, reports: out, stderr: errs}
	if err := json.Unmarshal([]byte(text), &w.task); err != nil {
		return fmt.Errorf("task of a worker: %w", err)
	}
	// The launcher has said it: what opens no session has to name itself, too.
	w.rank, _ = strconv.Atoi(os.Getenv(framework.EnvName("bootstrap.local.rank")))
	err := w.runTask(ctx)
	if err == nil || w.isAdded() || w.endedCount == len(w.task.Cells) {
		return err
	}
	if w.runningCase == "" && w.endedCount == 0 {
		w.Begin(w.task.Cells[0])
	}
	if w.runningCase != "" {
		e := EventOf(err)
		// Before a stack is open, what is not supported is not there.
		if slices.Contains([]string{report.OpenCase, plan.Providers, plan.Survey}, w.task.Name) && errors.Is(err, framework.ErrUnsupported) {
			e.Status = report.Unavailable
		}
		w.End(e)
	}
	return err
}

// isAdded reports whether a conformance case has added this process to the job. Its events are not written.
func (w *worker) isAdded() bool { return w.task.Room > 0 && w.rank >= w.task.Ranks }

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

// Begin implements Scribe.
func (w *worker) Begin(cell string) {
	if w.runningCase != cell {
		w.runningCase, w.beganAt = cell, time.Now()
		w.writeEvent(Event{Case: cell})
	}
}

// End implements Scribe.
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
		_, err = w.reports.Write(append(line, '\n'))
	}
	if err != nil {
		// Nobody listens: the run is over.
		fmt.Fprintf(w.stderr, "report of %s: %v\n", e.Case, err)
	}
}

// survey asks an MTL what it could use, or a provider what it offers, or a BTL whom it reaches.
func (w *worker) runSurvey(ctx context.Context) error {
	c, err := w.findTransport()
	if err != nil {
		return err
	}
	params := c.Params()
	if err := w.decodeParams(c.Info(), params); err != nil {
		return err
	}
	about := w.task.Cells[0]
	w.Begin(about)
	e := Event{Status: report.Pass, Answer: &plan.Answer{}}
	asks, ok := framework.As[mtl.Surveyor](c)
	switch {
	case w.task.Name == plan.Reaches:
		if c, ok := c.(btl.Component); ok {
			e.Answer.Alone, err = btltest.Alone(ctx, btltest.Subject{Component: c, Params: w.paramsFunc(c.Info())})
		}
	case w.task.Name == plan.Providers:
		if v := c.Probe(ctx, params); v.Status != framework.StatusUsable {
			e = Event{Status: report.Unavailable, Reason: v.Why()}
		} else if ok {
			e.Answer.Providers, err = asks.Providers(ctx, params)
		}
	case ok:
		var offers []mtl.Candidate
		offers, err = asks.Survey(ctx, params)
		if i := slices.IndexFunc(offers, func(c mtl.Candidate) bool { return strings.EqualFold(c.Provider, about) }); i >= 0 {
			e.Answer.Offer = &offers[i]
		}
	}
	if err == nil {
		w.End(e)
	}
	return err
}
