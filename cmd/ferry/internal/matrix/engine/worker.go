package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mtl"
)

// A task is what a worker is told to do: an argument of its command line. Which
// stack it is about stands in the parameters of its environment.
type task struct {
	Column string   `json:"column"`
	Via    string   `json:"via,omitempty"` // as in Stack
	Cases  []string `json:"cases"`
	// Limit is when a conformance case gives up by itself. The Runner, which knows when
	// time stood still, ends it sooner.
	Limit time.Duration `json:"limit,omitempty"`
}

// Tasks of a survey; the others are the names of columns.
const (
	taskProviders = "providers" // what could Via use?
	taskSurvey    = "survey"    // what does the one provider offer that the parameters include?
)

// An event is a line that a worker writes.
type event struct {
	Rank int    `json:"rank"`
	Case string `json:"case"`
	// Status is empty when the case begins.
	Status  report.Status `json:"status,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	Seconds float64       `json:"seconds,omitempty"`

	Device    string         `json:"device,omitempty"` // of open
	Mode      string         `json:"mode,omitempty"`
	Providers []string       `json:"providers,omitempty"` // of taskProviders
	Offer     *mtl.Candidate `json:"offer,omitempty"`     // of taskSurvey: the best
}

// eventLimit is the longest line, in bytes: what a pipe takes in one piece
// (PIPE_BUF), so that the lines of ranks never mix.
const eventLimit = 4096

// A worker runs cases inside one process, and reports each on a pipe.
type worker struct {
	reg    *framework.Registry
	values *framework.Values
	opts   []mpi.SessionOption
	task   task
	rank   int
	out    io.Writer
	errs   io.Writer // where what is too long for a report goes
	began  time.Time
	// running is the case that has begun, failure its error so far, and done the
	// number of those that ended.
	running string
	failure error
	done    int
}

// Work does what text, the task of a Runner, says, with the components of reg and
// the given parameters, and reports to out. Sessions are opened with opts. It ends
// when ctx does. An error says that the worker as a whole has failed; the case during
// which it did was reported.
func Work(ctx context.Context, reg *framework.Registry, values *framework.Values, text string, out, errs io.Writer, opts ...mpi.SessionOption) error {
	w := &worker{reg: reg, values: values, opts: opts, out: out, errs: errs}
	if err := json.Unmarshal([]byte(text), &w.task); err != nil {
		return fmt.Errorf("task of a worker: %w", err)
	}
	err := w.work(ctx)
	if err != nil && w.done < len(w.task.Cases) {
		if w.running == "" && w.done == 0 {
			w.begin(w.task.Cases[0])
		}
		if w.running != "" {
			w.end(event{Status: w.failed(err), Reason: errors.Join(w.failure, err).Error()})
		}
	}
	return err
}

func (w *worker) work(ctx context.Context) error {
	family, rest, _ := strings.Cut(w.task.Column, "/")
	switch family {
	case "btltest", "mtltest", "pmltest":
		cases, err := w.kit(ctx, family, rest)
		if err != nil {
			return err
		}
		return w.kitCases(ctx, cases)
	case "conform":
		return w.conform(ctx)
	case report.OpenCase:
		return w.open(ctx)
	case taskProviders, taskSurvey:
		return w.survey(ctx)
	}
	return fmt.Errorf("%w: no column %q", framework.ErrConfig, w.task.Column)
}

// failed is what an error of the whole worker makes of its case. Before a stack is
// open, what is not supported is not there.
func (w *worker) failed(err error) report.Status {
	asks := w.task.Column == report.OpenCase || w.task.Column == taskProviders || w.task.Column == taskSurvey
	if asks && errors.Is(err, framework.ErrUnsupported) {
		return report.Unavailable
	}
	return report.Fail
}

func (w *worker) begin(name string) {
	w.running, w.began = name, time.Now()
	w.write(event{Case: name})
}

// end reports what became of the case that runs.
func (w *worker) end(e event) {
	e.Case, e.Seconds = w.running, time.Since(w.began).Seconds()
	w.running, w.failure = "", nil
	w.done++
	w.write(e)
}

// ended is the event of a case that ended with err.
func ended(err error) event {
	switch {
	case err == nil:
		return event{Status: report.Pass}
	case errors.Is(err, kittest.ErrSkip):
		return event{Status: report.Skip, Reason: err.Error()}
	case errors.Is(err, conform.ErrHung):
		return event{Status: report.Timeout, Reason: err.Error()}
	}
	return event{Status: report.Fail, Reason: err.Error()}
}

func (w *worker) write(e event) {
	e.Rank = w.rank
	line, err := json.Marshal(e)
	if err == nil && len(line) >= eventLimit && e.Reason != "" {
		fmt.Fprintln(w.errs, e.Reason)
		for err == nil && len(line) >= eventLimit && e.Reason != "" {
			e.Reason = strings.ToValidUTF8(e.Reason[:len(e.Reason)*3/4], "")
			line, err = json.Marshal(e)
		}
	}
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if err != nil {
		// Nobody listens: the run is over.
		fmt.Fprintf(w.errs, "report of %s: %v\n", e.Case, err)
	}
}

// conform runs the task's cases of the conformance suite, as a rank.
func (w *worker) conform(ctx context.Context) error {
	var cases []conform.Case
	for _, c := range conform.Cases() {
		if !slices.Contains(w.task.Cases, c.Name) {
			continue
		}
		run := c.Run
		c.Run = func(ctx context.Context, env conform.Env) error {
			w.rank = env.Comm.Rank()
			w.begin(c.Name)
			w.failure = run(ctx, env)
			return w.failure
		}
		cases = append(cases, c)
	}
	return conform.Run(ctx, cases, w.task.Limit, func(r conform.Result) {
		w.rank = r.Rank
		if w.running == "" { // it did not come to its Run
			w.begin(r.Case.Name)
		}
		if r.Status == conform.Skip {
			w.end(event{Status: report.Skip, Reason: fmt.Sprintf("it needs %d ranks", r.Case.Ranks)})
			return
		}
		// A rank that succeeded while others failed passed, as far as it can tell.
		w.end(ended(r.Err))
	}, w.opts...)
}

// open opens a session and a communicator, and has every rank exchange a message
// with the next one.
func (w *worker) open(ctx context.Context) (err error) {
	session, err := mpi.OpenSession(ctx, w.opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	all, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	w.rank = all.Rank()
	w.begin(w.task.Cases[0])
	comm, err := mpi.CommFromGroup(ctx, all, "ferry.matrix")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	e := event{Status: report.Pass}
	if e.Device, e.Mode, err = greet(ctx, session, comm); err != nil {
		return err
	}
	w.end(e)
	return nil
}

// greet has every rank exchange a message with the next one, and says what carries it.
func greet(ctx context.Context, session *mpi.Session, comm *mpi.Comm) (device, mode string, err error) {
	n := comm.Size()
	next := (comm.Rank() + 1) % n
	if _, err := comm.Sendrecv(ctx, []byte{1}, next, 0, make([]byte, 1), (comm.Rank()+n-1)%n, 0); err != nil {
		return "", "", err
	}
	about, err := session.Explain(ctx)
	if err != nil {
		return "", "", err
	}
	for _, p := range about.Pairs {
		if p.To != next {
			continue
		}
		device = p.Device
		for _, note := range p.Notes {
			if text, ok := strings.CutPrefix(note, "tags: "); ok {
				mode = text
			}
		}
	}
	return device, mode, mpi.Barrier(ctx, comm)
}

// survey asks an MTL what it could use; for taskSurvey the case is the provider.
func (w *worker) survey(ctx context.Context) error {
	c, err := w.component()
	if err != nil {
		return err
	}
	params := c.Params()
	if err := w.params(c.Info(), params); err != nil {
		return err
	}
	w.begin(w.task.Cases[0])
	e := event{Status: report.Pass}
	asks, ok := framework.As[mtl.Surveyor](c)
	switch {
	case w.task.Column == taskProviders:
		if v := c.Probe(ctx, params); v.Status != framework.StatusUsable {
			e = event{Status: report.Unavailable, Reason: because(v)}
		} else if ok {
			e.Providers, err = asks.Providers(ctx, params)
		}
	case ok:
		var offers []mtl.Candidate
		offers, err = asks.Survey(ctx, params)
		if i := slices.IndexFunc(offers, func(c mtl.Candidate) bool { return strings.EqualFold(c.Provider, w.task.Cases[0]) }); i >= 0 {
			e.Offer = &offers[i]
		}
	}
	if err != nil {
		return err
	}
	w.end(e)
	return nil
}
